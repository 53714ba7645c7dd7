"""Remove leaving rows from a version's tables: rewrite the staying rows, and record the loss in the accounts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.store.files import place
from earmark.tasks.store.lineage import Files, Gone, Mask, withdrawn_from
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.restating import restated
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.withdrawals import Mark

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
    """Yield the staying rows of one split, without values mentioning gone things; `silent` rows without audio and
    images."""
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
        left.update(zip(rows["stage"].to_pylist(), rows["reason"].to_pylist(), strict=True))
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
