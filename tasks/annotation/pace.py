"""Set the request rate: additive increase, multiplicative decrease, Retry-After, and an optional quota."""

import asyncio
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.errors import (
    AskError,
    ConnectionFailed,
    LedgerError,
    RateLimited,
    Retriable,
    ServerError,
    TimedOut,
)
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.ledger_rows import Driver

AHEAD_S = 0.5
"""Reservation horizon of a process, in seconds. Its next request is always granted, so all take turns at low rates."""
MOST_TURNS = 100  # largest number of turns that lie ahead in a quota, beyond an hour of them

KNOW = """
INSERT INTO quotas (name, next_request_at, next_token_at) VALUES (?, 0, 0)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
"""  # the update locks the row in databases with row locks
LOOK = "SELECT next_request_at, next_token_at FROM quotas WHERE name = ?"
MOVE = "UPDATE quotas SET next_request_at = ?, next_token_at = ? WHERE name = ?"


def quota_name(config: AnnotatorConfig) -> str:
    """Return the name of a shared cap: the model and its server."""
    return f"{config.annotator} at {config.base_url or 'its provider'}"


def reserve(driver: Driver, name: str, request_s: float, token_s: float, wanted: Sequence[int]) -> list[float]:
    """Reserve moments for requests; a change of the ledger.

    Args:
        driver: the ledger's database, in a transaction.
        name: the quota.
        request_s: seconds of the quota per request; 0 without a cap on requests.
        token_s: seconds of the quota per token; 0 without a cap on tokens.
        wanted: tokens of each request, in the order of sending.

    Returns:
        Seconds from now until the first few may be sent: at least one request, more within `AHEAD_S`.
    """
    driver.run(KNOW, (name,))
    [(next_request, next_token)] = driver.rows(LOOK, (name,))
    now = driver.now()
    furthest = now + LONGEST_WAIT_S + MOST_TURNS * max(request_s, token_s * max(wanted))
    if max(next_request, next_token) > furthest:  # reserved on a clock that was ahead and has been set right
        next_request = next_token = now
    waits: list[float] = []
    for tokens in wanted:
        at = max(now, next_request, next_token)
        if waits and at > now + AHEAD_S:
            break
        waits.append(at - now)
        next_request, next_token = at + request_s, at + token_s * tokens
    driver.run(MOVE, (next_request, next_token, name))
    return waits


class Quota:
    """Share of a process in a quota; reserves for all waiting requests in one transaction.

    The ledger keeps a clock for each quota: the time of the next request. A process advances it by the request's share,
    and sends at the time shown before. Nothing is held, so a killed process blocks no other: its reservation, half a
    second's worth or one request, passes unused.

    Args:
        ledger: an open ledger with the common clock.
        config: has the caps; without any, requests do not wait.
    """

    def __init__(self, ledger: Ledger, config: AnnotatorConfig) -> None:
        self._ledger = ledger
        self._name = quota_name(config)
        self._request_s = 60.0 / config.requests_per_minute if config.requests_per_minute else 0.0
        self._token_s = 60.0 / config.tokens_per_minute if config.tokens_per_minute else 0.0
        self._waiting: deque[tuple[int, asyncio.Future[float]]] = deque()
        self._reserving: asyncio.Task[None] | None = None

    async def turn(self, tokens: int) -> None:
        """Wait until a request may leave.

        Args:
            tokens: estimated tokens of the request, in and out.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        if not (self._request_s or self._token_s):
            return
        told: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, told))
        if self._reserving is None or self._reserving.done():
            self._reserving = asyncio.create_task(self._reserve())
        leaves_at = await told
        await asyncio.sleep(leaves_at - time.monotonic())

    async def close(self) -> None:
        """Reserve no more."""
        if self._reserving is not None:
            self._reserving.cancel()
            with suppress(asyncio.CancelledError):
                await self._reserving

    async def _reserve(self) -> None:
        """Reserve until no request waits; skip cancelled requests."""
        while wanted := [(tokens, told) for tokens, told in self._waiting if not told.done()]:
            self._waiting.clear()
            ahead = [tokens for tokens, _ in wanted]
            change = partial(reserve, name=self._name, request_s=self._request_s, token_s=self._token_s, wanted=ahead)
            try:
                waits = await self._ledger.change(change)
            except LedgerError as error:
                for _, told in [*wanted, *self._waiting]:
                    if not told.done():
                        told.set_exception(error)
                self._waiting.clear()
                return
            now = time.monotonic()
            for (_, told), wait in zip(wanted, waits, strict=False):  # the rest keep waiting
                if not told.done():
                    told.set_result(now + wait)
            self._waiting.extendleft(reversed(wanted[len(waits) :]))
            if self._waiting:
                await asyncio.sleep(waits[-1] - AHEAD_S / 2)


CUT = 0.7  # factor on the limit when the server pushes back
ROUND = 8  # approximate number of recent exchanges for the share of faults
FREQUENT = 0.25  # share of failed exchanges above which faults other than 429 count as overload
RECENT = 32  # approximate number of recent exchanges for the share of refusals for load (429)
OVERLOADED = 1.5 / RECENT
"""Share of 429 above which the server is overloaded: two of them. A full server refuses again at once."""
REGAINED = 0.9  # share of the limit at the last cut, up to which the limit rises by a tenth a round
LONGEST_WAIT_S = 3600.0  # longest Retry-After accepted, in seconds


class Pace:
    """Gate with at most `limit` requests in flight; the limit follows the server. Safe for threads and their loops.

    Args:
        most: highest concurrency; also the start, as most servers take it.
        server: name of the model and its server.
    """

    def __init__(self, most: int, server: str = "") -> None:
        self.most = most
        self.server = server
        self.limit = float(most)
        self.in_flight = 0
        self.paused_until = 0.0
        self._failing = self._refusing = 0.0
        self._cut_at = 0.0
        self._last_cut = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()

    async def enter(self, tokens: int = 0, quota: Quota | None = None) -> None:
        """Wait for admission.

        Args:
            tokens: estimated tokens of the request, in and out.
            quota: requests and tokens per minute; None is no cap.

        Raises:
            LedgerError: the quota's ledger cannot be written.
        """
        while True:
            await self._pause()
            with self._lock:
                if self.in_flight < int(self.limit):
                    self.in_flight += 1
                    break
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()  # another takes the place that this request was offered
                raise
        try:
            if quota is not None:
                await quota.turn(tokens)
            await self._pause()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give the place back."""
        with self._lock:
            self.in_flight -= 1
        self._wake()

    def allow(self, most: int) -> None:
        """Change the highest concurrency; a limit lowered by the server stays lower."""
        with self._lock:
            self.limit = min(self.limit, float(most)) if self.limit < self.most else float(most)
            self.most = most

    def succeeded(self) -> None:
        """Raise the limit after a response: by one a round, or by a tenth below the last cut."""
        with self._lock:
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
        with self._lock:
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

    def _wake(self) -> None:
        """Let waiting requests look again: as many as there are free places."""
        with self._lock:
            room = int(self.limit) - self.in_flight
            while room > 0 and self._waiting:
                turn = self._waiting.popleft()
                with suppress(RuntimeError):  # the loop of a closed session
                    turn.get_loop().call_soon_threadsafe(_resolve, turn)
                    room -= not turn.done()

    async def _pause(self) -> None:
        while (wait := self.paused_until - time.monotonic()) > 0:
            await asyncio.sleep(wait)


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


_PACES: weakref.WeakSet[Pace] = weakref.WeakSet()
_FINDING = threading.Lock()


def shared_pace(config: AnnotatorConfig) -> Pace:
    """Return the pace of a declared model: one for all its roles in this process, while one of them is open."""
    server, most = quota_name(config), config.max_concurrency
    with _FINDING:
        for pace in _PACES:
            if pace.server == server and pace.most == most:
                return pace
        pace = Pace(most, server)
        _PACES.add(pace)
        return pace


def backoff(tries: int, base_s: float, longest_s: float, *, least_s: float = 0.0) -> float:
    """Return the seconds until the next try: exponential with full jitter, at least `least_s` (Retry-After)."""
    reach = min(longest_s, base_s * 2.0 ** min(tries, 30))
    return least_s + random.uniform(0.1, 1.0) * reach
