"""How a row came to be: from the line it was read at, through each step, to the table where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.places import with_places
from earmark.tasks.store.sql import quoted, view_parquet
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
        there = [table for table in tables if table.name in version.manifest.rows]
        for table in there:
            view_parquet(connection, quoted(table.name), version.files(table.name))
        rows = _Rows(connection, version, there)
        accounts = [rows.account(table, row, whole=True) for table in there for row in rows.named(table, wanted)]
    if not accounts:
        raise StoreError(
            f"{version.corpus} {version.name}: expected a row's key, a reject's item or file name, found '{wanted}'"
        )
    return accounts


class _Rows(NamedTuple):
    """The rows of a version, a view a table."""

    connection: duckdb.DuckDBPyConnection
    version: Version
    tables: list[Table]

    def named(self, table: Table, wanted: str) -> list[dict[str, Any]]:
        """Rows of a table by key or file name, or rejects by item."""
        if table.name == REJECTS.name:
            return with_places(self.version, self._where(table, '"item" = $wanted', wanted))
        names = [*table.key, *(["file"] if "file" in table.schema.names else [])]
        return self._where(table, " OR ".join(f'CAST("{name}" AS VARCHAR) = $wanted' for name in names), wanted)

    def account(self, table: Table, row: dict[str, Any], *, whole: bool) -> Account:
        """What is known of a row; with `whole`, of those that it names and that name it, too."""
        name = row["item"] if table.name == REJECTS.name else ", ".join(str(row[key]) for key in table.key)
        says = tuple(sentence.format_map(_Shown(row)) for sentence in table.says)
        if not whole:
            return Account(table.name, name, row, says)
        links = {
            column: self.account(target, rows[0], whole=False)
            for column, target in links_of(self.tables, table)
            if (rows := self._where(target, f'"{target.key[0]}" = $wanted', row[column]))
        }
        return Account(table.name, name, row, says, self._through(table, row), links, self._used_in(table, name))

    def _where(self, table: Table, condition: str, wanted: str) -> list[dict[str, Any]]:
        query = f"FROM {quoted(table.name)} WHERE {condition} LIMIT 20"
        rows: list[dict[str, Any]] = self.connection.sql(query, params={"wanted": wanted}).to_arrow_table().to_pylist()
        for row in rows:
            for name in table.embedded:
                if row.get(name):
                    row[name] = {"path": row[name]["path"], "size_bytes": len(row[name]["bytes"])}
        return rows

    def _through(self, table: Table, row: dict[str, Any]) -> tuple[Step, ...]:
        """The steps up to the one that wrote the row's table, or up to the one that rejected it.

        Where steps side by side each read one input, only the step of the row's input is shown.
        """
        steps, reject = self.version.manifest.steps, table.name == REJECTS.name
        ends = (s.place for s in steps if (s.stage == row["stage"] if reject else s.table == table.name))
        last = max(ends, default=0)
        origin = str(row.get("dataset") or (row.get("file") or "").split("/")[0])
        of_input = [s for s in steps if s.name.endswith(f"-{origin}")]
        passed = [s for s in steps if s.place < last or s.table == table.name or s.stage == row.get("stage")]
        return tuple(s for s in passed if s in of_input or not any(s.place == o.place for o in of_input))

    def _used_in(self, table: Table, name: str) -> dict[str, int]:
        counts = {}
        for other in self.tables:
            if columns := [column for column, target in links_of(self.tables, other) if target == table]:
                where = " OR ".join(f'"{column}" = $wanted' for column in columns)
                query = f"SELECT count(*) FROM {quoted(other.name)} WHERE {where}"
                counts[other.name] = int(self.connection.execute(query, {"wanted": name}).fetchall()[0][0])
        return counts


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


class _Shown(dict[str, Any]):
    """Values as a sentence shows them: nulls as "unknown", empty lists as "none", floats without noise."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        if value is None:
            return "unknown"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return f"{value:.6g}" if isinstance(value, float) else str(value)
