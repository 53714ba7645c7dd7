"""Thirty kills over four corpora and every phase of a build and a publication, each told by what it left.

    .venv/bin/python -m tests.benchmarks.bench_kills [--kills 30] [--seed 17]

Prints a table of kills. After each, another build or publication goes on, and its end is held against one that nobody
disturbed: the first difference, or one request more than was in flight, ends this with an error.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.pipeline.kills import PHASES, Kill, kill_all


def main() -> None:
    """Kill, and print what each kill hit and cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=17)
    options = parser.parse_args()
    kills: list[Kill] = []
    print("| corpus | phase | requests before | in flight | asked again |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for kill in kill_all(options.kills, options.seed, Path(folder)):
            kills.append(kill)
            print(f"| {kill.corpus} | {kill.phase} | {kill.done} | {kill.lost} | {kill.again} |", flush=True)
    counts = {phase: sum(kill.phase == phase for kill in kills) for phase in PHASES}
    hit = ", ".join(f"{phase} {count}" for phase, count in counts.items())
    print(f"\n{len(kills)} kills: {hit}; the same bytes after each")


if __name__ == "__main__":
    main()
