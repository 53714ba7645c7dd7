"""Requests and tokens a minute, shared by all processes that ask through one ledger.

The ledger keeps one clock for each quota: when the next request may leave. Whoever wants to ask moves it on by what the
request takes, and leaves at the moment that it showed. Nothing is held, so a process that is killed blocks nobody: what
it had reserved, half a second's worth or one request, passes unused.
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
"""How far ahead a process reserves. Its next request it may always reserve, so that at low rates all take turns."""

KNOW = """
INSERT INTO quotas (name, next_request_at, next_token_at) VALUES (?, 0, 0)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
"""  # the update locks the row where rows are locked one by one
LOOK = "SELECT next_request_at, next_token_at FROM quotas WHERE name = ?"
MOVE = "UPDATE quotas SET next_request_at = ?, next_token_at = ? WHERE name = ?"


def quota_name(config: AnnotatorConfig) -> str:
    """Who shares a cap: annotators that name the same quota, else those of one model at one server."""
    return f"quota {config.quota}" if config.quota else f"{config.annotator} at {config.base_url or 'its provider'}"


def reserve(driver: Driver, name: str, request_s: float, token_s: float, wanted: Sequence[int]) -> list[float]:
    """Reserve moments for requests; a change of the ledger.

    Args:
        driver: the ledger's database, in a transaction.
        name: the quota.
        request_s: seconds that a request takes of it; 0 where requests are not capped.
        token_s: seconds that a token takes of it; 0 where tokens are not capped.
        wanted: tokens of each request, in the order in which they want to leave.

    Returns:
        Seconds from now at which the first few may leave: at least one, more if they leave within `AHEAD_S`.
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
    """A process's share of a quota; reserves for all who wait in one transaction.

    Args:
        ledger: an open ledger, by whose clock all go.
        config: has the caps; without any, nobody waits.
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
        """Reserve until nobody waits; whoever gave up meanwhile is left out."""
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
            for (_, told), wait in zip(wanted, waits, strict=False):  # those behind wait on
                if not told.done():
                    told.set_result(now + wait)
            self._waiting.extendleft(reversed(wanted[len(waits) :]))
            if self._waiting:
                await asyncio.sleep(waits[-1] - AHEAD_S / 2)
