"""Caption sets in the forms that the text-to-music baseline reads and writes.

`jamendo_qwen.json` is one array, `[{"path": "00/1085700.mp3", "caption": "…"}]`, with the path of the original audio;
`jamendo_train.tsv` holds `id<tab>caption` lines, without quoting and with or without that header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.places import without_place
from earmark.tasks.importers.cells import BadRow, identifier, shown
from earmark.tasks.importers.lines import most_rows, open_list, read_lines, unreadable
from earmark.tasks.importers.music import words
from earmark.tasks.importers.rows import Note, Reject

HEADER = ["id", "caption"]


class Caption(NamedTuple):
    """What a caption set says of one clip."""

    item: str  # the clip, as the set names it: a path or an id
    text: str
    source_file: str
    line: int  # line of a TSV, or place in a JSON array, from 1
    source: str | None = None  # whose clip it is, where the set says so


def read_captions(path: Path, written: str) -> Iterator[Caption | Reject | Note]:
    """Yield one caption or one reject for each line or object, in order.

    Args:
        path: a `.json` or `.tsv` file; either may end in `.gz` too.
        written: the path as the config writes it; rows and rejects name it.

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
    seen: dict[str, int] = {}
    for line, cells in rows:
        if isinstance(cells, Reject):
            yield cells
            continue
        try:
            caption = Caption(identifier(cells[0], "item"), words(cells[1], "caption") or "", name, line)
            first = seen.setdefault(caption.item, line)
            if first != line:
                raise BadRow("duplicate_id", f"expected each clip once, found it in line {first}")
        except BadRow as bad:
            yield Reject(shown(cells[0]), bad.reason, bad.detail, name, line)
        else:
            yield caption
    if not seen:
        yield Note(f"{name} holds no captions")


def _lines(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    for line, text in read_lines(path, name):
        if isinstance(text, Reject):
            yield line, text
            continue
        cells = text.split("\t")
        if len(cells) != len(HEADER):
            detail = f"expected {len(HEADER)} fields, found {len(cells)}"
            yield line, Reject(shown(text), "ragged_row", detail, name, line)
        elif line > 1 or [cell.strip().lower() for cell in cells] != HEADER:
            yield line, list(cells)


def _objects(path: Path, name: str) -> Iterable[tuple[int, list[Any] | Reject]]:
    try:
        with open_list(path) as stream:
            held = json.loads(stream.read().decode("utf-8-sig"))
    except (OSError, EOFError) as error:
        raise unreadable(name, error) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: expected a JSON array, found: {shown(error)}") from None
    if not isinstance(held, list):
        raise InputError(f"{name}: expected a JSON array of objects, found {shown(held)}")
    for place, row in enumerate(held[: most_rows()], 1):
        if isinstance(row, dict):
            yield place, [row.get("path"), row.get("caption")]
        else:
            detail = f"expected an object with path and caption, found {shown(row)}"
            yield place, Reject(shown(row), "bad_json", detail, name, place)
