"""Mirror inputs behind URLs in the cache, and renew them after a change.

Every object has one place (`schemas/places.py`), and steps read files there like any others. A build asks for an
object's ETag and size whenever it reads or checks its inputs, and fetches new bytes, several objects at once. A killed
build's download of a large object resumes if the object is unchanged; files of deleted objects are removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from earmark.schemas.errors import InputError
from earmark.schemas.files import BUSY_S, naming_database
from earmark.schemas.places import BUCKETS, cache_folder, hub_revision, place_of, url_of
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.store.bucket_objects import BucketObjects
from earmark.tasks.store.objects import AT_ONCE, BLOCK_BYTES, Object, at_once

LISTS = ("", ".csv", ".json", ".tsv", ".txt")  # endings of the lists of rows in a published folder, beside its audio
ASKED_AT_ONCE = 4096  # objects to look at before fetching the new ones
WRITTEN_AFTER_S = 1.0  # longest delay before the record notes fetched files, to note many at once
_SCHEMA = """CREATE TABLE IF NOT EXISTS objects (
    path TEXT PRIMARY KEY, etag TEXT NOT NULL, size INTEGER NOT NULL, changed_ns INTEGER NOT NULL
) WITHOUT ROWID"""


if TYPE_CHECKING:
    from earmark.tasks.store.hub import HubObjects

    Objects = BucketObjects | HubObjects


def bring(paths: Iterable[Path], *, stream: bool = False) -> None:
    """Update the files at these paths from their objects; remove the files of deleted objects.

    Leave paths of local files alone.

    Args:
        paths: the files.
        stream: whether to read splits on the Hub as rows; off for paths from rows, which may be arbitrary.

    Raises:
        InputError: the object store or the Hub cannot be reached, or denies access.
    """
    inputs = f"{_inputs()}/"  # most builds name a million local files, and no URLs
    urls = {path: url for path in paths if str(path).startswith(inputs) and (url := url_of(path))}
    if not urls:
        return
    rows = [url for url in urls.values() if url.startswith("hf-rows://")]
    if rows and stream:
        from earmark.tasks.pipeline.hub_rows import bring_rows

        bring_rows(rows)
    with _looking(len(urls) - len(rows)) as seen:
        for kind in (*BUCKETS, "hf"):
            wanted = [path for path, url in urls.items() if url.startswith(f"{kind}://")]
            objects = _open(kind) if wanted else None
            for start in range(0, len(wanted), ASKED_AT_ONCE):
                assert objects is not None
                batch = wanted[start : start + ASKED_AT_ONCE]
                found = objects.look([urls[path] for path in batch], seen)
                gone = [path for path, held in zip(batch, found, strict=True) if held is None]
                objects.require(urls[path] for path in gone)
                _forget(gone)
                _renew(objects, {path: held for path, held in zip(batch, found, strict=True) if held is not None})


def bring_first(choices: Iterable[Sequence[Path]]) -> None:
    """Bring the first existing path of each group."""
    waiting = [paths for paths in choices if url_of(paths[0])]
    place = 0
    while waiting:
        bring(paths[place] for paths in waiting)
        place += 1
        waiting = [paths for paths in waiting if len(paths) > place and not _is_file(paths[place - 1])]


def bring_folder(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Bring all files below a folder, at any depth; for a file's own path, bring the file.

    Args:
        folder: the place of a URL; other folders are left alone.
        wanted: selects files by name, without folders.

    Raises:
        InputError: as `bring`; or an object's name has no place on a disk.
    """
    url = url_of(folder)
    if url is None:
        return
    objects = _open(url)
    listed = ((place_of(one), held) for one, held in objects.listed(url))
    there = {path: held for path, held in listed if path == folder or wanted(path.name)}
    _forget([path for path in folder.rglob("*") if path.is_file() and wanted(path.name) and path not in there])
    _renew(objects, there)


def present(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the names that exist in a folder; for a folder behind a URL, list its objects without fetching any."""
    url = url_of(folder)
    if url is None or url.startswith("hf-rows://"):  # files that rows name come with the rows
        return {name for name in names if _is_file(folder / name)}
    there = {place_of(one) for one, _ in _open(url).listed(url)}
    return {name for name in names if folder / name in there}


def is_list(name: str) -> bool:
    """Return whether a file of a published folder is one of its lists."""
    return PurePosixPath(name).suffix.lower() in LISTS


def hub_commits(places: Iterable[Path]) -> dict[str, str]:
    """Return the current commits of the Hub revisions of places, by `hf://datasets/owner/name@revision`."""
    revisions = filter(None, (hub_revision(url) for path in places if (url := url_of(path))))
    urls = {f"hf://datasets/{repo}@{revision}" for repo, revision in revisions}
    if not urls:
        return {}
    from earmark.tasks.store.hub import HubObjects

    objects = HubObjects()
    return {url: objects.commit(url) for url in sorted(urls)}


# -- objects --------------------------------------------------------------------------------------------------


def _open(url: str) -> Objects:
    kind = url.partition(":")[0]
    if kind in BUCKETS:
        return BucketObjects(kind)
    if kind == "hf-rows":
        raise InputError(
            f'{url}: expected a folder of files, found rows of a data set; read them with format = "table"'
        )
    from earmark.tasks.store.hub import HubObjects  # slow to import, and rarely needed

    return HubObjects()


@contextmanager
def _looking(count: int) -> Iterator[Callable[[], None]]:
    """Report how many objects were looked at, if there are many."""
    if count <= AT_ONCE:
        yield lambda: None
        return
    with working("look at objects", count) as work:
        yield work.advance


# -- files ----------------------------------------------------------------------------------------------------


def _renew(store: Objects, objects: Mapping[Path, Object]) -> None:
    with _record() as record:
        kept = record.of(objects)
        new = {path: held for path, held in objects.items() if kept.get(path) != (*held, _changed_ns(path))}
        if not new:
            return
        megabytes = sum(held.size for held in new.values()) >> 20
        with working(f"fetch {len(new):,} objects{' (MB)' if megabytes else ''}", megabytes or None) as work:
            told = _Megabytes(work)
            at_once(
                lambda path: record.keep(path, new[path], _download(store, path, new[path], told)), list(new), told.stop
            )


def _download(store: Objects, path: Path, held: Object, told: _Megabytes) -> int:
    """Download one object, resuming from an earlier part; return the file's time of change."""
    url = url_of(path)
    assert url is not None
    parts, name, state = _inputs() / ".parts", _short(url), _short(held.etag)
    part = parts / f"{name}-{state}"
    try:
        parts.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another build removes a folder above it
            path.parent.mkdir(parents=True, exist_ok=True)
        for stale in parts.glob(f"{name}-*"):
            if stale != part:
                stale.unlink(missing_ok=True)
        with _alone(part) as file:
            if file is not None:
                start = max(0, file.tell() - 1) // BLOCK_BYTES * BLOCK_BYTES  # the last block may be torn
                file.truncate(start)
                told.add(start)
                for block in store.blocks(url, start, held):
                    file.write(block)
                    file.flush()
                    os.fsync(file.fileno())
                    told.add(len(block))
                _put(part, path)
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        raise InputError(f"{url}: was changed while it was read; build again") from None
    except OSError as error:
        raise InputError(f"{url}: cannot be kept in {_inputs()}: {error.strerror}") from None


def _put(part: Path, path: Path) -> None:
    """Move a whole part to its place; recreate folders that another build removed as empty."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.replace(path)
            return
        except FileNotFoundError:
            if not part.exists():
                raise


@contextmanager
def _alone(part: Path) -> Iterator[IO[bytes] | None]:
    """Open a file to append to, for one process or thread at a time; yield None if another has just finished it."""
    with part.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            mine = os.path.samestat(os.fstat(file.fileno()), part.stat())
        except FileNotFoundError:
            mine = False
        yield file if mine else None


def _forget(paths: Iterable[Path]) -> None:
    for path in paths:
        if not _is_file(path):
            continue
        path.unlink(missing_ok=True)
        with suppress(OSError):  # the folder is not empty, or another build has removed it
            for folder in path.parents:
                if url_of(folder) is None:
                    break
                folder.rmdir()


class _Record:
    """Record of each file's object state.

    It lies beside the files, on a disk that machines may share. A write-ahead log works for processes of one machine
    only, so the record uses a rollback journal under the disk's own locks, and one write for many files.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._alone = threading.Lock()
        self._came: list[tuple[str, str, int, int]] = []
        self._written = time.monotonic()

    def of(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int, int]]:
        """Return ETag, size and the file's time of change, by path."""
        rows = self._connection.execute(
            "SELECT path, etag, size, changed_ns FROM objects WHERE path IN (SELECT value FROM json_each(?))",
            (json.dumps([str(path) for path in paths]),),
        )
        return {Path(path): (etag, size, changed_ns) for path, etag, size, changed_ns in rows}

    def keep(self, path: Path, held: Object, changed_ns: int) -> None:
        """Note a whole file; safe for threads."""
        with self._alone:
            self._came.append((str(path), *held, changed_ns))
            if time.monotonic() - self._written >= WRITTEN_AFTER_S:
                self.write()

    def write(self) -> None:
        if self._came:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", self._came)
            self._connection.execute("COMMIT")
            self._came.clear()
        self._written = time.monotonic()


@contextmanager
def _record() -> Iterator[_Record]:
    path = _inputs() / "objects.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    connect = partial(sqlite3.connect, path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    with naming_database(path, "EARMARK_CACHE"), closing(connect()) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(_SCHEMA)
        record = _Record(connection)
        try:
            yield record
        finally:
            record.write()


class _Megabytes:
    """Byte counter that reports whole megabytes and stops downloads after a failure."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._bytes = 0
        self._alone = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def add(self, count: int) -> None:
        """Count received bytes.

        Raises:
            InputError: another download failed, or the build was stopped.
        """
        if self._stopped.is_set():
            raise InputError("the inputs were not fetched to their end")
        with self._alone:
            before, self._bytes = self._bytes, self._bytes + count
            if whole := (self._bytes >> 20) - (before >> 20):
                self._work.advance(whole)


def _inputs() -> Path:
    return cache_folder() / "inputs"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _is_file(path: Path) -> bool:
    # a name too long for any file is no file; Path.is_file raises for it
    return os.path.isfile(path)  # noqa: PTH113


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
