"""Read caption sets in the text-to-music baseline's JSON and TSV forms.

`jamendo_qwen.json` is one array, `[{"path": "00/1085700.mp3", "caption": "…"}]`, with the path of the original audio;
`jamendo_train.tsv` holds `id<tab>caption` lines, without quoting and with or without a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.places import without_place
from earmark.schemas.rejects import Note, Reject, shown
from earmark.tasks.importers.cells import identifier
from earmark.tasks.importers.json_arrays import read_json
from earmark.tasks.importers.lines import most_rows, read_lines
from earmark.tasks.importers.lists import Cells, parsed, require_once
from earmark.tasks.importers.music import words

HEADER = ["id", "caption"]


class ListedCaption(NamedTuple):
    """A caption set's text for a clip."""

    item: str  # the clip in the set's words: a path or an id
    text: str
    source_file: str
    line: int  # line of a TSV, or place in a JSON array, from 1
    source: str | None = None  # the clip's dataset, if the set names it


def read_captions(path: Path, written: str) -> Iterator[ListedCaption | Reject | Note]:
    """Yield a caption or a reject for each line or object of a `.json` or `.tsv` file (also `.gz`), in order.

    Rows and rejects name the file by `written`, its path as the config writes it.

    Raises:
        InputError: the file is missing, or is not what its ending says.
    """
    name = without_place(written)
    match path.name.lower().removesuffix(".gz").rpartition(".")[2]:
        case "json":
            rows = _objects(path, name)
        case "tsv":
            rows = _lines(path, name)
        case _:
            raise InputError(f"{name}: expected captions in a file ending in .json or .tsv, found '{shown(written)}'")
    lines: dict[str, int] = {}

    def parse(cells: Cells, line: int) -> ListedCaption:
        caption = ListedCaption(identifier(cells[0], "item"), words(cells[1], "caption") or "", name, line)
        require_once(lines, caption.item, line, "clip")
        return caption

    yield from parsed(name, rows, parse)
    if not lines:
        yield Note(f"{name} holds no captions")


def _lines(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    for line, text in read_lines(path, name):
        if isinstance(text, Reject):
            yield line, text
            continue
        cells = text.split("\t")
        if len(cells) != len(HEADER):
            detail = f"expected {len(HEADER)} fields, found {len(cells)}"
            yield line, Reject(shown(text), "bad_line", detail, name, line)
        elif line > 1 or [cell.strip().lower() for cell in cells] != HEADER:
            yield line, list(cells)


def _objects(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    array = read_json(path, name, list, "a JSON array of objects")
    for place, row in enumerate(array[: most_rows()], 1):
        if isinstance(row, dict):
            yield place, [row.get("path"), row.get("caption")]
        else:
            detail = f"expected an object with path and caption, found {shown(row)}"
            yield place, Reject(shown(row), "bad_line", detail, name, place)
