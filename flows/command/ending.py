"""How a command ends that could not do its work: stopped by a person or a supervisor, or by a fault of the machine."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from earmark.schemas.errors import Interrupted


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command in order, as Ctrl-C does."""


def end_in_order() -> None:
    """Have SIGTERM end this process as Ctrl-C does. Prefect, which takes it while a flow runs, passes it on."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)  # a second one would cut the first one's work short
        raise Terminated

    signal.signal(signal.SIGTERM, end)


def how(stop: KeyboardInterrupt) -> str:
    """What a stop was, for the record of a run."""
    return "ended by SIGTERM" if isinstance(stop, Terminated) else "stopped from the keyboard"


def stop_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The stop that an error is or came of: Prefect, stopped while it begins a task, falls over that itself, and then
    does not pass on its own SIGTERM."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return error
        if (type(error).__module__, type(error).__name__) == PREFECTS_STOP:
            return Terminated()
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def stoppable(way_on: str) -> Iterator[None]:
    """Say how to go on where the block is stopped.

    Raises:
        Interrupted: it was.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        raise interrupted(stop, way_on) from None


def interrupted(stop: KeyboardInterrupt, way_on: str) -> Interrupted:
    """The error that says how to go on, with the exit code that shells give such an end."""
    return Interrupted(f"interrupted; {way_on}", 143 if isinstance(stop, Terminated) else 130)


def machine_fault(error: BaseException) -> str | None:
    """What a full disk, a read-only folder or a locked file comes to, in one line; None for any other error."""
    where = ""
    if isinstance(error, OSError):
        text, where = error.strerror or str(error), f": {error.filename}" if error.filename else ""
    elif isinstance(error, sqlite3.Error) or (type(error).__module__, type(error).__name__) == DUCKDB_IO:
        text = str(error)
    elif any(kind.__module__.startswith("httpx") for kind in type(error).__mro__):  # it is down, or does not start
        text = f"Prefect's server: {str(error) or type(error).__name__}".splitlines()[0].rstrip(".")
    else:
        return None
    full = os.strerror(errno.ENOSPC)
    return (full if full in text else " ".join(text.split())) + where


DUCKDB_IO = ("_duckdb", "IOException")  # by name: DuckDB and Prefect take long to import
PREFECTS_STOP = ("prefect.exceptions", "TerminationSignal")
