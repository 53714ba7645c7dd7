"""Hold tables of results, and write them as Markdown, CSV and LaTeX.

The terminal (`flows/command/tables.py`) and the report page (`report.html.j2`) draw the same cells. Any text may come
from outside: each form escapes it.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import isfinite
from typing import Literal, NamedTuple, TypeAlias

from earmark.schemas.results import MetricFacts
from earmark.tasks.store.card import markdown_cell

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # beginnings of text that spreadsheets run as a formula
SURE = 0.05  # P below which a difference has a star


class Interval(NamedTuple):
    """A value with the ends of its 95 % interval, if known, and its difference to a baseline with its p."""

    value: float
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    p: float | None = None


Value: TypeAlias = "str | float | int | Interval | None"  # None is drawn as a dash


def wilson(count: int, of: int) -> Interval | None:
    """Return a share with its Wilson interval of 95 %; None of nothing."""
    from scipy.stats import binomtest  # here: loading it takes longer than most commands

    if not of:
        return None
    ends = binomtest(count, of).proportion_ci(method="wilson")
    return Interval(count / of, float(ends.low), float(ends.high))


def interval(metric: MetricFacts | None) -> Interval | None:
    """Return the cell of a record's metric (`value`, `low`, `high`); None if undefined."""
    if metric is None or metric["value"] is None:
        return None
    return Interval(metric["value"], metric["low"], metric["high"])


@dataclass(frozen=True)
class ResultColumn:
    """A column of a table of results."""

    heading: str
    unit: str = ""  # follows the heading; with `%`, cells are fractions that are shown as percentages
    decimals: int | None = None  # None for as many as the column needs, at most three
    signed: bool = False  # whether positive numbers have a sign
    best: Literal["highest", "lowest"] | None = None  # marks the best rows bold, the second underlined
    over: str = ""  # a heading above those of adjoining columns; before this one's where there is one line of headings


def percent(heading: str, decimals: int = 1) -> ResultColumn:
    """Return a column of fractions as percentages."""
    return ResultColumn(heading, "%", decimals)


class DrawnCell(NamedTuple):
    """A cell as text."""

    text: str
    mark: Literal["best", "second"] | None = None
    share: float | None = None  # the fraction of a percentage, to tint by


@dataclass(frozen=True)
class ResultTable:
    """A table of results: a value a column in each row."""

    title: str
    columns: tuple[str | ResultColumn, ...]  # a string is a column without more
    rows: tuple[tuple[Value, ...], ...]
    says: str = ""  # a sentence for the reader
    footings: tuple[tuple[Value, ...], ...] = ()  # rows below: means, baselines; never the best
    ids: tuple[str, ...] = ()  # link targets on a page, one for each row; words of this code, not of a table
    drop: tuple[str, ...] = ()  # headings of columns that a narrow terminal leaves out, in this order

    @cached_property
    def forms(self) -> tuple[ResultColumn, ...]:
        """Return the columns with their forms."""
        return tuple(ResultColumn(one) if isinstance(one, str) else one for one in self.columns)

    @cached_property
    def headings(self) -> tuple[str, ...]:
        """Return the headings with units, in one line."""
        return tuple(f"{one.over} {low}".lstrip() for one, low in zip(self.forms, self._lower, strict=True))

    @property
    def _lower(self) -> tuple[str, ...]:
        return tuple(one.heading + (f" ({one.unit})" if one.unit not in ("", "%") else "") for one in self.forms)

    @cached_property
    def numeric(self) -> tuple[bool, ...]:
        """Return for each column whether it holds numbers."""
        return tuple(
            form.decimals is not None or any(not isinstance(value, str | None) for value in self._values(at))
            for at, form in enumerate(self.forms)
        )

    def drawn(self) -> list[list[DrawnCell]]:
        """Return the cells of rows and footings as text."""
        columns = [self._drawn(at, form) for at, form in enumerate(self.forms)]
        return [list(row) for row in zip(*columns, strict=True)]

    def _values(self, at: int) -> list[Value]:
        return [row[at] for row in (*self.rows, *self.footings)]

    def _drawn(self, at: int, form: ResultColumn) -> list[DrawnCell]:
        values = self._values(at)
        numbers = [_middle(value) for value in values]
        digits = form.decimals
        if digits is None:
            texts = [number(value) for value in numbers if value is not None]
            digits = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
        marks = _marks(form, digits, numbers[: len(self.rows)])
        shares = numbers if form.unit == "%" else [None] * len(values)
        return [
            DrawnCell(_text(value, form, digits), marks.get(place), share)
            for place, (value, share) in enumerate(zip(values, shares, strict=True))
        ]

    def markdown(self) -> str:
        """Return the table as Markdown, below what it says."""
        lines = [f"{self.says}\n"] if self.says else []
        lines += [f"| {' | '.join(map(markdown_cell, self.headings))} |"]
        lines += [f"|{'|'.join('---:' if number else '---' for number in self.numeric)}|"]
        marks = {"best": "**{}**", "second": "*{}*", None: "{}"}  # Markdown underlines nothing
        lines += [
            f"| {' | '.join(marks[cell.mark].format(markdown_cell(cell.text)) for cell in row)} |"
            for row in self.drawn()
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """Return the table as CSV, with numbers in full; intervals and differences have columns of their own."""
        ends = [_ends(self._values(at)) for at in range(len(self.columns))]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        names = (f"{one.over} {one.heading}".lstrip() for one in self.forms)
        writer.writerow(_plain(name) + end for name, of_form in zip(names, ends, strict=True) for end in of_form)
        for row in (*self.rows, *self.footings):
            cells: list[Value] = []
            for value, wide in zip(row, ends, strict=True):
                if len(wide) == 1:
                    cells.append(_plain(value) if isinstance(value, str) else value)
                else:
                    cells += (value if isinstance(value, Interval) else (value, *[None] * 4))[: len(wide)]
            writer.writerow(cells)
        return file.getvalue()

    def latex(self) -> str:
        """Return the table as LaTeX of the package booktabs."""
        marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", None: "{}"}
        lines = [
            " & ".join(marks[cell.mark].format(_latex(cell.text)) for cell in row) + r" \\" for row in self.drawn()
        ]
        foot = [r"\midrule", *lines[len(self.rows) :]] if self.footings else []
        return "\n".join(
            [
                f"% {' '.join(self.title.split())}",
                rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in self.numeric)}}}",
                r"\toprule",
                *self._spans(),
                " & ".join(map(_latex, self._lower)) + r" \\",
                r"\midrule",
                *lines[: len(self.rows)],
                *foot,
                r"\bottomrule",
                r"\end{tabular}",
            ]
        )

    def _spans(self) -> list[str]:
        """Return the line of upper headings in LaTeX, with rules below, if there are any."""
        spans, rules, at = list[str](), list[str](), 1
        for over, held in groupby(one.over for one in self.forms):
            width = len([*held])
            spans.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex(over)}}}" if over else " & ".join([""] * width))
            rules += [rf"\cmidrule(lr){{{at}-{at + width - 1}}}"] if over else []
            at += width
        return [" & ".join(spans) + r" \\", " ".join(rules)] if rules else []


@dataclass(frozen=True)
class ResultPage:
    """Tables of one record, with a title and notes for their readers."""

    title: str
    tables: tuple[ResultTable, ...]
    notes: tuple[str, ...] = ()
    says: str = ""  # a sentence before the tables
    plots: tuple[str, ...] = ()  # files of pictures beside the page

    def markdown(self) -> str:
        """Return the page as Markdown."""
        parts = [f"# {markdown_cell(self.title)}", *([self.says] if self.says else [])]
        parts += [f"![Values with intervals of 95 %]({plot})" for plot in self.plots]
        for table in self.tables:
            parts += [*([f"## {markdown_cell(table.title)}"] if table.title else []), table.markdown()]
        return "\n\n".join([*parts, "\n".join(f"- {note}" for note in self.notes)]).rstrip() + "\n"

    def files(self) -> dict[str, str]:
        """Return the page and its tables as files beside a record."""
        tables = {f"table-{place}.csv": table.csv() for place, table in enumerate(self.tables, 1)}
        return {
            "README.md": self.markdown(),
            "tables.tex": "\n\n".join(table.latex() for table in self.tables) + "\n",
            **tables,
        }


def number(value: float | int | str | None) -> str:
    """Return a value as text: thousands separated, at most three decimals."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if abs(value) >= 0.001 else f"{value:.2g}"


def _plain(text: str) -> str:
    """Return text as a cell of CSV: one line, and no formula."""
    line = " ".join(text.split())
    return f"'{line}" if line.startswith(FORMULA) else line


def _ends(values: Sequence[Value]) -> tuple[str, ...]:
    """Return the endings of the headings of a column in CSV."""
    known = [value for value in values if isinstance(value, Interval)]
    if any(value.gain is not None for value in known):
        return "", " low", " high", " difference", " p"
    return ("", " low", " high") if known else ("",)


def _middle(value: Value) -> float | None:
    return None if isinstance(value, str) else value.value if isinstance(value, Interval) else value


def _text(value: Value, form: ResultColumn, digits: int) -> str:
    if value is None or isinstance(value, str):
        return number(value)
    middle, low, high, gain, p = value if isinstance(value, Interval) else (value, None, None, None, None)
    if form.decimals is None and "e" in number(middle):
        return number(middle)
    if isinstance(middle, int) and form.decimals is None and not digits:
        return f"{middle:{'+' if form.signed else ''},}"
    scale = 100 if form.unit == "%" else 1
    sign = "+" if form.signed else ""
    least = 10.0**-digits
    if low is None and not form.signed and form.decimals and 0 < middle * scale < least:
        text = f"< {least:.{digits}f}"
    else:
        text = f"{middle * scale:{sign}z,.{digits}f}"
    text += " %" if form.unit == "%" else ""
    if low is not None and high is not None:
        text += f" [{low * scale:{sign}z,.{digits}f}, {high * scale:{sign}z,.{digits}f}]"
    if gain is None:
        return text
    return f"{text} ({gain * scale:+z,.{digits}f}){'*' if p is not None and p < SURE else ''}"


def _marks(form: ResultColumn, digits: int, values: Sequence[float | None]) -> dict[int, Literal["best", "second"]]:
    """Return the places of the best values and of the second, if two rows differ; equal figures share a mark."""
    digits += 2 if form.unit == "%" else 0
    known = {place: round(value, digits) for place, value in enumerate(values) if value is not None and isfinite(value)}
    order = sorted(set(known.values()), reverse=form.best == "highest")
    if form.best is None or len(order) < 2:
        return {}
    names: dict[float, Literal["best", "second"]] = {order[1]: "second", order[0]: "best"}
    return {place: names[value] for place, value in known.items() if value in names}


_LATEX = {
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"},
    **{"∞": r"$\infty$", "−": "$-$", "≥": r"$\ge$", "≤": r"$\le$", "°": r"$^\circ$", "½": r"$\frac{1}{2}$"},
    **{"α": r"$\alpha$", "Δ": r"$\Delta$", "|": "$|$"},
}


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))
    return re.sub(r"^([\[*])", r"{\1}", escaped)  # after \\, a bracket would be a length, a star a form of \\
