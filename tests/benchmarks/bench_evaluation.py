"""The table of `earmark eval run` over many samples: metrics, ten groups and their intervals, beside scipy's bootstrap;
and a table of `earmark eval tables` of 20 models by 40 groups of 10,000 pairs that share clips.

    .venv/bin/python -m tests.benchmarks.bench_evaluation [samples]

Each kind is counted in a process of its own, for its memory: the row over all, ten groups, and the baselines that need
no audio, every metric of the kind with its interval. scipy.stats.bootstrap gets one metric over all; where 2,000
resamples would take long, as many as it does in some seconds, and its time is scaled to 2,000.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.comparing import Measure
from earmark.tasks.evaluation.kinds import Prediction
from earmark.tasks.evaluation.layouts import choose_layout
from earmark.tasks.evaluation.recording import baselines
from earmark.tasks.evaluation.released import as_version
from earmark.tasks.evaluation.results import count
from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.evaluation.tabulating import TableOptions, make_table
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store

SAMPLES, GROUPS = 100_000, 10
KINDS: tuple[str, ...] = ("preference", "yes_no", "scalar")
DRAWS = 2000
LIMIT_S = 4.0
"""About how long scipy's own may take."""


def drawn(kind: str, samples: int) -> tuple[list[dict[str, Any]], dict[str, Prediction]]:
    """Samples with mean opinion scores in steps of 0.05, and a model that is right more often than not."""
    source = np.random.default_rng(1)
    truth = np.round(source.normal(3, 1, samples) * 20) / 20
    scores = truth + source.normal(size=samples)
    targets: dict[str, Callable[[float], Any]] = {
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


def ours(kind: str, samples: int, results: Any) -> None:
    """Seconds, processor seconds and peak memory of a table."""
    rows, predictions = drawn(kind, samples)
    evaluation = Evaluation("bench", kind, "", "", groups=("group",))
    start, used = time.perf_counter(), time.process_time()
    controls, _ = baselines(evaluation, rows, {})
    facts = count(evaluation, rows, predictions, None, controls)
    spent = time.perf_counter() - start, time.process_time() - used
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    results.put((*spent, peak, {name: tuple(m.values()) for name, m in facts["rows"][0]["metrics"].items()}))


def theirs(kind: str, samples: int) -> tuple[float, int, tuple[float, float]]:
    """Seconds for all resamples, how many were drawn, and the interval, of one metric over all by scipy."""
    rows, predictions = drawn(kind, samples)
    if kind == "preference":
        right = np.array([float(predictions[row["id"]].choice == row["target"]) for row in rows])
        data: tuple[Any, ...] = (right,)
    else:
        scores = np.array([predictions[row["id"]].score for row in rows])
        data = (scores, np.array([row["target"] for row in rows], float))
    metrics: dict[str, Callable[..., float]] = {
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


def wide_table(folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of a table of 20 models by 39 datasets and all, with intervals and differences to the first, and it."""
    source = np.random.default_rng(9)
    ratings = [{"sample_id": f"c{number}", "scale_min": 1.0, "scale_max": 5.0} for number in range(3000)]
    both = [source.choice(3000, 2, replace=False) for _ in range(10_000)]
    pairs = [
        {"pair_id": f"p{at:05}", "split": "test", "dataset": f"set {at % 39:02}", "category": "c", "mos_gap": 0.1}
        | {"chosen_id": f"c{a}", "rejected_id": f"c{b}", "gap_decile": 1}
        for at, (a, b) in enumerate(both)
    ]
    (folder / "mos-preferences").mkdir()
    corpus, tables = find_corpus("mos-preferences"), {"ratings": ratings, "pairs": pairs}
    version = as_version(folder / "mos-preferences" / "v1", corpus, tables, {})
    models = {}
    for number in range(20):
        choice = np.where(source.random(10_000) < 0.6 + number / 100, "chosen", "rejected")
        frame = pd.DataFrame({"id": [one["pair_id"] for one in pairs], "choice": choice})
        frame.to_csv(folder / f"{number}.csv", index=False)
        models[f"model {number}"] = [str(folder / f"{number}.csv")]
    layout = choose_layout(None, "quality", ("dataset",), (), ())
    measure = Measure(version, corpus, Store(folder / "store"), MeasurementOptions())
    began = time.perf_counter()
    facts, _ = make_table(measure, models, layout, TableOptions({"": "model 0"}), folder / "out")
    return time.perf_counter() - began, facts


def main() -> None:
    """Print one line a kind, and the seconds of the wide table."""
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
    with tempfile.TemporaryDirectory() as folder:
        print(f"\n20 models by 40 groups of 10,000 pairs: {wide_table(Path(folder))[0]:.1f} s")


if __name__ == "__main__":
    main()
