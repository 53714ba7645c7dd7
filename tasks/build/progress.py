"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere.

Steps report without knowing who watches; the command line opens the display. Without one, nothing is shown.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from earmark.tasks.build.logs import wanted

LOG = logging.getLogger("earmark.progress")
PLAIN_EVERY_S = 5.0


class Display:
    """Where progress is shown; this one shows nothing."""

    def start(self, label: str, total: int | None) -> int:
        return 0

    def advance(self, bar: int, count: int) -> None: ...

    def describe(self, bar: int, line: str) -> None: ...

    def end(self, bar: int) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass
class _Line:
    label: str
    total: int | None
    done: int = 0
    told_at: float = field(default_factory=time.monotonic)


class PlainLines(Display):
    """Lines on standard error, for logs and pipes: one when work starts, then at most one every five seconds."""

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

    def describe(self, bar: int, line: str) -> None:
        state = self._lines[bar]
        if time.monotonic() - state.told_at >= PLAIN_EVERY_S:
            state.told_at = time.monotonic()
            self.say(line)

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class LoggedLines(PlainLines):
    """The same lines as log records, where logs are for machines."""

    def say(self, line: str) -> None:
        LOG.info(line)


class RichBars(Display):
    """Bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )

    def start(self, label: str, total: int | None) -> int:
        return int(self.progress.add_task(label, total=total))

    def advance(self, bar: int, count: int) -> None:
        self.progress.advance(self.progress.tasks[bar].id, count)

    def describe(self, bar: int, line: str) -> None:
        self.progress.update(self.progress.tasks[bar].id, description=line)

    def end(self, bar: int) -> None:
        task = self.progress.tasks[bar]
        self.progress.update(task.id, total=task.total or max(task.completed, 1), completed=task.total or 1)

    def say(self, line: str) -> None:
        self.progress.console.print(line, markup=False, highlight=False)


class Rows(Protocol):
    """An Arrow table or record batch."""

    @property
    def num_rows(self) -> int: ...


Batch = TypeVar("Batch", bound=Rows)

_display = Display()


@contextmanager
def shown() -> Iterator[None]:
    """Show progress while the block runs: bars on a terminal and in a notebook, else plain lines.

    Where it is shown already, as around several builds at once, that display stays.
    """
    global _display
    if type(_display) is not Display:
        yield
        return
    bars = RichBars() if (sys.stderr.isatty() or "ipykernel" in sys.modules) and not wanted() else None
    _display = bars or (LoggedLines() if wanted() else PlainLines())
    try:
        with bars.progress if bars else nullcontext():
            yield
    finally:
        _display = Display()


class _Nothing(Display):
    """Shows nothing, and is no reason to open another display."""


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress while the block runs, whatever in it would."""
    global _display
    before, _display = _display, _Nothing()
    try:
        yield
    finally:
        _display = before


class Work:
    """One piece of long work that is under way."""

    def __init__(self, label: str, total: int | None) -> None:
        self._bar = _display.start(label, total)

    def advance(self, count: int = 1) -> None:
        """Note that more items are done."""
        _display.advance(self._bar, count)

    def watching(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Pass Arrow batches on, noting their rows."""
        for batch in batches:
            yield batch
            self.advance(batch.num_rows)

    def end(self) -> None:
        """Note that the work is done."""
        _display.end(self._bar)


@contextmanager
def working(label: str, total: int | None = None) -> Iterator[Work]:
    """Report one piece of work from its start to its end."""
    work = Work(label, total)
    yield work
    work.end()


@contextmanager
def telling(label: str) -> Iterator[Callable[[str], None]]:
    """Report work that describes its own progress in a line; gives a function that takes the newest line."""
    bar = _display.start(label, None)
    yield lambda line: _display.describe(bar, f"{label}: {line}")
    _display.end(bar)


def say(line: str) -> None:
    """Tell the person who watches one thing."""
    _display.say(line)
