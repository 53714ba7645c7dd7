"""Files of a forum's dump, read by DuckDB: NDJSON, plain or zstd, in which no line stops the reading or gets lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import zstandard

from earmark.schemas.errors import InputError
from earmark.tasks.build.progress import Work, working
from earmark.tasks.importers.lines import unreadable
from earmark.tasks.score_questions.forum.lines import (
    UTF8_MARK,
    Fault,
    Watcher,
    blocks,
    copy_readable,
    find_faults,
    is_packed,
    is_whole,
)
from earmark.tasks.store.sql import exactly, query

COLUMNS = {
    "submissions": (
        "id", "subreddit", "author", "created_utc", "title", "selftext", "url", "over_18", "removed_by_category",
        "media_metadata", "gallery_data", "preview",
    ),
    "comments": ("id", "link_id", "parent_id", "author", "body", "score", "ups", "downs"),
}  # fmt: skip
MALFORMED = "malformed"  # why a line is passed by that holds no object with an id
MOST_FAULTS = 1_000_000  # faults of one file that are named line by line; further ones are counted
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True)
class Scanned:
    """What one file of a dump held."""

    name: str  # the file, as rejects name it
    passed: dict[str, int]  # how many lines were passed by, for each reason
    faults: tuple[Fault, ...]  # the lines without an object, the first `MOST_FAULTS` of them
    note: str | None  # a sentence if the file does not reach its end


class Part:
    """One file's part of a bar. It never goes back, so that what is read twice counts once."""

    def __init__(self, work: Work, megabytes: int) -> None:
        self._work = work
        self._megabytes = megabytes
        self._shown = 0

    def reach(self, share: float) -> None:
        """Note that so much of the file is done, from 0 to 1."""
        done = int(share * self._megabytes)
        if done > self._shown:
            self._work.advance(done - self._shown)
            self._shown = done


def scan(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    name: str,
    place: int,
    kind: str,
    folder: Path,
    work: Work,
    limit: int | None = None,
) -> Scanned:
    """Read one file and judge its lines, at the speed of DuckDB's reader and within its memory limit.

    The reader fills the table `scanned`, one row a line in the file's order, with what `scan_<kind>.sql` keeps of it.
    The lines that it does not pass by are judged by `judge_<kind>.sql` and go into the table `judged`.

    A file that the reader refuses (a line beyond 16 MiB, a wide zstd window, damage, a byte order mark) is first
    copied without what it stumbles over.

    Lines are counted without blank ones, as the reader passes over these: to count them too, the file would have to be
    read, and unpacked, a second time, for what the dumps of this forum do not have.

    Args:
        connection: with whatever the queries ask for: variables, other tables.
        name: what messages and rejects call the file.
        place: of the file among those of its kind, from 1.
        kind: `submissions` or `comments`.
        folder: where such a copy may lie meanwhile.
        work: told how many megabytes are done.

    Raises:
        InputError: the file is missing, or nothing of it can be read.
    """
    try:
        part = Part(work, path.stat().st_size >> 20)
        fit = not next(blocks(path), b"").startswith(UTF8_MARK)
        note = _read_any(connection, path, fit, kind, folder / f"{kind}-{place:04d}.ndjson.zst", part, limit)
        passed = dict(connection.sql(query("score_questions/passed")).fetchall())
        faults = _faults(connection, path) if passed.get(MALFORMED) else ()
    except OSError as error:
        raise unreadable(name, error) from None
    except zstandard.ZstdError:
        expected = "expected zstd data, found something else; plain NDJSON has no name in .zst"
        raise InputError(f"{name}: {expected}") from None
    set_variables(connection, {"place": place})
    judge = query(f"score_questions/judge_{kind}")
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS judged AS FROM ({judge}) LIMIT 0")
    connection.execute(f"INSERT INTO judged {judge}")
    connection.execute("DROP TABLE scanned")
    return Scanned(name, passed, faults, note)


def _read_any(
    connection: duckdb.DuckDBPyConnection, path: Path, fit: bool, kind: str, copy: Path, part: Part, limit: int | None
) -> str | None:
    """Fill the table `scanned` from a file, by a copy where it is not fit for the reader; gives a note on its end."""
    try:
        if fit:
            _read(connection, path, kind, part.reach, limit)
    except (duckdb.InvalidInputException, duckdb.IOException):
        fit = False
    to_its_end = True
    if not fit:
        to_its_end = copy_readable(path, copy, lambda share: part.reach(share / 2))
        _read(connection, copy, kind, lambda share: part.reach((1 + share) / 2), limit)
        copy.unlink()
    lines = int(connection.execute("SELECT count(*) FROM scanned").fetchall()[0][0])
    if lines == limit:
        return None  # nobody asked for what follows
    if not to_its_end:
        return f"its compression is damaged after line {lines:,}: what follows is lost"
    if is_packed(path) and not is_whole(path):
        return f"its compression ends in the middle, after line {lines:,}: what followed is lost"
    return None


def _faults(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[Fault, ...]:
    """The lines of the table `scanned` without an object, the first `MOST_FAULTS` of them."""
    lines = connection.sql(query("score_questions/malformed")).limit(MOST_FAULTS).fetchall()
    megabytes = path.stat().st_size >> 20
    with working("look at lines without an object (MB)", megabytes) as work:
        return tuple(find_faults(path, [line for (line,) in lines], Part(work, megabytes).reach))


def _read(connection: duckdb.DuckDBPyConnection, path: Path, kind: str, seen: Watcher, limit: int | None) -> None:
    """Fill the table `scanned`; its `rowid` is the line's place among those that are not blank."""
    values = {
        "file": exactly(path),
        "columns": dict.fromkeys(COLUMNS[kind], "VARCHAR"),
        "compression": "zstd" if is_packed(path) else "none",
    }
    set_variables(connection, values)
    lines = query("score_questions/lines") + (f" LIMIT {limit}" if limit else "")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW dump_lines AS {lines}")
    with _watched(connection, seen):
        connection.execute(f"CREATE TEMP TABLE scanned AS {query(f'score_questions/scan_{kind}')}")


def set_variables(connection: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> None:
    """Give values to queries that take no parameters; they read them by `getvariable`."""
    for name, value in values.items():
        connection.execute(f"SET VARIABLE {name} = ?", [value])


@contextmanager
def _watched(connection: duckdb.DuckDBPyConnection, seen: Watcher) -> Iterator[None]:
    """Tell how far the one query that runs in the block has come; that it has ended, only if it ends well."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PROGRESS_EVERY_S):
            seen(max(connection.query_progress(), 0.0) / 100)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    seen(1.0)
