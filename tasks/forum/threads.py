"""From a forum's dump to threads that are fit for a question, with their first-level comments and no names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.forum import COMMENTS, THREADS
from schemas.score_questions import ScoreQuestions
from schemas.tables import REJECTS
from tasks.anonymity import NOBODY, key_of, salt_of, scrub_all
from tasks.forum.dump import COMMENT_COLUMNS, MALFORMED, SUBMISSION_COLUMNS, Scanned, scan, set_variables
from tasks.importers.table import without_place
from tasks.progress import working
from tasks.sql import connect, literal, query, view_parquet
from tasks.store.files import replacing
from tasks.store.manifest import Step
from tasks.store.staging import Stage

THREADS_ENTER, COMMENTS_ENTER = "questions", "sources"  # the published tables that they would have become rows of
RAW = "forum"  # folder below `work` for what still has the dump's names and ids; nothing else reads it
AT_ONCE = 1000  # threads whose texts are in memory while they are scrubbed
SELECTION = ("other_subreddit", "other_year")
PASSED_BY = ("other_thread", "not_first_level")

_OBJECT = "expected a JSON object with an id"
_ID = "expected an id of letters and digits, found something else"
SUBMISSION_DETAILS = {
    "bad_id": _ID,
    "bad_time": "expected seconds since 1970 in created_utc, found something else",
    "removed": "expected a submission that is still there, found it removed or deleted",
    "adult": "expected a submission for everyone, found over_18",
    "missing_title": "expected a title, found none",
    "too_many_words": "expected at most {longest_words} words in title and text, found more",
    "no_image": "expected an image by direct link, gallery or preview, found none",
    "duplicate": "expected each id once, found it on an earlier line too",
}
COMMENT_DETAILS = {
    "missing_parent": "expected link_id and parent_id, found one missing",
    "bad_id": _ID,
    "missing_body": "expected a body, found none",
    "deleted": "expected a comment that is still there, found [deleted]",
    "removed": "expected a comment that is still there, found [removed]",
    "automatic": "expected a person's comment, found AutoModerator's",
    "bad_score": "expected a whole number in score, or in ups and downs, found neither",
    "duplicate": "expected each id once, found it on an earlier line too",
}


def read_submissions(stage: Stage, config: ScoreQuestions) -> Step:
    """Read the files of submissions and keep those that pass the filter.

    Lines of other forums and years are passed over and counted; all others that are dropped are rejects. What is kept
    lies in `work/forum/candidates.parquet`, with the dump's names and ids, for `read_comments` and the images alone.

    Raises:
        InputError: a file is missing, or nothing of it can be read.
    """
    if done := stage.recorded("submissions"):
        return done
    source, chosen = config.source, config.filter
    with connect(stage.work / "spill") as connection:
        given = {
            "subreddits": [name.lower().removeprefix("r/") for name in source.subreddits],
            "first_year": source.years[0],
            "last_year": source.years[1],
            "adult": chosen.adult,
            "longest_words": chosen.longest_words,
        }
        set_variables(connection, given)
        scanned = _scan(connection, stage, config, "submissions", SUBMISSION_COLUMNS)
        with replacing(stage.work / RAW / "candidates.parquet") as path:
            first = query("score_questions/first_of_each")
            connection.execute(f"COPY ({first} ORDER BY place, line) TO {literal(path)} (FORMAT parquet)")
        kept = pq.read_metadata(stage.work / RAW / "candidates.parquet").num_rows
        details = {reason: text.format(**chosen.model_dump()) for reason, text in SUBMISSION_DETAILS.items()}
        step = _account(connection, stage, config, "submissions", scanned, kept, SELECTION, details, "thread")
    _forget(scanned)
    return stage.record(step)


def read_comments(stage: Stage, config: ScoreQuestions) -> Step:
    """Read the files of comments, keep first-level ones of the candidates, and the threads that have enough of them.

    Leaves `threads.parquet` and `comments.parquet` (`schemas/forum.py`) in `work`: texts are scrubbed, ids hashed.

    Returns:
        The accounts of the threads; those of the comments are recorded too.

    Raises:
        InputError: a file is missing, or nothing of it can be read.
    """
    if done := stage.recorded("threads"):
        return done
    salt = salt_of(config.source.salt_env, stage.store.root)
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "candidates", [stage.work / RAW / "candidates.parquet"])
        set_variables(connection, {"salt": salt, "least_comments": config.filter.least_comments})
        scanned = _scan(connection, stage, config, "comments", COMMENT_COLUMNS)
        connection.execute(f"CREATE TEMP TABLE first_comments AS {query('score_questions/first_of_each')}")
        set_variables(connection, {"enters": THREADS_ENTER})
        quiet = connection.sql(query("score_questions/refuse_quiet_threads")).to_arrow_table()
        stage.write_rejects("threads", quiet.rename_columns(REJECTS.schema.names))
        candidates = _count(connection, "candidates")
        with working("scrub texts", candidates - len(quiet)) as work:
            texts = connection.sql(query("score_questions/thread_texts")).to_arrow_reader(AT_ONCE)
            kept = _write_threads(stage, salt, work.watching(texts))
        step = _account(connection, stage, config, "comments", scanned, kept, PASSED_BY, COMMENT_DETAILS, "comment")
    passed = step.entered - step.kept - sum(step.rejected.values()) - sum(step.dropped.values())
    stage.record(step.model_copy(update={"dropped": {**step.dropped, "of_quiet_thread": passed}}))
    _forget(scanned)
    return stage.record(
        Step(
            name="threads",
            place=2,
            unit="submissions",
            stage="threads",
            follows=("submissions",),
            entered=candidates,
            kept=candidates - len(quiet),
            rejected={"too_few_comments": len(quiet)} if len(quiet) else {},
        )
    )


def _scan(
    connection: duckdb.DuckDBPyConnection, stage: Stage, config: ScoreQuestions, what: str, columns: tuple[str, ...]
) -> list[Scanned]:
    """Scan every file of one kind; gives the view `dump_rows` over what they hold."""
    folder = stage.work / RAW
    folder.mkdir(parents=True, exist_ok=True)
    names: Sequence[str] = getattr(config.source, what)
    paths = [config.path(name) for name in names]
    limit = config.limit if what == "submissions" else None
    scanned = []
    with working(f"read {what} (MB)", sum(path.stat().st_size >> 20 for path in paths if path.is_file())) as work:
        for place, (name, path) in enumerate(zip(names, paths, strict=True)):
            told = f"{config.source.name}/{without_place(name)}"
            into = folder / f"{what}-{place:04d}.parquet"
            judge = f"score_questions/scan_{what}"
            scanned.append(scan(connection, path, told, columns, judge, into, work, limit))
    connection.register("files", pa.table({
        "path": [str(held.rows) for held in scanned],
        "name": [held.name for held in scanned],
        "place": list(range(len(scanned))),
    }))  # fmt: skip
    set_variables(connection, {"rows": [str(held.rows) for held in scanned]})
    connection.execute(f"CREATE TEMP VIEW dump_rows AS {query('score_questions/dump_rows')}")
    return scanned


def _account(
    connection: duckdb.DuckDBPyConnection,
    stage: Stage,
    config: ScoreQuestions,
    what: str,
    scanned: Sequence[Scanned],
    kept: int,
    counted: tuple[str, ...],
    details: dict[str, str],
    kind: str,
) -> Step:
    """Write the rejects of one kind of lines, and say what became of every line."""
    enters = THREADS_ENTER if kind == "thread" else COMMENTS_ENTER
    given = {
        "salt": salt_of(config.source.salt_env, stage.store.root),
        "kind": kind,
        "enters": enters,
        "stage": what,
        "counted": [*counted, MALFORMED],
    }
    set_variables(connection, given)
    connection.register("details", pa.table({"reason": list(details), "detail": list(details.values())}))
    refused = connection.sql(query("score_questions/refuse_lines")).to_arrow_table()
    faults = [
        (enters, "", what, fault.reason, fault.detail, held.name, fault.line)
        for held in scanned
        for fault in held.faults
    ]
    listed = pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=True)) for row in faults], REJECTS.schema)
    stage.write_rejects(what, pa.concat_tables([listed, refused.cast(REJECTS.schema)]))
    fates = dict(connection.sql(query("score_questions/fates")).fetchall())
    dropped = {fate: fates[fate] for fate in counted if fate in fates}
    if unnamed := sum(held.unnamed for held in scanned):
        dropped["further_malformed_lines"] = unnamed
    rejected = Counter(refused["reason"].to_pylist()) + Counter(fault[3] for fault in faults)
    return Step(
        name=what,
        place=1 if what == "submissions" else 2,
        unit=what,
        stage=what,
        entered=sum(fates.values()),
        kept=kept,
        rejected=dict(sorted(rejected.items())),
        dropped=dropped,
        notes=tuple(f"{held.name}: {held.note}" for held in scanned if held.note),
    )


def _write_threads(stage: Stage, salt: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Scrub threads and comments and write both tables; gives the number of comments."""
    kept = 0
    with (
        replacing(stage.work / "threads.parquet") as threads_path,
        replacing(stage.work / "comments.parquet") as comments_path,
        pq.ParquetWriter(threads_path, THREADS) as threads,
        pq.ParquetWriter(comments_path, COMMENTS) as comments,
    ):
        for batch in batches:
            scrubbed = [scrub_thread(salt, thread) for thread in batch.to_pylist()]
            rows = [row for _, answers in scrubbed for row in answers]
            threads.write_table(pa.Table.from_pylist([thread for thread, _ in scrubbed], THREADS))
            comments.write_table(pa.Table.from_pylist(rows, COMMENTS))
            kept += len(rows)
    return kept


def scrub_thread(salt: str, thread: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A thread and its comments without names.

    Args:
        salt: what hashes of ids are salted with.
        thread: a row of `thread_texts`.

    Returns:
        A row of `schemas.forum.THREADS` and rows of `schemas.forum.COMMENTS`.
    """
    ids = [thread["id"], *(comment["id"] for comment in thread["comments"])]
    people = {*thread["names"], *filter(None, [thread["author"]])}
    names = {name for name in people if name.lower() not in NOBODY} | {name for name in ids if _is_telling(name)}
    thread_key = key_of(salt, "thread", thread["id"])
    title, text, *said = scrub_all(
        [thread["title"], thread["text"], *(comment["text"] for comment in thread["comments"])], names
    )
    kept = {
        "thread_key": thread_key,
        "author_key": _author_key(salt, thread["author"]),
        **{name: thread[name] for name in ("subreddit", "year", "words", "image_from")},
        "title": title,
        "text": text,
        "comments": len(thread["comments"]),
    }
    answers = [
        {
            "thread_key": thread_key,
            "comment_key": key_of(salt, "comment", comment["id"]),
            "author_key": _author_key(salt, comment["author"]),
            "text": words,
            "words": len(words.split()),
            "score": comment["score"],
        }
        for comment, words in zip(thread["comments"], said, strict=True)
    ]
    answers.sort(key=lambda answer: (-answer["score"], answer["comment_key"]))
    return kept, [{**answer, "place": place} for place, answer in enumerate(answers, 1)]


def _is_telling(id_: str) -> bool:
    """Whether an id could be nothing else in a text: long enough, and with a digit."""
    return len(id_) >= 5 and any(char.isdigit() for char in id_)


def _author_key(salt: str, author: str | None) -> str | None:
    return None if author is None or author.lower() in NOBODY else key_of(salt, "author", author)


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _forget(scanned: Sequence[Scanned]) -> None:
    """Remove what still had names."""
    for held in scanned:
        held.rows.unlink()
