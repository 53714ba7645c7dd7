"""Measure the progress of a run, with its cause of waiting."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

WINDOW_S = 30.0  # time window of rates, in seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a running call."""

    total: int  # distinct requests
    done: int  # with an answer, from the ledger or the model
    failed: int  # rejects
    in_flight: int  # at the model now
    from_ledger: int  # finished before
    requests_per_s: float  # completions by the model
    tokens_per_s: float  # tokens in and out
    spent_usd: float | None  # by this annotator so far; None without prices
    left_s: float | None  # estimate of the time left; None without recent completions
    waiting: str | None  # reason of a stall, or None
    call: int = 0  # distinguishes the calls of a session

    @property
    def left(self) -> int:
        """Return the number of requests without an outcome."""
        return self.total - self.done - self.failed

    def line(self) -> str:
        """Return a line for a log."""
        return (
            f"{self.done + self.failed:,}/{self.total:,} done ({self.from_ledger:,} from the ledger, {self.failed:,} "
            f"failed), {self.requests_per_s:.1f} requests/s, {self.tokens_per_s:.0f} tokens/s, {self.state()}"
        )

    def state(self) -> str:
        """Return cost and time left, then requests in flight or the cause of waiting."""
        cost = "no prices given" if self.spent_usd is None else f"${self.spent_usd:,.4f} spent"
        left = "time left not known" if self.left_s is None else f"{span(self.left_s)} left"
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{cost}, {left}{failed}, " + (self.waiting or f"{self.in_flight:,} in flight")


def joined(sessions: Sequence[Sequence[Progress]]) -> Progress:
    """Join the calls of several sessions: counts and rates are sums, the time left is the longest."""
    looks = [one for calls in sessions for one in calls]
    going = [one for one in looks if one.left]
    spent = [
        max(known) for calls in sessions if (known := [one.spent_usd for one in calls if one.spent_usd is not None])
    ]
    return Progress(
        **{name: sum(getattr(one, name) for one in looks) for name in ("total", "done", "failed", "from_ledger")},
        **{name: sum(getattr(one, name) for one in going) for name in ("in_flight", "requests_per_s", "tokens_per_s")},
        spent_usd=sum(spent) if spent else None,
        left_s=max((one.left_s for one in going if one.left_s is not None), default=None),
        waiting=next((one.waiting for one in going if one.waiting), None),
    )


def span(seconds: float) -> str:
    """Return a time in words: "40 s", "3 min", "2 h 10 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


_calls = count(1)


class Meter:
    """Counter of one call's completions."""

    def __init__(self, total: int) -> None:
        self.call = next(_calls)
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
        """Count a finished request."""
        self.failed += failed
        self.done += not failed
        self.from_ledger += from_ledger
        self.moved_at = time.monotonic()

    def add(self, count: int) -> None:
        """Expect further requests."""
        if self.total == self.done + self.failed:  # until now there was nothing to wait for
            self.moved_at = time.monotonic()
        self.total += count

    def still_s(self) -> float:
        """Return seconds since the last completion, while requests are open; else 0."""
        return time.monotonic() - self.moved_at if self.total > self.done + self.failed else 0.0

    def look(self, spent_usd: float | None, waiting: str | None) -> Progress:
        """Return the present state; call it about once a second, since rates are taken between calls."""
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
            call=self.call,
        )
