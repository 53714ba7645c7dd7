"""Define the parts of a report: small records filled by corpora and drawn by `tasks/store/report.py`. Any text in them
may come from outside: the page shows it as plain text."""

import base64
import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from markupsafe import Markup

from earmark.tasks.store.result_table import ResultTable


@dataclass(frozen=True)
class Bars:
    """Counts or shares, a bar each."""

    title: str  # the counted thing
    # label and value, in drawing order; values are not negative
    values: tuple[tuple[str, float], ...]
    share: bool = False  # whether values are fractions, shown as percentages
    says: str = ""  # a sentence for the reader


@dataclass(frozen=True)
class Histogram:
    """Distribution of a number."""

    title: str  # the measured quantity
    # lower edge, upper edge and count, of equal width, without gaps, ascending; if all values are equal, both edges of
    # the only bin are this value
    bins: tuple[tuple[float, float, int], ...]
    says: str = ""  # a sentence for the reader
    unit: str = ""  # of the values, for the axis
    whole: bool = False  # whether the values are whole numbers, in the middle of their bins
    # counts of the previous version in the same bins; empty without one
    before: tuple[int, ...] = ()


@dataclass(frozen=True)
class AudioPlayer:
    """An audio player."""

    label: str  # such as "chosen, MOS 4.2"
    sha256: str | None  # the clip's key in the store's media index; None in builds without measured audio
    source: Path | bytes | None = None  # file or bytes of a clip missing from the media index


@dataclass(frozen=True)
class Picture:
    """An image, embedded in the page and therefore as small as readable."""

    label: str  # its subject
    content: bytes  # the file's bytes
    media_type: str  # such as `image/png`

    @property
    def address(self) -> str:
        """Return the image as a `data:` address."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.content).decode()}"


@dataclass(frozen=True)
class Row:
    """One row of a sample."""

    title: str  # its key
    tags: Mapping[str, str]  # filters: name and the row's value
    facts: Mapping[str, str] = field(default_factory=dict)  # names and values, as text
    texts: Mapping[str, str] = field(default_factory=dict)  # longer texts by heading: prompts, answers, captions
    clips: tuple[AudioPlayer, ...] = ()  # players, side by side
    pictures: tuple[Picture, ...] = ()  # images, side by side


@dataclass(frozen=True)
class Browser:
    """A sample of rows to look at, listen to and filter by their tags."""

    title: str  # the table
    rows: tuple[Row, ...]  # at most `MOST_ROWS`, by seeded hash
    total: int  # number of the table's rows
    says: str = ""  # a sentence for the reader


@dataclass(frozen=True)
class Sheet:
    """Rows to search, sort and page through: thousands of them in the page, compressed and unpacked by the browser, or
    all of a relation at the server of `earmark view`."""

    title: str  # the table
    columns: tuple[str, ...]  # headings
    # values by column, of equal length; texts, numbers, truth values or None; empty for a relation
    values: tuple[tuple[str | float | int | None, ...], ...]
    total: int  # number of the table's rows
    # id of a cell's link target in the page, by heading and value
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    says: str = ""  # a sentence for the reader
    relation: str = ""  # the server's name of the rows
    shown: int = 0  # number of a relation's columns shown at first
    operations: tuple[str, ...] = ()  # conditions of filters known to the server

    @cached_property
    def packed(self) -> str | dict[str, object]:
        """Return headings, values and links as JSON, gzip and Base64, or what the page needs to ask for a relation."""
        if self.relation:
            return {name: getattr(self, name) for name in ("relation", "columns", "shown", "operations", "total")}
        text = json.dumps({"columns": self.columns, "values": self.values, "links": self.links}, separators=(",", ":"))
        return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@dataclass(frozen=True)
class Document:
    """A text with its headings and tables."""

    title: str
    html: Markup  # without elements or attributes from outside
    says: str = ""  # a sentence for the reader


def round_width(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten not below `least`."""
    if least <= 0:
        return 1.0
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5, 10):
        if factor * 10.0**power >= least * (1 - 1e-9):
            return float(f"{factor}e{power}")
    raise AssertionError("one of them is")


def ticks(low: float, high: float, most: int = 6, least: float = 0.0) -> list[tuple[float, float]]:
    """Return up to `most` round values on an axis, at least `least` apart, with positions from 0 (low) to 1 (high)."""
    if high <= low:
        return []
    step = max(round_width((high - low) / (most - 1)), least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = (float(f"{at * step:.12g}") for at in range(first, last + 1))
    return [(value, (value - low) / (high - low)) for value in values]


MOST_ROWS = 60
Figure = Bars | Histogram | ResultTable | Browser | Sheet | Document


@dataclass(frozen=True)
class Section:
    """A part of the report under its own heading."""

    title: str
    figures: tuple[Figure, ...]
    says: str = ""


@dataclass(frozen=True)
class Page:
    """A corpus's part of its report."""

    sections: tuple[Section, ...] = ()  # in reading order
    # MP3 bytes by the source clip's SHA-256
    sounds: Mapping[str, bytes] = field(default_factory=dict)
    encoding: str = ""  # digest of how the sounds were encoded
    # closing note on what the page shows
    says: str = (
        "Samples are drawn by hash; of each clip the page holds its first 8 seconds in mono, and of a long text its "
        "beginning. "
        "The card, `README.md`, tells how the version was made."
    )
    # names of versions to compare with, for a page served by `earmark view`; None in a page that stands alone
    others: tuple[str, ...] | None = None
