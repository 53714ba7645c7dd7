"""Prompts from tagged tracks: drawing by SQL beside plain loops, and whole builds of 100 and of 100,000 prompts.

    .venv/bin/python -m tests.benchmarks.bench_prompts [--tracks 55000] [--prompts 100000]

Prints seconds and peak memory; every case runs in a process of its own. The writer is the builtin one, so a build's
time is the pipeline's own: the ledger, the checks, the tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TAXONOMY = (("genre", 87), ("instrument", 40), ("mood/theme", 56))  # as many as MTG-Jamendo's clean tags have


def make_tracks(folder: Path, count: int) -> None:
    """Write a list of tracks, most with two or three tags of a category; near tags stand together, far ones never."""
    from tests.music_prompts.prompt_builds import write_captions, write_tracks

    dice = random.Random(17)
    tracks = []
    for _ in range(count):
        place, tags = dice.random(), []
        for category, size in TAXONOMY:
            near = {int((place + dice.uniform(-0.2, 0.2)) * size) % size for _ in range(dice.choice((1, 2, 3)))}
            tags += [f"{category}---{category[0]}tag{number:03d}" for number in sorted(near)]
        tracks.append(tags)
    write_tracks(folder / "tracks.tsv", tracks)
    write_captions(folder / "captions.json", {f"{n}.mp3": f"A tune, number {n}." for n in range(min(count, 5000))})


def config_for(folder: Path, prompts: int) -> Any:
    """A build of so many prompts, shared out as the paper's hundred."""
    from tests.music_prompts.prompt_builds import config_of

    counts = {"strict_id": prompts * 2 // 5, "improvised_id": prompts * 2 // 5, "strict_ood": prompts // 5}
    sets = [{"name": "made", "file": "captions.json"}]
    return config_of(folder, prompts=counts, captions=sets)


def drawn_by_sql(folder: Path, prompts: int) -> dict[str, float]:
    """Count pairs, make all triplets with their strata, and draw; the lists are imported before."""
    from earmark.tasks.music_prompts.drawing import draw_triplets
    from earmark.tasks.music_prompts.sources import import_lists
    from earmark.tasks.music_prompts.tags import choose_tags
    from earmark.tasks.store.staging import Stage
    from earmark.tasks.store.versions import Store

    config = config_for(folder, prompts)
    with tempfile.TemporaryDirectory() as work:
        stage = Stage(Store(Path(work) / "store"), "music-prompts", "bench", Path(work) / "stage")
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir(parents=True)
        lists = import_lists(stage, config)
        started = time.perf_counter()
        choose_tags(stage, config, lists)
        draw_triplets(stage, config, lists)
        return {"seconds": time.perf_counter() - started}


def drawn_by_loops(folder: Path, prompts: int) -> dict[str, float]:
    """The same strata by plain Python: a counter of pairs, then three loops; drawn at random, without examples."""
    from earmark.schemas.tracks import Track
    from earmark.tasks.importers.tracks import read_tracks

    tracks = [t for t in read_tracks(folder / "tracks.tsv", "tracks.tsv") if isinstance(t, Track)]
    started = time.perf_counter()
    together: Counter[tuple[Any, Any]] = Counter()
    for track in tracks:
        together.update(itertools.combinations(sorted(track.tags), 2))
    tags = {
        category: sorted({t for track in tracks for t in track.tags if t.category == category})
        for category, _ in TAXONOMY
    }
    met, unmet = [], []
    for triplet in itertools.product(*tags.values()):
        pairs = itertools.combinations(triplet, 2)
        (met if all(together[pair] for pair in pairs) else unmet).append(triplet)
    dice = random.Random(17)
    dice.shuffle(met)
    dice.shuffle(unmet)
    assert len(met) >= prompts * 4 // 5
    return {"seconds": time.perf_counter() - started}


def built(folder: Path, prompts: int) -> dict[str, float]:
    """A whole build without Prefect, from lists to a committed version."""
    from tests.music_prompts.prompt_builds import build_prompts

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as store:
        version = build_prompts(config_for(folder, prompts), Path(store))
        assert sum(version.manifest.rows["prompts"].values()) == prompts
    return {"seconds": time.perf_counter() - started}


CASES = {"sql": drawn_by_sql, "loops": drawn_by_loops, "build": built}


def measured(case: str, folder: Path, prompts: int) -> dict[str, float]:
    """Run a case in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_prompts", "--case", case, "--folder", str(folder)]
    found = subprocess.run([*command, "--prompts", str(prompts)], check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracks", type=int, default=55_000)
    parser.add_argument("--prompts", type=int, default=100_000)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.case:
        result = CASES[given.case](given.folder, given.prompts)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**result, "peak_mb": peak}))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_tracks(Path(folder), given.tracks)
        print(f"{given.tracks:,} tracks; {' × '.join(str(size) for _, size in TAXONOMY)} tags")
        for case, prompts in (
            ("loops", given.prompts),
            ("sql", given.prompts),
            ("build", 100),
            ("build", given.prompts),
        ):
            found = measured(case, Path(folder), prompts)
            print(f"{case:6} {prompts:>8,} prompts {found['seconds']:8.1f} s {found['peak_mb']:8.0f} MB")


if __name__ == "__main__":
    main()
