"""The bytes of a dump's file in plain Python: what the fast reader refuses or cannot name is found out here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

BLOCK = 1 << 22
LONGEST_LINE = 1 << 24  # bytes; DuckDB's reader refuses a file with a longer one
WIDEST_WINDOW = 1 << 31  # of zstd: the archives of this forum are packed with it, DuckDB and pyarrow stop at 2^27
UTF8_MARK = b"\xef\xbb\xbf"


class Fault(NamedTuple):
    """A line that holds no object."""

    place: int  # among the lines that are not blank, from 0
    line: int  # in the file, from 1
    reason: str
    detail: str


def is_packed(path: Path) -> bool:
    """Whether a file is read through zstd."""
    return path.suffix == ".zst"


def blocks(path: Path) -> Iterator[bytes]:
    """A file's bytes, unpacked.

    Raises:
        OSError: it cannot be read.
        zstandard.ZstdError: its compression is damaged or it ends in the middle.
    """
    with path.open("rb") as file:
        read: Callable[[int], bytes] = file.read
        if is_packed(path):
            unpacker = zstandard.ZstdDecompressor(max_window_size=WIDEST_WINDOW)
            read = unpacker.stream_reader(file, read_across_frames=True).read1  # gives what stands before damage
        while block := read(BLOCK):
            yield block


def raw_lines(path: Path) -> Iterator[bytes]:
    """Every line without its end; of one that is too long, enough is kept to see that it is."""
    tail = b""
    for block in blocks(path):
        lines = (tail + block).split(b"\n")
        tail = lines.pop()[: LONGEST_LINE + 1]
        yield from lines
    if tail:
        yield tail


def find_faults(path: Path, places: list[int]) -> Iterator[Fault]:
    """Say what is wrong with lines that the fast reader found to hold no object.

    The text of such a line is not repeated: it may hold names.

    Args:
        path: the file.
        places: which lines, in order, counted from 0 without blank ones.
    """
    wanted = iter(places)
    next_place = next(wanted, None)
    place = 0
    for number, raw in enumerate(raw_lines(path), 1):
        if not raw or raw.isspace():
            continue
        if place == next_place:
            yield Fault(place, number, *fault_of(raw))
            next_place = next(wanted, None)
            if next_place is None:
                return
        place += 1


def fault_of(raw: bytes) -> tuple[str, str]:
    """The reason and detail for a line that holds no object with an id."""
    if len(raw) > LONGEST_LINE:
        return "line_too_long", f"expected at most {LONGEST_LINE:,} bytes, found more"
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        return "bad_encoding", f"expected UTF-8, found byte {raw[error.start]:#04x} at position {error.start + 1}"
    except json.JSONDecodeError as error:
        return "bad_json", f"expected a JSON object: {error.msg} at position {error.pos + 1}"
    except (ValueError, RecursionError) as error:
        return "bad_json", f"expected a JSON object, found {type(error).__name__}"
    if not isinstance(value, dict):
        return "bad_json", f"expected a JSON object, found {type(value).__name__}"
    if value.get("id") is None:
        return "missing_id", "expected an id, found none"
    return "bad_encoding", "expected text in UTF-8, found an escape that stands for no character"


def copy_readable(path: Path, copy: Path) -> str | None:
    """Copy a file line by line without what the fast reader stumbles over; each line keeps its place.

    Lines that are too long become one that is no JSON. A byte order mark goes. What lies behind damage is lost.

    Returns:
        What was damaged, in a sentence, or None.
    """
    packer = zstandard.ZstdCompressor(level=1)
    lines = 0
    with copy.open("wb") as raw, packer.stream_writer(raw) as out:
        try:
            for line in raw_lines(path):
                lines += 1
                text = line.removeprefix(UTF8_MARK) if lines == 1 else line
                out.write(text if len(text) <= LONGEST_LINE else b"too long")
                out.write(b"\n")
        except (OSError, zstandard.ZstdError):
            return f"its compression is damaged after line {lines:,}: what follows is lost"
    return None
