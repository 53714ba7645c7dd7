"""Open SQLite files for several processes: with a write-ahead log."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

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


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, for any thread; the log of a process that has the file open is read too.

    Without such a log the file is opened as one that stays as it is, since SQLite would lay an empty log beside it.

    Raises:
        sqlite3.Error: the file is missing, or no database.
    """
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    place = quote(str(path.absolute()))
    return sqlite3.connect(
        f"file:{place}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )


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
