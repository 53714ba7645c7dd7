"""Nothing paid is lost: the ledger and the versions of the state before, in the hands of this one."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.store.versions import Store, Version
from tests.before import compare
from tests.before.fixture import LEDGER, before, paid, seed, unpack


def change(version: Version, table: str, split: str, other: Callable[[pa.Table], pa.Table]) -> None:
    """Write other rows into a table's only file of a split, whatever the manifest says of it."""
    (path,) = [version.folder / e.path for e in version.manifest.files if (e.table, e.split) == (table, split)]
    pq.write_table(other(pq.ParquetFile(path).read()), path)


def with_first(table: pa.Table, **values: object) -> pa.Table:
    """A table whose first row has other values."""
    first, *others = table.to_pylist()
    return pa.Table.from_pylist([{**first, **values}, *others], table.schema)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The store of the state before. No test may change it."""
    return unpack(tmp_path_factory.mktemp("before"))


def test_no_demo_asks_a_model_what_the_ledger_of_the_state_before_answers(old: Store, built_demo: Path) -> None:
    assert len(paid(old.root)["attempts"]) > 700
    assert compare.asked(built_demo, old.root) == []


@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_demo_has_the_rows_of_the_state_before(old: Store, built_demo: Path, corpus: str) -> None:
    lines = list(compare.compare(before(old, corpus), Store(built_demo).find(corpus)))
    assert len(lines) >= len(before(old, corpus).manifest.rows) > 1
    assert [line for _, found in lines for line in found] == []


def test_the_comparison_sees_what_differs(old: Store, tmp_path: Path) -> None:
    was = before(old, "captions")
    now = Version("captions", tmp_path / "v1")
    shutil.copytree(was.folder, now.folder)
    change(now, "captions", "train", lambda rows: with_first(rows, tags=None))
    change(now, "raw", "full", lambda rows: rows.append_column("mood", [["calm"] * len(rows)]))
    change(now, "tag_coverage", "full", lambda rows: rows.slice(1))
    change(now, "rejects", "full", lambda rows: with_first(rows, detail="in other words").sort_by("reason"))
    lines = dict(compare.compare(was, now))
    told = {line.split()[1].strip(":"): (line, found) for line, found in lines.items()}
    assert told["raw"] == ("captions raw: 24 rows, equal; new columns: mood", [])
    assert told["rejects"] == ("captions rejects: 8 rows, equal", [])
    assert told["tag_coverage"][1] == ["captions tag_coverage full: expected 22 rows, found 21"]
    (fault,) = told["captions"][1]
    assert fault.startswith("captions captions train: tags of row 0: expected [")
    change(now, "rejects", "full", lambda rows: with_first(rows, line=99))
    assert len(dict(compare.compare(was, now))["captions rejects: 8 rows, differs"]) == 2


@pytest.mark.slow
def test_a_request_that_was_not_paid_is_seen(old: Store, tmp_path: Path) -> None:
    seed(tmp_path)
    with closing(sqlite3.connect(tmp_path / LEDGER)) as ledger:
        ((gone,),) = ledger.execute("SELECT min(id) FROM requests WHERE model = 'builtin:music-prompt-1'").fetchall()
        ledger.execute("DELETE FROM attempts WHERE request_id = ?", (gone,))
        ledger.execute("DELETE FROM requests WHERE id = ?", (gone,))
        ledger.commit()
    compare.build(["music-prompts"], tmp_path)
    assert compare.asked(tmp_path, old.root) == [
        "ledger: requests: 1 rows are new, 1 are gone",
        "ledger: attempts: 1 rows are new, 1 are gone",
    ]
