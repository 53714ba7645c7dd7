"""Read a judge's recall of tags on tracks carrying them, measured elsewhere: category, tag, asked, detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.rejects import Note, Reject, shown
from earmark.schemas.tracks import MARK, Tag
from earmark.tasks.importers.cells import BadRow, number
from earmark.tasks.importers.jamendo import parse_tag
from earmark.tasks.importers.lists import Cells, parsed, require_once
from earmark.tasks.importers.table import read_table, table_file

COLUMNS = ("category", "tag", "asked", "detected")


class Recall(NamedTuple):
    """Detections of a tag."""

    tag: Tag
    asked: int  # its tracks in the judge's questions
    detected: int  # of these, tracks with the tag detected
    source_file: str


def read_recalls(path: Path, written: str) -> Iterator[Recall | Reject | Note]:
    """Read a CSV, TSV, JSON lines or Parquet table with the columns `category`, `tag`, `asked` and `detected`.

    Raises:
        InputError: the file or a column is missing, or the content contradicts the file's ending.
    """
    file, lines = table_file(path, written), dict[Tag, int]()

    def parse(cells: Cells, line: int) -> Recall:
        tag = parse_tag(f"{cells[0]}{MARK}{cells[1] or ''}", {})
        recall = Recall(tag, _count(cells[2]), _count(cells[3]), file.name)
        if recall.detected > recall.asked:
            raise BadRow("bad_value", f"expected detected up to {recall.asked}, found {recall.detected}")
        require_once(lines, recall.tag, line, "tag")
        return recall

    return parsed(file.name, read_table(file, COLUMNS), parse, item=1)


def _count(cell: Any) -> int:
    value = number(cell)
    if value >= 0 and value.is_integer() and value < 2**53:
        return int(value)
    raise BadRow("bad_value", f"expected a whole number of tracks from 0, found '{shown(cell)}'")
