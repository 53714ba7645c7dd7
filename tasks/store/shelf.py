"""Filter, order and page through all rows of a version, beside another version's, for `earmark view`. A page's requests
are data: values become parameters of a query; unknown columns and tables are refused."""

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from earmark.schemas.errors import InputError
from earmark.schemas.tables import REJECTS, RejectRow, Table, WholeFile
from earmark.tasks.store.diff import Change, diff_table, key_of
from earmark.tasks.store.explain import SHARED, links_of, with_places
from earmark.tasks.store.sql import connect, literal, quoted, view_parquet
from earmark.tasks.store.versions import Version

OPERATIONS = {
    "contains": "contains(lower({0}::VARCHAR), lower({1}))",
    "is": "{0}::VARCHAR = {1}",
    "is not": "{0}::VARCHAR IS DISTINCT FROM {1}",
    "is at least": "try_cast({0}::VARCHAR AS DOUBLE) >= {1}",
    "is at most": "try_cast({0}::VARCHAR AS DOUBLE) <= {1}",
    "is empty": "{0} IS NULL",
}
_SHOWN = "printf('%.6g', {0})"  # a double as a page shows it: 2 for 2.0, 0.333333 for a third
_SAME = f"({{0}} = {{1}} OR try_cast({_SHOWN} AS DOUBLE) = {{1}})"
OF_DOUBLES = {"is": _SAME, "is not": f"{_SAME} IS NOT TRUE"}


ANYWHERE = "any column"


class Filter(NamedTuple):
    """A condition on rows: a column or `ANYWHERE`, an operation of `OPERATIONS`, and its value as typed."""

    column: str
    operation: str
    value: str = ""


class Shelf:
    """Tables of a version beside rows of other versions; safe to use from several threads."""

    def __init__(self, version: Version, tables: Sequence[Table], spill: Path) -> None:
        self.version = version
        self.tables = {table.name: table for table in tables if table.name in version.manifest.rows}
        self._db, self._lock = connect(spill), threading.Lock()
        self._known: dict[str, tuple[list[str], tuple[str, ...]]] = {}  # columns, and columns to order by
        self._doubles: dict[str, set[str]] = {}  # columns of doubles, by relation
        self._compared: dict[str, tuple[str, Version, list[Change]]] = {}  # by relation: table and changes
        for name, table in self.tables.items():
            view_parquet(self._db, quoted(f"rows {name}"), version.files(name))
            self._note(f"rows {name}", table.key)

    def _note(self, relation: str, order: Sequence[str]) -> None:
        described = self._db.execute(f"DESCRIBE {quoted(relation)}").fetchall()
        columns = [name for name, type_, *_ in described if "BLOB" not in type_]
        self._known[relation] = columns, tuple(name for name in order or columns if name in columns)
        self._doubles[relation] = {name for name, type_, *_ in described if type_ in ("DOUBLE", "FLOAT")}

    def columns(self, relation: str) -> list[str]:
        """Return the columns of `rows TABLE` or of a relation of `compare`, without columns of files.

        Raises:
            InputError: the relation does not exist.
        """
        if relation not in self._known:
            raise InputError(f"expected one of {', '.join(self._known)}, found '{relation}'")
        return self._known[relation][0]

    def page(
        self, relation: str, filters: Sequence[Filter], order: str | None, rising: bool, first: int, size: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return some rows in a stable order, and the number of matches.

        Args:
            order: a column; empty values come last. Without it, and for equal values: the key, or else all columns.

        Raises:
            InputError: relation, column or operation are unknown, or a value is not a number as required.
        """
        columns, doubles = self.columns(relation), self._doubles[relation]
        wheres, values = ["true"], dict[str, Any]()
        for place, one in enumerate(filters):
            if one.operation not in OPERATIONS:
                raise InputError(f"expected one of {', '.join(OPERATIONS)}, found '{one.operation}'")
            says, close = OPERATIONS[one.operation], doubles if _is_number(one.value) else set()
            texts = {name: f"{quoted(name)}::VARCHAR" for name in columns}
            texts |= {name: f"({texts[name]} || chr(10) || {_SHOWN.format(quoted(name))})" for name in close}
            if one.column == ANYWHERE:
                column = f"concat_ws(chr(10), {', '.join(texts.values())})"
            elif one.operation == "contains":
                column = texts[_known_column(columns, one.column)]
            else:
                column = quoted(_known_column(columns, one.column))
                says = OF_DOUBLES.get(one.operation, says) if one.column in close else says
            wheres.append(says.format(column, f"$value{place}"))
            if "{1}" in says:
                values[f"value{place}"] = _number(one) if "DOUBLE" in says else one.value
        ordered = [f"{quoted(_known_column(columns, order))}{'' if rising else ' DESC'} NULLS LAST"] if order else []
        ordered += map(quoted, self._known[relation][1])
        source = f"FROM {quoted(relation)} WHERE {' AND '.join(wheres)}"
        sorting = f" ORDER BY {', '.join(ordered)}" if ordered else ""
        with self._lock:
            (total,) = self._db.execute(f"SELECT count(*) {source}", values).fetchall()[0]
            asked = f"SELECT {', '.join(map(quoted, columns))} {source}{sorting} LIMIT {int(size)} OFFSET {int(first)}"
            found = self._db.execute(asked, values).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found], total

    def placed(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a reject with the files and lines of all its equals, as far as known to this store."""
        reject: RejectRow = cast(RejectRow, row)
        if reject["line"] is not None:
            return row
        shared = (*SHARED, "file")
        asked = f"SELECT count(*) FROM {quoted(f'rows {REJECTS.name}')} WHERE {_same(shared)}"
        with self._lock:
            (equal,) = self._db.execute(asked, [row[name] for name in shared]).fetchall()[0]
        found = with_places(self.version, [reject] * equal)
        places = sorted((one["file"], one["line"]) for one in found if one["line"] is not None)
        return row | {"file": [file for file, _ in places], "line": [line for _, line in places]} if places else row

    def compare(self, table: str, old: Version) -> tuple[list[Change], str]:
        """Return the changes from another version by split, and the name of a relation of changed rows. The relation
        has the kind of change, the split, and the row's key."""
        relation = f"changes {old.name} {table}"
        with self._lock:
            if relation not in self._compared:
                counts = diff_table(self._db, self.tables[table], old, self.version)
                rows = "SELECT what, split, * EXCLUDE (what, split) FROM changes WHERE what <> 'same'"
                self._db.execute(f"CREATE TABLE {quoted(relation)} AS {rows}")
                self._note(relation, ("what", "split", *key_of(self.tables[table])))
                self._compared[relation] = table, old, counts
        return self._compared[relation][2], relation

    def compared(self, relation: str) -> tuple[str, Version] | None:
        """Return the table and the other version of a relation of `compare`."""
        return self._compared[relation][:2] if relation in self._compared else None

    def both(self, table: str, old: Version, key: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a row in the other version and in this one; empty without the row or a key."""
        return self._row(table, old, key), self._row(table, self.version, key)

    def _row(self, table: str, version: Version, key: Mapping[str, Any]) -> dict[str, Any]:
        if table not in version.manifest.rows or not self.tables[table].key:
            return {}
        keys = self.tables[table].key
        files = ", ".join(map(literal, version.files(table)))
        asked = f"SELECT * FROM read_parquet([{files}], hive_partitioning = false) WHERE {_same(keys)} LIMIT 1"
        with self._lock:
            cursor = self._db.execute(asked, [key[name] for name in keys])
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchall()
        shown = set(self.columns(f"rows {table}"))
        return {name: value for name, value in zip(names, rows[0] if rows else (), strict=bool(rows)) if name in shown}

    def clips_of(self, table: str, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return column and SHA-256 of clips and images named by a row, directly or through a row of another table."""
        found = [(name, row.get(name)) for name in _clip_columns(self.tables[table])]
        for column, target in links_of([*self.tables.values()], self.tables[table]):
            names = [name for name in _clip_columns(target) if name in self.columns(f"rows {target.name}")]
            if names and row.get(column) is not None:
                asked = f"SELECT {', '.join(map(quoted, names))} FROM {quoted(f'rows {target.name}')} WHERE "
                with self._lock:
                    rows = self._db.execute(f"{asked}{quoted(target.key[0])} = $1 LIMIT 1", [row[column]]).fetchall()
                found += [(column, sha256) for sha256 in (rows[0] if rows else ())]
        first = {sha256: name for name, sha256 in reversed(found) if isinstance(sha256, str)}
        return [(name, sha256) for sha256, name in reversed(first.items())]

    def embedded(self, sha256: str) -> tuple[str, bytes] | None:
        """Return name and bytes of a clip or image held by a table of the version, if its hash still fits."""
        for table in self.tables.values():
            for column in table.embedded:
                for name in _clip_columns(table):
                    asked = (
                        f"SELECT {quoted(column)} FROM {quoted(f'rows {table.name}')} WHERE {quoted(name)} = $1 LIMIT 1"
                    )
                    with self._lock:
                        rows = self._db.execute(asked, [sha256]).fetchall()
                    held: WholeFile | None = rows[0][0] if rows else None
                    if held and hashlib.sha256(held["bytes"]).hexdigest() == sha256:
                        return held["path"], held["bytes"]
        return None


def _clip_columns(table: Table) -> list[str]:
    return [ref.column for ref in table.refs if ref.kind == "clip" and table.name != REJECTS.name]


def _same(columns: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM ${place}" for place, name in enumerate(columns, 1))


def _known_column(columns: Sequence[str], name: str) -> str:
    if name not in columns:
        raise InputError(f"expected a column ({', '.join(columns)}), found '{name}'")
    return name


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _number(one: Filter) -> float:
    try:
        return float(one.value)
    except ValueError:
        raise InputError(f"{one.column} {one.operation}: expected a number, found '{one.value}'") from None
