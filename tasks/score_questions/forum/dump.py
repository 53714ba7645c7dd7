"""Read a forum's dump with DuckDB: NDJSON, plain or zstd; no line stops the reading or gets lost."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import zstandard

from earmark.schemas.errors import InputError
from earmark.tasks.importers.lines import unreadable
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.score_questions.forum.lines import (
    UTF8_MARK,
    BrokenLine,
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
        "media_metadata", "gallery_data", "preview", "crosspost_parent_list", "_meta", "removal_reason", "removed_by",
        "banned_by",
    ),
    "comments": (
        "id", "link_id", "parent_id", "author", "body", "score", "ups", "downs", "stickied", "distinguished",
        "is_submitter", "author_flair_text", "score_hidden", "created_utc", "retrieved_on", "retrieved_utc",
        "_meta", "removal_reason", "removed_by_category", "banned_by",
    ),
}  # fmt: skip
MALFORMED = "malformed"  # reason for skipped lines without an object or id
MOST_FAULTS = 1_000_000  # faults of a file named line by line; further ones are counted
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True)
class Scanned:
    """Results of scanning a file of a dump."""

    name: str  # the file's name in rejects
    passed: dict[str, int]  # number of skipped lines for each reason
    faults: tuple[BrokenLine, ...]  # the lines without an object, the first `MOST_FAULTS` of them
    note: str | None  # a sentence if the file is cut short


class FilePart:
    """A file's part of a progress bar. It never goes back, so that lines read twice count once."""

    def __init__(self, work: Work, megabytes: int) -> None:
        self._work = work
        self._megabytes = megabytes
        self._shown = 0

    def reach(self, share: float) -> None:
        """Record the share of the file done, from 0 to 1."""
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
    """Read a file and judge its lines, at the speed of DuckDB's reader and within its memory limit.

    The reader fills the table `scanned`, a row per line in the file's order, with the columns of `scan_<kind>.sql`.
    Lines not skipped are judged by `judge_<kind>.sql` and go into the table `judged`.

    A file refused by the reader (a line beyond 16 MiB, a wide zstd window, damage, a byte order mark) is first
    copied without the cause.

    Line numbers exclude blank lines, skipped by the reader: to count them, the file would have to be
    read, and unpacked, a second time, although this forum's dumps have none.

    Args:
        connection: with the variables and tables of the queries.
        name: the file's name in messages and rejects.
        place: of the file among those of its kind, from 1.
        kind: `submissions` or `comments`.
        folder: place for a temporary copy.
        work: progress in megabytes.

    Raises:
        InputError: the file is missing, or nothing of it can be read.
    """
    try:
        part = FilePart(work, path.stat().st_size >> 20)
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
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    fit: bool,
    kind: str,
    copy: Path,
    part: FilePart,
    limit: int | None,
) -> str | None:
    """Fill the table `scanned` from a file, through a copy if the reader refuses it; return a note on a cut end."""
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
        return None  # the rest is beyond the limit
    if not to_its_end:
        return f"its compression is damaged after line {lines:,}: what follows is lost"
    if is_packed(path) and not is_whole(path):
        return f"its compression ends in the middle, after line {lines:,}: what followed is lost"
    return None


def _faults(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[BrokenLine, ...]:
    """Find faults of the lines without an object in the table `scanned`, the first `MOST_FAULTS` of them."""
    lines = connection.sql(query("score_questions/malformed")).limit(MOST_FAULTS).fetchall()
    megabytes = path.stat().st_size >> 20
    with working("look at lines without an object (MB)", megabytes) as work:
        return tuple(find_faults(path, [line for (line,) in lines], FilePart(work, megabytes).reach))


def _read(connection: duckdb.DuckDBPyConnection, path: Path, kind: str, seen: Watcher, limit: int | None) -> None:
    """Fill the table `scanned`; its `rowid` is the line's place among the non-blank lines."""
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
    """Set variables for queries without parameters; they read them by `getvariable`."""
    for name, value in values.items():
        connection.execute(f"SET VARIABLE {name} = ?", [value])


@contextmanager
def _watched(connection: duckdb.DuckDBPyConnection, seen: Watcher) -> Iterator[None]:
    """Report the progress of the block's single query; report its end only on success."""
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
