"""Trace a row's origin: from its input line through each step to its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, UNSPLIT, RejectRow, Table
from earmark.tasks.store.files import replacing, sync
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import connect, query, quoted, readable, view_parquet
from earmark.tasks.store.staging import SPILL, Stage
from earmark.tasks.store.versions import Version

MOST = 20  # explained rows of a table
FOLDER = "places"  # of the corpus's folder, beside its versions
SHARED = tuple(name for name in REJECTS.schema.names if name not in ("file", "line", "made_from"))


def write_rejects(stage: Stage, corpus: Corpus) -> None:
    """Write the `rejects` table from the rejects of all steps."""
    parts = [pq.ParquetFile(path).read() for path in stage.rejects()]
    rejects = pa.concat_tables([REJECTS.schema.empty_table(), *parts], promote_options="default")
    keys = [
        {"table": table.name, "kinds": [ref.kind for ref in table.refs if ref.column in table.key]}
        for table in corpus.tables
    ]
    with connect(stage.work / SPILL) as connection:
        connection.register("rejects", rejects.append_column("place", pa.array(range(len(rejects)))))
        connection.register("keys", pa.Table.from_pylist(keys))
        rejects = connection.sql(query("store/made_from")).to_arrow_table().select(REJECTS.schema.names)
    rejects = rejects.cast(REJECTS.schema)
    stage.write(REJECTS, UNSPLIT, [hide_places(stage, rejects) if corpus.hides_places else rejects])


def hide_places(stage: Stage, rejects: pa.Table) -> pa.Table:
    """Return the rejects without their input places; keep these in the store.

    A line of a public dump identifies its author like an id. So a version names only the source of such a corpus's
    rejects, in an uninformative order; file and line stay here, for the store's owner and `earmark inspect explain`.

    Returns:
        The same rows; `file` is the source's name, `line` is null, sorted by the other columns.
    """
    if rejects["line"].null_count < len(rejects):  # else already hidden, as in a version committed anew
        made = stage.work / f"{FOLDER}.parquet"  # a kill leaves nothing outside the staging folder
        with replacing(made) as temporary:
            pq.write_table(rejects, temporary, compression="zstd")
            temporary.chmod(0o600)
        kept = _path(stage.store.folder(stage.corpus), stage.build_key)
        kept.parent.mkdir(exist_ok=True)
        made.replace(kept)
        sync(kept.parent)
    source = pc.list_element(pc.split_pattern(rejects["file"], "/", max_splits=1), 0)
    hidden = rejects.set_column(rejects.schema.get_field_index("file"), REJECTS.schema.field("file"), source)
    nowhere = pa.nulls(len(rejects), pa.int64())
    hidden = hidden.set_column(rejects.schema.get_field_index("line"), REJECTS.schema.field("line"), nowhere)
    return hidden.sort_by([(name, "ascending") for name in REJECTS.schema.names if name != "made_from"])


def with_places(version: Version, rows: Sequence[RejectRow]) -> list[RejectRow]:
    """Return rejects with their places, where known to this store. `rows` must hold all rejects of an item."""
    path = _path(version.folder.parent, version.manifest.build_key)
    if not rows or not path.is_file():
        return list(rows)
    items = pa.array(sorted({row["item"] for row in rows}), pa.string())
    known: dict[tuple[object, ...], list[RejectRow]] = defaultdict(list)
    every: list[RejectRow] = pq.read_table(path, filters=pc.is_in(pc.field("item"), items)).to_pylist()
    for kept in every:
        known[_shared(kept)].append(kept)
    places: list[RejectRow] = [known[_shared(row)].pop(0) if known[_shared(row)] else row for row in rows]
    return [{**row, "file": place["file"], "line": place["line"]} for row, place in zip(rows, places, strict=True)]


def _shared(row: RejectRow) -> tuple[object, ...]:
    """Return the values that a hidden reject has in common with its place: its file's first part is the source."""
    values = (row[name] for name in SHARED)  # type: ignore[literal-required]
    return *values, (row["file"] or "").partition("/")[0]


def _path(folder: Path, build_key: str) -> Path:
    return folder / FOLDER / f"{build_key[:16]}.parquet"


@dataclass(frozen=True)
class RowFacts:
    """Known facts about one row."""

    table: str  # name of its table
    name: str  # its key, or the reject's item
    row: Mapping[str, Any]  # all its columns
    says: tuple[str, ...]  # decisions about it, a sentence each
    through: tuple[Step, ...] = ()  # the steps of the build up to this table, in order
    links: dict[str, RowFacts] = field(default_factory=dict)  # accounts of the rows it names, by column
    used_in: dict[str, int] = field(default_factory=dict)  # numbers of rows naming it, by table


def explain(version: Version, tables: Sequence[Table], wanted: str) -> list[RowFacts]:
    """Find a row or reject by its key, item or file name, and trace its origin.

    Raises:
        StoreError: the version has nothing of this name.
    """
    with readable(f"{version.corpus}@{version.name}"), duckdb.connect() as connection:
        there = [table for table in tables if table.name in version.manifest.rows]
        for table in there:
            view_parquet(connection, quoted(table.name), version.files(table.name))
        rows = _Rows(connection, version, there)
        accounts = [rows.account(table, row, whole=True) for table in there for row in rows.named(table, wanted)]
        nearest = [] if accounts else rows.near(wanted)
    if not accounts:
        near = f"; near it: {', '.join(nearest)}" if nearest else ""
        expected = f"expected a row's key, a reject's item or file name, found '{wanted}'"
        raise StoreError(f"{version.corpus} {version.name}: {expected}{near}")
    return accounts


class _Rows(NamedTuple):
    """Rows of a version, a view for each table."""

    connection: duckdb.DuckDBPyConnection
    version: Version
    tables: list[Table]

    def named(self, table: Table, wanted: str) -> Sequence[Mapping[str, Any]]:
        """Return rows of a table by key or file name, or rejects by item."""
        names = self._names(table)
        found = self._where(table, " OR ".join(f"{name} = $wanted" for name in names), wanted)
        if not found and "." in wanted:  # the name of a file without its folder
            found = self._where(table, " OR ".join(f"ends_with({name}, '/' || $wanted)" for name in names), wanted)
        return with_places(self.version, cast(list[RejectRow], found)) if table.name == REJECTS.name else found

    def _names(self, table: Table) -> list[str]:
        names = ["item"] if table.name == REJECTS.name else [*table.key]
        names += ["file"] if table.name != REJECTS.name and "file" in table.schema.names else []
        return [f"CAST({quoted(name)} AS VARCHAR)" for name in names]

    def near(self, wanted: str) -> list[str]:
        """Return the three row names most similar to the wanted one, nearest first."""
        each = [f"SELECT DISTINCT {name} AS name FROM {quoted(table.name)}"
                for table in self.tables for name in self._names(table)]  # fmt: skip
        query = f"""SELECT name FROM ({" UNION ".join(each)}) WHERE name IS NOT NULL
                    AND jaro_winkler_similarity(lower(name), lower($wanted)) > 0.75
                    ORDER BY jaro_winkler_similarity(lower(name), lower($wanted)) DESC, name LIMIT 3"""
        return [name for (name,) in self.connection.execute(query, {"wanted": wanted}).fetchall()]

    def account(self, table: Table, row: Mapping[str, Any], *, whole: bool) -> RowFacts:
        """Return the facts about a row; with `whole`, also about rows it names or is named by."""
        name = row["item"] if table.name == REJECTS.name else ", ".join(str(row[key]) for key in table.key)
        says = tuple(sentence.format_map(_Shown(row)) for sentence in table.says)
        if not whole:
            return RowFacts(table.name, name, row, says)
        links = {
            column: self.account(target, rows[0], whole=False)
            for column, target in links_of(self.tables, table)
            if (rows := self._where(target, f'"{target.key[0]}" = $wanted', row[column]))
        }
        return RowFacts(table.name, name, row, says, self._through(table, row), links, self._used_in(table, name))

    def _where(self, table: Table, condition: str, wanted: str) -> list[dict[str, Any]]:
        query = f"FROM {quoted(table.name)} WHERE {condition} LIMIT {MOST}"
        rows: list[dict[str, Any]] = self.connection.sql(query, params={"wanted": wanted}).to_arrow_table().to_pylist()
        for row in rows:
            for name in table.embedded:
                if row.get(name):
                    row[name] = {"path": row[name]["path"], "size_bytes": len(row[name]["bytes"])}
        return rows

    def _through(self, table: Table, row: Mapping[str, Any]) -> tuple[Step, ...]:
        """Return the steps up to the row's table, or up to its rejection. Of parallel steps with an input each, return
        only the step of the row's input."""
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
    """Return the columns of a table naming rows of another with a one-column key, with the other table."""
    keys = {
        ref.kind: other
        for other in tables
        if other != table
        for ref in other.refs
        if (ref.column,) == other.key and ref.role == "is"
    }
    return [(ref.column, keys[ref.kind]) for ref in table.refs if ref.kind in keys and ref.role != "mentions"]


class _Shown(dict[str, Any]):
    """Values formatted for a sentence: nulls as "unknown", empty lists as "none", floats without noise."""

    def __getitem__(self, key: str) -> str:
        value = super().__getitem__(key)
        if value is None:
            return "unknown"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return f"{value:.6g}" if isinstance(value, float) else str(value)
