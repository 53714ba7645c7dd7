"""Takes the names out of threads: what the dump says of people ends here, and nothing behind this step has seen it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.forum import COMMENTS, THREADS
from schemas.score_questions import ScoreQuestions
from tasks.anonymity import NOBODY, key_of, salt_of, scrub_all
from tasks.forum.dump import set_variables
from tasks.forum.threads import RAW
from tasks.progress import working
from tasks.sql import connect, query, view_parquet
from tasks.store.files import replacing
from tasks.store.staging import Stage

AT_ONCE = 1000  # threads whose texts are in memory while they are scrubbed
READ = ("answers", "writers")  # what is removed when it has been read; the images still need the candidates


def scrub_threads(stage: Stage, config: ScoreQuestions) -> None:
    """Leave `threads.parquet` and `comments.parquet` (`schemas/forum.py`) in `work`: texts scrubbed, ids hashed."""
    raw = stage.work / RAW
    if not (stage.work / "threads.parquet").is_file():
        salt = salt_of(config.source.salt_env, stage.store.root)
        step = stage.recorded("threads")
        with connect(stage.work / "spill") as connection, working("scrub threads", step.kept if step else None) as work:
            for name in ("candidates", *READ):
                view_parquet(connection, name, [raw / f"{name}.parquet"])
            set_variables(connection, {"salt": salt})
            texts = connection.sql(query("score_questions/thread_texts")).to_arrow_reader(AT_ONCE)
            _write_threads(stage, salt, work.watching(texts))
    for name in READ:
        (raw / f"{name}.parquet").unlink(missing_ok=True)


def _write_threads(stage: Stage, salt: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Scrub threads and comments and write both tables; that of threads last, since it tells that all is done."""
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
