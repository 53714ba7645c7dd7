"""Detect damage ignored by SQLite: an empty file, an unreadable log, a bad page. Each would repeat paid requests."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
