"""Measurements of audio files, remembered by path, size and time of change, so that a second look costs a `stat`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasks.audio.probe import AudioFault, Probe, probe

_SCHEMA = """CREATE TABLE IF NOT EXISTS media (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, changed_ns INTEGER NOT NULL,
    clip_sha256 TEXT, duration_s REAL, sample_rate_hz INTEGER, channels INTEGER, peak_dbfs REAL,
    reason TEXT, detail TEXT
) WITHOUT ROWID"""
_BATCH = 256


class MediaIndex:
    """A file that remembers what `probe` found.

    Args:
        path: the SQLite file; created when missing. Several processes may share it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_SCHEMA)

    def look(
        self, paths: Sequence[Path], *, threads: int = 4, seen: Callable[[int], None] = lambda count: None
    ) -> list[Probe | AudioFault]:
        """Probe files, each only if it is new or has changed.

        Args:
            paths: absolute paths.
            threads: files read at once.
            seen: told how many more files are done, for progress.

        Returns:
            One result a path, in order. A missing file is looked for again each time.
        """
        results: list[Probe | AudioFault] = []
        with ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(paths), _BATCH):
                batch = paths[start : start + _BATCH]
                results += self._look_at(batch, pool)
                seen(len(batch))
        return results

    def _look_at(self, batch: Sequence[Path], pool: ThreadPoolExecutor) -> list[Probe | AudioFault]:
        stamps = [_stamp(path) for path in batch]
        with self._open() as connection:
            known = [self._known(connection, path, stamp) for path, stamp in zip(batch, stamps, strict=True)]
        new = [index for index, found in enumerate(known) if found is None]
        for index, found in zip(new, pool.map(probe, [batch[i] for i in new]), strict=True):
            known[index] = found
        rows = [
            (str(batch[i]), *stamp, *_columns(known[i]))
            for i in new
            if (stamp := stamps[i]) is not None and isinstance(known[i], Probe)
        ]
        if rows:
            with self._open() as connection:
                connection.executemany("INSERT OR REPLACE INTO media VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return [found for found in known if found is not None]

    def _known(
        self, connection: sqlite3.Connection, path: Path, stamp: tuple[int, int] | None
    ) -> Probe | AudioFault | None:
        if stamp is None:
            return None
        row = connection.execute(
            "SELECT clip_sha256, duration_s, sample_rate_hz, channels, peak_dbfs, reason, detail FROM media "
            "WHERE path = ? AND size = ? AND changed_ns = ?",
            (str(path), *stamp),
        ).fetchone()
        if row is None:
            return None
        return Probe(*row[:5]) if row[5] is None else AudioFault(*row[5:])

    def _open(self) -> _Connection:
        return _Connection(self.path)


class _Connection:
    """A connection that commits at the end of its block and is closed then (sqlite3's own context does not close)."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, timeout=60)

    def __enter__(self) -> sqlite3.Connection:
        return self.connection

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.connection.commit()
        self.connection.close()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None  # probe says why
    return status.st_size, status.st_mtime_ns


def _columns(found: Probe | AudioFault | None) -> tuple[object, ...]:
    if isinstance(found, Probe):
        return (*found, None, None)
    assert found is not None
    return (None, None, None, None, None, *found)
