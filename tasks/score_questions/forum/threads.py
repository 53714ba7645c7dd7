"""Filter a forum's dump to threads fit for a question, with their first-level comments."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa

from earmark.schemas.places import without_place
from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.step import Account, Done, rejects_table, step
from earmark.tasks.score_questions.forum.dump import MALFORMED, Scanned, scan, set_variables
from earmark.tasks.score_questions.forum.links import ids_in
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import connect, literal, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.anonymity import SALT, salt_of
from earmark.tasks.text.languages import language_of

THREADS_ENTER, COMMENTS_ENTER = "questions", "sources"  # the published tables of their would-be rows
MOST_BITS = 1 << 29  # DuckDB's bitstring_agg takes at most 10^9
LONGEST_WORDS = 200  # of title and text together, as in WildScore; of scripts without spaces, signs
LETTERS_A_WORD = 100  # words of longer texts are not counted
LEAST_COMMENTS = 3  # first-level comments of a thread, as in WildScore
RAW = "forum"  # folder below `work` for data with the dump's names and ids; nothing else reads it

_ID = "expected an id of letters and digits, found something else"
SUBMISSION_DETAILS = {
    "bad_id": _ID,
    "bad_time": "expected seconds since 1970 in created_utc, found something else",
    "removed": "expected a submission that is still there, found it removed or deleted",
    "adult": "expected a submission for everyone, found over_18",
    "missing_title": "expected a title, found none",
    "too_many_words": "expected at most {longest_words} words or {longest_letters:,} letters in all, found more",
    "other_language": "expected one of languages, found another language",
    "no_image": "expected an image by link, gallery, page, preview, in the text or in images, found none",
    "duplicate": "expected each id once, found it on an earlier line too",
}
COMMENT_DETAILS = {
    "missing_parent": "expected link_id, found none",
    "bad_id": _ID,
    "missing_body": "expected a body, found none",
    "deleted": "expected a comment that is still there, found [deleted]",
    "removed": "expected a comment that is still there, found [removed]",
    "automatic": "expected a person's answer, found a bot's or a moderator's notice",
    "not_an_answer": "expected another person's words, found the asker's, or a link or picture alone",
    "bad_score": "expected a whole number in score, or in ups and downs, found neither",
    "duplicate": "expected each id once, found it on an earlier line too",
}


class Answers(NamedTuple):
    """The kept comments, with the dump's names and ids."""

    comments: Path  # first-level comments of threads with enough of them
    writers: Path  # other writers in the candidates' threads


@step("submissions", unit="submissions", label="")
def read_submissions(stage: Stage, config: ScoreQuestions) -> Done[Path]:
    """Read the files of submissions and keep those passing the filter, with the dump's names and ids.

    Lines of other forums and years are left out and counted; all other dropped lines are rejects.

    Raises:
        InputError: a file is missing, or nothing of it can be read.
    """
    source, languages = config.source, config.languages
    with connect(stage.work / "spill") as connection:
        values = {
            "subreddits": [name.lower().removeprefix("r/") for name in source.subreddits],
            "first_year": source.years[0],
            "last_year": source.years[1],
            "longest_words": LONGEST_WORDS,
            "longest_letters": LETTERS_A_WORD * LONGEST_WORDS,
        }
        folder = config.path(config.images) if config.images else None
        ids = sorted(ids_in(folder)) if folder and folder.is_dir() else []
        connection.register("pictured", pa.table({"id": pa.array(ids, pa.string())}))
        set_variables(connection, {**values, "bits": hash_bits(len(ids))})
        connection.execute(f"SET VARIABLE in_folder = ({query('score_questions/in_folder')})")
        scanned = _scan(connection, stage, config, "submissions")
        if languages:
            _drop_other_languages(connection, languages)
        candidates, kept = _keep(connection, stage, "candidates")
        details = {reason: text.format_map(values) for reason, text in SUBMISSION_DETAILS.items()}
        return Done(candidates, _account(connection, stage, config, "submissions", scanned, kept, details))


@step("comments", unit="comments", label="")
def read_comments(stage: Stage, config: ScoreQuestions, candidates: Path) -> Done[Answers]:
    """Read the files of comments; keep the candidates' first-level comments, and the threads with enough of them.

    Raises:
        InputError: a file is missing, or nothing of it can be read.
    """
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "candidates", [candidates])
        threads = int(connection.execute("SELECT count(*) FROM candidates").fetchall()[0][0])
        set_variables(connection, {"least_comments": LEAST_COMMENTS, "bits": hash_bits(threads)})
        connection.execute(f"SET VARIABLE wanted = ({query('score_questions/wanted')})")
        scanned = _scan(connection, stage, config, "comments")
        answers, kept = _keep(connection, stage, "answers")
        writers, _ = _keep(connection, stage, "writers")
        comments = _account(connection, stage, config, "comments", scanned, kept, COMMENT_DETAILS)
        view_parquet(connection, "answers", [answers])
        if unripe := connection.execute(query("score_questions/unripe")).fetchall()[0][0]:
            note = (
                f"{unripe:,} threads have votes that were hidden, or counted within a day: the judge decides which of "
                "their answers is right"
            )
            comments = replace(comments, notes=(*comments.notes, note))
        set_variables(connection, {"enters": THREADS_ENTER})
        quiet = connection.sql(query("score_questions/refuse_quiet_threads")).to_arrow_table()
    return Done(
        Answers(answers, writers),
        comments,
        Account(
            name="threads",
            unit="submissions",
            follows="submissions",
            entered=threads,
            kept=threads - len(quiet),
            rejects=quiet,
        ),
    )


def _drop_other_languages(connection: duckdb.DuckDBPyConnection, languages: Sequence[str]) -> None:
    """Mark kept submissions in other languages; texts without a language, such as chord symbols, stay."""
    kept = connection.execute("SELECT place, line, title || ' ' || text FROM judged WHERE fate = 'kept'").fetchall()
    told = [(place, line, language_of(text)) for place, line, text in kept]
    others = pa.table(
        {
            name: pa.array([one[at] for one in told if one[2] not in (*languages, None)], kind)
            for at, (name, kind) in enumerate((("place", pa.int64()), ("line", pa.int64())))
        }
    )
    connection.register("others", others)
    connection.execute(query("score_questions/mark_languages"))


def hash_bits(candidates: int) -> int:
    """Return the bits of the filter for links to candidates: fewer than one in sixty other links find their bit set.

    Beyond four million candidates the share rises above one in sixty; this costs time and changes no row.
    """
    return min(128 * max(candidates, 1024), MOST_BITS)


def _scan(connection: duckdb.DuckDBPyConnection, stage: Stage, config: ScoreQuestions, kind: str) -> list[Scanned]:
    """Scan every file of a kind into the table `judged`; of each kept id only the first line is kept."""
    folder = stage.work / RAW
    folder.mkdir(parents=True, exist_ok=True)
    names: Sequence[str] = getattr(config.source, kind)
    paths = [config.path(name) for name in names]
    files = [f"{config.source.name}/{without_place(name)}" for name in names]
    limit = config.limit if kind == "submissions" else None
    with working(f"read {kind} (MB)", sum(path.stat().st_size >> 20 for path in paths if path.is_file())) as work:
        scanned = [
            scan(connection, path, name, place, kind, folder, work, limit)
            for place, (path, name) in enumerate(zip(paths, files, strict=True), 1)
        ]
    connection.execute(query("score_questions/mark_duplicates"))
    set_variables(connection, {"files": files})
    return scanned


def _keep(connection: duckdb.DuckDBPyConnection, stage: Stage, name: str) -> tuple[Path, int]:
    """Write a query's rows, with names and ids, into the folder emptied by `forget_names`; return path and row
    count."""
    path = stage.work / RAW / f"{name}.parquet"
    with replacing(path) as new:
        rows = connection.execute(f"COPY ({query(f'score_questions/{name}')}) TO {literal(new)} (FORMAT parquet)")
        return path, int(rows.fetchall()[0][0])


def _account(
    connection: duckdb.DuckDBPyConnection,
    stage: Stage,
    config: ScoreQuestions,
    kind: str,
    scanned: Sequence[Scanned],
    kept: int,
    details: dict[str, str],
) -> Account:
    """Account for every line of a kind."""
    enters = THREADS_ENTER if kind == "submissions" else COMMENTS_ENTER
    values = {
        "salt": salt_of(SALT, stage.store.root),
        "kind": "thread" if kind == "submissions" else "comment",
        "enters": enters,
        "stage": kind,
    }
    set_variables(connection, values)
    connection.execute("SET VARIABLE details = MAP(?, ?)", [list(details), list(details.values())])
    judged = connection.sql(query("score_questions/refuse_lines")).to_arrow_table()
    faults = [(file, fault) for file in scanned for fault in file.faults]
    rejects = rejects_table(
        kind, [(enters, Reject("", fault.reason, fault.detail, file.name, fault.line)) for file, fault in faults]
    ).select(judged.column_names)
    fates = dict(connection.sql(query("score_questions/fates")).fetchall())
    passed = sum((Counter(file.passed) for file in scanned), Counter[str]())
    lines = passed.total() + sum(fates.values())
    unnamed = passed.pop(MALFORMED, 0) - len(faults)
    if kind == "comments":
        passed["of_quiet_thread"] = fates.get("kept", 0) - kept
    passed.update({fate: fates[fate] for fate in fates.keys() - details.keys() - {"kept"}})
    return Account(
        entered=lines,
        kept=kept,
        rejects=pa.concat_tables([rejects, judged.cast(rejects.schema)]),
        filtered={**dict(sorted(passed.items())), "further_malformed_lines": unnamed},
        sources={f"{config.source.name}/": lines - unnamed},
        notes=[f"{file.name}: {file.note}" for file in scanned if file.note],
    )
