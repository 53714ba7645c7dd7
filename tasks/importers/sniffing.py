"""Read the first rows of a table as text; detect its delimiter and its header.

A faulty first line is reported, never dropped in silence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.rejects import Reject, shown
from earmark.tasks.importers.cells import number
from earmark.tasks.importers.column_words import HOLDERS, read_name
from earmark.tasks.importers.json_arrays import object_lines, read_records
from earmark.tasks.importers.lines import read_rows
from earmark.tasks.importers.lists import UNFILLED, ListFile, fitted

LOOKED_AT = 20_000  # rows
LEAST_FITS = 0.5  # share of the rows that must be as wide as the first
MARKS = (",", "\t", ";", "|", " ")
WORDS = {",": "comma", "\t": "tab", ";": "semicolon", " ": "space", "|": "|"}
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aiff")
BOOKS = {b"PK\x03\x04": "a workbook (Excel, LibreOffice) or another zip file", b"\xd0\xcf\x11\xe0": "an Excel workbook"}
AS_CSV = (
    "save it as CSV, one rating a row: in Excel 'Save as', 'CSV UTF-8'; in LibreOffice 'Save as', 'Text CSV', UTF-8"
)


class Sample(NamedTuple):
    """A table's first rows."""

    delimiter: str  # empty for a table other than text
    names: list[str]  # of the columns; empty without a header
    rows: list[list[str]]


def require_table(path: Path) -> None:
    """Refuse a workbook.

    Raises:
        InputError: the file is a workbook; the message says how to save it.
    """
    with path.open("rb") as file:
        start = file.read(4)
    if start in BOOKS or path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise InputError(f"{path.name}: expected a table as text, found {BOOKS.get(start, 'a workbook')}: {AS_CSV}")


def ending(path: Path) -> str:
    """Return the type in a table's name."""
    return "".join(path.suffixes[-2:]).lower().removesuffix(".gz").rpartition(".")[2]


def read_sample(path: Path, encoding: str = "") -> Sample:
    """Read the first rows of CSV, TSV or TXT (also `.gz`), JSON, JSON lines or Parquet.

    Raises:
        InputError: the file cannot be read as a table, or its first line does not fit the others.
    """
    readers: dict[str, Callable[[Path], Sample]] = {
        **{"parquet": _parquet, "jsonl": _objects, "ndjson": _objects, "json": _records}
    }
    reader = readers.get(ending(path))
    return reader(path) if reader else _text(path, encoding)


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, also with a decimal comma."""
    return math.isfinite(number(cell.strip().replace(",", ".", 1)))


def is_audio(cell: str) -> bool:
    """Return whether a cell ends like the name of a sound file."""
    return cell.strip().lower().endswith(AUDIO)


def _parquet(path: Path) -> Sample:
    import pyarrow.parquet as pq

    try:
        batch = next(pq.ParquetFile(path).iter_batches(LOOKED_AT))
    except (OSError, ValueError, StopIteration) as error:
        raise InputError(f"{path.name or path}: expected a Parquet file with rows: {shown(error)}") from None
    rows = [[_cell(cell) for cell in row.values()] for row in batch.to_pylist()]
    return Sample("", list(batch.schema.names), rows)


def _objects(path: Path) -> Sample:
    lines = [row for _, row in islice(object_lines(ListFile(path, path.name)), LOOKED_AT)]
    objects = [row for row in lines if isinstance(row, dict)]
    faults = [row for row in lines if isinstance(row, Reject)]
    if len(objects) < 2 and faults:
        raise InputError(f"{path.name}, line {faults[0].line}: {faults[0].detail}")
    return _named(objects)


def _records(path: Path) -> Sample:
    objects = list(islice(read_records(ListFile(path, path.name)), LOOKED_AT))
    if len(objects) < 2:
        raise InputError(
            f"{path.name}: expected an array of objects, one a rating, found JSON of another shape: {AS_CSV}"
        )
    return _named(objects)


def _named(objects: list[dict[str, object]]) -> Sample:
    names = list(dict.fromkeys(name for row in objects for name in row))
    return Sample("", names, [[_cell(row.get(name)) for name in names] for row in objects])


def _cell(cell: object) -> str:
    if isinstance(cell, list) and not any(isinstance(one, dict | list) for one in cell):
        return f"[{', '.join(map(str, cell))}]"
    return "" if cell is None else str(cell)


def _text(path: Path, encoding: str) -> Sample:
    name = path.name or str(path)
    splits = {mark: list(islice(read_rows(path, name, mark, encoding=encoding), LOOKED_AT)) for mark in MARKS}
    first = next(iter(splits[","]), None)
    if first and isinstance(first[1], Reject) and first[1].reason == "bad_encoding":
        raise InputError(
            f"{name}, line 1: {first[1].detail}; save the file as UTF-8, or say how it is written: --encoding latin-1 "
            "(Western Windows: cp1252; Chinese: gb18030; a NUL at every other byte: utf-16-le)"
        )
    tables = [
        _table(mark, [cells for _, cells in rows if not isinstance(cells, Reject)]) for mark, rows in splits.items()
    ]
    best = max(
        tables,
        key=lambda one: (one.share > 0, one.fits > LEAST_FITS, one.share, one.width if one.fits <= LEAST_FITS else 0),
    )
    if not best.share:
        raise InputError(f"{name}: expected a table of two columns or more, found no delimiter that splits its rows")
    if best.fits < LEAST_FITS:
        other = next((mark for mark in MARKS[:-1] if len(best.top) == 1 and mark in best.top[0]), None)
        why = f" (line 1 is split by {WORDS[other]}, the rows by {WORDS[best.mark]})" if other else ""
        raise InputError(f"{name}: line 1 has {len(best.top)} cells, the rows below it {best.width}{why}: mend line 1")
    kept = best.body if best.heads else [best.top, *best.body]
    names = [cell.strip() for cell in best.top] if best.heads else []
    return Sample(best.mark, names, [cells for cells in kept if len(cells) == len(best.top)])


class _Split(NamedTuple):
    """The result of splitting a list by a delimiter."""

    mark: str
    top: list[str]
    body: list[list[str]]
    heads: bool  # whether the first row names columns
    width: int  # the most frequent of the rows
    share: float  # share of the rows of that width; 0 below two cells
    fits: float  # share of the rows as wide as the first


def _table(mark: str, rows: list[list[str]]) -> _Split:
    top, body = (rows[0], rows[1:]) if rows else ([], [])
    width, count = Counter(map(len, body or rows)).most_common(1)[0] if rows else (0, 0)
    heads = _names_columns(top, body)
    least = len(top)
    while heads and least > 1 and top[least - 1].strip().lower() in UNFILLED:
        least -= 1
    body = [fitted(cells, least, len(top)) for cells in body]
    fits = sum(len(cells) == len(top) for cells in body) / len(body) if body else 1.0
    return _Split(mark, top, body, heads, width, count / len(body or rows) if width > 1 else 0.0, fits)


def _names_columns(top: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names columns: it differs from rows of numbers, clips or other words."""
    unlike = False
    for at, cell in enumerate(top):
        below = [cells[at] for cells in body[:50] if at < len(cells)]
        if not below or not cell.strip():
            continue
        if _is_name(cell) and sum(map(_is_name, below)) < 0.5 * len(below):
            return True
        unlike = unlike or any(
            sum(map(kind, below)) > 0.8 * len(below) and not kind(cell) for kind in (is_number, is_audio)
        )
    return unlike and not any(map(is_number, top))


def _is_name(cell: str) -> bool:
    if is_audio(cell) or is_number(cell) or "/" in cell:
        return False
    name = read_name(cell)
    return name.rates or name.file is not None or any(map(name.holds, HOLDERS))
