"""Keep the ledger in a SQLite file: the default, for any number of processes on one machine."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from earmark.schemas.files import close_to_others, keep_private
from earmark.schemas.sqlite import BUSY_S, open_to_read, write_ahead
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_health import file_fault, page_fault
from earmark.tasks.annotation.ledger_rows import Row, migrations

AT_ONCE = 2_000
"""Number of values in an IN list."""
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
            raise LedgerError(f"ledger {path}: cannot be opened: {error}") from None

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
