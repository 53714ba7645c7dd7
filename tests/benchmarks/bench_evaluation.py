"""The table of `earmark eval run` over many samples: metrics, ten groups and their intervals, beside scipy's bootstrap.

    .venv/bin/python -m tests.benchmarks.bench_evaluation [samples]

Each kind is counted in a process of its own, for its memory: the row over all, ten groups, and the baselines that need
no audio, every metric of the kind with its interval. scipy.stats.bootstrap gets one metric over all; where 2,000
resamples would take long, as many as it does in some seconds, and its time is scaled to 2,000.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from earmark.schemas.evaluations import Evaluation, Kind
from earmark.tasks.evaluation.asking import Prediction
from earmark.tasks.evaluation.baselines import baselines
from earmark.tasks.evaluation.results import count

SAMPLES, GROUPS = 100_000, 10
KINDS: tuple[Kind, ...] = ("preference", "yes_no", "scalar")
DRAWS = 2000
LIMIT_S = 4.0
"""About how long scipy's own may take."""


def drawn(kind: Kind, samples: int) -> tuple[list[dict[str, Any]], dict[str, Prediction]]:
    """Samples with mean opinion scores in steps of 0.05, and a model that is right more often than not."""
    source = np.random.default_rng(1)
    truth = np.round(source.normal(3, 1, samples) * 20) / 20
    scores = truth + source.normal(size=samples)
    targets: dict[Kind, Callable[[float], Any]] = {
        "preference": lambda value: "a" if value > 3 else "b",
        "yes_no": lambda value: bool(value > 3),
        "scalar": float,
    }
    rows = [
        {"id": str(place), "target": targets[kind](value), "group": place % GROUPS} for place, value in enumerate(truth)
    ]
    shares = 1 / (1 + np.exp(3 - scores))
    predictions = {
        str(place): Prediction(str(place), choice="a" if score > 3 else "b")
        if kind == "preference"
        else Prediction(str(place), score=float(score if kind == "scalar" else share))
        for place, (score, share) in enumerate(zip(scores, shares, strict=True))
    }
    return rows, predictions


def ours(kind: Kind, samples: int, results: Any) -> None:
    """Seconds, processor seconds and peak memory of a table."""
    rows, predictions = drawn(kind, samples)
    evaluation = Evaluation("bench", kind, "", "", groups=("group",))
    start, used = time.perf_counter(), time.process_time()
    controls, _ = baselines(evaluation, rows, {})
    facts = count(evaluation, rows, predictions, None, controls)
    spent = time.perf_counter() - start, time.process_time() - used
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    results.put((*spent, peak, {name: tuple(m.values()) for name, m in facts["rows"][0]["metrics"].items()}))


def theirs(kind: Kind, samples: int) -> tuple[float, int, tuple[float, float]]:
    """Seconds for all resamples, how many were drawn, and the interval, of one metric over all by scipy."""
    rows, predictions = drawn(kind, samples)
    if kind == "preference":
        right = np.array([float(predictions[row["id"]].choice == row["target"]) for row in rows])
        data: tuple[Any, ...] = (right,)
    else:
        scores = np.array([predictions[row["id"]].score for row in rows])
        data = (scores, np.array([row["target"] for row in rows], float))
    metrics: dict[Kind, Callable[..., float]] = {
        "preference": lambda one: float(np.mean(one)),
        "yes_no": lambda one, other: float(
            stats.mannwhitneyu(one[other > 0], one[other == 0]).statistic / (other > 0).sum() / (other == 0).sum()
        ),
        "scalar": lambda one, other: float(stats.spearmanr(one, other).statistic),
    }
    start = time.perf_counter()
    metrics[kind](*data)
    draws = int(np.clip(LIMIT_S / (time.perf_counter() - start), 20, DRAWS))
    start = time.perf_counter()
    options: dict[str, Any] = {"vectorized": False, "n_resamples": draws, "method": "percentile", "rng": 1, "batch": 1}
    found = stats.bootstrap(data, metrics[kind], paired=len(data) > 1, **options).confidence_interval
    return (time.perf_counter() - start) * DRAWS / draws, draws, (float(found.low), float(found.high))


def main() -> None:
    """Print one line a kind."""
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES
    named = {"preference": "accuracy", "yes_no": "auroc", "scalar": "srcc"}
    print("| kind | wall s | processor s | peak MB | scipy, one metric, no groups, s | ours | scipy's |")
    print("|---|---:|---:|---:|---:|---|---|")
    for kind in KINDS:
        results: Any = multiprocessing.get_context("spawn").Queue()
        child = multiprocessing.get_context("spawn").Process(target=ours, args=(kind, samples, results))
        child.start()
        wall, used, peak, metrics = results.get()
        child.join()
        other, draws, (low, high) = theirs(kind, samples)
        value, ours_low, ours_high = metrics[named[kind]]
        print(
            f"| {kind} | {wall:.1f} | {used:.1f} | {peak:.0f} | {other:.0f} ({draws:,} resamples) | {named[kind]} "
            f"{value:.4f} [{ours_low:.4f}, {ours_high:.4f}] | [{low:.4f}, {high:.4f}] |"
        )


if __name__ == "__main__":
    main()
