"""Text lists as disks really hold them, streamed: one bad line costs that line, never the file.

UTF-8 with or without a byte order mark; lines that end in LF, CRLF or CR; with or without an end after the last.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import IO

from earmark.schemas.errors import InputError
from earmark.schemas.files import NotAFile, open_regular, require_regular
from earmark.tasks.importers.cells import BadRow, shown
from earmark.tasks.importers.rows import Reject

LONGEST_LINE = 1 << 20  # bytes
BLOCK = LONGEST_LINE  # bytes read at once; not more, so that only a block's first line can be too long
QUOTED_LINES = 32  # lines that one quoted field may span
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

_most_rows: ContextVar[int | None] = ContextVar("most_rows", default=None)

Line = tuple[int, str | Reject]
Row = tuple[int, list[str] | Reject]


@contextmanager
def first_rows(most: int) -> Iterator[None]:
    """Read every list up to its first rows only, whatever reads it; a document of JSON is read whole all the same."""
    before = _most_rows.set(most)
    try:
        yield
    finally:
        _most_rows.reset(before)


def most_rows() -> int | None:
    """How many rows of a list are wanted; None for all."""
    return _most_rows.get()


def read_lines(path: Path, name: str) -> Iterator[Line]:
    """Every line that is not blank, with its number from 1; a line that cannot be read comes as its reject.

    Args:
        path: the list; read through gzip where its name ends in `.gz`.
        name: what messages and rejects call the list.

    Raises:
        InputError: the file as a whole cannot be read, or is not UTF-8 but UTF-16.
    """
    number, most = 0, most_rows()
    try:
        with open_list(path) as stream:
            for lines in _raw_lines(stream, name):
                for text in _at_once(lines) or _one_by_one(lines, name, number):
                    if number == most:
                        return
                    number += 1
                    if text and not (isinstance(text, str) and text.isspace()):
                        yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(name, error) from None


def read_rows(path: Path, name: str, delimiter: str = ",") -> Iterator[Row]:
    """The fields of every line that is not blank, each row with the number of its first line.

    A line without a quote is split as it stands. Otherwise quotes are read strictly, and a quoted field may span
    up to `QUOTED_LINES` lines; one that does not end costs its first line, and reading goes on with the next.
    """
    lines = read_lines(path, name)
    waiting: deque[Line] = deque()  # lines that a quote reached for in vain
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        number, text = line
        if isinstance(text, Reject):
            yield number, text
        elif '"' in text:
            yield number, _quoted(number, text, name, delimiter, lines, waiting)
        else:
            yield number, text.split(delimiter)


def open_list(path: Path) -> IO[bytes]:
    """Open a list for reading bytes, unpacked where its name ends in `.gz`."""
    if path.suffix == ".gz":
        return gzip.open(require_regular(path))  # type: ignore[return-value]
    return BufferedReader(open_regular(path))


def unreadable(name: str, error: Exception) -> InputError:
    """The one line that says why a whole list cannot be read."""
    if isinstance(error, FileNotFoundError):
        return InputError(f"{name}: file not found")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{name}: expected a list, found a folder")
    if isinstance(error, NotAFile):
        return InputError(f"{name}: {error.strerror}")
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return InputError(f"{name}: expected gzip data, found a damaged or truncated file")
    return InputError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or shown(error)}")


def _raw_lines(stream: IO[bytes], name: str) -> Iterator[list[bytes]]:
    """Lines without their ends, a block at a time. Of a line that is too long, enough is kept to see that it is."""
    tail = b""
    first = True
    while block := stream.read(BLOCK):
        if first:
            first = False
            if block.startswith(_UTF16_MARKS):
                raise InputError(f"{name}: expected UTF-8 text, found UTF-16; save it as UTF-8")
            block = block.removeprefix(_UTF8_MARK)
        text = tail + block
        held = b"\r" if text.endswith(b"\r") else b""  # its \n may come with the next block
        body = text[: len(text) - len(held)]
        cut = 1 + max(body.rfind(b"\n"), body.rfind(b"\r"))
        if cut:
            yield body[:cut].splitlines()
        tail = body[cut:][: LONGEST_LINE + 1] + held
    if tail:
        yield tail.splitlines()


def _at_once(lines: list[bytes]) -> list[str] | None:
    """The text of all lines, as almost every block allows; None where one of them needs a look of its own."""
    joined = b"\n".join(lines)
    if b"\0" in joined or len(lines[0]) > LONGEST_LINE:  # others lie within one block
        return None
    try:
        return joined.decode().split("\n")
    except UnicodeDecodeError:
        return None


def _one_by_one(lines: list[bytes], name: str, before: int) -> Iterator[str | Reject]:
    for number, raw in enumerate(lines, before + 1):
        try:
            yield _decoded(raw)
        except BadRow as bad:
            yield Reject(shown(raw[:400].decode(errors="backslashreplace")), bad.reason, bad.detail, name, number)


def _decoded(raw: bytes) -> str:
    if len(raw) > LONGEST_LINE:
        raise BadRow("line_too_long", f"expected at most {LONGEST_LINE} bytes, found more")
    if b"\0" in raw:
        raise BadRow("nul_byte", f"expected text, found a NUL at byte {raw.index(0) + 1}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at position {error.start + 1}"
        raise BadRow("bad_encoding", f"expected UTF-8, found {where}") from None


def _quoted(
    number: int, text: str, name: str, delimiter: str, lines: Iterator[Line], waiting: deque[Line]
) -> list[str] | Reject:
    """The fields of a row with quotes, taking further lines from `waiting`, then `lines`, while a quote is open."""
    parts, taken = [text], list[Line]()
    while True:
        try:
            return next(csv.reader(parts, delimiter=delimiter, strict=True))
        except csv.Error as error:
            reason = "unterminated_quote" if "end of data" in str(error) else "bad_quoting"
            detail = f"expected quotes around whole fields, found: {shown(error)}"
        closed = False
        while not closed and reason == "unterminated_quote" and len(taken) < QUOTED_LINES - 1:
            following = waiting.popleft() if waiting else next(lines, None)
            taken += [following] if following else []
            if following is None or isinstance(following[1], Reject):
                break
            parts[-1] += "\n"
            parts.append(following[1])
            closed = '"' in following[1]  # nothing else closes a quote
        if not closed:
            waiting.extendleft(reversed(taken))
            return Reject(shown(text), reason, detail, name, number)
