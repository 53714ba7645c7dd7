"""What a cell of a list may hold: scores, counts, ids, paths of clips. Whatever else it holds is a `BadRow`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import PurePosixPath
from typing import Any

from earmark.schemas.places import place_of
from earmark.schemas.tables import SPLIT_ALIASES, SPLITS

LONGEST_ID = 1024  # characters; longer ones are a misread row, not a name
SHOWN = 80  # characters of a value that messages repeat


_absolute: ContextVar[list[tuple[str, str]] | None] = ContextVar("absolute", default=None)


class BadRow(Exception):
    """A row that cannot become a rating; the reader of its list turns it into a `Reject`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def shown(value: object) -> str:
    """The beginning of a value, on one line and free of control characters and lone surrogates."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:SHOWN])


def given(cell: Any) -> bool:
    """Whether a cell holds anything but space."""
    return cell is not None and cell != [] and not (isinstance(cell, str | bytes) and not cell.strip())


def number(cell: Any) -> float:
    """A number as lists write it (`4`, `4.0`, ` 4.0 `, `4e0`); NaN for everything else, such as `4_0`, `4,5`, True."""
    if cell.__class__ is str:
        if "_" in cell or not cell.isascii():  # float() takes both, no list means both
            return math.nan
    elif cell.__class__ is bool:
        return math.nan
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def score(cell: Any, low: float, high: float) -> float:
    """A rating or a mean on the source's scale."""
    value = number(cell)
    if low <= value <= high:
        return value
    if not given(cell):
        raise BadRow("score_missing", f"expected a score from {low:g} to {high:g}, found an empty cell")
    if math.isfinite(value):
        raise BadRow("score_out_of_scale", f"expected a score from {low:g} to {high:g}, found {shown(cell)}")
    raise BadRow("score_not_a_number", f"expected a score from {low:g} to {high:g}, found '{shown(cell)}'")


def votes(cell: Any) -> int:
    """How many ratings a mean stands on; `8.0` is read as 8."""
    if not given(cell):
        raise BadRow("missing_votes", "expected a number of votes, found an empty cell")
    value = number(cell)
    if value >= 1 and value.is_integer() and value < 2**53:
        return int(value)
    raise BadRow("bad_votes", f"expected a whole number of votes from 1, found '{shown(cell)}'")


def deviation(cell: Any) -> float:
    """The standard deviation of the ratings behind a mean."""
    if not given(cell):
        raise BadRow("missing_mos_std", "expected a standard deviation, found an empty cell")
    value = number(cell)
    if 0 <= value < math.inf:
        return value
    raise BadRow("bad_mos_std", f"expected a standard deviation from 0, found '{shown(cell)}'")


def identifier(cell: Any, word: str) -> str:
    """An id without the space around it.

    Args:
        cell: text, or what a Parquet or JSON cell holds.
        word: what the id names; an empty cell is rejected as `missing_<word>`.
    """
    text: str = cell.strip() if cell.__class__ is str else _as_text(cell, word).strip()
    if text and len(text) <= LONGEST_ID and text.isprintable():
        return text
    if not text:
        raise BadRow(f"missing_{word}", f"expected a {word}, found an empty cell")
    if len(text) > LONGEST_ID:
        raise BadRow("bad_id", f"expected a {word} of at most {LONGEST_ID} characters, found {len(text)}")
    for char in text:  # spaces of other scripts are no fault; control characters and lone surrogates are
        if ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000:
            raise BadRow("bad_id", f"expected a {word} without control characters, found '{shown(text)}'")
    return text


def clip(cell: Any, root: str) -> str:
    """The name or path of a clip, which may not leave the folder that the list belongs to.

    Args:
        cell: a path with `/` between its parts.
        root: that folder, absolute; a path that starts with it, or a URL of what lies in it, is made relative to it.
    """
    text = identifier(cell, "file")
    if text[0] != "/" and ".." not in text and "\\" not in text and ":" not in text:
        return text
    place = str(place_of(text)) if text.startswith(("s3://", "hf://datasets/")) else text
    drive = len(text) > 1 and text[1] == ":" and text[0].isalpha()
    if drive or "\\" in text or ".." in text.split("/"):
        raise BadRow("path_outside_root", f"expected a path below the root, with '/' only, found '{shown(text)}'")
    if place[0] == "/":
        if not place.startswith(root + "/"):
            raise BadRow("path_outside_root", f"expected a path below the root, found '{shown(text)}'")
        relative = PurePosixPath(place).relative_to(root).as_posix()
        if (decided := _absolute.get()) is not None:
            decided.append((text, relative))
        return relative
    return text


@contextmanager
def absolute_clips() -> Iterator[list[tuple[str, str]]]:
    """While rows are read, collect the clips that lists name by an absolute path or URL: cell, and path below the root.

    This is all that a root decides about rows: any other absolute path is a reject, any relative one stays as it is.
    """
    decided: list[tuple[str, str]] = []
    before = _absolute.set(decided)
    try:
        yield decided
    finally:
        _absolute.reset(before)


def split_name(cell: Any) -> str:
    """One of our splits, from ours or a publisher's word for it."""
    text = identifier(cell, "split")
    split = SPLIT_ALIASES.get(text.lower(), text.lower())
    if split not in SPLITS:
        raise BadRow("unknown_split", f"expected one of {', '.join(SPLITS)}, found '{shown(text)}'")
    return split


def _as_text(cell: Any, word: str) -> str:
    """The text of a cell that JSON or Parquet gave a type; 3.0 is `3`, as where a missing value made floats of ints."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError as error:
            raise BadRow("bad_encoding", f"expected UTF-8 in the {word}, found byte {cell[error.start]:#04x}") from None
    if isinstance(cell, list | dict):
        raise BadRow("bad_id", f"expected a {word}, found {'an array' if isinstance(cell, list) else 'an object'}")
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
