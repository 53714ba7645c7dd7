"""Keep the ledger in a SQLite file: the default, for any number of processes on one machine."""

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.schemas.files import BUSY_S, close_to_others, database_fault, keep_private, open_to_read, write_ahead
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_rows import LEDGER, Row, migrations

HEADER, FRAME_HEADER = 32, 24  # bytes: sqlite.org/fileformat2.html, section 4
_MAGIC = {b"\x37\x7f\x06\x82": "<u4", b"\x37\x7f\x06\x83": ">u4"}  # and the byte order of words in checksums
_CHECKED: set[tuple[Path, int]] = set()  # ledgers checked by this process, by path and file
ADVICE = "put back a copy of it, or move it away to begin a new one, which asks and pays for everything again"


def file_fault(path: Path) -> str | None:
    """Return the fault of a ledger's file and log before SQLite opens them, or None."""
    log = path.with_name(f"{path.name}-wal")
    size = _size(log)  # before the file is looked for: another process may be making both
    if not path.exists():
        return f"expected it beside {log.name}, found none; {ADVICE}" if size else None
    if path.stat().st_size == 0:
        return f"expected a database, found an empty file; {ADVICE}"
    try:
        fault = _log_fault(log)
    except FileNotFoundError:  # its last process has closed it
        fault = None
    return f"{log.name}: {fault}; the newest answers were in it: put back a copy of both" if fault else None


def _size(path: Path) -> int:
    """Return a file's size; 0 without one: the last process to close a ledger removes its log."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def page_fault(connection: sqlite3.Connection, path: Path) -> str | None:
    """Return the fault of a ledger's pages and indices, checked once in a process, or None.

    It reads the whole file: 2.5 s of work a gigabyte.
    """
    file = (path.resolve(), path.stat().st_ino)
    if file in _CHECKED:
        return None
    try:
        (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        said = str(error)
    if said != "ok":
        return f"damaged: {' '.join(str(said).split())[:120]}; {ADVICE}"
    _CHECKED.add(file)
    return None


def _log_fault(log: Path) -> str | None:
    """Return a fault in a write-ahead log beyond the effects of a kill or a power cut, or None.

    Those tear its end: a transaction without an awaited commit. If whole transactions of the same salts follow an
    invalid frame, the frame was valid before.
    """
    with log.open("rb") as file:
        header = file.read(HEADER)
        if len(header) < HEADER or not any(header):
            return None  # nothing was committed
        order = _MAGIC.get(header[:4])
        size = int.from_bytes(header[8:12], "big")
        if order is None or not 512 <= size <= 65536 or size & (size - 1):
            return "expected a write-ahead log, found other bytes"
        sums = _checksum(header[:24], order, np.zeros(2, np.uint32))
        if sums.astype(">u4").tobytes() != header[24:]:
            return "expected a write-ahead log, found a damaged header"
        number, broken, commits = 0, 0, 0
        while len(frame := file.read(FRAME_HEADER + size)) == FRAME_HEADER + size:
            number += 1
            ours = frame[8:16] == header[16:24]
            if not broken:
                sums = _checksum(frame[:8] + frame[FRAME_HEADER:], order, sums)
                if not ours or sums.astype(">u4").tobytes() != frame[16:24]:
                    broken = number
            elif ours and any(frame[4:8]):
                commits += 1
                if commits == 2:  # the first was on disk before the second began
                    return f"expected a whole log, found damage in frame {broken}"
    return None


def _checksum(content: bytes, order: str, before: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Continue the log's checksum: s0 += x0 + s1, s1 += x1 + s0, in words modulo 2^32."""
    words = np.frombuffer(content, order).astype(np.uint32).reshape(-1, 2)
    power, weights = _weights(len(words))
    own: NDArray[np.uint32] = np.einsum("kij,kj->i", weights, words, dtype=np.uint32, casting="unsafe")
    after: NDArray[np.uint32] = power @ before + own
    return after


@cache
def _weights(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the weights of the earlier sums, and of each of `count` pairs of words, in the later sums."""
    step = np.array([[1, 1], [1, 2]], np.uint32)
    power, weights = np.eye(2, dtype=np.uint32), np.empty((count, 2, 2), np.uint32)
    for place in reversed(range(count)):
        weights[place] = power @ np.array([[1, 0], [1, 1]], np.uint32)
        power = power @ step
    return power, weights


AT_ONCE = 2_000  # number of values in an IN list
_TURNS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""Turns of this process's ledgers on the same file: a lock wakes its waiter at once, while SQLite polls ever more
slowly."""


class SqliteDriver:
    """SQLite with a write-ahead log; `synchronous=FULL` makes every commit survive a power cut."""

    inline = True
    conflicts: tuple[type[Exception], ...] = ()  # transactions take turns

    def __init__(self, path: Path, *, reading: bool = False) -> None:
        self._path = path
        self._began = time.time() - time.monotonic()
        self._turn, self._has_turn = _TURNS[path.resolve()], False
        try:
            if fault := file_fault(path):
                raise LedgerError(f"ledger {path}: {fault}")
            if reading:
                self._connection = self._reader = self._opened_to_read()
                return
            _create(path)
            self._connection = self._sound(_connect(path))
            write_ahead(self._connection)
            for setting in ("synchronous=FULL", "cache_size=-65536"):
                self._connection.execute(f"PRAGMA {setting}")
            self._migrate()
            self._reader = _connect(path)  # sees only durable rows
            for made in self._files()[1:]:  # by an older Earmark
                close_to_others(made)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"ledger {path}: cannot be opened: {database_fault(path, error, LEDGER)}") from None

    def begin(self) -> None:
        """Start a transaction for writing, and take the lock at once.

        Raises:
            LedgerError: another ledger of this process holds the file for too long.
        """
        if not self._turn.acquire(timeout=BUSY_S):
            raise LedgerError(f"ledger {self._path}: expected its turn within {BUSY_S:g} s, found another at work")
        self._has_turn = True
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._end_turn()
            raise

    def commit(self) -> None:
        """End it; return when the log is on disk."""
        self._connection.execute("COMMIT")  # if this fails, `rollback` ends the turn
        self._end_turn()

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._end_turn()

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, values).fetchall()

    def rows_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, in slices."""
        return _rows_in(self._connection, sql, values)

    def committed(self, sql: str) -> list[Row]:
        """Return the rows of a query on a separate connection, which sees only durable rows."""
        return self._reader.execute(sql).fetchall()

    def committed_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}` on the separate connection."""
        return _rows_in(self._reader, sql, values)

    def now(self) -> float:
        """Return seconds since 1970; if the clock is set back, time continues, or requests would wait too long."""
        return max(time.time(), self._began + time.monotonic())

    def clock(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    def size_bytes(self) -> int:
        """Return the bytes of the file and its log."""
        return sum(file.stat().st_size for file in self._files() if not file.name.endswith("-shm"))

    def vacuum(self) -> None:
        """Rewrite the file without free pages and empty the log."""
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._reader.close()
        self._connection.close()
        self._end_turn()

    def _files(self) -> list[Path]:
        """Return the existing files among the ledger, its log and the log's index."""
        files = [self._path.with_name(self._path.name + ending) for ending in ("", "-wal", "-shm")]
        return [file for file in files if file.exists()]

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turn.release()

    def _opened_to_read(self) -> sqlite3.Connection:
        """Open a connection without side effects; without a file, or for an older schema, to a private copy."""
        self._connection = _connect(Path())  # without a name: SQLite's own temporary file
        if self._path.is_file():
            connection = self._sound(open_to_read(self._path))
            (applied,) = connection.execute("PRAGMA user_version").fetchone()
            if applied == migrations("sqlite")[-1][0]:
                return connection
            with closing(connection):
                connection.backup(self._connection)
        self._migrate()
        return self._connection

    def _sound(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """Return the connection, if the pages of its file are whole."""
        if fault := page_fault(connection, self._path):
            connection.close()
            raise LedgerError(f"ledger {self._path}: {fault}")
        return connection

    def _migrate(self) -> None:
        (applied,) = self._connection.execute("PRAGMA user_version").fetchone()
        newest = migrations("sqlite")[-1][0]
        if applied > newest:
            raise LedgerError(
                f"ledger {self._path}: expected schema {newest} or older, found {applied}; a newer Earmark made it"
            )
        if applied == newest:
            return
        self.begin()  # two processes may start at once: the second finds the work done
        try:
            (applied,) = self._connection.execute("PRAGMA user_version").fetchone()
            for number, sql in migrations("sqlite"):
                if number > applied:
                    for statement in _statements(sql):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version={number}")
            self.commit()
        except BaseException:
            self.rollback()
            raise


def _create(path: Path) -> None:
    """Make an empty ledger, unless it exists, as a complete file: a file without content is invalid."""
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.execute("PRAGMA user_version = 0")
        empty.execute("VACUUM")
        keep_private(path, empty.serialize())


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path if path.name else "", timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def _rows_in(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Row]:
    found: list[Row] = []
    for start in range(0, len(values), AT_ONCE):
        some = values[start : start + AT_ONCE]
        found += connection.execute(sql.format(values=f"({','.join('?' * len(some))})"), some).fetchall()
    return found


def _statements(sql: str) -> list[str]:
    """Return the statements of a script, one by one: `executescript` would commit in between."""
    found, current = [], ""
    for line in sql.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    return found
