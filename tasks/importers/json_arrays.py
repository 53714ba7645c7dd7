"""Read JSON strictly: an object a line, a whole document, or a document of many objects, each with its line.

A key given twice, or nesting too deep to read, is a fault.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject, shown
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.lines import most_rows, open_list, read_lines, unreadable
from earmark.tasks.importers.lists import ListFile

MOST_BYTES = 1 << 30
_SPACE = " \t\r\n"

Json = TypeVar("Json", dict[str, Any], list[Any])


def read_documents(file: ListFile) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    """Yield the objects of a file with their first lines. A member of another type is a reject."""
    if file.path.name.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
        yield from object_lines(file)
    else:
        yield from _members(file, read_text(file.path, file.name))


def object_lines(file: ListFile) -> Iterator[tuple[int, dict[str, Any] | Reject]]:
    """Yield each line's object, or its reject."""
    for line, text in read_lines(file.path, file.name):
        if isinstance(text, Reject):
            yield line, text
            continue
        try:
            yield line, parse_object(text)
        except BadRow as bad:
            yield line, Reject(shown(text), bad.reason, bad.detail, file.name, line)


def read_text(path: Path, name: str) -> str:
    """Read the text of a whole document of at most 1 GiB.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or is longer.
    """
    try:
        with open_list(path) as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{name}: expected at most {MOST_BYTES} bytes of JSON, found more; use JSON lines")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise unreadable(name, error) from None


def read_json(path: Path, name: str, kind: type[Json], words: str) -> Json:
    """Read a document's value; `name` and `words` give the document and the expected value in messages.

    Raises:
        InputError: the file cannot be read, is not JSON, holds another kind of value, or one key twice.
    """
    try:
        value = json.loads(read_text(path, name), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: expected {words}, found: {shown(error)}") from None
    if not isinstance(value, kind):
        raise InputError(f"{name}: expected {words}, found {shown(value)}")
    return value


def parse_object(text: str) -> dict[str, Any]:
    """Parse a text's object; raise `BadRow` without one."""
    try:
        value = _STRICT.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadRow("bad_line", f"expected a JSON object, found: {shown(error)}") from None
    if isinstance(value, dict):
        return value
    raise BadRow("bad_line", f"expected a JSON object, found {shown(text.strip())}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key '{twice}' twice")
    return by_key


_STRICT = json.JSONDecoder(object_pairs_hook=_unique)  # one for all lines: to make one takes as long as to read a line


def read_records(file: ListFile, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a document: the objects of its innermost arrays, each with the fields of the objects around it.

    An array without any of the columns is a cell, so that a clip's segments do not repeat its rating. None opens all.

    Keys of an object within an object are joined by dots; `data` around all rows is no part of their names. Two arrays
    side by side, `name` and `response`, are names and values, as webMUSHRA (Schoeffler et al. 2018) writes a
    participant's answers.
    """
    for _, row in read_documents(file):
        if isinstance(row, Reject):
            raise InputError(f"{file.name}, line {row.line}: {row.detail}")
        if not isinstance(row, Note):
            yield from _flattened(row, columns)


def flat_lines(
    rows: Iterable[tuple[int, dict[str, Any] | Reject]], columns: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, Any] | Reject]]:
    """Yield the rows of each line's object, as `read_records` does those of a document."""
    for line, row in rows:
        yield from [(line, row)] if isinstance(row, Reject) else ((line, one) for one in _flattened(row, columns))


def _flattened(row: dict[str, Any], columns: Sequence[str] | None, before: str = "") -> Iterator[dict[str, Any]]:
    flat: dict[str, Any] = {}
    inner: list[tuple[str, list[Any]]] = []
    names, values = row.get("name"), row.get("response")
    if row.keys() == {"name", "response"} and isinstance(names, list) and isinstance(values, list):
        row = dict(zip(map(str, names), values, strict=False))
    for key, value in row.items():
        if isinstance(value, dict):
            rows = list(_flattened(value, columns, f"{before}{key}."))
            if len(rows) == 1:
                flat |= rows[0]
            else:
                inner.append(("", rows))
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            prefix = "" if key == "data" and not before else f"{before}{key}."
            if columns is None or any(column.startswith(prefix) for column in columns):
                inner.append((prefix, value))
            else:
                flat[before + key] = value
        else:
            flat[before + key] = value
    if not inner:
        yield flat
    for prefix, members in inner:
        for member in members:
            for one in _flattened(member, columns, prefix):
                yield flat | one


def _members(file: ListFile, text: str) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    at = _skip(text, 0)
    if not text[at:].strip():
        yield 0, Note(f"{file.name} is empty")
        return
    many = text[at] == "["
    if not many and text[at] != "{":
        raise InputError(f"{file.name}: expected a JSON array or object, found {shown(text[at:])}")
    at = _skip(text, at + 1) if many else at
    line, counted, most, row = 1, 0, most_rows(), 0
    while at < len(text) and not (many and text[at] == "]"):
        if most is not None and (most := most - 1) < 0:
            return
        if not many and text[at] != "{":
            raise _another(file, text, at)
        line, counted, row = line + text.count("\n", counted, at), at, row + 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            place = f"line {line}{f', object {row}' * many}"
            raise InputError(f"{file.name}: expected JSON, found a fault at {place}: {shown(error)}") from None
        if isinstance(value, dict):
            yield line, value
        else:
            yield line, Reject(shown(value), "bad_line", f"expected an object, found {shown(value)}", file.name, line)
        at = _skip(text, at)
        if not many:
            continue  # JSON lines, whatever the file's name
        if at >= len(text) or text[at] not in ",]":
            raise InputError(f"{file.name}: expected an array that ends, found a fault after line {line}")
        at = _skip(text, at + 1) if text[at] == "," else at
    if many and at >= len(text):
        raise InputError(f"{file.name}: expected an array that ends, found a file that is cut")
    if many and (at := _skip(text, at + 1)) < len(text):
        raise _another(file, text, at)


def _another(file: ListFile, text: str, at: int) -> InputError:
    line = 1 + text[:at].rstrip(_SPACE).count("\n")
    return InputError(
        f"{file.name}: expected one JSON document, or an object a line, found another value after line {line}: "
        f"{shown(text[at:])}"
    )


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
