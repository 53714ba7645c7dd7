"""The detector of scores: precision and recall on drawings that it was not tuned on.

.venv/bin/python -m tests.benchmarks.bench_detector [--drawings 100] [--model staff-lines] [--base FOLDER]
    [--least 0.5]
.venv/bin/python -m tests.benchmarks.bench_detector --training FOLDER   # 215 pages for flows/command/detector.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from earmark.schemas.score_questions import Detector
from tests.benchmarks.detector import measure_detector, write_drawn_training


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawings", type=int, default=100)
    parser.add_argument("--model", default="staff-lines")
    parser.add_argument("--base", type=Path, default=Path(), help="the folder that a path in --model is relative to")
    parser.add_argument("--least", type=float, default=0.5)
    parser.add_argument("--training", type=Path, help="draw 215 pages there, as training data, and end")
    given = vars(parser.parse_args())
    if (training := given.pop("training")) is not None:
        print(write_drawn_training(training, 215))
        return
    if given["drawings"] < 1:
        parser.error(f"--drawings: expected at least 1, found {given['drawings']}")
    base, drawings = given.pop("base"), given.pop("drawings")
    detector = Detector.model_validate(given)
    start = time.perf_counter()
    measure = measure_detector(detector, base, drawings)
    took_s = time.perf_counter() - start
    print(f"{measure.model} from {measure.least!r} on, {measure.drawings:,} drawings of each kind\n")
    print("| drawn scores | recognised | recall | at least | precision |\n|---|---:|---:|---:|---:|")
    for kind, hits in measure.hits.items():
        precision = measure.precision(kind)
        shares = f"{measure.recall(kind):.3f} | {measure.recall_low(kind):.3f}"
        print(f"| {kind} | {hits:,} | {shares} | {'–' if precision is None else f'{precision:.3f}'} |")
    print("\n| drawn, and no score | taken for scores |\n|---|---:|")
    for kind, count in measure.false_alarms.items():
        print(f"| {kind} | {count:,} |")
    drawn = measure.drawings * (len(measure.hits) + len(measure.false_alarms))
    print(f"\n{1000 * took_s / drawn:.0f} ms an image, with drawing it")


if __name__ == "__main__":
    main()
