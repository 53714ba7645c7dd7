"""Caption sets in their published layouts, and in tables: which clip a text is of, and what it says."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from schemas.errors import InputError
from schemas.places import without_place
from tasks.importers.captions import Caption, read_captions
from tasks.importers.cells import BadRow, clip, identifier, shown
from tasks.importers.lists import ListFile
from tasks.importers.music import words
from tasks.importers.rows import Note, Reject
from tasks.importers.table import kind_of, read_table


class Instruction(NamedTuple):
    """What a caption set says of one clip."""

    item: str  # the row's id, with the text's column where a row holds several
    audio: str  # path below the set's audio folder
    text: str
    group: str | None  # what the set says belongs together: a recording, an artist
    model: str | None  # what generated the audio
    source_file: str
    line: int


class Layout(NamedTuple):
    """Where a layout keeps what: columns, and the clip's file as a pattern of them."""

    item: str
    texts: tuple[str, ...]
    audio: str
    group: str | None = None
    model: str | None = None
    some_texts: bool = False  # whether a row may leave texts out


LAYOUTS: dict[str, Layout] = {
    "audiocaps": Layout("audiocap_id", ("caption",), "{youtube_id}_{start_time}.wav", "youtube_id"),
    "clotho": Layout("file_name", tuple(f"caption_{n}" for n in range(1, 6)), "{file_name}", some_texts=True),
    "musicbench": Layout("location", ("main_caption",), "{location}"),
    "musiccaps": Layout("ytid", ("caption",), "{ytid}.wav", "ytid"),
    "song-describer": Layout("caption_id", ("caption",), "{path}", "artist_id"),
    "instruct-tts": Layout("id", ("APS", "DSD", "RP"), "{id}.wav", some_texts=True),
    "table": Layout("id", ("text",), "{audio}", "group", "model"),
}


def read_caption_set(
    path: Path, written: str, layout: str, root: Path, pattern: str | None = None
) -> Iterator[Instruction | Reject | Note]:
    """Yield one instruction or one reject for each text, in order.

    Args:
        path: the list.
        written: the path as the config writes it; rows and rejects name it.
        layout: one of `LAYOUTS`, or `caption-list`: JSON or TSV of a clip and its caption, as `read_captions` reads.
        root: folder of the audio, absolute; clips may not leave it.
        pattern: a clip's file below it, with columns in braces; without it, the layout's own.

    Raises:
        InputError: the list or a column is missing, or the pattern has no column.
    """
    if layout == "caption-list":
        yield from _listed(path, written, str(root), pattern or "{path}")
        return
    form = LAYOUTS[layout]
    pattern = pattern or form.audio
    fields = fields_of(pattern)
    name = without_place(written)
    texts = form.texts
    wanted = tuple(dict.fromkeys((form.item, *fields, *(() if form.some_texts else texts))))
    optional = tuple(
        column for column in (*(texts if form.some_texts else ()), form.group, form.model) if column is not None
    )
    seen: set[str] = set()
    kind = "jsonl" if layout == "musicbench" else kind_of(name, written)  # its ending is .json
    for line, cells in read_table(ListFile(path, name, "", kind), wanted, optional):
        if isinstance(cells, Reject | Note):
            yield cells
            continue
        row = dict(zip((*wanted, *optional), cells, strict=True))
        yield from _texts(row, form, pattern, str(root), (name, line), seen)


def fields_of(pattern: str) -> tuple[str, ...]:
    """The columns that a pattern names.

    Raises:
        InputError: it is no pattern, or names none.
    """
    try:
        fields = tuple(field for _, field, _, _ in string.Formatter().parse(pattern) if field is not None)
    except ValueError:
        fields = ()
    if not fields or not all(field.replace("_", "a").isalnum() for field in fields):
        raise InputError(f"audio: expected a pattern with columns in braces, such as '{{id}}.wav', found '{pattern}'")
    return fields


def _texts(
    row: dict[str, Any], form: Layout, pattern: str, root: str, place: tuple[str, int], seen: set[str]
) -> Iterator[Instruction | Reject]:
    held = [column for column in form.texts if _given(row.get(column))] if form.some_texts else list(form.texts)
    for column in held or form.texts[:1]:
        try:
            item = identifier(row[form.item], "item")
            item = f"{item}#{column}" if len(form.texts) > 1 else item
            audio = _audio(row, pattern, root)
            text = words(row[column], "caption") or ""
            group = identifier(row[form.group], "group") if form.group and _given(row.get(form.group)) else None
            model = identifier(row[form.model], "model") if form.model and _given(row.get(form.model)) else None
            if item in seen:
                raise BadRow("duplicate_id", f"expected each id once, found '{shown(item)}' again")
        except BadRow as bad:
            yield Reject(shown(row[form.item]), bad.reason, bad.detail, *place)
            continue
        seen.add(item)
        yield Instruction(item, audio, text, group, model, *place)


def _audio(row: dict[str, Any], pattern: str, root: str) -> str:
    """A clip's file. A column's value is a name or path below the root, wherever the pattern puts it."""
    values = {field: clip(row[field], root) for field in fields_of(pattern)}
    return clip(pattern.format(**values), root)


def _given(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def _listed(path: Path, written: str, root: str, pattern: str) -> Iterator[Instruction | Reject | Note]:
    if set(fields_of(pattern)) != {"path"}:
        raise InputError(f"audio: expected '{{path}}' alone in the pattern of a caption list, found '{pattern}'")
    for found in read_captions(path, written):
        if not isinstance(found, Caption):
            yield found
            continue
        try:
            audio = clip(pattern.format(path=clip(found.item, root)), root)
        except BadRow as bad:
            yield Reject(shown(found.item), bad.reason, bad.detail, found.source_file, found.line)
        else:
            yield Instruction(found.item, audio, found.text, None, None, found.source_file, found.line)
