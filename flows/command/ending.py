"""End a command stopped by a person or a supervisor, or by a fault of the machine."""

import errno
import linecache
import os
import select
import shlex
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from types import FrameType
from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

from earmark.flows.command.old_names import new_spelling
from earmark.flows.command.signals import end_at_once
from earmark.schemas.errors import Interrupted
from earmark.schemas.unseen import on_terminal

if TYPE_CHECKING:
    from earmark.tasks.store.versions import Store

END_S = 5.0  # time for a stopped command to end before it is killed; its kept data survives any kill
SAME_S = 0.5  # signals within this time count as one: a wrapper forwards signals already sent by the terminal
AGAIN_S = 0.02  # until a stop dropped by Python is raised again: soon enough to count as the same one
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
_received: list[int] = []
_raised_again: list[int] = []  # stops that Python had dropped
_ways_on = ["run the same command again"]
_patience_s = [END_S]
_said = threading.Event()


class Terminated(KeyboardInterrupt):
    """SIGTERM, ending a command in order as Ctrl-C does."""


class Stoppable(TyperGroup):
    """Commands reporting how to continue after a stop; commands of the last release run by their new spelling."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; print the new spelling of an old one on standard error."""
        words = new_spelling(args)
        if words != args and not ctx.resilient_parsing:
            line = on_terminal(" ".join(shlex.join(["earmark", *words]).split()))
            print(f"note: `earmark {args[0]}` goes with the next release; now: {line}", file=sys.stderr)
        return super().resolve_command(ctx, words)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; see `stoppable`."""
        with stoppable(_ways_on[0]):
            if signal.getsignal(signal.SIGTERM) is end_at_once:  # not in tests or other callers of the commands
                end_in_order()
            return super().invoke(ctx)


def end_in_order() -> None:
    """Make SIGTERM end this process as Ctrl-C does, both within `END_S`, and a second Ctrl-C at once.

    The first signal raises in the main thread (Prefect, handling SIGTERM during a flow, passes it on), and stops
    all requests. A separate thread watches too: the main one may be in a database's code, or wait for others.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, lambda *_: None)  # a second one would cut the first one's work short
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = sys.unraisablehook

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        error = dropped.exc_value
        term = isinstance(error, Terminated) or _of_prefect(error)
        if not term and not isinstance(error, KeyboardInterrupt):
            before(dropped)
            return
        if not _of_prefect(error):
            signal.signal(signal.SIGTERM if term else signal.SIGINT, end)
        _raised_again.append(1)
        timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM if term else signal.SIGINT))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) in (end_at_once, signal.default_int_handler):  # jobs in the background ignore it
        signal.signal(signal.SIGINT, end)
    sys.unraisablehook = again  # Python drops what is raised within a `__del__`, and prints a traceback
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="stops", daemon=True).start()


def said() -> None:
    """Record that the command reports its own end; only its process is left to end."""
    _said.set()


def take(seconds: float) -> None:
    """Let the end of this command take longer than `END_S`."""
    _patience_s[0] = seconds


def _watch(reader: int) -> None:
    began = 0.0
    while not _received or (left := began + _patience_s[0] - time.monotonic()) > 0:
        if not select.select([reader], [], [], left if _received else None)[0]:
            continue
        came = [number for number in os.read(reader, 64) if number in CODES]
        if came and not _received:
            began = time.monotonic()
            _received.append(came[0])
            if asking := sys.modules.get("earmark.tasks.annotation.session"):  # not imported: no requests to stop
                asking.stop_all()
        elif came and _raised_again:
            _raised_again.pop()
        elif signal.SIGINT in came and time.monotonic() - began > SAME_S:  # Prefect sends SIGTERM to itself again
            break
    if not _said.is_set():
        cursor = b"\x1b[?25h\n" if os.isatty(2) else b""  # a progress bar hides it
        with suppress(OSError):
            os.write(2, cursor + f"interrupted; {_ways_on[-1]}\n".encode())
    os._exit(CODES[signal.Signals(_received[0])])


def how(stop: KeyboardInterrupt) -> str:
    """Return the kind of a stop, for the record of a run."""
    return "ended by SIGTERM" if isinstance(stop, Terminated) else "stopped from the keyboard"


def stop_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Find the stop behind an error. Prefect, stopped while it begins a task, fails without passing on its SIGTERM; and
    an error after a signal, such as a closed session, is caused by it."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return error
        if _of_prefect(error):
            return Terminated()
        error = error.__cause__ or error.__context__
    if _received:
        return Terminated() if _received[0] == signal.SIGTERM else KeyboardInterrupt()
    return None


def _of_prefect(error: BaseException | None) -> bool:
    return (type(error).__module__, type(error).__name__) == PREFECTS_STOP


@contextmanager
def stoppable(way_on: str) -> Iterator[None]:
    """Report how to continue if the block is stopped."""
    first = threading.current_thread() is threading.main_thread()  # of several at once, their caller's hint counts
    if first:
        _ways_on.append(way_on)
    try:
        yield
    except BaseException as error:
        if isinstance(error, Interrupted | SystemExit) or (stop := stop_behind(error)) is None:
            raise
        raise interrupted(stop, way_on) from None
    finally:
        if first:
            _ways_on.pop()


def interrupted(stop: KeyboardInterrupt, way_on: str) -> Interrupted:
    """Return the error with the hint for continuing, and the shells' exit code for such an end."""
    return Interrupted(f"interrupted; {way_on}", 143 if isinstance(stop, Terminated) else 130)


def command(place: "Store", *words: object) -> str:
    """Return a command on a store, to be pasted into a shell in this folder."""
    from earmark.tasks.store.versions import is_default

    store = [] if is_default(place) else ["--store", place.address]
    return shlex.join(["earmark", *map(str, words), *store])


def machine_fault(error: BaseException) -> str | None:
    """Describe a full disk, a read-only folder or a locked file in one line; return None for any other error."""
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


def plug_in_packages() -> set[str]:
    """Return the packages with entry points in Earmark's groups."""
    known = entry_points()
    groups = [group for group in known.groups if group.startswith("earmark.")]
    return {point.value.split(":")[0].split(".")[0] for group in groups for point in known.select(group=group)}


def short_traceback(error: BaseException, most: int = 10) -> list[str]:
    """Shorten an unexpected error to ten lines: the error, then the frames of plug-ins, innermost first, then Earmark's
    own. The frames of Prefect and other libraries are only in the file named in the last line."""
    plug_ins = plug_in_packages()
    frames: dict[bool, list[str]] = {True: [], False: []}
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).split(".")[0]
        if package in plug_ins or package == "earmark":
            code, path = frame.f_code, os.path.relpath(frame.f_code.co_filename)
            path = code.co_filename if path.startswith("..") else path
            text = linecache.getline(code.co_filename, line).strip()
            frames[package != "earmark"].append(f"  {path}:{line} in {code.co_name}: {text}")
    said = " ".join(str(error).split())
    lines = [f"error: {type(error).__name__}{f': {said}' if said else ''}"]
    with tempfile.NamedTemporaryFile("w", prefix="earmark-", suffix=".txt", encoding="utf-8", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    inner = [*reversed(frames[True]), *reversed(frames[False])]
    return [*lines, *inner[: most - 2], f"the whole traceback: {file.name}"]


DUCKDB_IO = ("_duckdb", "IOException")  # by name: DuckDB and Prefect take long to import
PREFECTS_STOP = ("prefect.exceptions", "TerminationSignal")
