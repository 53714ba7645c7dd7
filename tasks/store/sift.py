"""A version's tables without what was withdrawn: the rows that name it, and the rows that were made from those."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.tables import REJECTS, Table
from tasks.store.files import place
from tasks.store.manifest import Step
from tasks.store.staging import Stage
from tasks.store.withdrawals import Mark, digest_of_value

Files: TypeAlias = Mapping[str, Mapping[str, Sequence[Path]]]
Mask: TypeAlias = npt.NDArray[np.bool_]

REASON = "withdrawn"
SIFTED = "sifted"
LONG = 16
"""Keys of so many characters are no small numbers or words: in another table's key, the same one names the same."""
CLIP = 64
_PROMPTS = re.compile(r"(^|_)prompt_ids?$")
_TOKEN = re.compile(r"[^\s,;'\"()\[\]]+")
_STATED = re.compile(r"\b(?:annotator|clip|prompt) ([^\s,;'\"()\[\]]+)")
_ROWS = 16_384
_AUDIO_ROWS = 16


@dataclass
class Sifting:
    """What leaves a version.

    Attributes:
        gone: the rows that leave, by table; over all its splits in order.
        rejects: rejects that leave, by stage and reason.
        keys: values of keys that no row holds any more, by the key's first column.
        clips: SHA-256s that no row holds any more.
        files: files within the version that no row names any more.
    """

    gone: dict[str, Mask] = field(default_factory=dict)
    rejects: Counter[tuple[str, str]] = field(default_factory=Counter)
    keys: dict[str, set[str]] = field(default_factory=dict)
    clips: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)

    @property
    def counts(self) -> dict[str, int]:
        """Rows that leave, by table."""
        return {name: int(mask.sum()) for name, mask in self.gone.items() if mask.any()}


def sift(tables: Sequence[Table], files: Files, marks: Sequence[Mark]) -> Sifting:
    """Find the rows that leave.

    A row leaves if it holds what a mark names, if a column that links to another table's key names a row that leaves,
    if it shares its key with rows of which none stays, if it is there for others (`Table.gathers`), of which some leave
    and none stays, or if it was made of one that leaves (`Table.made_of`).

    Args:
        tables: the corpus's tables.
        files: their Parquet files by table and split.
        marks: what is withdrawn.
    """
    held = {table.name: table for table in tables if table.name in files}
    texts = {name: _texts(table, files[name]) for name, table in held.items()}
    known = _Marks(marks)
    marked = {name: _any(texts[name], known.hit) for name in held if name != REJECTS.name}
    found = Sifting(marked)
    while True:
        before = sum(int(mask.sum()) for mask in marked.values())
        found.keys = {}
        for name, mask in marked.items():
            table = held[name]
            if mask.any() and _names_rows(table) and table.key[0] in texts[name]:
                values = texts[name][table.key[0]]
                found.keys.setdefault(table.key[0], set()).update(_held(values, mask) - _held(values, ~mask))
        for name in marked:
            marked[name] |= _following(held[name], held, texts, marked, found.keys)
        if sum(int(mask.sum()) for mask in marked.values()) == before:
            break
    _note_gone(found, held, texts)
    if REJECTS.name in held:
        _sift_rejects(found, texts[REJECTS.name], known)
    return found


def sifted(
    stage: Stage,
    tables: Sequence[Table],
    steps: Sequence[Step],
    marks: Sequence[Mark],
    recount: Callable[[Stage], Sequence[Step]] = lambda stage: (),
) -> tuple[Stage, list[Step]]:
    """A stage whose tables are without what was withdrawn, and its accounts; the stage itself where nothing is.

    What was staged stays as it is, so that a build that is killed here goes on. `recount` then writes the tables that
    are counted from others anew, and gives the accounts that it changed.
    """
    files = stage.tables()
    found = sift(tables, files, marks)
    if not found.counts and not found.rejects:
        return stage, list(steps)
    other = _Sifted(stage.store, stage.corpus, stage.build_key, stage.folder)
    shutil.rmtree(other.version, ignore_errors=True)
    for path in sorted(stage.version.rglob("*")):
        relative = path.relative_to(stage.version).as_posix()
        if path.is_file() and relative not in found.files:
            place(path, other.version / relative)
    for table in tables:
        mask = found.gone.get(table.name)
        if mask is None or not mask.any():
            continue
        start = 0
        for split, paths in files[table.name].items():
            rows = sum(pq.read_metadata(path).num_rows for path in paths)
            leaving = mask[start : start + rows]
            if leaving.any():
                other.write(table, split, _staying(table, paths, leaving))
            start += rows
        other.drop_empty_splits(table)
    counted = {step.name: step for step in recount(other)}
    steps = [counted.get(step.name, step).model_copy(update={"place": step.place}) for step in steps]
    return other, _accounts(tables, steps, found)


class _Sifted(Stage):
    """The stage of what stays."""

    @property
    def version(self) -> Path:
        """The folder that the commit renames to `vN`."""
        return self.folder / SIFTED


def _names_rows(table: Table) -> bool:
    """Whether the key's first column names things, and not what rows speak of, such as a scope."""
    return len(table.key) == 1 or (len(table.key) > 1 and table.key[0].endswith("_id"))


def _staying(table: Table, paths: Sequence[Path], leaving: Mask) -> Iterator[pa.Table]:
    start = 0
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_AUDIO_ROWS if table.embedded else _ROWS):
                stays = ~leaving[start : start + batch.num_rows]
                start += batch.num_rows
                if stays.any():
                    yield pa.Table.from_batches([batch]).filter(pa.array(stays)).cast(table.schema)


def _texts(table: Table, splits: Mapping[str, Sequence[Path]]) -> dict[str, pa.ChunkedArray]:
    """Every column of texts, of lists of texts, and the names of embedded files, over all splits in order."""
    names = [
        f.name for f in table.schema if _is_text(f.type) or (pa.types.is_list(f.type) and _is_text(f.type.value_type))
    ]
    columns = [*names, *(f"{name}.path" for name in table.embedded)]
    parts = [pq.ParquetFile(path).read(columns=columns) for paths in splits.values() for path in paths]
    held = pa.concat_tables(parts)
    found = {name: held[name] for name in names if name in held.column_names}  # an older version may lack some
    for name in table.embedded:
        if name in held.column_names:
            found[name] = pa.chunked_array([pc.struct_field(chunk, "path") for chunk in held[name].chunks], pa.string())
    return found


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _any(columns: Mapping[str, pa.ChunkedArray], hit: Callable[[str, str], bool]) -> Mask:
    """Whether any cell of a row is hit."""
    mask: Mask | None = None
    for name, values in columns.items():
        found = _where(values, lambda value, name=name: hit(name, value))  # type: ignore[misc]
        mask = found if mask is None else mask | found
    return np.zeros(0, bool) if mask is None else mask


def _where(values: pa.ChunkedArray, hit: Callable[[str], bool]) -> Mask:
    """Whether a row's cell, or any text of its list, is hit; each distinct text is looked at once."""
    flat, rows = _flat(values)
    mask = np.zeros(len(values), bool)
    if not len(flat):
        return mask
    coded = flat.dictionary_encode()
    hits = np.array([hit(value) for value in coded.dictionary.to_pylist()], bool)
    mask[rows[hits[coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)]]] = True
    return mask


def _flat(values: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The texts of a column that are not null, and the row of each."""
    whole = values.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], values.type)
    rows = np.arange(len(whole))
    if pa.types.is_list(whole.type):
        rows = pc.list_parent_indices(whole).to_numpy(zero_copy_only=False).astype(np.int64)
        whole = pc.list_flatten(whole)
    there = pc.is_valid(whole)
    return whole.filter(there), rows[there.to_numpy(zero_copy_only=False)]


def _held(values: pa.ChunkedArray, mask: Mask) -> set[str]:
    flat, _ = _flat(values.filter(pa.array(mask)))
    return set(pc.unique(flat).to_pylist())


class _Marks:
    """Marks by what they look at: the digests of annotators, clips and prompts, and of keys by column."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self.digests: dict[str, set[str]] = {}
        self.keys: dict[str, set[str]] = {}
        for mark in marks:
            if mark.kind == "key":
                self.keys.setdefault(mark.column or "", set()).add(mark.digest)
            else:
                self.digests.setdefault(mark.kind, set()).add(mark.digest)

    def hit(self, column: str, value: str) -> bool:
        """Whether a value of a column is withdrawn."""
        kinds = ("annotator", "clip", "prompt") if _PROMPTS.search(column) else ("annotator", "clip")
        if any(self._known(kind, value) for kind in kinds):
            return True
        return column in self.keys and digest_of_value("key", value) in self.keys[column]

    def named(self, token: str) -> bool:
        """Whether a word in a sentence is withdrawn, whatever it stands for."""
        if any(self._known(kind, token) for kind in self.digests):
            return True
        digest = digest_of_value("key", token) if self.keys else ""
        return any(digest in digests for digests in self.keys.values())

    def _known(self, kind: str, value: str) -> bool:
        if kind not in self.digests:
            return False
        if kind == "clip":
            value = value.partition(".")[0].rpartition("/")[2]  # `<SHA-256>.wav`, or a path that ends so
            if len(value) != CLIP:
                return False
        return digest_of_value(kind, value) in self.digests[kind]


def _following(
    table: Table,
    held: Mapping[str, Table],
    texts: Mapping[str, Mapping[str, pa.ChunkedArray]],
    marked: Mapping[str, Mask],
    keys: Mapping[str, set[str]],
) -> Mask:
    """The rows of a table that follow from those that leave others."""
    own = texts[table.name]
    mask = np.zeros(len(marked[table.name]), bool)
    for column, target in table.links:
        if target in marked and marked[target].any() and column in own:
            gone = _held(texts[target][held[target].key[0]], marked[target])
            mask |= _where(own[column], gone.__contains__)
    for column, values in keys.items():
        if values and column in own:
            mask |= _where(own[column], values.__contains__)
    if table.key and table.key[0] in own:
        long = {value for values in keys.values() for value in values if len(value) >= LONG}
        if long:
            mask |= _where(own[table.key[0]], long.__contains__)
        mask |= _where(own[table.key[0]], _named_by(table, texts, marked).__contains__)
    return mask


def _named_by(
    table: Table,
    texts: Mapping[str, Mapping[str, pa.ChunkedArray]],
    marked: Mapping[str, Mask],
) -> set[str]:
    """Keys of a table's rows that leave because rows which name them do."""

    def named(sources: Sequence[tuple[str, str]], leaving: bool) -> set[str]:
        return {
            value
            for source, column in sources
            if column in texts.get(source, {})
            for value in _held(texts[source][column], marked[source] if leaving else ~marked[source])
        }

    return named(table.made_of, True) | (named(table.gathers, True) - named(table.gathers, False))


def _note_gone(found: Sifting, held: Mapping[str, Table], texts: Mapping[str, Mapping[str, pa.ChunkedArray]]) -> None:
    """What no row holds any more."""
    left: set[str] = set()
    stay: set[str] = set()
    for name, mask in found.gone.items():
        for column, values in texts[name].items():
            embedded, in_files = column in held[name].embedded, column in held[name].files
            if embedded or in_files or "sha256" in column:
                left |= _held(values, mask)
                stay |= _held(values, ~mask)
    names = left - stay
    stems = {value.partition(".")[0] for value in names}
    found.clips = {stem for stem in stems if len(stem) == CLIP}
    found.files = {value for value in names if "/" in value}


def _sift_rejects(found: Sifting, texts: Mapping[str, pa.ChunkedArray], known: _Marks) -> None:
    """Rejects leave that name, in item or detail, what is withdrawn or the key of a row that left.

    A short word of a sentence names nothing, for it may as well be a count: it must be the item or a part of it that is
    no number, the item's first part, or stand after `annotator`, `clip` or `prompt`.
    """
    keys = {value for values in found.keys.values() for value in values}

    def known_one(tokens: set[str]) -> bool:
        tokens |= {part.rstrip(".:") for part in tokens}
        return any(token in keys or token in found.clips or known.named(token) for token in tokens)

    def in_detail(text: str) -> bool:
        return known_one({word for word in _TOKEN.findall(text) if len(word) >= LONG} | set(_STATED.findall(text)))

    def in_item(text: str) -> bool:
        parts = {part for part in (*_TOKEN.findall(text), *text.split("/")) if not part.isdecimal()}
        return known_one({text, text.partition("/")[0], *parts, *_STATED.findall(text)})

    mask = _where(texts["item"], in_item) | _where(texts["detail"], in_detail)
    found.gone[REJECTS.name] = mask
    gone = pa.array(mask)
    both = zip(texts["stage"].filter(gone).to_pylist(), texts["reason"].filter(gone).to_pylist(), strict=True)
    found.rejects = Counter(both)


def _accounts(tables: Sequence[Table], steps: Sequence[Step], found: Sifting) -> list[Step]:
    """The accounts with what left: a step more for each table, and rejects that are counted, no longer listed."""
    told = [_without_rejects(step, found.rejects) for step in steps]
    last = max(step.place for step in steps)
    summed = [t.name for t in tables if t.key and not t.links and not t.splits and not t.counted]
    summed = [name for name in summed if not found.counts.get(name)]
    for name, count in found.counts.items():
        for at, step in enumerate(told):
            if step.table == name:
                told[at] = step.model_copy(update={"table": None})
                notes = [f"{count:,} rows of {name} were withdrawn"]
                if summed:
                    notes.append(f"{', '.join(summed)}: counted with the rows that were withdrawn")
                    summed = []
                made: dict[str, Any] = {"follows": (step.name,), "entered": step.kept, "kept": step.kept - count}
                named = _free(f"{REASON}-{name}", [one.name for one in told])
                told.append(
                    Step(
                        name=named,
                        place=last + 1,
                        unit=step.unit,
                        **made,
                        dropped={REASON: count},
                        table=name,
                        notes=tuple(notes),
                    )
                )
                break
    return sorted(told, key=lambda step: (step.place, step.name))


def _without_rejects(step: Step, gone: Counter[tuple[str, str]]) -> Step:
    """A step's accounts; takes what it counts from `gone`, for several steps may share a stage."""
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
