"""Check a version before its commit: schemas, keys, required values, splits and row accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, UNSPLIT, Table
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import connect, quoted


def check_tables(
    corpus: str,
    tables: Sequence[Table],
    written: Mapping[str, Mapping[str, Sequence[Path]]],
    steps: Sequence[Step],
    spill: Path,
) -> None:
    """Check all written tables of a corpus, by table and split, and the accounts of its steps.

    Raises:
        StoreError: a check failed.
    """
    known = {table.name for table in tables}
    if not {table.name for table in tables if not table.optional} <= set(written) <= known:
        raise StoreError(f"{corpus}: expected tables {sorted(known)}, found {sorted(written)}")
    counts = {
        name: sum(pq.read_metadata(path).num_rows for paths in splits.values() for path in paths)
        for name, splits in written.items()
    }
    check_accounts(steps, counts)
    with connect(spill) as connection:
        for table in tables:
            if table.name in written:
                check_table(connection, table, written[table.name])
        check_rejects(connection, written[REJECTS.name][UNSPLIT], steps)


def check_accounts(steps: Sequence[Step], rows: Mapping[str, int]) -> None:
    """Check that every item entering a step was kept, rejected or dropped, and that none appeared in between.

    Raises:
        StoreError: the first step whose counts do not add up.
    """
    kept = {step.name: step.kept for step in steps}
    for step in steps:
        out = step.kept + sum(step.rejected.values()) + sum(step.dropped.values())
        if step.entered != out:
            raise StoreError(f"step {step.name}: {step.entered} {step.unit} entered, {out} came out or were rejected")
        came = sum(kept[name] for name in step.follows)
        if step.follows and step.entered != came:
            before = ", ".join(step.follows)
            raise StoreError(f"step {step.name}: {step.entered} {step.unit} entered, but {before} kept {came}")
        if step.table is not None and step.kept != rows.get(step.table, 0):
            found = rows.get(step.table, 0)
            raise StoreError(f"step {step.name}: kept {step.kept} {step.unit}, table {step.table} has {found} rows")


def check_rejects(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], steps: Sequence[Step]) -> None:
    """Check the rows of the `rejects` table against the steps' counts.

    Raises:
        StoreError: rows and count differ for a stage and reason.
    """
    counted: Counter[tuple[str, str]] = Counter()
    for step in steps:
        for reason, count in step.rejected.items():
            counted[step.stage, reason] += count
    query = f"SELECT stage, reason, count(*) FROM {_rows('files')} GROUP BY ALL"
    listed = {(stage, reason): n for stage, reason, n in connection.execute(query, {"files": _names(files)}).fetchall()}
    for stage, reason in sorted(counted.keys() | listed.keys()):
        expected, found = counted[stage, reason], listed.get((stage, reason), 0)
        if expected != found:
            raise StoreError(f"rejects: stage {stage} counted {expected} '{reason}', the table lists {found}")


def check_table(connection: duckdb.DuckDBPyConnection, table: Table, files: Mapping[str, Sequence[Path]]) -> None:
    """Check a written table's schema, required values, unique key and separation of splits.

    Raises:
        StoreError: a check failed; the message gives an example.
    """
    names = _names([path for paths in files.values() for path in paths])
    for path in names:
        if not pq.read_schema(path).equals(table.schema, check_metadata=True):
            raise StoreError(f"table {table.name}: {Path(path).name} does not have the published schema")
    counts = ", ".join(f"count(*) - count({quoted(name)})" for name in table.required)
    row = connection.execute(f"SELECT {counts} FROM {_rows('files')}", {"files": names}).fetchall()[0]
    for name, nulls in zip(table.required, row, strict=True):
        if nulls:
            raise StoreError(f"table {table.name}: column {name} is required, {nulls} rows are null")
    if table.key:
        _check_key(connection, table, names)
    for column in table.exclusive:
        for split, other in combinations(sorted(files), 2):
            shared = connection.execute(
                f"""SELECT {quoted(column)} FROM {_rows("here")} WHERE {quoted(column)} IS NOT NULL
                    INTERSECT SELECT {quoted(column)} FROM {_rows("there")} ORDER BY ALL LIMIT 1""",
                {"here": _names(files[split]), "there": _names(files[other])},
            ).fetchall()
            if shared:
                raise StoreError(f"table {table.name}: {column} {shared[0][0]!r} is in both {split} and {other}")


def _rows(parameter: str) -> str:
    """Return a parameter's files as an SQL relation; a store below `split=x/` must not add a column from its path."""
    return f"read_parquet(${parameter}, hive_partitioning = false)"


def _names(files: Sequence[Path]) -> list[str]:
    return [str(path) for path in files]


def _check_key(connection: duckdb.DuckDBPyConnection, table: Table, names: list[str]) -> None:
    """Compare the numbers of rows and distinct keys, by 64-bit hash first: exact, and small in memory. Equal keys have
    equal hashes, so as many hashes as rows prove the keys unique; only otherwise are keys compared."""
    key, rows = ", ".join(map(quoted, table.key)), _rows("files")
    counted = f"SELECT count(*), count(DISTINCT hash({key})) FROM {rows}"
    count, hashes = connection.execute(counted, {"files": names}).fetchall()[0]
    if count == hashes:
        return
    repeated = f"SELECT {key}, count(*) FROM {rows} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    for *values, count in connection.execute(repeated, {"files": names}).fetchall():
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(table.key, values, strict=True))
        raise StoreError(f"table {table.name}: the key {shown} stands in {count} rows, expected one")
