"""What no model limits, at the paper's size and at ten times that: index, pairs, commit, report, and what a version is
asked for afterwards.

    .venv/bin/python -m tests.benchmarks.bench_ten_times [--corpus NAME ...] [--share 1] [--times 10] [--folder DIR]

Rated clips (MOS-RMBench's 74,478 pairs) and votes (CMI-Pref's 4,027), no question asked of a model; clips are 0.2 s of
noise, each its own. Each command is a process of its own; the table has its wall time and its peak memory at both
sizes, and the growth of both. A command grows at most linearly if its time grows by no more than `--times`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import soundfile

from earmark.tasks.pipeline.registry import find_corpus
from tests.benchmarks.paper_sizes import RATE_HZ, human_preferences, mos_preferences
from tests.benchmarks.rehearse import Size, measured
from tests.builds import write_toml

SECONDS = 0.2


def write_short_clip(path: Path, seed: int) -> None:
    """A fifth of a second of noise of a seed's own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, round(RATE_HZ * SECONDS))
    soundfile.write(path, noise.astype(np.float32), RATE_HZ, subtype="PCM_16")


def rated(folder: Path, share: float) -> dict[str, Any]:
    """Rated clips, and no critiques of their pairs."""
    values = mos_preferences(folder, share, "")
    return {name: value for name, value in values.items() if name != "critiques"}


def voted(folder: Path, share: float) -> dict[str, Any]:
    """Votes on pairs of clips."""
    return human_preferences(folder, share, "")


CORPORA: Mapping[str, tuple[Callable[[Path, float], dict[str, Any]], str]] = {
    "mos-preferences": (rated, "pairs"),
    "human-preferences": (voted, "votes"),
}


def clip_of(version: Path) -> str:
    for path in sorted(version.glob("*/*.parquet")):
        for name in pq.read_schema(path).names:
            if name.endswith("sha256") and (found := pq.read_table(path, columns=[name])[name].drop_null().to_pylist()):
                return str(found[len(found) // 2])
    raise SystemExit(f"{version}: expected a table with clips, found none")


def commands(corpus: str, table: str, folder: Path, share: float) -> dict[str, tuple[Size, int]]:
    """What each command took, in the order of a version's life, and the rows of the main table."""
    inputs, store = folder / "inputs", folder / "store"
    inputs.mkdir(parents=True)
    values = {"corpus": corpus, **CORPORA[corpus][0](inputs, share)}
    write_toml(find_corpus(corpus).config, values, inputs / "build.toml")

    def run(*words: str) -> Size:
        return measured([sys.executable, "-m", "earmark", *words, "--store", str(store)], store)

    build = ("build", corpus, "-c", str(inputs / "build.toml"))
    taken = {"build": run(*build), "nothing to do": run(*build), "build --force": run(*build, "--force")}
    (first, *_) = sorted((store / corpus / "v1").glob(f"{table}/*.parquet"))
    rows = pq.ParquetFile(first).read_row_group(0)
    row = rows.slice(random.Random(17).randrange(min(100, rows.num_rows)), 1).to_pylist()[0]
    id_ = next(str(value) for name, value in row.items() if name.endswith("_id"))
    clip = clip_of(store / corpus / "v1")
    taken["verify"] = run("inspect", "verify", f"{corpus}@v1")
    taken["explain"] = run("inspect", "explain", f"{corpus}@v1", id_)
    taken["sql"] = run("inspect", "sql", f"SELECT count(*) FROM '{corpus}@v1'.{table}")
    exported = ("export", f"{corpus}@v1", "--for", "jsonl", "--table", table, "--out", str(folder / "x"))
    taken["export jsonl"] = run(*exported)
    taken["withdraw a clip"] = run("withdraw", "--clip", clip, "--reason", "a benchmark")
    versions = sorted(path.name for path in (store / corpus).glob("v*"))
    taken["diff"] = run("inspect", "diff", *(f"{corpus}@{version}" for version in (versions[0], versions[-1])))
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in (store / corpus / "v1").glob(f"{table}/*.parquet"))
    return {name: (size, rows) for name, size in taken.items()}


def main() -> None:
    """Run all commands at both sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", action="append", choices=CORPORA, help="only this; may be given more than once")
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's size")
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where inputs and stores go; default: a temporary one")
    options = parser.parse_args()
    import tests.benchmarks.paper_sizes as sizes

    sizes.write_clip = write_short_clip
    head = ("corpus", "command", "wall, s", "at ten times", "growth", "peak, MB", "at ten times", "growth")
    print(f"| {' | '.join(head)} |\n|---|---|{'--:|' * 6}")
    for corpus in options.corpus or CORPORA:
        ends = []
        for share in (options.share, options.share * options.times):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                ends.append(commands(corpus, CORPORA[corpus][1], Path(folder), share))
        for name, (small, rows) in ends[0].items():
            large, more = ends[1][name]
            cells = (
                f"{corpus} ({rows:,} and {more:,} {CORPORA[corpus][1]})", name,
                f"{small.wall_s:.1f}", f"{large.wall_s:.1f}", f"{large.wall_s / small.wall_s:.1f}",
                f"{small.peak_mb:,.0f}", f"{large.peak_mb:,.0f}", f"{large.peak_mb / small.peak_mb:.1f}",
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
