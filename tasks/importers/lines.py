"""Stream text lists; a bad line costs only itself, never the file.

Encodings: UTF-8 with or without a byte order mark, UTF-16 with a mark, or the config's. Lines
end in LF, CRLF or CR; with or without an end after the last.
"""

import codecs
import csv
import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any

from earmark.schemas.errors import InputError
from earmark.schemas.files import NotAFile, open_regular, require_regular
from earmark.schemas.places import told
from earmark.schemas.reasons import Reject, shown
from earmark.tasks.importers.cells import BadRow

LONGEST_LINE = 1 << 20  # bytes
BLOCK = LONGEST_LINE  # bytes read at once; not more, so that only a block's first line can be too long
QUOTED_LINES = 32  # lines within a quoted field
_SEP = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # Excel's, above the header
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_most_rows: ContextVar[int | None] = ContextVar("most_rows", default=None)

Line = tuple[int, str | Reject]
Row = tuple[int, list[str] | Reject]


@contextmanager
def first_rows(most: int) -> Iterator[None]:
    """Limit reading of every list to its first rows; documents of JSON are still read whole."""
    before = _most_rows.set(most)
    try:
        yield
    finally:
        _most_rows.reset(before)


def most_rows() -> int | None:
    """Return the limit on rows of a list; None for all."""
    return _most_rows.get()


def read_lines(path: Path, name: str, encoding: str = "") -> Iterator[Line]:
    """Yield every non-blank line with its number from 1; yield unreadable lines as rejects.

    Args:
        path: the list; read through gzip where its name ends in `.gz`.
        name: the list's name in messages and rejects.
        encoding: the config's; default: UTF-8, or UTF-16 after its mark.

    Raises:
        InputError: the whole file cannot be read, or has bytes invalid in its encoding.
    """
    number, most = 0, most_rows()
    try:
        with open_list(path, encoding) as stream:
            for lines in _raw_lines(stream):
                for text in _at_once(lines) or _one_by_one(lines, name, number):
                    if number == most:
                        return
                    number += 1
                    if text and not (isinstance(text, str) and text.isspace()):
                        yield number, text
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise unreadable(name, error) from None


def read_rows(
    path: Path, name: str, delimiter: str = ",", quotes: bool | None = None, encoding: str = ""
) -> Iterator[Row]:
    """Yield the fields of every non-blank line, each row with the number of its first line.

    A line without a quote is split directly. Otherwise quotes are read strictly, and a quoted field may span
    up to `QUOTED_LINES` lines. An unterminated quote costs its first line, and reading goes on with the next. So does
    a quoted field whose lines are each a row as wide as the first: somebody left the quote open. A first line of
    Excel's, such as `sep=;`, is no row and decides the delimiter.

    Args:
        quotes: whether a quoted field may hold delimiters and line ends. None: yes; between tabs, a quote without such
            a field is text, and costs no line.
    """
    lines = read_lines(path, name, encoding)
    waiting: deque[Line] = deque()  # lines read in vain for the end of a quote
    width = 0
    while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
        number, text = line
        row: list[str] | Reject
        if isinstance(text, Reject):
            row = text
        elif number == 1 and (named := _SEP.fullmatch(text)):
            delimiter = named[1]
            continue
        elif '"' in text and quotes is not False:
            row = _quoted(number, text, name, delimiter, width, lines, waiting)
            if isinstance(row, Reject) and quotes is None and delimiter == "\t":
                row = [_bare(cell) for cell in text.split(delimiter)]
        else:
            row = text.split(delimiter)
        width = width or (0 if isinstance(row, Reject) else len(row))
        yield number, row


def open_list(path: Path, encoding: str = "") -> IO[bytes]:
    """Open a list for reading as UTF-8; unpack it if its name ends in `.gz`."""
    packed = path.suffix == ".gz"
    stream: Any = gzip.open(require_regular(path)) if packed else BufferedReader(open_regular(path))  # noqa: SIM115
    encoding = encoding or ("utf-16" if stream.peek(2).startswith(_UTF16_MARKS) else "")
    return BufferedReader(_Recoded(stream, encoding), BLOCK) if encoding else stream


class _Recoded(RawIOBase):
    """A stream of another encoding, read as UTF-8; an end within a letter is a fault."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready, self._ended = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            block = self._stream.read(BLOCK)
            self._ended = not block
            self._ready = self._decoder.decode(block, self._ended).encode()
        taken = self._ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self._ready = self._ready[len(taken) :]
        return len(taken)

    def close(self) -> None:
        self._stream.close()
        super().close()


def named_delimiter(path: Path, name: str, encoding: str = "") -> str:
    """Return the delimiter that a list's first line names, as Excel writes it; empty without one."""
    for _, text in read_lines(path, name, encoding):
        named = _SEP.fullmatch(text) if isinstance(text, str) else None
        return named[1] if named else ""
    return ""


def is_utf16(path: Path) -> bool:
    """Return whether a list begins with the mark of UTF-16."""
    with gzip.open(require_regular(path)) if path.suffix == ".gz" else path.open("rb") as stream:
        return stream.read(2) in _UTF16_MARKS


def unreadable(name: str, error: Exception) -> InputError:
    """Return the error for an unreadable list, in one line."""
    if isinstance(error, FileNotFoundError):
        there = told(Path(error.filename)) if error.filename else ""
        missing = InputError(f"{name}: file not found" + (f": {there}" if there and there not in name else ""))
        missing.path = str(error.filename or "")
        return missing
    if isinstance(error, IsADirectoryError):
        return InputError(f"{name}: expected a list, found a folder")
    if isinstance(error, NotAFile):
        return InputError(f"{name}: {error.strerror}")
    if isinstance(error, UnicodeError):
        if not isinstance(error, UnicodeDecodeError):
            return InputError(f"{name}: expected text, found: {shown(error)}; save it as UTF-8")
        form = error.encoding.upper().replace("_", "-")
        return InputError(
            f"{name}: expected {form} text, found byte {error.object[error.start]:#04x}; save it as UTF-8"
        )
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return InputError(f"{name}: expected gzip data, found a damaged or truncated file")
    return InputError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or shown(error)}")


def _raw_lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield lines without their ends, a block at a time; keep enough of an overlong line to detect it."""
    tail = b""
    first = True
    while block := stream.read(BLOCK):
        if first:
            first = False
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
    """Decode all lines at once, the usual case; return None if a line needs separate decoding."""
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
        raise BadRow("bad_line", f"expected at most {LONGEST_LINE} bytes, found more")
    if b"\0" in raw:
        raise BadRow("bad_encoding", f"expected text, found a NUL at byte {raw.index(0) + 1}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {raw[error.start]:#04x} at position {error.start + 1}"
        raise BadRow("bad_encoding", f"expected UTF-8, found {where}") from None


def _bare(cell: str) -> str:
    """Return a field without quotes around the whole of it."""
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else cell


def _quoted(
    number: int, text: str, name: str, delimiter: str, width: int, lines: Iterator[Line], waiting: deque[Line]
) -> list[str] | Reject:
    """Parse the fields of a row with quotes; take further lines from `waiting`, then `lines`, while a quote is open."""
    parts, taken = [text], list[Line]()
    while True:
        closed = False
        try:
            cells = next(csv.reader(parts, delimiter=delimiter, strict=True))
        except csv.Error as error:
            still_open = "end of data" in str(error)
            detail = f"expected quotes around whole fields, found: {shown(error)}"
            while not closed and still_open and len(taken) < QUOTED_LINES - 1:
                following = waiting.popleft() if waiting else next(lines, None)
                taken += [following] if following else []
                if following is None or isinstance(following[1], Reject):
                    break
                parts[-1] += "\n"
                parts.append(following[1])
                closed = '"' in following[1]  # nothing else closes a quote
        else:
            if not taken or width < 2 or any(part.count(delimiter) != width - 1 for part in parts):
                return cells
            detail = f"expected a quote that closes in its row, found each of {len(parts)} lines to be a row by itself"
        if not closed:
            waiting.extendleft(reversed(taken))
            return Reject(shown(text), "bad_line", detail, name, number)
