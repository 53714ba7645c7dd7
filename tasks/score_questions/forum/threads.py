"""From a forum's dump to threads that are fit for a question, with their first-level comments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from schemas.places import without_place
from schemas.score_questions import ScoreQuestions
from schemas.tables import REJECTS
from tasks.build.progress import working
from tasks.score_questions.forum.dump import MALFORMED, Scanned, scan, set_variables
from tasks.store.files import replacing
from tasks.store.manifest import Step
from tasks.store.sql import connect, literal, query, view_parquet
from tasks.store.staging import Stage
from tasks.text.anonymity import salt_of

THREADS_ENTER, COMMENTS_ENTER = "questions", "sources"  # the published tables that they would have become rows of
MOST_BITS = 1 << 29  # DuckDB's bitstring_agg takes at most 10^9
LETTERS_A_WORD = 100  # words of longer texts are not counted
RAW = "forum"  # folder below `work` for what still has the dump's names and ids; nothing else reads it

_ID = "expected an id of letters and digits, found something else"
SUBMISSION_DETAILS = {
    "bad_id": _ID,
    "bad_time": "expected seconds since 1970 in created_utc, found something else",
    "removed": "expected a submission that is still there, found it removed or deleted",
    "adult": "expected a submission for everyone, found over_18",
    "missing_title": "expected a title, found none",
    "too_many_words": "expected at most {longest_words} words or {longest_letters:,} letters in all, found more",
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
    lies in `work/forum/candidates.parquet`, with the dump's names and ids, for the steps below and the images alone.

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
            "longest_letters": LETTERS_A_WORD * chosen.longest_words,
        }
        set_variables(connection, given)
        scanned = _scan(connection, stage, config, "submissions")
        kept = _keep(connection, stage, "candidates")
        details = {reason: text.format_map(given) for reason, text in SUBMISSION_DETAILS.items()}
        return stage.record(_account(connection, stage, config, "submissions", scanned, kept, details))


def read_comments(stage: Stage, config: ScoreQuestions) -> Step:
    """Read the files of comments, keep first-level ones of the candidates, and the threads that have enough of them.

    What is kept lies in `work/forum/answers.parquet`, and who else wrote in those threads in `writers.parquet`, with
    the dump's names and ids, for `scrub_threads` alone.

    Returns:
        The accounts of the threads; those of the comments are recorded too.

    Raises:
        InputError: a file is missing, or nothing of it can be read.
    """
    if done := stage.recorded("threads"):
        return done
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "candidates", [stage.work / RAW / "candidates.parquet"])
        candidates = _count(connection, "candidates")
        set_variables(connection, {"least_comments": config.filter.least_comments, "bits": hash_bits(candidates)})
        connection.execute(f"SET VARIABLE wanted = ({query('score_questions/wanted')})")
        scanned = _scan(connection, stage, config, "comments")
        kept = _keep(connection, stage, "answers")
        _keep(connection, stage, "writers")
        step = _account(connection, stage, config, "comments", scanned, kept, COMMENT_DETAILS)
        set_variables(connection, {"enters": THREADS_ENTER})
        quiet = connection.sql(query("score_questions/refuse_quiet_threads")).to_arrow_table()
        stage.write_rejects("threads", quiet)
    passed = step.entered - step.kept - sum(step.rejected.values()) - sum(step.dropped.values())
    stage.record(step.model_copy(update={"dropped": {**step.dropped, "of_quiet_thread": passed}}))
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


def hash_bits(candidates: int) -> int:
    """How many bits tell links to candidates from others: less than one other link in sixty finds its bit set.

    Beyond four million candidates it is more than one in sixty, which costs time and changes no row.
    """
    return min(128 * max(candidates, 1024), MOST_BITS)


def _scan(connection: duckdb.DuckDBPyConnection, stage: Stage, config: ScoreQuestions, kind: str) -> list[Scanned]:
    """Scan every file of one kind; gives the table `judged`, in which of each kept id the first line alone is kept."""
    folder = stage.work / RAW
    folder.mkdir(parents=True, exist_ok=True)
    names: Sequence[str] = getattr(config.source, kind)
    paths = [config.path(name) for name in names]
    told = [f"{config.source.name}/{without_place(name)}" for name in names]
    limit = config.limit if kind == "submissions" else None
    with working(f"read {kind} (MB)", sum(path.stat().st_size >> 20 for path in paths if path.is_file())) as work:
        scanned = [
            scan(connection, path, name, place, kind, folder, work, limit)
            for place, (path, name) in enumerate(zip(paths, told, strict=True), 1)
        ]
    connection.execute(query("score_questions/mark_duplicates"))
    set_variables(connection, {"files": told})
    return scanned


def _keep(connection: duckdb.DuckDBPyConnection, stage: Stage, name: str) -> int:
    """Write what a query keeps, with names and ids, into the folder that nothing else reads; gives the rows."""
    with replacing(stage.work / RAW / f"{name}.parquet") as path:
        rows = connection.execute(f"COPY ({query(f'score_questions/{name}')}) TO {literal(path)} (FORMAT parquet)")
        return int(rows.fetchall()[0][0])


def _account(
    connection: duckdb.DuckDBPyConnection,
    stage: Stage,
    config: ScoreQuestions,
    kind: str,
    scanned: Sequence[Scanned],
    kept: int,
    details: dict[str, str],
) -> Step:
    """Write the rejects of one kind of lines, and say what became of every line."""
    enters = THREADS_ENTER if kind == "submissions" else COMMENTS_ENTER
    given = {
        "salt": salt_of(config.source.salt_env, stage.store.root),
        "kind": "thread" if kind == "submissions" else "comment",
        "enters": enters,
        "stage": kind,
    }
    set_variables(connection, given)
    connection.execute("SET VARIABLE details = MAP(?, ?)", [list(details), list(details.values())])
    refused = connection.sql(query("score_questions/refuse_lines")).to_arrow_table()
    faults = [
        (enters, "", kind, fault.reason, fault.detail, held.name, fault.line)
        for held in scanned
        for fault in held.faults
    ]
    if faults:
        rows = [dict(zip(REJECTS.schema.names, fault, strict=False)) for fault in faults]
        listed = pa.Table.from_pylist(rows, REJECTS.schema).select(refused.column_names)
        refused = pa.concat_tables([listed, refused.cast(listed.schema)])
    fates = dict(connection.sql(query("score_questions/fates")).fetchall())
    passed = sum((Counter(held.passed) for held in scanned), Counter[str]())
    unnamed = passed.pop(MALFORMED, 0) - len(faults)
    passed.update({fate: fates[fate] for fate in fates.keys() - details.keys() - {"kept"}})
    rejected = Counter({fate: fates[fate] for fate in fates.keys() & details.keys()})
    rejected.update(fault[3] for fault in faults)
    entered = fates.get("kept", 0) + sum(rejected.values()) + sum(passed.values())
    stage.write_rejects(kind, refused, {f"{config.source.name}/": entered})
    return Step(
        name=kind,
        place=1 if kind == "submissions" else 2,
        unit=kind,
        stage=kind,
        entered=entered + unnamed,
        kept=kept,
        rejected=dict(sorted(rejected.items())),
        dropped={**dict(sorted(passed.items())), **({"further_malformed_lines": unnamed} if unnamed else {})},
        notes=tuple(f"{held.name}: {held.note}" for held in scanned if held.note),
    )


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
