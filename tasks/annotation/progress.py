"""How far a run is, and what it waits for when nothing moves."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

WINDOW_S = 30.0
"""Rates are means over the last so many seconds."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A look at a running call."""

    total: int  # distinct requests
    done: int  # with an answer, from the ledger or the model
    failed: int  # rejects
    in_flight: int  # at the model now
    from_ledger: int  # finished before
    requests_per_s: float  # completions by the model
    tokens_per_s: float  # tokens in and out
    spent_usd: float  # by this annotator so far
    left_s: float | None  # estimate of the time left; None where nothing was completed lately
    waiting: str | None  # why nothing moves, or None while something does

    def line(self) -> str:
        """One line for a terminal or a log."""
        left = "?" if self.left_s is None else f"{self.left_s:.0f} s"
        said = (
            f"{self.done + self.failed}/{self.total} done ({self.from_ledger} from the ledger, {self.failed} failed), "
            f"{self.in_flight} in flight, {self.requests_per_s:.1f} requests/s, {self.tokens_per_s:.0f} tokens/s, "
            f"${self.spent_usd:.4f}, {left} left"
        )
        return f"{said}; {self.waiting}" if self.waiting else said


class Meter:
    """Counts one call's completions."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.failed = 0
        self.from_ledger = 0
        self.in_flight = 0
        self.exchanges = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.moved_at = time.monotonic()
        self._marks: deque[tuple[float, int, int]] = deque([(self.moved_at, 0, 0)])

    def finished(self, *, failed: bool, from_ledger: bool = False) -> None:
        """A request has its outcome."""
        self.failed += failed
        self.done += not failed
        self.from_ledger += from_ledger
        self.moved_at = time.monotonic()

    def still_s(self) -> float:
        """Seconds since the last completion."""
        return time.monotonic() - self.moved_at

    def look(self, spent_usd: float, waiting: str | None) -> Progress:
        """The state now; call it about once a second, since rates are taken between calls."""
        now = time.monotonic()
        asked = self.done + self.failed - self.from_ledger
        tokens = self.input_tokens + self.output_tokens
        while len(self._marks) > 1 and now - self._marks[0][0] > WINDOW_S:
            self._marks.popleft()
        then, asked_then, tokens_then = self._marks[0]
        self._marks.append((now, asked, tokens))
        span = max(now - then, 1e-6)
        rate = (asked - asked_then) / span
        left = self.total - self.done - self.failed
        return Progress(
            total=self.total,
            done=self.done,
            failed=self.failed,
            in_flight=self.in_flight,
            from_ledger=self.from_ledger,
            requests_per_s=rate,
            tokens_per_s=(tokens - tokens_then) / span,
            spent_usd=spent_usd,
            left_s=0.0 if left == 0 else (left / rate if rate > 0 else None),
            waiting=waiting,
        )
