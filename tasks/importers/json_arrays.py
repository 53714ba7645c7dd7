"""JSON documents that hold many objects: an array, or one object, or an object a line; each with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from earmark.schemas.errors import InputError
from earmark.tasks.importers.cells import BadRow, shown
from earmark.tasks.importers.lines import most_rows, open_list, read_lines, unreadable
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.objects import parse_object
from earmark.tasks.importers.rows import Note, Reject

MOST_BYTES = 1 << 30
_SPACE = " \t\r\n"


def read_documents(file: ListFile) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    """The objects of a file with the line that each begins in. A member that is no object is a reject.

    Raises:
        InputError: the file cannot be read, or is neither JSON lines, nor an array, nor an object.
    """
    if file.path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        yield from _lines(file)
        return
    try:
        with open_list(file.path) as stream:
            content = stream.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise unreadable(file.name, error) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: expected UTF-8 text, found byte {error.object[error.start]:#04x}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{file.name}: expected at most {MOST_BYTES} bytes of JSON, found more; use JSON lines")
    yield from _members(file, text)


def _lines(file: ListFile) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    for line, text in read_lines(file.path, file.name):
        if isinstance(text, Reject):
            yield line, text
            continue
        try:
            yield line, parse_object(text)
        except BadRow as bad:
            yield line, Reject(shown(text), bad.reason, bad.detail, file.name, line)


def _members(file: ListFile, text: str) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    decoder = json.JSONDecoder()
    at = _skip(text, 0)
    if not text[at:].strip():
        yield 0, Note(f"{file.name} is empty")
        return
    many = text[at] == "["
    if not many and text[at] != "{":
        raise InputError(f"{file.name}: expected a JSON array or object, found {shown(text[at:])}")
    at = _skip(text, at + 1) if many else at
    line, counted, most = 1, 0, most_rows()
    while at < len(text) and text[at] != "]":
        if most is not None and (most := most - 1) < 0:
            return
        line, counted = line + text.count("\n", counted, at), at
        try:
            held, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file.name}: expected JSON, found a fault at line {line}: {shown(error)}") from None
        if isinstance(held, dict):
            yield line, held
        else:
            yield line, Reject(shown(held), "bad_json", f"expected an object, found {shown(held)}", file.name, line)
        at = _skip(text, at)
        if not many:
            break
        if at >= len(text) or text[at] not in ",]":
            raise InputError(f"{file.name}: expected an array that ends, found a fault after line {line}")
        at = _skip(text, at + 1) if text[at] == "," else at
    if many and at >= len(text):
        raise InputError(f"{file.name}: expected an array that ends, found a file that is cut")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
