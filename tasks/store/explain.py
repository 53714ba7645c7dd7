"""How a row came to be: from the line it was read at, through each step, to the table where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.places import with_places
from earmark.tasks.store.versions import Version


@dataclass(frozen=True)
class Account:
    """What is known of one row."""

    table: str  # the table it stands in
    name: str  # its key, or the reject's item
    row: dict[str, Any]  # all its columns
    says: tuple[str, ...]  # what was decided for it, a sentence each
    through: tuple[Step, ...] = ()  # the steps of the build up to this table, in order
    links: dict[str, Account] = field(default_factory=dict)  # accounts of the rows that it names, by column
    used_in: dict[str, int] = field(default_factory=dict)  # how many rows of other tables name it


def explain(version: Version, tables: Sequence[Table], wanted: str) -> list[Account]:
    """Find a row or reject by its key, its item or its file name, and tell how it came to be.

    Raises:
        StoreError: nothing of that name is in the version.
    """
    with duckdb.connect() as connection:
        rows = [found for table in tables for found in _find(connection, version, table, wanted)]
        if not rows:
            raise StoreError(
                f"{version.corpus} {version.name}: expected a row's key, a reject's item or file name, found '{wanted}'"
            )
        return [_account(connection, version, tables, table, row, whole=True) for table, row in rows]


def _find(
    connection: duckdb.DuckDBPyConnection, version: Version, table: Table, wanted: str
) -> list[tuple[Table, dict[str, Any]]]:
    if table.name == REJECTS.name:
        rejects = _rows(connection, version, table, '"item" = $wanted', wanted)
        return [(table, row) for row in with_places(version, rejects)]
    names = [*table.key, *(["file"] if "file" in table.schema.names else [])]
    where = " OR ".join(f'CAST("{name}" AS VARCHAR) = $wanted' for name in names)
    return [(table, row) for row in _rows(connection, version, table, where, wanted)]


def _rows(
    connection: duckdb.DuckDBPyConnection, version: Version, table: Table, where: str, wanted: str
) -> list[dict[str, Any]]:
    if table.name not in version.manifest.rows:
        return []
    files = [str(path) for path in version.files(table.name)]
    query = f"SELECT * FROM read_parquet($files, hive_partitioning = false) WHERE {where} LIMIT 20"
    found: list[dict[str, Any]] = (
        connection.sql(query, params={"files": files, "wanted": wanted}).to_arrow_table().to_pylist()
    )
    for row in found:
        for name in table.embedded:
            if row.get(name):
                row[name] = {"path": row[name]["path"], "size_bytes": len(row[name]["bytes"])}
    return found


def _account(
    connection: duckdb.DuckDBPyConnection,
    version: Version,
    tables: Sequence[Table],
    table: Table,
    row: dict[str, Any],
    *,
    whole: bool,
) -> Account:
    links = {}
    for column, target in links_of(tables, table) if whole else ():
        found = _rows(connection, version, target, f'"{target.key[0]}" = $wanted', row[column])
        if found:
            links[column] = _account(connection, version, tables, target, found[0], whole=False)
    name = row["item"] if table.name == REJECTS.name else ", ".join(str(row[key]) for key in table.key)
    return Account(
        table=table.name,
        name=name,
        row=row,
        says=tuple(sentence.format_map(_Shown(row)) for sentence in table.says),
        through=_through(version, table, row) if whole else (),
        links=links,
        used_in=_used_in(connection, version, tables, table, name) if whole else {},
    )


def links_of(tables: Sequence[Table], table: Table) -> list[tuple[str, Table]]:
    """The columns of a table that name a row of another, whose key is one column: what that row is."""
    keys = {
        ref.kind: other
        for other in tables
        if other != table
        for ref in other.refs
        if (ref.column,) == other.key and ref.role == "is"
    }
    return [(ref.column, keys[ref.kind]) for ref in table.refs if ref.kind in keys and ref.role != "mentions"]


def _through(version: Version, table: Table, row: dict[str, Any]) -> tuple[Step, ...]:
    """The steps up to the one that wrote the row's table, or up to the one that rejected it.

    Of steps side by side that each read one input, only the row's own is told.
    """
    steps = version.manifest.steps
    if table.name == REJECTS.name:
        last = max((s.place for s in steps if s.stage == row["stage"]), default=0)
    else:
        last = max((s.place for s in steps if s.table == table.name), default=0)
    origin = str(row.get("dataset") or (row.get("file") or "").split("/")[0])
    own = [s for s in steps if s.name.endswith(f"-{origin}")]
    passed = [s for s in steps if s.place < last or s.table == table.name or s.stage == row.get("stage")]
    return tuple(s for s in passed if s in own or not any(s.place == o.place for o in own))


def _used_in(
    connection: duckdb.DuckDBPyConnection, version: Version, tables: Sequence[Table], table: Table, name: str
) -> dict[str, int]:
    counts = {}
    for other in tables:
        columns = [column for column, target in links_of(tables, other) if target == table]
        if columns and other.name in version.manifest.rows:
            where = " OR ".join(f'"{column}" = $wanted' for column in columns)
            files = [str(path) for path in version.files(other.name)]
            counted = f"SELECT count(*) FROM read_parquet($files, hive_partitioning = false) WHERE {where}"
            counts[other.name] = int(connection.execute(counted, {"files": files, "wanted": name}).fetchall()[0][0])
    return counts


class _Shown(dict[str, Any]):
    """Values as a sentence shows them: nulls as "unknown", empty lists as "none", floats without noise."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        if value is None:
            return "unknown"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return f"{value:.6g}" if isinstance(value, float) else str(value)
