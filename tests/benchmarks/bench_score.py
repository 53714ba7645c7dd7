"""`earmark eval score` of 100 prompts and 8 systems: asked once, then again from the ledger and the kept embeddings.

    .venv/bin/python -m tests.benchmarks.bench_score

Clips are ten seconds of noise at 16 kHz, embeddings random in 512 dimensions and kept as a CLAP model's would be, the
judge a server on this machine. What is timed: the first scoring (2,400 requests), the second, and the board. Then how
far FAD and FAD∞ of 100 clips lie from the distance of 20,000, over spectra that fall as 1/rank^1.2.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from earmark.schemas.evaluations import Examinee
from earmark.schemas.music_prompts import CORPUS
from earmark.tasks.evaluation.frechet import Gaussian, fad, frechet
from earmark.tasks.evaluation.leaderboard import rank_submissions
from earmark.tasks.evaluation.submission import ScoreOptions, score
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import LocalServer
from tests.evaluation.test_score import prompts_of, remember
from tests.music_prompts.prompt_builds import GENRES, build_prompts, config_of, made_tracks, write_tracks
from tests.servers.faults import Faults

SYSTEMS, REFERENCE, DIMENSIONS, RATE, SECONDS = 8, 2000, 512, 16_000, 10
MORE = ("blues", "classical", "pop", "soul", "funk", "house", "reggae", "country")


def systems(folder: Path) -> None:
    """Build prompts, make clips, score every system twice, and rank them."""
    write_tracks(folder / "tracks.tsv", made_tracks(1500, (*GENRES, *MORE)))
    store = Store(folder / "store")
    counts = {"strict_id": 50, "improvised_id": 40, "strict_ood": 10}
    version = build_prompts(config_of(folder, prompts=counts), store.root)
    rows = prompts_of(version)
    texts = {row["prompt_id"]: row["text"] for row in rows}
    reference = write_clips(folder / "reference", [str(at) for at in range(REFERENCE)], 99, seconds=1)
    remember(store, folder / "clap", reference, {}, 99, DIMENSIONS)
    for system in range(SYSTEMS):
        clips = write_clips(folder / f"system-{system}", [*texts], system)
        remember(store, folder / "clap", clips, texts, system, DIMENSIONS)
    with LocalServer(Faults()) as server:
        judge = Examinee(annotator="openai:judge", base_url=server.base_url, max_concurrency=32)
        for name in ("first", "again"):
            started, processor = time.perf_counter(), time.process_time()
            for system in range(SYSTEMS):
                wish = ScoreOptions(
                    folder / f"system-{system}", clap=str(folder / "clap"), reference=str(folder / "reference")
                )
                score(version, CORPUS, store, judge, wish, None)
            seconds, busy = time.perf_counter() - started, time.process_time() - processor
            asked = sum(server.faults.asked.values())
            print(
                f"{name}: {SYSTEMS} systems, {len(rows)} prompts, {asked} requests so far: {seconds:.1f} s, {busy:.1f}"
            )
    started, processor = time.perf_counter(), time.process_time()
    rank_submissions(version, store, ["all"], 5, None)
    print(f"board: {time.perf_counter() - started:.1f} s, {time.process_time() - processor:.1f} of the processor")


def write_clips(folder: Path, names: list[str], seed: int, seconds: int = SECONDS) -> dict[str, Path]:
    folder.mkdir()
    for place, name in enumerate(names):
        noise = np.random.default_rng((seed, place)).standard_normal(RATE * seconds).astype(np.float32)
        soundfile.write(folder / f"{name}.wav", 0.1 * noise, RATE)
    return {name: folder / f"{name}.wav" for name in names}


def bias(clips: int = 100, draws: int = 10) -> None:
    """What few clips make of a distance."""
    source, spread = np.random.default_rng(1), np.arange(1, DIMENSIONS + 1) ** -0.6
    shifts = np.zeros((2, DIMENSIONS))
    shifts[0, :5], shifts[1, 2:9] = 0.5, 0.6

    def drawn(count: int, which: int) -> np.ndarray:
        rows = source.standard_normal((count, DIMENSIONS)) * spread + shifts[which]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    reference = Gaussian(drawn(20_000, 0))
    found = [fad(reference, drawn(clips, 1)) for _ in range(draws)]
    true = frechet(reference, drawn(20_000, 1))
    value, infinity = (np.mean(held) for held in zip(*((one["value"], one["infinity"]) for one in found), strict=True))
    print(f"20,000 clips: {true:.3f}; {clips} clips, mean of {draws}: FAD {value:.3f}, FAD∞ {infinity:.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        systems(Path(temporary))
    bias()
