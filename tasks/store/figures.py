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
    """Counts or shares, a bar each.

    Attributes:
        title: what is counted.
        values: label and value, in the order in which they are drawn; values are not negative.
        share: whether values are shares of one, shown as percentages.
        says: one sentence that tells how to read it.
    """

    title: str
    values: tuple[tuple[str, float], ...]
    share: bool = False
    says: str = ""


@dataclass(frozen=True)
class Histogram:
    """How a number is distributed.

    Attributes:
        title: what is measured.
        bins: lower edge, upper edge and count, of one width, without gaps, ascending; where all values are one, it is
            the only bin's lower and upper edge.
        says: one sentence that tells how to read it.
        unit: of the values, for the axis.
        whole: whether the values are whole numbers, in the middle of their bins.
        before: counts of the version before in the same bins; none where there is nothing to compare with.
    """

    title: str
    bins: tuple[tuple[float, float, int], ...]
    says: str = ""
    unit: str = ""
    whole: bool = False
    before: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grid:
    """A table of values; columns whose values lie from 0 to 1 may be tinted by them.

    Attributes:
        title: what the table tells.
        columns: headings.
        rows: a value a column; None is drawn as a dash.
        shares: headings of columns that hold shares of one: percentages, tinted.
        says: one sentence that tells how to read it.
        ids: the names by which links on the page lead to the rows, one a row; words of this code, not of a table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    shares: tuple[str, ...] = ()
    says: str = ""
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
    """A player.

    Attributes:
        label: what is heard, such as "chosen, MOS 4.2".
        sha256: the clip as the store's media index knows it; None where the build measured no audio.
        source: the clip's file or bytes where the media index does not know it.
    """

    label: str
    sha256: str | None
    source: Path | bytes | None = None


@dataclass(frozen=True)
class Picture:
    """An image, as small as a reader can still see it: it travels in the page.

    Attributes:
        label: what it shows.
        content: the file's bytes.
        media_type: such as `image/png`.
    """

    label: str
    content: bytes
    media_type: str

    @property
    def address(self) -> str:
        """The image as a `data:` address."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.content).decode()}"


@dataclass(frozen=True)
class Row:
    """One row of a sample.

    Attributes:
        title: its key.
        tags: what it can be filtered by: filter's name and the row's value.
        facts: names and values, as text.
        texts: longer texts by heading: prompts, answers, captions.
        clips: players, side by side.
        pictures: images, side by side.
    """

    title: str
    tags: Mapping[str, str]
    facts: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    clips: tuple[Clip, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Browser:
    """A sample of rows that a reader looks at, listens to and filters by the rows' tags.

    Attributes:
        title: the table.
        rows: at most `MOST_ROWS`, by seeded hash.
        total: how many rows the table has.
        says: one sentence that tells how to read it.
    """

    title: str
    rows: tuple[Row, ...]
    total: int
    says: str = ""


@dataclass(frozen=True)
class Sheet:
    """Thousands of a table's rows to search, sort and turn over; they travel compressed, and the browser unpacks them.

    Attributes:
        title: the table.
        columns: headings.
        values: a column's values each, all as long; texts, numbers, truth values or None.
        total: how many rows the table has.
        links: by heading and value, the id in the page that a cell leads to.
        says: one sentence that tells how to read it.
    """

    title: str
    columns: tuple[str, ...]
    values: tuple[tuple[str | float | int | None, ...], ...]
    total: int
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    says: str = ""

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
    """What a corpus gives to its report.

    Attributes:
        sections: in reading order.
        sounds: MP3 bytes by the SHA-256 of the clip that they were made from.
        says: the page's last words, what it is a part of.
    """

    sections: tuple[Section, ...] = ()
    sounds: Mapping[str, bytes] = field(default_factory=dict)
    says: str = (
        "Samples are drawn by hash; of each clip the page holds its first 8 seconds in mono, and of a long text its "
        "beginning. "
        "The card, `README.md`, tells how the version was made."
    )
