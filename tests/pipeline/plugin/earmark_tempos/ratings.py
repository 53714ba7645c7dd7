"""A layout of rated clips: `scores.txt`, a clip, a system and a score a line."""

from __future__ import annotations

from pathlib import Path

from earmark.plugins import Found, Imported, ListFile, Rating, Source, bare_rows, list_file, parsed, published

LOWEST = 0.0


def find(source: Source, root: Path) -> Found:
    """The one list."""
    return Found((list_file(source, root, "scores.txt", "train"),))


def read(source: Source, root: Path) -> Imported:
    """Yield a rating a line."""
    for file in find(source, root).lists:
        yield from parsed(file.name, bare_rows(file, 3), lambda cells, line, file=file: _rating(file, cells, line))


def _rating(file: ListFile, cells: list[str], line: int) -> Rating:
    score = max(LOWEST, float(cells[2]))
    return Rating(cells[0], score, file.name, line, "train", system_id=cells[1])


LAYOUT = published(find, read)
