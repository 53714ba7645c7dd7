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
from tasks.sql import literal, query

SUBMISSION_COLUMNS = (
    "id", "subreddit", "author", "created_utc", "title", "selftext", "url", "over_18", "removed_by_category",
    "media_metadata", "gallery_data", "preview",
)  # fmt: skip
COMMENT_COLUMNS = ("id", "link_id", "parent_id", "author", "body", "score", "ups", "downs")
MALFORMED = "malformed"  # the fate of a line that holds no object with an id
MOST_FAULTS = 1_000_000  # faults of one file that are named line by line; further ones are counted
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True)
class Scanned:
    """What one file of a dump held.

    Attributes:
        name: the file, as rejects name it.
        rows: a Parquet file with one row a line that is not blank, in the file's order; its column `fate` says what
            becomes of the line.
        faults: the lines without an object, the first `MOST_FAULTS` of them.
        unnamed: further ones.
        note: a sentence if the file could not be read to its end.
    """

    name: str
    rows: Path
    faults: tuple[Fault, ...]
    unnamed: int
    note: str | None


def scan(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    name: str,
    columns: tuple[str, ...],
    judge: str,
    into: Path,
    work: Work,
    limit: int | None = None,
) -> Scanned:
    """Read one file and judge each of its lines, at the speed of DuckDB's reader and within its memory limit.

    A file that the reader refuses (a line beyond 16 MiB, a wide zstd window, damage, a byte order mark) is first
    copied, line by line, without what it stumbles over.

    Args:
        connection: with whatever `judge` asks for: variables, other tables.
        path: NDJSON; read through zstd where its name ends in `.zst`.
        name: what messages and rejects call the file.
        columns: the keys that are read, each as text.
        judge: the query that gives every line of the view `dump_lines` its `fate`.
        into: the Parquet file to write.
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
        _judge_lines(connection, path, columns, judge, into, work, limit)
    except (duckdb.InvalidInputException, duckdb.IOException):
        copy = into.with_suffix(".ndjson.zst")
        note = copy_readable(path, copy)
        _judge_lines(connection, copy, columns, judge, into, work, limit)
        copy.unlink()
    places = connection.sql(
        f"SELECT file_row_number FROM read_parquet({literal(into)}, file_row_number = true) "
        f"WHERE fate = '{MALFORMED}' ORDER BY ALL"
    ).fetchnumpy()["file_row_number"]
    faults = tuple(find_faults(path, places[:MOST_FAULTS].tolist())) if len(places) else ()
    return Scanned(name, into, faults, len(places) - len(faults), note)


def _judge_lines(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    columns: tuple[str, ...],
    judge: str,
    into: Path,
    work: Work,
    limit: int | None,
) -> None:
    given = {
        "file": str(path),
        "columns": dict.fromkeys(columns, "VARCHAR"),
        "compression": "zstd" if is_packed(path) else "none",
    }
    set_variables(connection, given)
    lines = query("score_questions/lines") + (f" LIMIT {limit}" if limit else "")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW dump_lines AS {lines}")
    with _watched(connection, path.stat().st_size >> 20, work):
        connection.execute(f"COPY ({query(judge)}) TO {literal(into)} (FORMAT parquet, COMPRESSION lz4)")


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
