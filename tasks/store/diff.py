"""What changed from one version to another, row by row, by each table's key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.tables import UNSPLIT, Table
from earmark.tasks.store.sql import quoted
from earmark.tasks.store.versions import Version


@dataclass(frozen=True)
class Change:
    """How many rows of one table and split were added, removed or changed.

    A row that moved to another split counts as changed in the split where it is now.
    """

    table: str
    split: str
    added: int
    removed: int
    changed: int
    same: int


def diff_table(connection: duckdb.DuckDBPyConnection, table: Table, old: Version, new: Version) -> list[Change]:
    """Count the changes of one table, by split; leaves them in the table `changes` of the connection."""
    _compare(connection, table, old, new)
    rows = connection.execute(
        """SELECT split, count(*) FILTER (what = 'added'), count(*) FILTER (what = 'removed'),
                  count(*) FILTER (what = 'changed'), count(*) FILTER (what = 'same')
           FROM changes GROUP BY split ORDER BY split"""
    ).fetchall()
    return [Change(table.name, *row) for row in rows]


def changed_rows(connection: duckdb.DuckDBPyConnection, table: Table) -> Iterator[dict[str, Any]]:
    """The added, removed and changed rows that `diff_table` found: what happened, and the row's key."""
    names = ["what", "split", *key_of(table)]
    columns = ", ".join(quoted(name) for name in names)
    cursor = connection.execute(f"SELECT {columns} FROM changes WHERE what <> 'same' ORDER BY ALL")
    while rows := cursor.fetchmany(1000):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def _compare(connection: duckdb.DuckDBPyConnection, table: Table, old: Version, new: Version) -> None:
    """Join both versions' rows by key; where a table has none, by its single values and which occurrence of it.

    Columns that one version lacks change no row; a version without the table has no rows of it.
    """
    paths = {
        name: [str(path) for path in version.files(table.name)] if table.name in version.manifest.rows else []
        for name, version in (("old_rows", old), ("new_rows", new))
    }
    there = [set(pq.read_schema(each[0]).names) for each in paths.values() if each]
    columns = [quoted(name) for name in table.schema.names if all(name in names for names in there)]
    keys = [*map(quoted, key_of(table))]
    no_rows = table.schema.empty_table()
    split = quoted("split") if table.splits else f"'{UNSPLIT}'"
    for name, each in paths.items():
        rows = connection.read_parquet(each, hive_partitioning=False) if each else connection.from_arrow(no_rows)
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        rows.project(
            f"{', '.join(keys)}, {split} AS split_of, hash({', '.join(columns)}) AS content, "
            f"row_number() OVER (PARTITION BY {', '.join(keys)}) AS occurrence"
        ).create(name)
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
    """The columns by which rows of two versions are the same row."""
    return table.key or tuple(field.name for field in table.schema if not pa.types.is_list(field.type))
