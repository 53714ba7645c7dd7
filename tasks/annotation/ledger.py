"""Keep a durable ledger of requests, responses and costs, shared by all builds and processes.

Writes are grouped: all writes arriving during a commit go into the next. A write is acknowledged when its commit is on
disk. An open ledger has an `owner`; its claims keep others from asking the same key and end with the owner, however it
ends.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from earmark.schemas.errors import MissingExtraError
from earmark.schemas.files import database_fault
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_rows import (
    ALIVE_S,
    LEDGER,
    OPEN_HERE,
    Attempt,
    Driver,
    Finished,
    Held,
    ReadAttempt,
    Row,
    claim,
    enlist,
    free,
    free_the_dead,
    judge,
    migrations,
    read_finished,
    read_in_batches,
    read_received,
    record,
    release,
    settle,
    shown,
)

SOON_S = 0.25
SOON_AT_MOST = 1_000
"""Seconds or number of changes until an unawaited write is committed, if no awaited write comes first."""
SMALL_GROUP = 24
"""Largest group sent to the thread as a whole; a larger group would compete with the event loop at every statement."""
CONFLICTS = 20  # number of tries of a transaction undone by the database in favour of another

Done = TypeVar("Done")
Change: TypeAlias = Callable[[Driver], Any]


class Ledger:
    """Connection of a process to a ledger. Open it with `open_ledger`, inside the event loop of its use."""

    def __init__(self, driver: Driver, address: str, *, reading: bool = False) -> None:
        self.driver = driver
        self.address = address
        self._reading = reading
        self.owner = uuid.uuid4().hex
        self.lease = 0  # raised when this process was taken for dead: claims of an earlier lease have ended
        self._beat_at = 0.0
        self._pending: list[tuple[Change, asyncio.Future[Any] | None]] = []
        self._wake = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._writer: asyncio.Task[None] | None = None
        self._broken: LedgerError | None = None

    async def __aenter__(self) -> Self:
        if self._reading:
            return self
        OPEN_HERE.add(self.owner)
        self._writer = asyncio.create_task(self._write())
        try:
            await self.beat()
            await self.free_the_dead()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._broken is None and not self._reading:
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
        """Return whether a write failed; every further write fails too."""
        return self._broken is not None

    # -- reading ----------------------------------------------------------------------------------------------

    async def finished(self, keys: Sequence[str]) -> dict[str, Finished]:
        """Return the settled requests among the keys; 260,000 take a second or two.

        Raises:
            LedgerError: it cannot be read.
        """
        if not self._reading:
            await self.flush()
        return await self._read(read_finished, keys)

    async def in_batches(self, keys: Sequence[str]) -> set[str]:
        """Return the keys among these of requests in batches at a provider, or in one that may have arrived.

        Raises:
            LedgerError: it cannot be read.
        """
        return await self._read(read_in_batches, keys)

    async def received(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """Return the raw responses of each key, oldest first.

        Raises:
            LedgerError: it cannot be read.
        """
        return await self._read(read_received, keys)

    async def _read(self, read: Callable[[Driver, Sequence[str]], Done], keys: Sequence[str]) -> Done:
        try:
            return await self._in_thread(partial(read, self.driver, keys))
        except Exception as error:
            raise LedgerError(f"ledger {self.address}: cannot be read: {error}") from error

    # -- writing ----------------------------------------------------------------------------------------------

    async def claim(
        self, wanted: Sequence[tuple[str, str, str]], texts: dict[str, str], parser: int
    ) -> dict[str, Held]:
        """Claim open requests, so that no other process asks them.

        Args:
            wanted: key, model and canonical form of each.
            texts: long texts by SHA-256 in the canonical forms.
            parser: version of the parser; requests settled by another version are opened again for reading.

        Returns:
            The claimed requests by key. Missing keys were settled or are held by another process.
        """

        def enlisted(driver: Driver) -> dict[str, Held]:
            self._enlist(driver)  # a claim of an unlisted owner would never end
            return claim(driver, self.owner, wanted, texts, parser)

        return await self.change(enlisted)

    def _enlist(self, driver: Driver) -> None:
        self.lease += enlist(driver, self.owner)

    async def record(self, attempt: Attempt, lease: int) -> int:
        """Keep an attempt of a claim under a lease; return its number when it is durable."""
        return await self.change(partial(self._record, attempt=attempt, lease=lease))

    def record_soon(self, attempt: Attempt, lease: int) -> None:
        """Keep an attempt with the next commit, without waiting."""
        self._put(partial(self._record, attempt=attempt, lease=lease))

    def _record(self, driver: Driver, attempt: Attempt, lease: int) -> int:
        if self._was_silent:
            self._enlist(driver)
        return record(driver, attempt, late=lease != self.lease)

    def judge_soon(self, verdict: ReadAttempt) -> None:
        """Keep the verdict on an attempt; after a crash it can be read again."""
        self._put(partial(judge, verdict=verdict))

    def settle_soon(self, request_id: int, finished: Finished) -> None:
        """Settle an open request with the next commit. Its raw response is durable, so a crash costs nothing."""
        self._put(partial(settle, request_id=request_id, finished=finished))

    def release_soon(self, claims: Sequence[tuple[int, int]]) -> None:
        """Release claims, given by row and lease, without settling them; those of an earlier lease have ended."""

        def still_held(driver: Driver) -> None:
            release(driver, self.owner, [row for row, lease in claims if lease == self.lease])

        self._put(still_held)

    def change_soon(self, change: Change) -> None:
        """Run a change within the next transaction, without waiting."""
        self._put(change)

    async def beat(self) -> None:
        """Record a heartbeat of this process."""
        now = time.time()  # goes on while a machine sleeps
        await self.change(self._enlist)
        self._beat_at = now

    async def keep_alive(self) -> None:
        """Record a heartbeat if the last was long ago, as after a machine's sleep or a time without network."""
        if self._was_silent:
            await self.beat()

    @property
    def _was_silent(self) -> bool:
        """Return whether this process may have been taken for dead since its last heartbeat."""
        return abs(time.time() - self._beat_at) > ALIVE_S / 2

    async def change_if_held(self, lease: int, change: Change) -> bool:
        """Run a change unless claims under a lease have ended; return whether it ran."""

        def held(driver: Driver) -> bool:
            self._enlist(driver)
            if self.lease != lease:
                return False
            change(driver)
            return True

        return await self.change(held)

    async def free_the_dead(self) -> int:
        """End the claims of dead processes.

        Returns:
            The number of processes.
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
        """Wait until all earlier changes are durable.

        Raises:
            LedgerError: a change could not be written.
        """
        await self.change(lambda _: None)  # changes are committed in order of arrival

    # -- the writer -------------------------------------------------------------------------------------------

    def _put(self, change: Change, future: asyncio.Future[Any] | None = None) -> None:
        if self._broken:
            raise self._broken
        self._pending.append((change, future))
        if future is not None or len(self._pending) >= SOON_AT_MOST:
            self._wake.set()
        elif self._soon is None:  # unawaited writes go with the next commit, within a limit
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
        except Exception as error:  # noqa: BLE001 - any fault must reach the waiting callers
            await self._fail(group, error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    async def _fail(self, group: list[tuple[Change, asyncio.Future[Any] | None]], error: Exception) -> None:
        """Fail all waiting writes: a run without a working ledger would ask without a record."""
        said = database_fault(Path(self.address), error, LEDGER) if self.driver.inline else error
        self._broken = LedgerError(f"ledger {self.address}: cannot write: {said}")
        with suppress(Exception):
            await self._in_thread(self.driver.rollback)
        for _, future in group + self._pending:
            if future is not None and not future.done():
                future.set_exception(self._broken)
        self._pending.clear()

    async def _in_thread(self, call: Callable[[], Done]) -> Done:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def open_ledger(address: str | Path, *, reading: bool = False) -> Ledger:
    """Open a ledger at a path (SQLite) or at a `postgresql://` URL; make or migrate it if needed.

    With `reading`, the database stays unchanged: only `finished`, `received` and `in_batches` may be called.
    """
    return Ledger(connect(address, reading=reading), shown(address), reading=reading)


def connect(address: str | Path, *, reading: bool = False) -> Driver:
    """Connect to the database itself, for reports; see `open_ledger`."""
    place = shown(address)  # first, as it refuses an address whose password the driver's messages would show
    if str(address).startswith(("postgresql://", "postgres://")):
        return PostgresDriver(str(address), reading=reading)
    if "://" in str(address):
        raise LedgerError(f"ledger {place}: expected a file path or a postgresql:// URL")
    from earmark.tasks.annotation.ledger_sqlite import SqliteDriver

    return SqliteDriver(Path(address), reading=reading)


def _in_one_transaction(driver: Driver, group: list[tuple[Change, Any]]) -> list[Any]:
    for left in reversed(range(CONFLICTS)):
        try:
            driver.begin()
            results = [change(driver) for change, _ in group]
            driver.commit()
        except driver.conflicts:  # a deadlock: the other transaction went on
            driver.rollback()
            if not left:
                raise
            continue
        return results
    raise AssertionError("unreachable")


MIGRATION_LOCK = 0x6561726D61726B  # advisory lock for migrations; the letters of `earmark`


class PostgresDriver:
    """PostgreSQL through psycopg. Statements of a transaction go out as a pipeline, without a round trip each."""

    inline = False

    def __init__(self, url: str, *, reading: bool = False) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("a ledger in PostgreSQL", "scale") from None
        self.conflicts: tuple[type[Exception], ...] = (
            psycopg.errors.DeadlockDetected,
            psycopg.errors.SerializationFailure,
        )
        self._psycopg: Any = psycopg
        try:
            self._connection: Any = psycopg.connect(url, autocommit=True, application_name="earmark")
            if reading:
                self._begin_reading()
                return
            self._connection.execute("SET synchronous_commit = on")
            self._migrate()
        except psycopg.Error as error:
            raise LedgerError(f"ledger {shown(url)}: cannot be opened: {' '.join(str(error).split())}") from None
        self._open = ExitStack()

    def begin(self) -> None:
        """Start a transaction and a pipeline."""
        self._open = ExitStack()
        self._open.enter_context(self._connection.pipeline())
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        """End both; return when the server has made it durable."""
        self._connection.execute("COMMIT")
        self._open.close()

    def rollback(self) -> None:
        """Undo it. The server has already ended a transaction with a failed statement, and refused later statements."""
        with suppress(self._psycopg.errors.PipelineAborted):
            self._open.close()
        self._connection.rollback()

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(_dialect(sql), values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return list(self._connection.execute(_dialect(sql), values).fetchall())

    def rows_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, as one array."""
        return self.rows(sql.replace("IN {values}", "= ANY(?)"), (list(values),)) if values else []

    def committed(self, sql: str) -> list[Row]:
        """Return the rows of a query; all statements of this driver run in one thread, whole transactions at a time."""
        return self.rows(sql)

    def committed_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, as one array."""
        return self.rows_in(sql, values)

    def now(self) -> float:
        """Return seconds since 1970 by the server's clock, shared by all machines."""
        return float(self.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0])

    def clock(self) -> float:
        """Return seconds since 1970 by the server's clock."""
        return self.now()

    def size_bytes(self) -> int:
        """Return the bytes of the ledger's tables and indexes."""
        tables = "('texts', 'runs', 'requests', 'attempts', 'batches', 'batch_requests')"
        query = f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE relname IN {tables}"
        return int(self.rows(f"{query} AND relkind = 'r' AND pg_table_is_visible(oid)")[0][0])

    def vacuum(self) -> None:
        for table in ("texts", "requests", "attempts", "batches", "batch_requests"):
            self._connection.execute(f"VACUUM (ANALYZE) {table}".encode())

    def close(self) -> None:
        self._connection.close()

    def _begin_reading(self) -> None:
        """Have the server refuse changes; without a ledger, read an empty temporary ledger of this connection."""
        if self.rows("SELECT to_regclass('ledger_schema')")[0][0] is None:
            self.run("SET search_path = pg_temp")
            self._migrate()
        self.run("SET default_transaction_read_only = on")

    def _migrate(self) -> None:
        with self._connection.transaction():
            self.run("SELECT pg_advisory_xact_lock(?)", (MIGRATION_LOCK,))
            self.run("CREATE TABLE IF NOT EXISTS ledger_schema (number INTEGER PRIMARY KEY)")
            applied = {number for (number,) in self.rows("SELECT number FROM ledger_schema")}
            for number, sql in migrations("postgres"):
                if number not in applied:
                    self._connection.execute(sql.encode())
                    self.run("INSERT INTO ledger_schema VALUES (?)", (number,))


def _dialect(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()
