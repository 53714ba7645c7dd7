"""Show the progress of long work: a bar on a terminal, occasional plain lines elsewhere.

Steps report to the open display, if any; the command line opens one.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Protocol, TypeVar

from earmark.schemas.unseen import on_terminal
from earmark.tasks.pipeline.logs import wanted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from earmark.tasks.annotation.progress import Progress

LOG = logging.getLogger("earmark.progress")
PLAIN_EVERY_S = 5.0


class Display:
    """Display of progress; the base class shows nothing."""

    def start(self, label: str, total: int | None) -> int:
        return 0

    def advance(self, bar: int, count: int) -> None: ...

    def describe(self, bar: int, progress: Progress) -> None: ...

    def end(self, bar: int) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass
class _Line:
    label: str
    total: int | None
    done: int = 0
    told_at: float = field(default_factory=time.monotonic)


class PlainProgress(Display):
    """Messages on standard error, without progress."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class PlainLines(PlainProgress):
    """Lines on standard error, for logs and pipes: one at the start of work, then at most one every five seconds."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []

    def start(self, label: str, total: int | None) -> int:
        self.say(label if total is None else f"{label} ({total:,})")
        self._lines.append(_Line(label, total))
        return len(self._lines) - 1

    def advance(self, bar: int, count: int) -> None:
        line = self._lines[bar]
        line.done += count
        if time.monotonic() - line.told_at >= PLAIN_EVERY_S:
            line.told_at = time.monotonic()
            of = f" of {line.total:,}" if line.total else ""
            self.say(f"{line.label}: {line.done:,}{of}")

    def describe(self, bar: int, progress: Progress) -> None:
        state = self._lines[bar]
        if time.monotonic() - state.told_at >= PLAIN_EVERY_S:
            state.told_at = time.monotonic()
            self.say(f"{state.label}: {progress.line()}")


class LoggedLines(PlainLines):
    """The same lines as log records, for machine-readable logs."""

    def say(self, line: str) -> None:
        LOG.info(line)


@dataclass
class Bar:
    """Work under way; `asks` holds the newest state of each call of a session with a model."""

    label: str
    total: int | None
    done: int = 0
    asks: dict[int, Progress] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)


class FootOfScreen(Display):
    """Two lines at the foot of a terminal: a bar with counts, then cost and time left. Finished work disappears."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._bars: dict[int, Bar] = {0: Bar("at work", None)}  # shown while no other bar is: it shows elapsed time
        self._started = 0
        self.console = console or Console(stderr=True)
        self.live = Live(self, console=self.console, transient=True)

    def start(self, label: str, total: int | None) -> int:
        self._started += 1
        self._bars[self._started] = Bar(label, total)
        return self._started

    def advance(self, bar: int, count: int) -> None:
        self._bars[bar].done += count

    def describe(self, bar: int, progress: Progress) -> None:
        self._bars[bar].asks[progress.call] = progress

    def end(self, bar: int) -> None:
        self._bars.pop(bar, None)

    def say(self, line: str) -> None:
        for one in folded(line, self.console.width):
            self.console.print(one, markup=False, highlight=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        label, done, total, rest = foot([*self._bars.values()], time.monotonic())
        width = options.max_width - 1  # a full last column makes some terminals wrap
        count = f"{done:,}/{total:,}" if total is not None else f"{done:,}" if done else ""
        bar = max(5, min(30, width - len(label) - len(count) - 2))
        name, below = Text(label), Text(rest, "dim")
        name.truncate(max(1, width - bar - len(count) - 2), overflow="ellipsis")
        below.truncate(width, overflow="ellipsis")
        line = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        line.add_row(name, ProgressBar(total, done, width=bar, pulse=total is None), count)
        yield line
        yield below


def folded(line: str, width: int) -> list[str]:
    """Break a line at spaces; keep words, and a command at its end, whole."""
    if "\n" in line:
        return [one for part in line.splitlines() for one in folded(part, width)]
    before, colon, command = line.rpartition(": earmark ")
    text = f"{before}: " + f"earmark {command}".replace(" ", "\0") if colon else line
    indent = line[: len(line) - len(line.lstrip())]
    lines = wrap(
        text.lstrip(), max(width, 20), initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [one.replace("\0", " ") for one in lines] or [""]


def foot(bars: Sequence[Bar], now: float) -> tuple[str, int, int | None, str]:
    """Return the label, done and total counts, and cost and time left of the work under way.

    Requests to models come first, summed over all sessions; else the work that started last.
    """
    from earmark.tasks.annotation.progress import joined, span

    asking = [bar for bar in bars if any(one.left for one in [*bar.asks.values()])]
    if asking:
        sum_of = joined([[*bar.asks.values()] for bar in asking])
        label = asking[0].label if len(asking) == 1 else f"ask {len(asking)} models"
        return label, sum_of.done + sum_of.failed, sum_of.total, sum_of.state()
    bar = next(bar for bar in reversed(bars) if not bar.asks)
    went_s, rest = now - bar.began, ""
    if bar.total and bar.done and went_s >= 1:
        rest = f", {span(went_s * max(0, bar.total - bar.done) / bar.done)} left"
    return bar.label, bar.done, bar.total, f"{span(went_s)} so far{rest}"


class RowBatch(Protocol):
    """An Arrow table or record batch."""

    @property
    def num_rows(self) -> int: ...


Batch = TypeVar("Batch", bound=RowBatch)

_display = Display()
_AGAIN: ContextVar[str] = ContextVar("again", default="")


@contextmanager
def shown(*, brief: bool = False) -> Iterator[None]:
    """Show progress during the block: bars on a terminal and in a notebook, else plain lines; no progress if `brief`.

    Keep a display that is already open, as around several builds at once.
    """
    global _display
    if type(_display) is not Display:
        yield
        return
    bars = FootOfScreen() if (sys.stderr.isatty() or "ipykernel" in sys.modules) and not wanted() else None
    _display = bars or (LoggedLines() if wanted() else PlainProgress() if brief else PlainLines())
    try:
        with bars.live if bars else nullcontext():
            yield
    finally:
        _display = Display()


class _Nothing(Display):
    """Silent display that keeps `shown` from opening another."""


@contextmanager
def hidden() -> Iterator[None]:
    """Hide all progress during the block."""
    global _display
    before, _display = _display, _Nothing()
    try:
        yield
    finally:
        _display = before


@contextmanager
def again() -> Iterator[None]:
    """Say of the block's work that it is done once more, as of inputs looked at before a commit."""
    before = _AGAIN.set(" again")
    try:
        yield
    finally:
        _AGAIN.reset(before)


class Work:
    """Piece of long work under way."""

    def __init__(self, label: str, total: int | None) -> None:
        self._display = _display
        self._bar = _display.start(on_terminal(label + _AGAIN.get()), total)

    def advance(self, count: int = 1) -> None:
        """Add finished items."""
        self._display.advance(self._bar, count)

    def watching(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield Arrow batches, and add their rows."""
        for batch in batches:
            yield batch
            self.advance(batch.num_rows)

    def end(self) -> None:
        """Mark the work as done."""
        self._display.end(self._bar)


@contextmanager
def working(label: str, total: int | None = None) -> Iterator[Work]:
    """Report a piece of work from its start to its end."""
    work = Work(label, total)
    try:
        yield work
    finally:
        work.end()


@contextmanager
def telling(label: str) -> Iterator[Callable[[Progress], None]]:
    """Report requests to a model; yield a function that takes the newest state of each call."""
    display, bar = _display, _display.start(on_terminal(label), None)
    try:
        yield lambda progress: display.describe(bar, progress)
    finally:
        display.end(bar)


def say(line: str) -> None:
    """Show one line to the user."""
    _display.say(on_terminal(line))
