"""What a report's sections are made of: small records that corpora fill and `tasks/store/report.py` draws.

Every text in them may come from outside: the page shows it as text, whatever is in it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Bars:
    """Counts or shares, a bar each."""

    title: str  # what is counted
    # label and value, in the order in which they are drawn; values are not negative
    values: tuple[tuple[str, float], ...]
    share: bool = False  # whether values are shares of one, shown as percentages
    says: str = ""  # one sentence that tells how to read it


@dataclass(frozen=True)
class Histogram:
    """How a number is distributed."""

    title: str  # what is measured
    # lower edge, upper edge and count, of one width, without gaps, ascending; where all values are one, it is the only
    # bin's lower and upper edge
    bins: tuple[tuple[float, float, int], ...]
    says: str = ""  # one sentence that tells how to read it
    unit: str = ""  # of the values, for the axis
    whole: bool = False  # whether the values are whole numbers, in the middle of their bins
    # counts of the version before in the same bins; none where there is nothing to compare with
    before: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A table of values; columns whose values lie from 0 to 1 may be tinted by them."""

    title: str  # what the table tells
    columns: tuple[str, ...]  # headings
    rows: tuple[tuple[str | float | int | None, ...], ...]  # a value a column; None is drawn as a dash
    shares: tuple[str, ...] = ()  # headings of columns that hold shares of one: percentages, tinted
    says: str = ""  # one sentence that tells how to read it
    # the names by which links on the page lead to the rows, one a row; words of this code, not of a table
    ids: tuple[str, ...] = ()


def as_markdown(grid: Grid) -> str:
    """The table as a card shows it: shares as percentages, other fractions to two places."""

    def cell(name: str, value: str | float | int | None) -> str:
        if value is None or isinstance(value, str):
            return "–" if value is None else value.replace("|", "\\|")
        if name in grid.shares:
            return f"{value:.1%}"
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"

    numbers = [any(isinstance(row[at], int | float) for row in grid.rows) for at in range(len(grid.columns))]
    lines = [f"{grid.says}\n"] if grid.says else []
    lines += [f"| {' | '.join(name.replace('|', chr(92) + '|') for name in grid.columns)} |"]
    lines += [f"|{'|'.join('---:' if number else '---' for number in numbers)}|"]
    for row in grid.rows:
        cells = (cell(name, value) for name, value in zip(grid.columns, row, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Clip:
    """A player."""

    label: str  # what is heard, such as "chosen, MOS 4.2"
    sha256: str | None  # the clip as the store's media index knows it; None where the build measured no audio
    source: Path | bytes | None = None  # the clip's file or bytes where the media index does not know it


@dataclass(frozen=True)
class Picture:
    """An image, as small as a reader can still see it: it travels in the page."""

    label: str  # what it shows
    content: bytes  # the file's bytes
    media_type: str  # such as `image/png`

    @property
    def address(self) -> str:
        """The image as a `data:` address."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.content).decode()}"


@dataclass(frozen=True)
class Row:
    """One row of a sample."""

    title: str  # its key
    tags: Mapping[str, str]  # what it can be filtered by: filter's name and the row's value
    facts: Mapping[str, str] = field(default_factory=dict)  # names and values, as text
    texts: Mapping[str, str] = field(default_factory=dict)  # longer texts by heading: prompts, answers, captions
    clips: tuple[Clip, ...] = ()  # players, side by side
    pictures: tuple[Picture, ...] = ()  # images, side by side


@dataclass(frozen=True)
class Browser:
    """A sample of rows that a reader looks at, listens to and filters by the rows' tags."""

    title: str  # the table
    rows: tuple[Row, ...]  # at most `MOST_ROWS`, by seeded hash
    total: int  # how many rows the table has
    says: str = ""  # one sentence that tells how to read it


@dataclass(frozen=True)
class Sheet:
    """Thousands of a table's rows to search, sort and turn over; they travel compressed, the browser unpacks them."""

    title: str  # the table
    columns: tuple[str, ...]  # headings
    # a column's values each, all as long; texts, numbers, truth values or None
    values: tuple[tuple[str | float | int | None, ...], ...]
    total: int  # how many rows the table has
    # by heading and value, the id in the page that a cell leads to
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    says: str = ""  # one sentence that tells how to read it

    @cached_property
    def packed(self) -> str:
        """Headings, values and links as JSON, gzip and Base64; it holds no `<`."""
        text = json.dumps({"columns": self.columns, "values": self.values, "links": self.links}, separators=(",", ":"))
        return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def round_width(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is no less."""
    if least <= 0:
        return 1.0
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5, 10):
        if factor * 10.0**power >= least * (1 - 1e-9):
            return float(f"{factor}e{power}")
    raise AssertionError("one of them is")


def ticks(low: float, high: float, most: int = 6, least: float = 0.0) -> list[tuple[float, float]]:
    """Round values on an axis, `most` at most, `least` apart or more; each with its place from 0 (low) to 1 (high)."""
    if high <= low:
        return []
    step = max(round_width((high - low) / (most - 1)), least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = (float(f"{at * step:.12g}") for at in range(first, last + 1))
    return [(value, (value - low) / (high - low)) for value in values]


MOST_ROWS = 60
Figure = Bars | Histogram | Grid | Browser | Sheet


@dataclass(frozen=True)
class Section:
    """A part of the report under its own heading."""

    title: str
    figures: tuple[Figure, ...]
    says: str = ""


@dataclass(frozen=True)
class Page:
    """What a corpus gives to its report."""

    sections: tuple[Section, ...] = ()  # in reading order
    # MP3 bytes by the SHA-256 of the clip that they were made from
    sounds: Mapping[str, bytes] = field(default_factory=dict)
    # the page's last words, what it is a part of
    says: str = (
        "Samples are drawn by hash; of each clip the page holds its first 8 seconds in mono, and of a long text its "
        "beginning. "
        "The card, `README.md`, tells how the version was made."
    )
