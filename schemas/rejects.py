"""Define the results in place of a row: rejects, notes about missing parts, and faults of audio files."""

from __future__ import annotations

from typing import NamedTuple

SHOWN = 80  # characters of a value repeated in messages


class Reject(NamedTuple):
    """A line without a valid rating."""

    item: str  # the id if readable, else the first 80 characters of the line
    reason: str  # a fixed word, snake_case
    detail: str  # the expected and the found value
    source_file: str  # "" if no file names it
    line: int | None
    author: str | None = None  # the line's author, as the export names the person: it never leaves the build
    made_from: tuple[tuple[str, str], ...] = ()  # kinds and ids (`earmark.schemas.tables.Ref`) beside source and item


class Note(NamedTuple):
    """A remark about no single row, such as a missing part of the layout."""

    text: str


class AudioFault(NamedTuple):
    """A fault of an audio file: a fixed word, and the detail."""

    reason: str
    detail: str


def shown(value: object) -> str:
    """Return the beginning of a value on a single line, free of control characters and lone surrogates."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:SHOWN])
