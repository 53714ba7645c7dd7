"""How often a judge heard a tag on tracks that carry it, measured elsewhere: category, tag, asked, detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.places import without_place
from earmark.tasks.importers.cells import BadRow, number, shown
from earmark.tasks.importers.jamendo import MARK, Tag, parse_tag
from earmark.tasks.importers.lists import Cells, ListFile
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.table import kind_of, read_table

COLUMNS = ("category", "tag", "asked", "detected")


class Recall(NamedTuple):
    """How often a tag was heard."""

    tag: Tag
    asked: int  # its tracks that a judge was asked about
    detected: int  # of these, those on which it was heard


def read_recalls(path: Path, written: str) -> Iterator[Recall | Reject | Note]:
    """Read a CSV, TSV, JSON lines or Parquet table with the columns `category`, `tag`, `asked` and `detected`.

    Args:
        path: the file.
        written: the path as the config writes it; rejects name it.

    Raises:
        InputError: the file or a column is missing, or the file is not what its ending says.
    """
    file = ListFile(path, without_place(written), "", kind_of("recalls", written))
    seen: dict[Tag, int] = {}
    for line, cells in read_table(file, COLUMNS):
        if isinstance(cells, Reject | Note):
            yield cells
            continue
        row: Cells = cells
        try:
            tag = parse_tag(f"{row[0]}{MARK}{row[1] or ''}", {})
            recall = Recall(tag, _count(row[2]), _count(row[3]))
            if recall.detected > recall.asked:
                raise BadRow("bad_count", f"expected detected up to {recall.asked}, found {recall.detected}")
            if seen.setdefault(tag, line) != line:
                raise BadRow("duplicate_id", f"expected each tag once, found it in line {seen[tag]}")
        except BadRow as bad:
            yield Reject(shown(row[1]), bad.reason, bad.detail, file.name, line)
        else:
            yield recall


def _count(cell: Any) -> int:
    value = number(cell)
    if value >= 0 and value.is_integer() and value < 2**53:
        return int(value)
    raise BadRow("bad_count", f"expected a whole number from 0, found '{shown(cell)}'")
