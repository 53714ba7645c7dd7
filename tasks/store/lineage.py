"""Find the rows lost with withdrawn or closed things, by one propagation for both.

Columns declare the kinds of things they name, and their role (`schemas.tables.column`); no rule looks at a column's
name or at prose. A row leaves with any thing it names. A thing leaves once a group of it has no row left. Its groups
are the rows of a table identical with it (`is`), the rows in need of it (`keeps`), and each single row used in it
(`part`). Rejects of an earlier release name nothing in `made_from`: every word of theirs counts as the id of a thing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.store.files import place
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.sql import connect, query, quoted
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version
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

    def sources(self, *, rejects: bool = False) -> set[str]:
        """Return the sources named by rows; also by rejects, if asked."""
        names = "SELECT DISTINCT id FROM refs WHERE kind = 'source' AND (? OR \"table\" <> ?)"
        return {name for (name,) in self._connection.execute(names, [rejects, REJECTS.name]).fetchall()}

    def not_of(self, table: str, sources: set[str]) -> Mask:
        """Return a mask of a table's rows without a source, or with a source outside `sources`."""
        known = """SELECT row FROM refs WHERE kind = 'source' AND "table" = $table
                   GROUP BY row HAVING bool_and(id IN (SELECT unnest($sources::VARCHAR[])))"""
        return ~self._mask(table, self._connection.execute(known, {"table": table, "sources": sorted(sources)}))

    def clips_of(self, sources: set[str]) -> set[str]:
        """Return the clips named by rows with sources, all of these among `sources`."""
        given = {"sources": sorted(sources), "rejects": REJECTS.name}
        return {clip for (clip,) in self._connection.execute(query("store/clips_of"), given).fetchall()}

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


_ROWS, _AUDIO_ROWS = 16_384, 16  # rows read at once


def is_current(table: Table, paths: Sequence[Path]) -> bool:
    """Return whether files have a table's schema, with its descriptions."""
    return all(pq.read_schema(path).equals(table.schema, check_metadata=True) for path in paths)


def unsearchable(version: Version, tables: Sequence[Table], marks: Sequence[Mark]) -> str | None:
    """Return the reason a version cannot be searched for withdrawn things: a missing column; else None."""
    kinds = {kind for mark in marks for kind in mark_kinds(mark, tables)}
    if missing := missing_column(tables, version.table_files(), kinds):
        return (
            f"{version.corpus} {version.name}: an earlier release wrote the table {missing}, by which withdrawn rows "
            "are found; build the corpus again"
        )
    return None


def restated(table: Table, paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the rows of files in a table's schema: missing columns as null, without obsolete ones.

    Raises:
        StoreError: a required column is missing, or values do not fit the present schema.
    """
    for path in paths:
        with pq.ParquetFile(path) as file:
            held = set(file.schema_arrow.names)
            if missing := [name for name in table.required if name not in held]:
                raise StoreError(
                    f"table {table.name}: an earlier release wrote it without {', '.join(missing)}; build the corpus "
                    "again: the build leaves out what was withdrawn"
                )
            for batch in file.iter_batches(_AUDIO_ROWS if table.embedded else _ROWS):
                columns = [
                    batch[field.name] if field.name in held else pa.nulls(batch.num_rows, field.type)
                    for field in table.schema
                ]
                try:
                    yield pa.table(columns, names=table.schema.names).cast(table.schema)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise StoreError(f"table {table.name}: values of an earlier release do not fit: {error}") from None


REASON = "withdrawn"


def without_withdrawn(
    stage: Stage,
    tables: Sequence[Table],
    steps: Sequence[Step],
    marks: Sequence[Mark],
    recompute: Callable[[Stage], Sequence[Step]] = lambda stage: (),
) -> tuple[Stage, list[Step]]:
    """Return a stage without withdrawn rows, and its accounts; the same stage if there are none.

    The staged files stay unchanged, so that a build killed here can resume. `recompute` then rewrites tables computed
    from others, and returns the changed accounts.
    """
    files = stage.tables()
    gone = withdrawn_from(tables, files, marks)
    if not gone.counts:
        return stage, list(steps)
    redacted = replace(stage, part="redacted")
    shutil.rmtree(redacted.version, ignore_errors=True)
    loose = {name for table in tables for name in _loose_files(table, files, gone)}
    for path in sorted(stage.version.rglob("*")):
        relative = path.relative_to(stage.version).as_posix()
        if path.is_file() and relative not in loose:
            place(path, redacted.version / relative)
    for table in tables:
        for split, paths, leaving in by_split(table, files, gone.rows):
            if leaving.any() or mentions(table, gone):
                redacted.write(table, split, staying(table, paths, leaving, gone))
        if table.name in gone.counts:
            redacted.drop_empty_splits(table)
    recomputed = {step.name: step for step in recompute(redacted)}
    steps = [recomputed.get(step.name, step).model_copy(update={"place": step.place}) for step in steps]
    return redacted, _accounts(tables, steps, gone, _rejects_that_leave(files, gone))


def by_split(table: Table, files: Files, masks: Mapping[str, Mask]) -> Iterator[tuple[str, Sequence[Path], Mask]]:
    """Yield a table's splits: name, files, and their rows' part of the table's mask."""
    start = 0
    for split, paths in files.get(table.name, {}).items():
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        yield split, paths, masks[table.name][start : start + rows]
        start += rows


def mentions(table: Table, gone: Gone) -> list[tuple[str, pa.Array]]:
    """Return a table's columns mentioning things, with the ids gone among these."""
    found = [
        (ref.column, pa.array(sorted(id_ for kind, id_ in gone.things if kind == ref.kind), pa.string()))
        for ref in table.refs
        if ref.role == "mentions"
    ]
    return [(column, ids) for column, ids in found if len(ids)]


def staying(
    table: Table, paths: Sequence[Path], leaving: Mask, gone: Gone, silent: Mask | None = None
) -> Iterator[pa.Table]:
    """Yield a split's staying rows, without values mentioning gone things; `silent` ones without audio and images."""
    start = 0
    for part in restated(table, paths):
        end = start + part.num_rows
        for column, ids in mentions(table, gone):
            part = _nulled(part, column, pc.is_in(part[column], ids))
        if silent is not None:
            for column in (*table.embedded, *table.files):
                part = _nulled(part, column, pa.array(silent[start:end]))
        yield part.filter(pa.array(~leaving[start:end])).cast(table.schema)
        start = end


def _nulled(part: pa.Table, column: str, where: pa.Array) -> pa.Table:
    at = part.schema.get_field_index(column)
    none = pa.scalar(None, part.schema.field(at).type)
    return part.set_column(at, part.schema.field(at), pc.if_else(where, none, part[column]))


def _loose_files(table: Table, files: Files, gone: Gone) -> set[str]:
    """Return the version's files named by leaving rows of a table but by no staying row."""
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for _, paths, leaving in by_split(table, files, gone.rows) if table.files else ():
        rows = pa.concat_tables([pq.ParquetFile(path).read(columns=list(table.files)) for path in paths])
        for leaves, names in named.items():
            there = rows.filter(pa.array(leaving == leaves))
            names |= {name for column in there.columns for name in column.to_pylist() if name}
    return named[True] - named[False]


def _rejects_that_leave(files: Files, gone: Gone) -> Counter[tuple[str, str]]:
    left: Counter[tuple[str, str]] = Counter()
    for _, paths, leaving in by_split(REJECTS, files, gone.rows):
        rows = pa.concat_tables([pq.ParquetFile(path).read(columns=["stage", "reason"]) for path in paths])
        rows = rows.filter(pa.array(leaving))
        left.update((stage, reason) for stage, reason in tuples_of(rows, "stage", "reason"))
    return left


def _accounts(
    tables: Sequence[Table], steps: Sequence[Step], gone: Gone, rejects: Counter[tuple[str, str]]
) -> list[Step]:
    """Return the accounts after the loss: a further step for each table; leaving rejects are only counted."""
    steps = [_without_rejects(step, rejects) for step in steps]
    last = max(step.place for step in steps)
    inputs = [t.name for t in tables if t.key and not t.splits and not t.counted and not t.refs]
    notes = [f"{', '.join(inputs)}: counted with the rows that were withdrawn"] if inputs else []
    for name, count in gone.counts.items():
        at = next((at for at, step in enumerate(steps) if step.table == name), None)
        if at is None:
            continue
        step = steps[at]
        steps[at] = step.model_copy(update={"table": None})
        steps.append(
            Step(
                name=_free(f"{REASON}-{name}", [one.name for one in steps]),
                place=last + 1,
                unit=step.unit,
                follows=(step.name,),
                entered=step.kept,
                kept=step.kept - count,
                dropped={REASON: count},
                table=name,
                notes=(f"{count:,} rows of {name} were withdrawn", *notes),
            )
        )
        notes = []
    return sorted(steps, key=lambda step: (step.place, step.name))


def _without_rejects(step: Step, gone: Counter[tuple[str, str]]) -> Step:
    """Return a step's accounts without leaving rejects; subtract these from `gone`, for steps may share a stage."""
    rejected, dropped = dict(step.rejected), dict(step.dropped)
    for reason, count in step.rejected.items():
        if taken := min(count, gone[step.stage, reason]):
            gone[step.stage, reason] -= taken
            dropped[REASON] = dropped.get(REASON, 0) + taken
            rejected[reason] = count - taken
    kept = {reason: count for reason, count in rejected.items() if count}
    return step.model_copy(update={"rejected": kept, "dropped": dropped})


def _free(name: str, taken: Sequence[str]) -> str:
    number = 1
    while (tried := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return tried
