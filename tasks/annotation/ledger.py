"""The ledger: what was asked, what came back, what it cost. Durable, shared by all builds and processes.

Writes are grouped: all that arrives while one commit runs goes into the next. A write is acknowledged when its commit
is on disk. One open ledger is one `owner`; its claims keep others from asking the same key and end with it, however it
ends.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_rows import (
    OPEN_HERE,
    Attempt,
    Driver,
    Finished,
    Held,
    Verdict,
    claim,
    enlist,
    free,
    free_the_dead,
    judge,
    read_finished,
    record,
    release,
    settle,
    shown,
)

SOON_S = 0.25
SOON_AT_MOST = 1_000
"""A write that nobody waits for is committed with the next awaited one, or after so many seconds or changes."""
SMALL_GROUP = 24
"""Writes that go to the thread as a whole; more would fight the event loop for the interpreter at every statement."""
CONFLICTS = 20
"""Times that a transaction is tried which the database undid in favour of another one."""

Done = TypeVar("Done")
Change: TypeAlias = Callable[[Driver], Any]


class Ledger:
    """A process's door to a ledger. Open it with `open_ledger`, inside the event loop that uses it."""

    def __init__(self, driver: Driver, address: str) -> None:
        self.driver = driver
        self.address = address
        self.owner = uuid.uuid4().hex
        self._pending: list[tuple[Change, asyncio.Future[Any] | None]] = []
        self._wake = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._writer: asyncio.Task[None] | None = None
        self._broken: LedgerError | None = None

    async def __aenter__(self) -> Self:
        OPEN_HERE.add(self.owner)
        self._writer = asyncio.create_task(self._write())
        try:
            await self.change(partial(enlist, owner=self.owner))
            await self.free_the_dead()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._broken is None:
                await self.change(partial(free, owner=self.owner))
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._soon:
            self._soon.cancel()
        if self._writer:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
        OPEN_HERE.discard(self.owner)
        self._thread.shutdown(wait=True)
        self.driver.close()

    @property
    def broken(self) -> bool:
        """Whether a write failed; every further one fails too."""
        return self._broken is not None

    # -- reading ----------------------------------------------------------------------------------------------

    async def finished(self, keys: Sequence[str]) -> dict[str, Finished]:
        """Those of the keys that are settled; 260,000 take a second or two.

        Raises:
            LedgerError: it cannot be read.
        """
        await self.flush()
        try:
            return await self._in_thread(partial(read_finished, self.driver, keys))
        except Exception as error:
            raise LedgerError(f"ledger {self.address}: cannot be read: {error}") from error

    # -- writing ----------------------------------------------------------------------------------------------

    async def claim(
        self, wanted: Sequence[tuple[str, str, str]], texts: dict[str, str], parser: int
    ) -> dict[str, Held]:
        """Claim open requests, so that no other process asks them.

        Args:
            wanted: key, model and canonical form of each.
            texts: long texts by SHA-256 that the canonical forms name.
            parser: version of the parser; what was settled by another one is opened again, to be read anew.

        Returns:
            The claimed ones by key. A key that is missing was settled or is held by another process.
        """

        def enlisted(driver: Driver) -> dict[str, Held]:
            enlist(driver, self.owner)  # a claim whose owner is not listed would never end
            return claim(driver, self.owner, wanted, texts, parser)

        return await self.change(enlisted)

    async def record(self, attempt: Attempt) -> None:
        """Keep an attempt; returns when it is durable."""
        await self.change(partial(record, attempt=attempt))

    def record_soon(self, attempt: Attempt) -> None:
        """Keep an attempt with the next commit, without waiting."""
        self._put(partial(record, attempt=attempt))

    def judge_soon(self, verdict: Verdict) -> None:
        """Keep what reading an attempt gave; after a crash it can be read again."""
        self._put(partial(judge, verdict=verdict))

    def settle_soon(self, request_id: int, finished: Finished) -> None:
        """Settle a request with the next commit. Its raw response is durable already, so a crash costs nothing."""
        self._put(partial(settle, request_id=request_id, finished=finished))

    def release_soon(self, request_ids: Sequence[int]) -> None:
        """Give claims back unsettled."""
        self._put(partial(release, request_ids=request_ids))

    def change_soon(self, change: Change) -> None:
        """Run a change within the next transaction, without waiting."""
        self._put(change)

    async def beat(self) -> None:
        """Say that this process is alive."""
        await self.change(partial(enlist, owner=self.owner))

    async def free_the_dead(self) -> int:
        """End the claims of processes that are gone.

        Returns:
            How many processes.
        """
        return await self.change(free_the_dead)

    async def change(self, change: Callable[[Driver], Done]) -> Done:
        """Run a change within the next transaction and wait until it is durable.

        Raises:
            LedgerError: it could not be written.
        """
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._put(change, future)
        return await future

    async def flush(self) -> None:
        """Wait until all that was handed over is durable.

        Raises:
            LedgerError: something could not be written.
        """
        await self.change(lambda _: None)  # changes are committed in the order in which they came

    # -- the writer -------------------------------------------------------------------------------------------

    def _put(self, change: Change, future: asyncio.Future[Any] | None = None) -> None:
        if self._broken:
            raise self._broken
        self._pending.append((change, future))
        if future is not None or len(self._pending) >= SOON_AT_MOST:
            self._wake.set()
        elif self._soon is None:  # what nobody waits for rides along, but not for ever
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._wake.set)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._soon is not None:
                self._soon.cancel()
                self._soon = None
            group, self._pending = self._pending, []
            if group:
                await self._commit(group)

    async def _commit(self, group: list[tuple[Change, asyncio.Future[Any] | None]]) -> None:
        try:
            if self.driver.inline and len(group) > SMALL_GROUP:
                await self._in_thread(self.driver.begin)
                results = [change(self.driver) for change, _ in group]
                await self._in_thread(self.driver.commit)
            else:
                results = await self._in_thread(partial(_in_one_transaction, self.driver, group))
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            await self._fail(group, error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    async def _fail(self, group: list[tuple[Change, asyncio.Future[Any] | None]], error: Exception) -> None:
        """A ledger that cannot write must end the run: going on would ask what nobody remembers."""
        self._broken = LedgerError(f"ledger {self.address}: cannot write: {error}")
        with suppress(Exception):
            await self._in_thread(self.driver.rollback)
        for _, future in group + self._pending:
            if future is not None and not future.done():
                future.set_exception(self._broken)
        self._pending.clear()

    async def _in_thread(self, call: Callable[[], Done]) -> Done:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def open_ledger(address: str | Path) -> Ledger:
    """A ledger at a path (SQLite) or at a `postgresql://` URL; made or migrated where needed.

    Raises:
        LedgerError: it cannot be opened.
        MissingExtraError: PostgreSQL without the `scale` extra.
    """
    return Ledger(connect(address), shown(address))


def connect(address: str | Path) -> Driver:
    """The database itself, for reports; see `open_ledger`."""
    if str(address).startswith(("postgresql://", "postgres://")):
        from earmark.tasks.annotation.ledger_postgres import PostgresDriver

        return PostgresDriver(str(address))
    if "://" in str(address):
        raise LedgerError(f"ledger {shown(address)}: expected a file path or a postgresql:// URL")
    from earmark.tasks.annotation.ledger_sqlite import SqliteDriver

    return SqliteDriver(Path(address))


def _in_one_transaction(driver: Driver, group: list[tuple[Change, Any]]) -> list[Any]:
    for left in reversed(range(CONFLICTS)):
        try:
            driver.begin()
            results = [change(driver) for change, _ in group]
            driver.commit()
        except driver.conflicts:  # two transactions waited for each other's rows, and the other one went on
            driver.rollback()
            if not left:
                raise
            continue
        return results
    raise AssertionError("unreachable")
