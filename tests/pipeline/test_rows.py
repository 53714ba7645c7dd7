"""Rows between steps are read a shard at a time, and in the order of numbers that were given to them."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from earmark.tasks.pipeline.rows import Rows, Sorted, each_row, keep_rows, read_rows
from earmark.tasks.pipeline.walk import DRAW, RESULT, Walked
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(Store(tmp_path), "mos-preferences", "key", tmp_path / "stage")
    stage.work.mkdir(parents=True)
    return stage


@pytest.mark.parametrize("run_bytes", [1, 1_000, 10_000_000])
def test_sorted_rows_come_by_their_numbers_and_as_they_were(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    monkeypatch.setattr("earmark.tasks.pipeline.rows.RUN_BYTES", run_bytes)
    rows: dict[int, Any] = {number: {"text": f"号 {number} \"'\n", "parts": [number, None]} for number in range(300)}
    kept = Sorted(stage, "kept")
    for number in random.Random(5).sample(range(300), 300):
        kept.put(number, rows[number])
    assert list(kept.read(0, 300)) == [rows[number] for number in range(300)]
    assert list(kept.read(290, 2_000)) == [rows[number] for number in range(290, 300)]
    assert list(kept.read(7, 7)) == []
    assert list(Sorted(stage, "nothing").read(0, 10)) == []


def test_rows_of_a_killed_step_are_not_read(stage: Stage) -> None:
    Sorted(stage, "kept").put(1, "before")
    kept = Sorted(stage, "kept")
    kept.put(2, "after")
    assert list(kept.read(0, 10)) == ["after"]


@pytest.mark.slow
def test_sorting_more_than_memory_goes_over_the_disk(tmp_path: Path) -> None:
    """Sort 400 MB of text; the process stays far below it."""
    look = """
import resource, sys
from pathlib import Path
from earmark.tasks.pipeline.rows import Sorted
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
stage = Stage(Store(Path(sys.argv[1])), "mos-preferences", "key", Path(sys.argv[1]))
kept = Sorted(stage, "kept")
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number in range(40_000):
    place = number * 7_919 % 40_000
    kept.put(place, {"place": place, "text": f"{place:09}," * 1_000})
assert [row["place"] for row in kept.read(0, 40_000)] == list(range(40_000))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", look, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


def test_results_and_draws_come_with_their_own_source_rows(stage: Stage) -> None:
    """Give up first rows, last rows and whole shards, and compare with a look-up by number."""
    source: Rows[Any] = keep_rows(stage, "source", [{"name": number} for number in range(25)], a_shard=10)
    lost = {0, 9, *range(10, 20), 24}
    for shard, numbers in enumerate((range(10), range(10, 20), range(20, 25))):
        ends: list[tuple[Any, ...]] = [
            (at, None, "ask", "no_answer", "gone") if at in lost else (at, f"{at * 2}", None, None, None)
            for at in numbers
        ]
        draws = [
            (at, "ask", draw, draw == 1, f"[{at}]", "writer", "m", "p", "k", None, None, "", True)
            for at in numbers
            for draw in range(2 if at % 3 else 0)
        ]
        for part, schema, rows in (("results", RESULT, ends), ("draws", pa.schema(DRAW), draws)):
            path = stage.work / "walk" / part / f"{shard:06d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, schema, rows)
    walked = Walked("walk", source, stage.work / "walk")
    rows = read_rows(source)
    assert list(walked.kept()) == [(rows[at], result) for at, result in walked.results()]
    assert [(row["name"], end["at"]) for row, end in walked.lost()] == [(at, at) for at in sorted(lost)]
    assert [(row["name"], draw["value"]) for row, draw in walked.drawn()] == [
        (at, [at]) for at in range(25) if at % 3 for _ in range(2)
    ]
    assert list(each_row(source)) == rows
