"""The ledger: what was asked, what came back, what it cost. Durable, shared by all builds and processes.

Writes are grouped: all that arrives while one commit runs goes into the next. A write is acknowledged when its commit
is on disk. One open ledger is one `owner`; its claims keep others from asking the same key and end with it, however it
ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from tasks.annotation.errors import LedgerError

ALIVE_S = 60.0
"""A process that was not seen for so long is dead, even where its process id is in use (again)."""
BEAT_S = 15.0
"""How often a process says that it is alive."""

SOON_S = 0.25
SOON_AT_MOST = 1_000
"""A write that nobody waits for is committed with the next awaited one, or after so many seconds or changes."""
SCAN_FROM = 10_000
SMALL_GROUP = 24
"""Writes that go to the thread as a whole; more would fight the event loop for the interpreter at every statement."""
_OPEN_HERE: set[str] = set()
"""Owners that live in this process: another run with our process id is from before a restart."""

Row: TypeAlias = tuple[Any, ...]
Done = TypeVar("Done")
Change: TypeAlias = "Callable[[Driver], Any]"


class Driver(Protocol):
    """A database. SQL is written with `?`; drivers translate. Not safe for threads: one caller at a time.

    Attributes:
        inline: statements are quick enough to run on the event loop, so that only begin and commit go to a thread.
    """

    inline: bool

    def begin(self) -> None:
        """Start a transaction that may write."""

    def commit(self) -> None:
        """End it; returns when it is durable."""

    def rollback(self) -> None:
        """Undo it; nothing happens without one."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        """A statement whose result is not wanted."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """A statement and its rows."""

    def rows_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """A query with `IN {values}`, for any number of values, as the open transaction sees it."""

    def committed(self, sql: str) -> list[Row]:
        """A query over durable state; may run beside a transaction of this driver."""

    def committed_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """The same as `rows_in` over durable state."""

    def now(self) -> float:
        """Seconds since 1970, by the clock that all processes of this ledger share."""

    def size_bytes(self) -> int:
        """Bytes on disk."""

    def vacuum(self) -> None:
        """Give free space back."""

    def close(self) -> None:
        """Close the connections."""


class Finished(NamedTuple):
    """A settled request, as the ledger keeps it. `answer` is JSON text; `reason` is set for rejects only."""

    answer: str | None
    reason: str | None
    detail: str | None
    parser: int
    reply_model: str | None


@dataclass(frozen=True, slots=True)
class Held:
    """A claimed request.

    Attributes:
        request_id: its row.
        attempts: how many attempts it had before.
        received: raw responses that were paid for and not settled, oldest first, with their attempt numbers.
    """

    request_id: int
    attempts: int = 0
    received: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One exchange, as recorded before anybody reads the answer."""

    request_id: int
    number: int
    status: Literal["received", "failed"]
    started_at: float
    latency_s: float
    raw: str | None = None
    error_type: str | None = None
    detail: str | None = None
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What reading a recorded attempt gave."""

    request_id: int
    number: int
    status: Literal["ok", "unusable"]
    error_type: str | None
    detail: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float


FINISHED = "SELECT key, answer, reason, detail, parser, reply_model FROM requests WHERE state <> 'open'"
CLAIM = """
INSERT INTO requests (key, model, body, owner, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, state = 'open'
WHERE requests.owner IS NULL AND (requests.state = 'open' OR requests.parser <> ?) RETURNING id, created_at
"""
RECORD = """
INSERT INTO attempts (request_id, number, status, error_type, detail, raw, latency_s, started_at, batch_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, number) DO NOTHING
"""
JUDGE = """
UPDATE attempts SET status = ?, error_type = ?, detail = ?, input_tokens = ?, output_tokens = ?, cost_usd = ?
WHERE request_id = ? AND number = ?
"""
SETTLE = """
UPDATE requests SET state = ?, answer = ?, reason = ?, detail = ?, parser = ?, reply_model = ?, owner = NULL,
settled_at = ? WHERE id = ?
"""


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
        _OPEN_HERE.add(self.owner)
        self._writer = asyncio.create_task(self._write())
        await self.change(self._enlist)
        await self.free_the_dead()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._broken is None:
                await self.change(partial(_free, owner=self.owner))
        finally:
            if self._writer:
                self._writer.cancel()
                with suppress(asyncio.CancelledError):
                    await self._writer
            _OPEN_HERE.discard(self.owner)
            self._thread.shutdown(wait=True)
            self.driver.close()

    @property
    def broken(self) -> bool:
        """Whether a write failed; every further one fails too."""
        return self._broken is not None

    # -- reading ----------------------------------------------------------------------------------------------

    async def finished(self, keys: Sequence[str]) -> dict[str, Finished]:
        """Those of the keys that are settled; 260,000 take a second or two."""
        await self.flush()
        return await self._in_thread(partial(read_finished, self.driver, keys))

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

        def claim(driver: Driver) -> dict[str, Held]:
            self._enlist(driver)  # a claim whose owner is not listed would never end
            return _claim(driver, self.owner, wanted, texts, parser)

        return await self.change(claim)

    async def record(self, attempt: Attempt) -> None:
        """Keep an attempt; returns when it is durable."""
        await self.change(partial(_record, attempt=attempt))

    def record_soon(self, attempt: Attempt) -> None:
        """Keep an attempt with the next commit, without waiting."""
        self._put(partial(_record, attempt=attempt))

    def judge_soon(self, verdict: Verdict) -> None:
        """Keep what reading an attempt gave; after a crash it can be read again."""
        self._put(partial(_judge, verdict=verdict))

    def settle_soon(self, request_id: int, finished: Finished) -> None:
        """Settle a request with the next commit. Its raw response is durable already, so a crash costs nothing."""
        self._put(partial(_settle, request_id=request_id, finished=finished))

    def release_soon(self, request_ids: Sequence[int]) -> None:
        """Give claims back unsettled."""
        self._put(partial(_release, request_ids=request_ids))

    async def beat(self) -> None:
        """Say that this process is alive."""
        await self.change(self._enlist)

    async def free_the_dead(self) -> int:
        """End the claims of processes that are gone.

        Returns:
            How many processes.
        """
        return await self.change(_free_the_dead)

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

    def _enlist(self, driver: Driver) -> None:
        now = driver.now()
        driver.run(
            "INSERT INTO runs (owner, host, pid, started_at, seen_at) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at",
            (self.owner, this_host(), os.getpid(), now, now),
        )


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
        from tasks.annotation.ledger_postgres import PostgresDriver

        return PostgresDriver(str(address))
    if "://" in str(address):
        raise LedgerError(f"ledger {shown(address)}: expected a file path or a postgresql:// URL")
    from tasks.annotation.ledger_sqlite import SqliteDriver

    return SqliteDriver(Path(address))


def shown(address: str | Path) -> str:
    """An address without its password."""
    before, at, after = str(address).rpartition("@")
    return f"{before.partition('://')[0]}://…@{after}" if at and "://" in before else str(address)


def migrations(kind: Literal["sqlite", "postgres"]) -> list[tuple[int, str]]:
    """Number and SQL of every migration, in order."""
    folder = resources.files("tasks.annotation") / "migrations" / kind
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [(int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files]


def read_finished(driver: Driver, keys: Sequence[str]) -> dict[str, Finished]:
    """Those of the keys that are settled, by key. Where they are much of a ledger, reading it all is three times
    faster than looking each one up."""
    wanted = {bytes.fromhex(key) for key in keys}
    if len(wanted) > SCAN_FROM and len(wanted) * 4 > driver.committed("SELECT count(*) FROM requests")[0][0]:
        found = (row for row in driver.committed(FINISHED) if bytes(row[0]) in wanted)
        return {bytes(row[0]).hex(): Finished._make(row[1:]) for row in found}
    rows = driver.committed_in(f"{FINISHED} AND key IN {{values}}", list(wanted))
    return {bytes(row[0]).hex(): Finished._make(row[1:]) for row in rows}


def this_host() -> str:
    """This machine and process namespace: where a process id can be looked up."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # not Linux
        namespace, boot = "", ""
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _in_one_transaction(driver: Driver, group: list[tuple[Change, Any]]) -> list[Any]:
    driver.begin()
    results = [change(driver) for change, _ in group]
    driver.commit()
    return results


def _claim(
    driver: Driver, owner: str, wanted: Sequence[tuple[str, str, str]], texts: dict[str, str], parser: int
) -> dict[str, Held]:
    now = driver.now()
    for digest, text in texts.items():
        clean = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        driver.run("INSERT INTO texts (sha256, text) VALUES (?, ?) ON CONFLICT (sha256) DO NOTHING", (digest, clean))
    held: dict[str, Held] = {}
    older: dict[int, str] = {}
    for key, model, body in wanted:
        for request_id, created_at in driver.rows(CLAIM, (bytes.fromhex(key), model, body, owner, now, parser)):
            held[key] = Held(request_id)
            if created_at != now:
                older[request_id] = key
    if older:
        _add_history(driver, held, older)
    return held


def _add_history(driver: Driver, held: dict[str, Held], older: dict[int, str]) -> None:
    """What earlier runs left: attempt numbers, and raw responses that only need reading."""
    query = "SELECT request_id, number, CASE WHEN status <> 'failed' THEN raw END FROM attempts"
    counts: dict[int, int] = {}
    raws: dict[int, list[tuple[int, str]]] = {}
    for request_id, number, raw in sorted(driver.rows_in(f"{query} WHERE request_id IN {{values}}", list(older))):
        counts[request_id] = number
        if raw is not None:
            raws.setdefault(request_id, []).append((number, raw))
    for request_id, count in counts.items():
        held[older[request_id]] = Held(request_id, count, tuple(raws.get(request_id, ())))


def _record(driver: Driver, attempt: Attempt) -> None:
    driver.run(
        RECORD,
        (
            attempt.request_id,
            attempt.number,
            attempt.status,
            attempt.error_type,
            attempt.detail,
            attempt.raw,
            attempt.latency_s,
            attempt.started_at,
            attempt.batch_id,
        ),
    )


def _judge(driver: Driver, verdict: Verdict) -> None:
    said = (verdict.status, verdict.error_type, verdict.detail)
    cost = (verdict.input_tokens, verdict.output_tokens, verdict.cost_usd)
    driver.run(JUDGE, (*said, *cost, verdict.request_id, verdict.number))


def _settle(driver: Driver, request_id: int, finished: Finished) -> None:
    state = "rejected" if finished.reason else "answered"
    said = (finished.answer, finished.reason, finished.detail, finished.parser, finished.reply_model)
    driver.run(SETTLE, (state, *said, driver.now(), request_id))


def _release(driver: Driver, request_ids: Sequence[int]) -> None:
    for request_id in request_ids:
        driver.run("UPDATE requests SET owner = NULL WHERE id = ? AND state = 'open'", (request_id,))


def _free(driver: Driver, owner: str) -> None:
    driver.run("UPDATE requests SET owner = NULL WHERE owner = ?", (owner,))
    driver.run("UPDATE batches SET owner = NULL WHERE owner = ?", (owner,))
    driver.run("DELETE FROM runs WHERE owner = ?", (owner,))


def _free_the_dead(driver: Driver) -> int:
    now, here, freed = driver.now(), this_host(), 0
    for owner, host, pid, seen_at in driver.rows("SELECT owner, host, pid, seen_at FROM runs"):
        lives = owner in _OPEN_HERE or (now - seen_at <= ALIVE_S and (host != here or _running(pid)))
        if not lives:
            _free(driver, owner)
            freed += 1
    return freed


def _running(pid: int) -> bool:
    if pid == os.getpid():
        return False  # the owners of this process are known
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's process, but a process
        return True
    return True
