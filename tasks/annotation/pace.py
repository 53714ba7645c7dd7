"""Set the request rate: additive increase, multiplicative decrease, Retry-After, and an optional quota."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

from earmark.tasks.annotation.errors import AskError, ConnectionFailed, RateLimited, Retriable, ServerError, TimedOut
from earmark.tasks.annotation.quota import Quota

CUT = 0.7
"""Factor on the limit when the server pushes back."""
ROUND = 8
"""Approximate number of recent exchanges for the share of faults."""
FREQUENT = 0.25
"""Share of failed exchanges above which faults other than 429 count as overload."""
RECENT = 32
"""Approximate number of recent exchanges for the share of refusals for load (429)."""
OVERLOADED = 1.5 / RECENT
"""Share of 429 above which the server is overloaded: two of them. A full server refuses again at once."""
REGAINED = 0.9
"""Share of the limit at the last cut, up to which the limit rises by a tenth a round."""
LONGEST_WAIT_S = 3600.0
"""Longest Retry-After accepted, in seconds."""


class Pace:
    """Gate with at most `limit` requests in flight; the limit follows the server.

    Args:
        most: highest concurrency; also the start, as most servers take it.
        quota: requests and tokens per minute; None is no cap.
    """

    def __init__(self, most: int, quota: Quota | None = None) -> None:
        self.most = most
        self.limit = float(most)
        self.in_flight = 0
        self.paused_until = 0.0
        self._failing = self._refusing = 0.0
        self._cut_at = 0.0
        self._quota = quota
        self._last_cut = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, tokens: int) -> None:
        """Wait for admission.

        Args:
            tokens: estimated tokens of the request, in and out.

        Raises:
            LedgerError: the quota's ledger cannot be written.
        """
        while True:
            while self.in_flight >= int(self.limit):
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
            if not await self._pause():
                break
        self.in_flight += 1
        if self._quota is not None:
            try:
                await self._quota.turn(tokens)
                await self._pause()
            except BaseException:
                self.leave()
                raise

    def leave(self) -> None:
        """Give the place back."""
        self.in_flight -= 1
        room = int(self.limit) - self.in_flight
        while room > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def allow(self, most: int) -> None:
        """Change the highest concurrency; a limit lowered by the server stays lower."""
        self.limit = min(self.limit, float(most)) if self.limit < self.most else float(most)
        self.most = most

    def succeeded(self) -> None:
        """Raise the limit after a response: by one a round, or by a tenth below the last cut."""
        self._failing -= self._failing / ROUND
        self._refusing -= self._refusing / RECENT
        if self.limit < self.most:
            step = max(1.0 / self.limit, 0.1 if self.limit < REGAINED * self._cut_at else 0.0)
            self.limit = min(float(self.most), self.limit + step)

    def failed(self, error: AskError, started: float) -> None:
        """Lower the limit after a fault of load, and pause for Retry-After.

        A server with two refusals for load (429) within some exchanges is overloaded; timeouts, broken connections and
        server errors are a sign of load only if frequent. Else one fault in a hundred keeps the limit at a third.

        Args:
            error: the fault.
            started: monotonic time of sending; one overload cuts once, whatever the number of its requests.
        """
        now = time.monotonic()
        if isinstance(error, Retriable) and error.retry_after_s:
            self.paused_until = max(self.paused_until, now + min(error.retry_after_s, LONGEST_WAIT_S))
        if not isinstance(error, RateLimited | ServerError | TimedOut | ConnectionFailed):
            return
        self._failing += (1.0 - self._failing) / ROUND
        self._refusing += (isinstance(error, RateLimited) - self._refusing) / RECENT
        if started >= self._last_cut and (self._refusing > OVERLOADED or self._failing > FREQUENT):
            self._cut_at = self.limit
            self.limit = max(1.0, self.limit * CUT)
            self._last_cut = now

    async def _pause(self) -> bool:
        """Wait for the pause requested by the server; return whether there was a pause."""
        paused = False
        while (wait := self.paused_until - time.monotonic()) > 0:
            paused = True
            await asyncio.sleep(wait)
        return paused


def backoff(tries: int, base_s: float, longest_s: float, *, least_s: float = 0.0) -> float:
    """Return the seconds until the next try: exponential with full jitter, at least `least_s` (Retry-After)."""
    reach = min(longest_s, base_s * 2.0 ** min(tries, 30))
    return least_s + random.uniform(0.1, 1.0) * reach
