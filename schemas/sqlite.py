"""What every SQLite file that several processes share needs: a write-ahead log, whoever opens it first."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from earmark.schemas.errors import DiskError

BUSY_S = 60.0  # how long to wait for another process
PAUSE_S = 0.01


def write_ahead(connection: sqlite3.Connection) -> None:
    """Give a file a write-ahead log, so that one process writes while others read.

    While processes that open a new file at once all ask for it, SQLite says "locked" without the wait that its timeout
    promises: it is asked again.

    Raises:
        sqlite3.Error: the file is no database, or is locked for longer than `BUSY_S` seconds.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(PAUSE_S)


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that commits and closes at the end of its block; sqlite3's own context leaves it open.

    Raises:
        DiskError: the file cannot be read or written, or is no database; the message names it.
    """
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            yield connection
            connection.commit()
    except sqlite3.Error as error:
        raise DiskError(f"{path}: {error}") from None
