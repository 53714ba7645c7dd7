"""Find the rows lost with withdrawn or closed things, by one propagation for both.

Columns declare the kinds of things they name, and their role (`schemas.tables.column`); no rule looks at a column's
name or at prose. A row leaves with any thing it names. A thing leaves once a group of it has no row left. Its groups
are the rows of a table identical with it (`is`), the rows in need of it (`keeps`), and each single row used in it
(`part`). Rejects of an earlier release name nothing in `made_from`: every word of theirs counts as the id of a thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.store.sql import connect, query, quoted
from earmark.tasks.store.withdrawals import Mark

Files: TypeAlias = Mapping[str, Mapping[str, Sequence[Path]]]
Mask: TypeAlias = npt.NDArray[np.bool_]
Thing: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Gone:
    """Rows and things leaving a version."""

    rows: dict[str, Mask] = field(default_factory=dict)  # whether a row leaves, by table; over all its splits in order
    things: frozenset[Thing] = frozenset()  # kinds and ids of rows without any left

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of leaving rows by table."""
        return {name: int(mask.sum()) for name, mask in self.rows.items() if mask.any()}


def named_kinds(tables: Sequence[Table]) -> set[str]:
    """Return the kinds of things named by tables' columns."""
    return {ref.kind for table in tables for ref in table.refs}


def mark_kinds(mark: Mark, tables: Sequence[Table]) -> set[str]:
    """Return the kinds searched for a mark; marks of an earlier release give a column instead of a kind."""
    if mark.kind != "key":
        return {mark.kind}
    return {ref.kind for table in tables for ref in table.refs if ref.column == mark.column}


def missing_column(tables: Sequence[Table], files: Files, kinds: set[str]) -> str | None:
    """Return `TABLE without COLUMN` for the first declared column of `kinds` missing from older files, or None."""
    for table in tables:
        for path in [path for paths in files.get(table.name, {}).values() for path in paths][:1]:
            names = set(pq.read_schema(path).names)
            if lost := next((ref for ref in table.refs if ref.kind in kinds and ref.column not in names), None):
                return f"{table.name} without {lost.column}"
    return None


def withdrawn_from(tables: Sequence[Table], files: Files, marks: Sequence[Mark]) -> Gone:
    """Return the rows and things leaving a version with withdrawn things."""
    with lineage(tables, files) as rows:
        return rows.without(rows.marked(marks))


@contextmanager
def lineage(tables: Sequence[Table], files: Files) -> Iterator[Lineage]:
    """Yield the lineage of a version's rows; read only columns naming things."""
    with TemporaryDirectory() as spill, connect(Path(spill)) as connection:
        yield Lineage(connection, [table for table in tables if table.name in files], files)


class Lineage:
    """Things named by each row, as a table of `connection`; made by `lineage`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], files: Files) -> None:
        self._connection, self._tables, self._sizes = connection, tables, dict.fromkeys(files, 0)
        connection.execute('CREATE TABLE refs ("table" VARCHAR, row BIGINT, kind VARCHAR, id VARCHAR, "group" VARCHAR)')
        connection.execute(query("store/words_of_reject"))
        for table in tables:
            for paths in files[table.name].values():
                for path in paths:
                    self._read(table, path)

    def marked(self, marks: Sequence[Mark]) -> set[Thing]:
        """Return the things named by rows and withdrawn by marks."""
        known = [(kind, mark.kind, mark.digest) for mark in marks for kind in mark_kinds(mark, self._tables)]
        columns = zip(*known, strict=True) if known else ((), (), ())
        names = ("kind", "prefix", "digest")
        self._connection.register(
            "marks", pa.table({name: pa.array(c, pa.string()) for name, c in zip(names, columns, strict=True)})
        )
        return set(self._connection.execute(query("store/marked")).fetchall())

    def sources(self) -> set[str]:
        """Return the sources named by rows other than rejects."""
        names = "SELECT DISTINCT id FROM refs WHERE kind = 'source' AND \"table\" <> ?"
        return {name for (name,) in self._connection.execute(names, [REJECTS.name]).fetchall()}

    def not_of(self, table: str, sources: set[str]) -> Mask:
        """Return a mask of a table's rows without a source, or with a source outside `sources`."""
        known = """SELECT row FROM refs WHERE kind = 'source' AND "table" = $table
                   GROUP BY row HAVING bool_and(id IN (SELECT unnest($sources::VARCHAR[])))"""
        return ~self._mask(table, self._connection.execute(known, {"table": table, "sources": sorted(sources)}))

    def without(self, things: set[Thing]) -> Gone:
        """Return all rows and things leaving with `things`, directly or indirectly."""
        run = self._connection.execute
        run("CREATE OR REPLACE TABLE things_gone (kind VARCHAR, id VARCHAR)")
        run('CREATE OR REPLACE TABLE rows_gone ("table" VARCHAR, row BIGINT)')
        for kind in {kind for kind, _ in things}:
            ids = [id_ for one, id_ in things if one == kind]
            run("INSERT INTO things_gone SELECT $kind, unnest($ids::VARCHAR[])", {"kind": kind, "ids": ids})
        while sum(run(query(f"store/{name}_gone")).fetchall()[0][0] for name in ("rows", "things")):
            pass
        gone = 'SELECT row FROM rows_gone WHERE "table" = ?'
        rows = {name: self._mask(name, run(gone, [name])) for name in self._sizes}
        were = 'SELECT kind, id FROM things_gone SEMI JOIN (FROM refs WHERE "group" = "table") USING (kind, id)'
        return Gone(rows, frozenset(run(were).fetchall()))

    def _read(self, table: Table, path: Path) -> None:
        """Record the things named by a file's rows; a file of an earlier release may lack columns."""
        with pq.ParquetFile(path) as file:
            names, rows = set(file.schema_arrow.names), file.metadata.num_rows
        given = {"path": str(path), "table": table.name, "start": self._sizes[table.name]}
        self._sizes[table.name] += rows
        for column, kind, role in table.refs:
            if column in names and role != "mentions":
                many = pa.types.is_list(table.schema.field(column).type)
                ids = quoted(column) if many else f"[{quoted(column)}]"
                things = f"[{{'kind': '{kind}', 'id': id}} FOR id IN {ids}]"
                self._connection.execute(query("store/refs").replace("{things}", things), {**given, "role": role})
        if table.name == REJECTS.name:
            kinds = ", ".join(f"'{kind}'" for kind in sorted(named_kinds(self._tables) - {"source"}))
            words = f"words_of_reject(item, detail, file, [{kinds}]::VARCHAR[])"
            things = f"coalesce(made_from, {words})" if "made_from" in names else words
            self._connection.execute(query("store/refs").replace("{things}", things), {**given, "role": "from"})

    def _mask(self, table: str, rows: duckdb.DuckDBPyConnection) -> Mask:
        mask = np.zeros(self._sizes[table], bool)
        mask[rows.fetchnumpy()["row"]] = True
        return mask
