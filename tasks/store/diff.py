"""Compare two versions row by row, by each table's key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.machine import processors
from earmark.schemas.reasons import CURRENT
from earmark.schemas.tables import REJECTS, UNSPLIT, Table
from earmark.tasks.store.sql import connect, quoted
from earmark.tasks.store.versions import Version

Splits: TypeAlias = Mapping[str, Sequence[Path]]
Files: TypeAlias = Mapping[str, Splits]


@dataclass(frozen=True)
class Change:
    """Numbers of added, removed and changed rows of a table and split; rows from other splits count as changed."""

    table: str
    split: str
    added: int
    removed: int
    changed: int
    same: int


AUDIO_THREADS = 4  # each holds a row group of embedded audio, up to 200 MB


class Cell(NamedTuple):
    """A changed value."""

    table: str
    key: tuple[Any, ...]  # of its row
    column: str
    old: Any
    new: Any


def diff_table(connection: duckdb.DuckDBPyConnection, table: Table, old: Version, new: Version) -> list[Change]:
    """Count one table's changes by split; leave the rows in the connection's table `changes`."""
    return _diff(connection, table, *(one.table_files().get(table.name, {}) for one in (old, new)))


def diff_tables(tables: Sequence[Table], old: Files, new: Files, spill: Path) -> tuple[Change, ...]:
    """Count the changes of tables between two versions' files, by table and split."""
    with connect(spill) as connection:
        pairs = [(table, old.get(table.name, {}), new.get(table.name, {})) for table in tables]
        return tuple(change for each in pairs for change in _diff(connection, *each))


def _diff(connection: duckdb.DuckDBPyConnection, table: Table, old: Splits, new: Splits) -> list[Change]:
    paths = [[str(path) for part in splits.values() for path in part] for splits in (old, new)]
    _compare(connection, table, dict(zip(("old_rows", "new_rows"), paths, strict=True)))
    rows = connection.execute(
        """SELECT split, count(*) FILTER (what = 'added'), count(*) FILTER (what = 'removed'),
                  count(*) FILTER (what = 'changed'), count(*) FILTER (what = 'same')
           FROM changes GROUP BY split ORDER BY split"""
    ).fetchall()
    return [Change(table.name, *row) for row in rows]


def changed_rows(connection: duckdb.DuckDBPyConnection, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the rows found by `diff_table` as added, removed or changed: the kind of change and the row's key. A
    reject's column `table` is its `dropped_from`: it is no row of that table."""
    columns = ", ".join(quoted(name) for name in ("what", "split", *key_of(table)))
    names = ["what", "split", *("dropped_from" if name == "table" else name for name in key_of(table))]
    cursor = connection.execute(f"SELECT {columns} FROM changes WHERE what <> 'same' ORDER BY ALL")
    while rows := cursor.fetchmany(1000):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def changed_values(connection: duckdb.DuckDBPyConnection, table: Table, old: Version, new: Version) -> Iterator[Cell]:
    """Yield the changed cells of rows found changed by `diff_table`, by key, then in the order of columns."""
    files = {name: [str(path) for path in version.files(table.name)] for name, version in (("old", old), ("new", new))}
    if not table.key or not all(table.name in version.manifest.rows for version in (old, new)):
        return
    there = [set(pq.read_schema(each[0]).names) for each in files.values()]
    columns = [name for name in table.schema.names if name not in table.key and all(name in names for names in there)]
    on = [" AND ".join(f"c.{quoted(key)} IS NOT DISTINCT FROM {side}.{quoted(key)}" for key in table.key)
          for side in ("o", "n")]  # fmt: skip
    keys = ", ".join(f"c.{quoted(key)}" for key in table.key)
    read = "read_parquet(${}, hive_partitioning = false)"
    for name in columns:
        column = quoted(name)
        shown = [f"{side}.{column}{'.path' if name in table.embedded else ''}" for side in ("o", "n")]
        cursor = connection.cursor().execute(
            f"""SELECT {keys}, {", ".join(shown)} FROM changes c
                JOIN {read.format("old")} o ON {on[0]} JOIN {read.format("new")} n ON {on[1]}
                WHERE what = 'changed' AND o.{column} IS DISTINCT FROM n.{column} ORDER BY ALL""",
            files,
        )
        while rows := cursor.fetchmany(1000):
            for *key, before, after in rows:
                yield Cell(table.name, tuple(key), name, before, after)


def _compare(connection: duckdb.DuckDBPyConnection, table: Table, paths: Mapping[str, list[str]]) -> None:
    """Join both versions' rows by key; without a key, by single values and number of occurrence. Columns missing from
    one version change no row."""
    there = [set(pq.read_schema(each[0]).names) for each in paths.values() if each]
    columns = [quoted(name) for name in table.schema.names if all(name in names for names in there)]
    keys = [*map(quoted, key_of(table))]
    no_rows = table.schema.empty_table()
    if table.embedded:
        connection.execute(f"SET threads = {min(processors(), AUDIO_THREADS)}")
    split = quoted("split") if table.splits else f"'{UNSPLIT}'"
    # a reject counts as the same under the word of 1.0.0 and the reason in its place
    now = f"* REPLACE (coalesce(map_extract_value(MAP {CURRENT}, reason), reason) AS reason)"
    for name, each in paths.items():
        rows = connection.read_parquet(each, hive_partitioning=False) if each else connection.from_arrow(no_rows)
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        rows = rows.project(now) if table.name == REJECTS.name else rows
        # in two steps: beside the window, DuckDB would hold all columns, and a table's audio has more bytes than memory
        hashed = rows.project(f"{', '.join(keys)}, {split} AS split_of, hash({', '.join(columns)}) AS content")
        hashed.project(f"*, row_number() OVER (PARTITION BY {', '.join(keys)}) AS occurrence").create(name)
    same = " AND ".join(f"o.{name} IS NOT DISTINCT FROM n.{name}" for name in [*keys, "occurrence"])
    values = ", ".join(f"coalesce(n.{name}, o.{name}) AS {name}" for name in keys)
    connection.execute(
        f"""CREATE OR REPLACE TABLE changes AS
            SELECT {values}, coalesce(n.split_of, o.split_of) AS split,
                   CASE WHEN o.occurrence IS NULL THEN 'added' WHEN n.occurrence IS NULL THEN 'removed'
                        WHEN o.content <> n.content OR o.split_of <> n.split_of THEN 'changed' ELSE 'same' END AS what
            FROM old_rows o FULL JOIN new_rows n ON {same}"""
    )


def key_of(table: Table) -> tuple[str, ...]:
    """Return the columns that identify a row across versions."""
    return table.key or tuple(field.name for field in table.schema if not pa.types.is_list(field.type))
