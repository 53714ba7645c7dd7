"""Files of a forum's dump, read by DuckDB: NDJSON, plain or zstd, in which no line stops the reading or gets lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import zstandard

from schemas.errors import InputError
from tasks.forum.lines import UTF8_MARK, Fault, blocks, copy_readable, find_faults, is_packed
from tasks.importers.lines import unreadable
from tasks.progress import Work
from tasks.sql import exactly, query

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
    """What one file of a dump held.

    Attributes:
        name: the file, as rejects name it.
        passed: how many lines were passed by, for each reason.
        faults: the lines without an object, the first `MOST_FAULTS` of them.
        note: a sentence if the file could not be read to its end.
    """

    name: str
    passed: dict[str, int]
    faults: tuple[Fault, ...]
    note: str | None


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
    copied, line by line, without what it stumbles over.

    Args:
        connection: with whatever the queries ask for: variables, other tables.
        path: NDJSON; read through zstd where its name ends in `.zst`.
        name: what messages and rejects call the file.
        place: of the file among those of its kind, from 1.
        kind: `submissions` or `comments`.
        folder: where such a copy may lie meanwhile.
        work: told how many megabytes are done.
        limit: only so many lines.

    Raises:
        InputError: the file is missing, or nothing of it can be read.
    """
    note = None
    try:
        start = next(blocks(path), b"")
    except (OSError, zstandard.ZstdError) as error:
        raise _refused(name, error) from None
    try:
        if start.startswith(UTF8_MARK):
            raise duckdb.InvalidInputException("a byte order mark")
        _read(connection, path, kind, work, limit)
    except (duckdb.InvalidInputException, duckdb.IOException):
        copy = folder / f"{kind}-{place:04d}.ndjson.zst"
        note = copy_readable(path, copy)
        _read(connection, copy, kind, work, limit)
        copy.unlink()
    passed = dict(connection.sql(query("score_questions/passed")).fetchall())
    faults: tuple[Fault, ...] = ()
    if passed.get(MALFORMED):
        places = connection.sql(query("score_questions/malformed")).limit(MOST_FAULTS).fetchall()
        faults = tuple(find_faults(path, [place for (place,) in places]))
    set_variables(connection, {"place": place})
    _append(connection, "judged", f"score_questions/judge_{kind}")
    connection.execute("DROP TABLE scanned")
    return Scanned(name, passed, faults, note)


def _read(connection: duckdb.DuckDBPyConnection, path: Path, kind: str, work: Work, limit: int | None) -> None:
    """Fill the table `scanned`; its `rowid` is the line's place among those that are not blank."""
    given = {
        "file": exactly(path),
        "columns": dict.fromkeys(COLUMNS[kind], "VARCHAR"),
        "compression": "zstd" if is_packed(path) else "none",
    }
    set_variables(connection, given)
    lines = query("score_questions/lines") + (f" LIMIT {limit}" if limit else "")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW dump_lines AS {lines}")
    with _watched(connection, path.stat().st_size >> 20, work):
        connection.execute(f"CREATE TEMP TABLE scanned AS {query(f'score_questions/scan_{kind}')}")


def _append(connection: duckdb.DuckDBPyConnection, table: str, name: str) -> None:
    """Add a query's rows to a table, which the first of them makes."""
    connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} AS FROM ({query(name)}) LIMIT 0")
    connection.execute(f"INSERT INTO {table} {query(name)}")


def set_variables(connection: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> None:
    """Give values to queries that take no parameters; they read them by `getvariable`."""
    for name, value in values.items():
        connection.execute(f"SET VARIABLE {name} = ?", [value])


def _refused(name: str, error: Exception) -> InputError:
    if isinstance(error, zstandard.ZstdError):
        return InputError(f"{name}: expected zstd data, found something else; plain NDJSON has no name in .zst")
    return unreadable(name, error)


@contextmanager
def _watched(connection: duckdb.DuckDBPyConnection, megabytes: int, work: Work) -> Iterator[None]:
    """Report how far the one query that runs in the block has come."""
    ended = threading.Event()

    def watch() -> None:
        told = 0
        while not ended.wait(PROGRESS_EVERY_S):
            done = int(max(connection.query_progress(), 0.0) / 100 * megabytes)
            if done > told:
                work.advance(done - told)
                told = done
        work.advance(megabytes - told)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
