"""The published tables: letters are dealt, reviews applied, images embedded, and every thread is accounted for."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from schemas.places import without_place
from schemas.score_questions import OPTIONS, QUESTIONS, REVIEWS, SOURCES, Judge, Labeller, ScoreQuestions, Writer
from schemas.tables import REJECTS, SPLITS, UNSPLIT
from tasks.build.asking import check_failed
from tasks.build.rejects import came_in, rejects_table
from tasks.importers.rows import Reject
from tasks.score_questions.checks import words_of
from tasks.score_questions.lettering import LETTERS, deal, lettered
from tasks.score_questions.reviews import FLAGS_WHEN, Verdict, applies, gather_reviews, left_out
from tasks.score_questions.threads import image_path, pool_of, shards_of
from tasks.score_questions.writing import drafts, rows_of, usable
from tasks.store.manifest import Step
from tasks.store.staging import Stage

IMAGES_AT_ONCE = 64
THREADS = "submissions"  # as the steps that read the forum count them
STEPS = (("rewritten", "rewrite"), ("settled", "settle"), ("completed", "distract"), ("labelled", "label"))

Row = dict[str, Any]


def write_questions(stage: Stage, config: ScoreQuestions) -> Step:
    """Write `questions`, `options`, `sources` and `reviews`; a thread that became no question is a reject.

    Raises:
        EarmarkError: more requests than the config allows have no answer yet.
        InputError: a review file cannot be read.
    """
    _check_failed(stage, config)
    last = _account(stage)
    made = _made(stage, config)
    contents = {name: row["content_sha256"] for name, row in made.items()}
    files = [(config.path(written), without_place(written)) for written in config.review.files]
    verdicts, refused = gather_reviews(files, contents)
    flagged = left_out([verdict for verdict in verdicts if applies(verdict, contents)], config.review.flagged_by)
    kept = {name: row for name, row in made.items() if name not in flagged}
    for split in SPLITS:
        rows = [row for row in kept.values() if row["split"] == split]
        stage.write(QUESTIONS, split, _questions(stage, config, rows))
        stage.write(OPTIONS, split, [_table(OPTIONS.schema, [o for row in rows for o in _options(row)])])
        stage.write(SOURCES, split, [_table(SOURCES.schema, [_source(config, row) for row in rows])])
    for table in (QUESTIONS, OPTIONS, SOURCES):
        stage.drop_empty_splits(table)
    said = [_review(config, verdict, contents) for verdict in verdicts]
    stage.write(REVIEWS, UNSPLIT, [_table(REVIEWS.schema, said)])
    stage.drop_empty_splits(REVIEWS)
    lost = [(REVIEWS.name, reject) for reject in refused]
    read = came_in((verdict.file for verdict in verdicts), lost)
    stage.write_rejects("review-files", rejects_table("review-files", lost), read)
    place = last.place + 1
    if files:
        stage.record(_told_of_files(place, verdicts, refused, contents))
    rejects = [(name, "flagged", _why_flagged(said)) for name, said in sorted(flagged.items())]
    _write_rejects(stage, "review", rejects)
    return stage.record(
        Step(
            name="review",
            place=place,
            unit=THREADS,
            stage="review",
            follows=(last.name,),
            entered=len(made),
            kept=len(kept),
            rejected={"flagged": len(flagged)} if flagged else {},
            table=QUESTIONS.name,
        )
    )


def _check_failed(stage: Stage, config: ScoreQuestions) -> None:
    asked: dict[str, Writer | Judge | Labeller] = {
        "rewritten": config.writer,
        "settled": config.judge,
        "completed": config.writer,
        "labelled": config.labeller,
    }
    for part, annotator in asked.items():
        rows = [row for shard in shards_of(stage) for row in rows_of(stage, part, shard) if row["request_key"]]
        failed = [row for row in rows if row["reason"] is not None]
        check_failed(annotator.most_failed, len(rows), failed)


def _account(stage: Stage) -> Step:
    """Record the steps that asked, with their rejects; gives the last one."""
    own = {"review", *(name for _, name in STEPS)}
    last = [step for step in stage.steps() if step.unit == THREADS and step.name not in own][-1]
    for part, name in STEPS:
        rows = [row for shard in shards_of(stage) for row in rows_of(stage, part, shard)]
        failed = [row for row in rows if row["reason"] is not None]
        _write_rejects(stage, name, [(row["thread_key"], row["reason"], row["detail"]) for row in failed])
        last = stage.record(
            Step(
                name=name,
                place=last.place + 1,
                unit=THREADS,
                stage=name,
                follows=(last.name,),
                entered=len(rows),
                kept=len(rows) - len(failed),
                rejected=dict(sorted(Counter(row["reason"] for row in failed).items())),
            )
        )
    return last


def _write_rejects(stage: Stage, step: str, rows: Sequence[tuple[str, str, str]]) -> None:
    held = [
        {"table": QUESTIONS.name, "item": item, "stage": step, "reason": reason, "detail": detail}
        for item, reason, detail in rows
    ]
    stage.write_rejects(step, _table(REJECTS.schema, held))


def _made(stage: Stage, config: ScoreQuestions) -> dict[str, Row]:
    """Every question that passed all steps, by its id: what its thread held, what was written, and its options."""
    made: dict[str, Row] = {}
    for shard in shards_of(stage):
        pool = {row["thread_key"]: row for row in pool_of(stage, shard)}
        settled = {row["thread_key"]: row for row in usable(stage, "settled", shard)}
        labelled = {row["thread_key"]: row for row in usable(stage, "labelled", shard)}
        for draft in drafts(stage, shard, completed=True):
            if (name := draft["thread_key"]) in labelled:
                facts = {key: settled[name][key] for key in ("preference", "tied")}
                labels = {key: labelled[name][key] for key in ("category", "subcategory", "difficulty")}
                made[name] = {**pool[name], **draft, **facts, **labels}
                made[name]["content_sha256"] = _content(made[name])
    places = deal({name: 1 + len(_others(row)) for name, row in made.items()}, config.seed)
    for name, row in made.items():
        row["lettered"] = lettered(name, row["truth_text"], _others(row), places[name], config.seed)
        row["place"] = places[name]
    return made


def _others(row: Row) -> list[str]:
    return [*row["other_texts"], *row["distractors"]]


def _content(row: Row) -> str:
    """Names what a reviewer looks at, whatever the letters: another wording needs another look."""
    held = [row["question"], row["truth_text"], sorted(_others(row)), row["image_sha256"]]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def _questions(stage: Stage, config: ScoreQuestions, rows: Sequence[Row]) -> Iterator[pa.Table]:
    for start in range(0, len(rows), IMAGES_AT_ONCE):
        held = []
        for row in rows[start : start + IMAGES_AT_ONCE]:
            path = image_path(stage, row)
            held.append(
                {
                    "question_id": row["thread_key"],
                    **{name: row[name] for name in _AS_THEY_ARE},
                    "options": row["lettered"],
                    "truth_letter": LETTERS[row["place"]],
                    "image": {"bytes": path.read_bytes(), "path": path.name},
                    "writer": config.writer.annotator,
                    "judge": config.judge.annotator if row["preference"] == "language_model" else None,
                    "labeller": config.labeller.annotator,
                    "source": config.source.name,
                }
            )
        yield _table(QUESTIONS.schema, held)
    if not rows:
        yield QUESTIONS.schema.empty_table()


_AS_THEY_ARE = (
    "split", "question", "preference", "category", "subcategory", "difficulty", "image_sha256", "width", "height",
    "content_sha256", "request_key",
)  # fmt: skip


def _options(row: Row) -> Iterator[Row]:
    comments = {option["text"]: option for option in row["options"]}
    for letter, text in zip(LETTERS, row["lettered"], strict=False):
        comment = comments.get(text)
        yield {
            "question_id": row["thread_key"],
            "letter": letter,
            "split": row["split"],
            "text": text,
            "correct": letter == LETTERS[row["place"]],
            "origin": "distractor" if comment is None else "comment",
            "comment_id": comment and comment["comment_key"],
            "votes": comment and comment["score"],
            "words": len(words_of(text)),
        }


def _source(config: ScoreQuestions, row: Row) -> Row:
    held = ("split", "author_id", "year", "words", "comments", "tied", "image_from", "detector", "score_confidence",
            "staves")  # fmt: skip
    return {
        "question_id": row["thread_key"],
        **{name: row[name] for name in held},
        "forum": row["forum"],
        "best_votes": max(comment["score"] for comment in row["best_comments"]),
        "source": config.source.name,
    }


def _told_of_files(
    place: int, verdicts: Sequence[Verdict], refused: Sequence[Reject], contents: Mapping[str, str]
) -> Step:
    return Step(
        name="review-files",
        place=place,
        unit="reviews",
        stage="review-files",
        entered=len(verdicts) + len(refused),
        kept=len(verdicts),
        rejected=dict(sorted(Counter(reject.reason for reject in refused).items())),
        table=REVIEWS.name,
        notes=_told_of_reviews(verdicts, contents),
    )


def _told_of_reviews(verdicts: Sequence[Verdict], contents: Mapping[str, str]) -> tuple[str, ...]:
    stale = sum(not applies(verdict, contents) for verdict in verdicts)
    if not stale:
        return ()
    return (f"{stale} of {len(verdicts)} reviews are of questions that read otherwise now, or are none: not counted",)


def _why_flagged(flags: Sequence[Verdict]) -> str:
    said = [f"{verdict.reviewer} says {', '.join(_flags(verdict))}" for verdict in flags]
    return f"expected no flag, found {len(flags)}: {'; '.join(said)}"


def _flags(verdict: Verdict) -> list[str]:
    """What speaks against the question, in words."""
    return [
        f"{'not ' if flag is False else ''}{name}" for name, flag in FLAGS_WHEN.items() if verdict.said[name] is flag
    ]


def _review(config: ScoreQuestions, verdict: Verdict, contents: Mapping[str, str]) -> Row:
    return {
        "question_id": verdict.question_id,
        "reviewer": verdict.reviewer,
        **verdict.said,
        "flagged": verdict.flagged,
        "note": verdict.note,
        "applies": applies(verdict, contents),
        "file": verdict.file,
        "line": verdict.line,
        "source": config.source.name,
    }


def _table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)
