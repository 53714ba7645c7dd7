"""Commands that are told to end at a moment that a seed draws, in a terminal or in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.conftest import ROOT

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of a terminal: colours, moves of the cursor
START_S = 240.0  # until a moment comes, on a busy machine


@dataclass(frozen=True)
class End:
    """How a command ended.

    Attributes:
        what: signal and place, for messages.
        code: its exit code.
        expected: the exit code of a command that was stopped.
        took_s: from the signal to the end.
        said: all that it wrote.
    """

    what: str
    code: int
    expected: int
    took_s: float
    said: str

    @property
    def last(self) -> str:
        """The last line that it wrote; on a terminal it may go over several."""
        _, stopped, rest = self.said.rpartition("interrupted; ")
        lines = (stopped + rest if stopped else self.said).split("\n")
        return " ".join(" ".join(lines).split()) if stopped else next(filter(str.strip, reversed(lines)), "").strip()


class Running:
    """A command under way; `terminal` says whether it has one, as of a person's shell."""

    def __init__(self, words: Sequence[object], environment: Mapping[str, str], terminal: bool) -> None:
        self.terminal, self._written = terminal, bytearray()
        self._ours, theirs = pty.openpty() if terminal else os.pipe()

        def prepare() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests that run in the background ignore it
            if terminal:
                fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "earmark", *map(str, words)],
            cwd=ROOT,
            env=environment,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=prepare,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # of a terminal that nobody holds any more
            while part := os.read(self._ours, 1 << 16):
                self._written += part

    def said(self) -> str:
        """What it has written so far."""
        return ESCAPES.sub("", self._written.decode("utf-8", "replace")).replace("\r", "\n")

    def until(self, come: Callable[[str], bool]) -> None:
        """Wait until something is so, or the command has ended; `come` gets what it has written."""
        deadline = time.monotonic() + START_S
        while not come(self.said()) and self.process.poll() is None:
            assert time.monotonic() < deadline, self.said()[-2000:]
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> End:
        """Send a signal, Ctrl-C from the keyboard where there is a terminal, and wait for the end."""
        begun = time.monotonic()
        if self.terminal and number == signal.SIGINT:
            os.write(self._ours, b"\x03")
        else:
            self.process.send_signal(number)
        code = self.process.wait(120)
        took = time.monotonic() - begun
        self._reader.join(5)
        os.close(self._ours)
        where = "a terminal" if self.terminal else "a pipe"
        return End(f"{number.name} in {where}", code, CODES[number], took, self.said())


def ways(rng: random.Random, count: int) -> list[tuple[signal.Signals, bool]]:
    """So many pairs of a signal and whether there is a terminal; four have each of the four."""
    pairs = [(number, terminal) for number in CODES for terminal in (True, False)]
    rng.shuffle(pairs)
    return [pairs[number % len(pairs)] for number in range(count)]
