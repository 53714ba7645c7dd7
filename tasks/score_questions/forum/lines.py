"""Read the bytes of a dump's file in plain Python, to explain lines refused or skipped by the fast reader."""

import json
import os
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from earmark.schemas.files import open_regular
from earmark.schemas.reasons import Reject
from earmark.tasks.importers.lines import most_rows, unreadable

BLOCK = 1 << 22
LONGEST_LINE = 1 << 24  # bytes; DuckDB's reader refuses a file with a longer one
WIDEST_WINDOW = 1 << 31  # of zstd: used by this forum's archives
LONGEST_HEADER = 18  # bytes, of a frame of zstd
UTF8_MARK = b"\xef\xbb\xbf"

Watcher = Callable[[float], object]  # called with the share of the file read


class BrokenLine(NamedTuple):
    """A line without an object."""

    line: int  # among the non-blank lines, from 1
    reason: str
    detail: str


def is_packed(path: Path) -> bool:
    """Return whether a file is read through zstd."""
    return path.suffix == ".zst"


def is_whole(path: Path) -> bool:
    """Return whether a zstd file ends with its last frame. Unpackers read a cut file up to its cut without an error.

    Only the headers of frames and blocks are read (RFC 8878, section 3.1), in a hundredth of the time of unpacking.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        at = 0
        while at < size:
            file.seek(at)
            head = file.read(LONGEST_HEADER)
            if head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5:  # a skippable frame
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            try:
                at += zstandard.frame_header_size(head)
                checksum_bytes = 4 if zstandard.get_frame_parameters(head).has_checksum else 0
            except zstandard.ZstdError:
                return False
            last = False
            while not last and at < size:
                file.seek(at)
                block = int.from_bytes(file.read(3), "little")
                last, repeats, length = bool(block & 1), block >> 1 & 3 == 1, block >> 3
                at += 3 + (1 if repeats else length)
            at += checksum_bytes if last else 1
    return at == size


def blocks(path: Path, seen: Watcher | None = None) -> Iterator[bytes]:
    """Yield a file's bytes, unpacked.

    Raises:
        OSError: the file cannot be read.
        zstandard.ZstdError: its compression is damaged. A file cut in the middle raises nothing;
            `is_whole` detects it.
    """
    with BufferedReader(open_regular(path)) as file:
        size = os.fstat(file.fileno()).st_size or 1
        read: Callable[[int], bytes] = file.read
        if is_packed(path):
            unpacker = zstandard.ZstdDecompressor(max_window_size=WIDEST_WINDOW)
            read = unpacker.stream_reader(file, read_across_frames=True).read1  # yields data before damage
        while block := read(BLOCK):
            yield block
            if seen is not None:
                seen(file.tell() / size)


def whole_lines(path: Path, seen: Watcher | None = None) -> Iterator[bytes]:
    """Yield a file's lines, many at once, without a byte order mark and without the last line's end.

    Only the first line of a group can be too long; enough of it is kept to detect it.
    """
    tail = b""
    for number, block in enumerate(blocks(path, seen)):
        text = block if number else block.removeprefix(UTF8_MARK)
        end = text.rfind(b"\n")
        if end < 0:
            tail += text[: LONGEST_LINE + 1 - len(tail)]
        else:
            yield tail + text[:end]
            tail = text[end + 1 :]
    if tail:
        yield tail


def find_faults(path: Path, wanted: list[int], seen: Watcher | None = None) -> Iterator[BrokenLine]:
    """Explain lines found without an object by the fast reader.

    The line's text is not repeated: it may hold names. Lines are counted from 1, without blank ones.
    """
    left = iter(wanted)
    following = next(left, None)
    number = 0
    for lines in whole_lines(path, seen):
        for raw in lines.split(b"\n"):
            if not raw or raw.isspace():
                continue
            number += 1
            if number == following:
                yield BrokenLine(number, *fault_of(raw))
                following = next(left, None)
                if following is None:
                    return


def first_objects(path: Path, name: str, kind: str) -> Iterator[dict[str, Any] | Reject]:
    """Yield the first lines of a file as objects; reject those of another kind (`submissions`, `comments`).

    Raises:
        InputError: the file cannot be read.
    """
    wanted = "title" if kind == "submissions" else "body"
    try:
        head = next(whole_lines(path), b"")
    except (OSError, zstandard.ZstdError) as error:
        raise unreadable(name, error) from None
    lines = [line for line in head.split(b"\n") if line.strip()]
    for number, raw in enumerate(lines[: most_rows()], 1):
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or value.get("id") is None:
            yield Reject("", *fault_of(raw), name, number)
        elif wanted not in value:
            yield Reject("", "missing_value", f"expected {kind} with '{wanted}', found none", name, number)
        else:
            yield value


def fault_of(raw: bytes) -> tuple[str, str]:
    """Return the reason and detail for a line without an object or an id."""
    if len(raw) > LONGEST_LINE:
        return "bad_line", f"expected at most {LONGEST_LINE:,} bytes, found more"
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        return "bad_encoding", f"expected UTF-8, found byte {raw[error.start]:#04x} at position {error.start + 1}"
    except json.JSONDecodeError as error:
        return "bad_line", f"expected a JSON object: {error.msg} at position {error.pos + 1}"
    except (ValueError, RecursionError) as error:
        return "bad_line", f"expected a JSON object, found {type(error).__name__}"
    if not isinstance(value, dict):
        return "bad_line", f"expected a JSON object, found {type(value).__name__}"
    if value.get("id") is None:
        return "missing_value", "expected an id, found none"
    return "bad_encoding", "expected text in UTF-8, found an escape that stands for no character"


def copy_readable(path: Path, copy: Path, seen: Watcher | None = None) -> bool:
    """Copy a file without parts refused by the fast reader; each line keeps its place.

    Overlong lines become a line of invalid JSON. A byte order mark is dropped. Data behind damage is lost.

    Returns:
        Whether the file was read to its end: its compression is not damaged.
    """
    packer = zstandard.ZstdCompressor(level=1)
    with copy.open("wb") as raw, packer.stream_writer(raw) as out:
        try:
            for lines in whole_lines(path, seen):
                first = lines.find(b"\n") if len(lines) > LONGEST_LINE else 0
                first = len(lines) if first < 0 else first
                out.write(b"too long" + lines[first:] if first > LONGEST_LINE else lines)
                out.write(b"\n")
        except zstandard.ZstdError:
            return False
    return True
