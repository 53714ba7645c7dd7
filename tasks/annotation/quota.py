"""Limit requests and tokens a minute, over all processes with the same ledger.

The ledger keeps a clock for each quota: the time of the next request. A process advances it by the request's share, and
sends at the time shown before. Nothing is held, so a killed process blocks no other: its reservation, half a second's
worth or one request, passes unused.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.ledger_rows import Driver

AHEAD_S = 0.5
"""Reservation horizon of a process, in seconds. Its next request is always granted, so all take turns at low rates."""

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
