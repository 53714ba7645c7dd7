"""Print tables on a terminal: names, numbers and prices stay whole at any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from earmark.schemas.unseen import on_terminal
from earmark.tasks.store.result_table import DrawnCell, ResultTable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

PROSE = 24  # longer cells with spaces may be folded, in a column at least this wide
GAP = 2
MARKS = {"best": ("bold", " ▲"), "second": ("underline", " △"), None: ("", "")}
"""Style and sign of marked cells; a file or a pipe keeps the sign alone."""
STATES = {
    **dict.fromkeys(("ok", "completed", "built", "up to date"), "green"),
    **dict.fromkeys(("bad", "failed", "interrupted", "not published", "cannot be built"), "red"),
    **{"off": "dim", "running": "cyan", "skipped": "yellow"},
}
"""Colours of words in a column `state`."""


class TextTable:
    """A table on a terminal.

    On a narrow terminal, only sentences are broken, at spaces; then the columns of `drop` are left out, in
    order; and if the table is still too wide, each row becomes a block of lines.
    """

    def __init__(self, table: ResultTable) -> None:
        self.headings, self.numeric, self.drop = table.headings, table.numeric, table.drop
        drawn = table.drawn()
        marked = [any(row[at].mark for row in drawn) for at in range(len(self.headings))]
        self.rows = [[*map(_cell, self.headings, row, marked)] for row in drawn]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        width = options.max_width
        shown = [True] * len(self.headings)
        for name in ("", *self.drop):
            if name:
                shown[self.headings.index(name)] = False
            if self._least(shown) <= width:
                yield self._grid(shown)
                break
        else:
            yield from self._blocks(shown, width)
        if left_out := [name for name, there in zip(self.headings, shown, strict=True) if not there]:
            yield Text(f"not shown at {width} columns: {', '.join(left_out)}", "dim")

    def _cells(self, index: int) -> list[str]:
        return [self.headings[index], *(row[index].plain for row in self.rows)]

    def _width(self, index: int) -> int:
        """Return the least width of a column: its longest cell, or the longest word of a column of sentences."""
        longest = max(map(cell_len, self._cells(index)))
        if self.numeric[index] or longest <= PROSE:
            return longest
        return max(PROSE, *(cell_len(word) for cell in self._cells(index) for word in cell.split() or [""]))

    def _least(self, shown: Sequence[bool]) -> int:
        widths = [*compress(map(self._width, range(len(shown))), shown)]
        return sum(widths) + GAP * (len(widths) - 1)

    def _grid(self, shown: Sequence[bool]) -> Table:
        grid = Table(box=None, header_style="bold", pad_edge=False)
        for index in compress(range(len(shown)), shown):
            justify: Literal["left", "right"] = "right" if self.numeric[index] else "left"
            grid.add_column(
                Text(on_terminal(self.headings[index])), justify=justify, min_width=self._width(index), overflow="fold"
            )
        for row in self.rows:
            grid.add_row(*compress(row, shown))
        return grid

    def _blocks(self, shown: Sequence[bool], width: int) -> Iterable[RenderableType]:
        """Yield each row as a line of its short cells, then its sentences and its numbers, indented."""
        for row in self.rows:
            short, more, numbers = list[Text](), list[str](), list[str]()
            for index, cell in compress(enumerate(row), shown):
                if self.numeric[index]:
                    numbers += [f"{self.headings[index]} {cell.plain}"] if cell.plain else []
                elif max(map(cell_len, self._cells(index))) <= PROSE or not index:
                    short += [cell if short else Text(cell.plain, "bold")]
                else:
                    more += [cell.plain] if cell.plain else []
            yield Text("  ").join(cell for cell in short if cell.plain)
            for text in (*more, ", ".join(one.replace(" ", "\u00a0") for one in numbers)):
                for line in wrap(text, width - 2, break_long_words=False, break_on_hyphens=False):
                    yield Text(f"  {line}", no_wrap=True, overflow="ignore")


def _cell(heading: str, cell: DrawnCell, marked: bool) -> Text:
    """Return a cell with its style, and in a column of marked cells with its sign or the space of one."""
    if heading == "state":
        return Text(on_terminal(cell.text), STATES.get(cell.text, ""))
    style, sign = MARKS[cell.mark]
    return Text(on_terminal(cell.text) + (sign or "  " if marked else ""), style)
