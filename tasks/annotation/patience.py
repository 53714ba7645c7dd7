"""Decide how long to wait for a server: after an earlier answer, or while it reports loading, it will answer again."""

from __future__ import annotations

import time

from earmark.tasks.annotation.errors import (
    AskError,
    ConnectionFailed,
    RateLimited,
    ServerGone,
    TimedOut,
    Unavailable,
)

NEVER_S = 10.0
"""Time to try a server without any contact in this run, in seconds: its address is wrong more often than it is late."""
AGAIN_S = 1.0
"""Longest wait between two such tries, so that the end comes in time."""


class Patience:
    """State of a server in this run.

    Args:
        most_s: longest wait without any answer, in seconds.
    """

    def __init__(self, most_s: float) -> None:
        self.has_answered = False
        self._reached = False  # whether anything came back, even a fault
        self._most_s = most_s
        self._since: float | None = None  # monotonic time of the first such fault since the last answer
        self._began = ""  # the same as wall-clock time
        self._last = ""  # the last fault
        self._gone = False

    def answered(self) -> bool:
        """Note an answer; return whether the server was away before."""
        was_gone, self._gone = self._gone, False
        self.has_answered, self._since = True, None
        return was_gone

    def covers(self, error: AskError, waited_s: float) -> bool:
        """Return whether a fault is about the server's state alone, and so costs its request no try.

        Args:
            error: the fault.
            waited_s: time since the request's own first such fault; the wait ends even while others are answered.

        Raises:
            ServerGone: no answer came for the whole time.
        """
        gone = (isinstance(error, ConnectionFailed) and error.refused) or (
            isinstance(error, TimedOut) and error.kind == "connect"
        )
        self._reached = self._reached or not gone
        if not gone and not isinstance(error, RateLimited | Unavailable):
            return False
        now = time.monotonic()
        if self.unreached:
            if self._since is None:
                self._since = now - (error.seconds if isinstance(error, TimedOut) else 0.0)
            if now - self._since >= min(NEVER_S, self._most_s):
                raise ServerGone(
                    f"nobody has answered in {now - self._since:.0f} s: {error}; check base_url and the server"
                )
            return True
        loading = isinstance(error, Unavailable) and "loading" in str(error).lower()
        if not (self.has_answered or loading) or waited_s > self._most_s:
            return False
        if self._since is None or not self._began:
            self._since, self._began = now, time.strftime("%H:%M:%S")
        self._last, self._gone = str(error), self._gone or gone
        if now - self._since > self._most_s:
            raise ServerGone(
                f"no answer since {self._began}, for {self._most_s:g} s (patience_s): {error}; "
                "when the server is back, run again"
            )
        return True

    @property
    def unreached(self) -> bool:
        """Return whether nothing came back from the server in this run."""
        return not self._reached and not self.has_answered

    def line(self) -> str | None:
        """Return a line about the present wait, if any."""
        if self._since is None or not self._began or time.monotonic() - self._since < 1.0:
            return None
        return f"waiting for the server since {self._began} (up to {self._most_s:g} s): {self._last}"
