"""The published tables: options get their letters, reviews are applied, images embedded, every thread accounted for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.places import without_place
from earmark.schemas.score_questions import OPTIONS, QUESTIONS, REVIEWS, SOURCES, ScoreQuestions
from earmark.schemas.tables import SPLITS, UNSPLIT
from earmark.tasks.build.ask import Row
from earmark.tasks.build.rejects import came_in
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked
from earmark.tasks.importers.rows import Reject
from earmark.tasks.score_questions.checks import words_of
from earmark.tasks.score_questions.option_order import LETTERS, in_order, right_places
from earmark.tasks.score_questions.requests import options_of
from earmark.tasks.score_questions.reviews import FLAGS_WHEN, Verdict, applies, gather_reviews, left_out
from earmark.tasks.score_questions.writing import STAGES
from earmark.tasks.store.staging import Stage

IMAGES_AT_ONCE = 64


@step("review", unit="submissions", follows=STAGES[-1], table=QUESTIONS.name, final=True, label="write questions")
def write_tables(stage: Stage, config: ScoreQuestions, written: Walked) -> Done[None]:
    """Write `questions`, `options`, `sources` and `reviews`; a thread that became no question is a reject.

    Raises:
        InputError: a review file cannot be read.
    """
    questions = _with_letters([question for _, question in written.results()], config.seed)
    contents = {name: row["content_sha256"] for name, row in questions.items()}
    files = [(config.path(name), without_place(name)) for name in config.review.files]
    verdicts, refused = gather_reviews(files, contents)
    flagged = left_out([verdict for verdict in verdicts if applies(verdict, contents)], config.review.flagged_by)
    kept = [row for name, row in questions.items() if name not in flagged]
    for split in SPLITS:
        rows = [row for row in kept if row["split"] == split]
        stage.write(QUESTIONS, split, _questions(config, rows))
        stage.write(OPTIONS, split, [_table(OPTIONS.schema, [o for row in rows for o in _options(row)])])
        stage.write(SOURCES, split, [_table(SOURCES.schema, [_source(config, row) for row in rows])])
    stage.write(REVIEWS, UNSPLIT, [_table(REVIEWS.schema, [_review(config, one, contents) for one in verdicts])])
    for table in (QUESTIONS, OPTIONS, SOURCES, REVIEWS):
        stage.drop_empty_splits(table)
    first, *others = written.accounts(STAGES, lambda thread, *why: _reject(thread["thread_key"], *why))
    rejects = [
        _reject(name, "flagged", _why_flagged(flags), [verdict.reviewer for verdict in flags])
        for name, flags in sorted(flagged.items())
    ]
    return Done(
        None,
        replace(first, follows="scores"),
        *others,
        *([_review_files(verdicts, refused, contents)] if files else []),
        Account(len(questions), len(kept), rejects),
    )


def _reject(thread: str, reason: str, detail: str, reviewers: Sequence[str] = ()) -> tuple[str, Reject]:
    who = tuple(("annotator", reviewer) for reviewer in reviewers)
    return QUESTIONS.name, Reject(thread, reason, detail, "", None, made_from=who)


def _with_letters(questions: Sequence[Row], seed: int) -> dict[str, Row]:
    """Questions by id, with their options in the order of the letters, and what names their content."""
    places = right_places({row["thread_key"]: len(options_of(row)) for row in questions}, seed)
    by_id = {}
    for row in questions:
        name, (truth, *others) = row["thread_key"], options_of(row)
        texts = in_order(name, truth, others, places[name], seed)
        by_id[name] = {**row, "texts": texts, "place": places[name], "content_sha256": _content(row)}
    return by_id


def _content(row: Row) -> str:
    """Names what a reviewer looks at, whatever the letters: another wording needs another look."""
    truth, *others = options_of(row)
    shown = [row["question"], truth, sorted(others), row["image_sha256"]]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()


def _questions(config: ScoreQuestions, rows: Sequence[Row]) -> Iterator[pa.Table]:
    for start in range(0, len(rows), IMAGES_AT_ONCE):
        part = []
        for row in rows[start : start + IMAGES_AT_ONCE]:
            path = Path(row["image_file"])
            part.append(
                {
                    "question_id": row["thread_key"],
                    **{name: row[name] for name in _AS_THEY_ARE},
                    "options": row["texts"],
                    "truth_letter": LETTERS[row["place"]],
                    "image": {"bytes": path.read_bytes(), "path": path.name},
                    "writer": config.writer.annotator,
                    "judge": config.judge.annotator if row["preference"] == "language_model" else None,
                    "labeller": config.labeller.annotator,
                    "source": config.source.name,
                }
            )
        yield _table(QUESTIONS.schema, part)
    if not rows:
        yield QUESTIONS.schema.empty_table()


_AS_THEY_ARE = (
    "split", "question", "preference", "category", "subcategory", "difficulty", "image_sha256", "width", "height",
    "content_sha256", "request_key",
)  # fmt: skip


def _options(row: Row) -> Iterator[Row]:
    comments = {option["text"]: option for option in row["options"]}
    for letter, text in zip(LETTERS, row["texts"], strict=False):
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
    names = ("split", "author_id", "year", "words", "comments", "tied", "image_from", "detector", "score_confidence",
             "staves")  # fmt: skip
    return {
        "question_id": row["thread_key"],
        **{name: row[name] for name in names},
        "forum": row["forum"],
        "best_votes": max(comment["score"] for comment in row["best_comments"]),
        "source": config.source.name,
    }


def _review_files(verdicts: Sequence[Verdict], refused: Sequence[Reject], contents: Mapping[str, str]) -> Account:
    rejects = [(REVIEWS.name, reject) for reject in refused]
    stale = sum(not applies(verdict, contents) for verdict in verdicts)
    note = f"{stale} of {len(verdicts)} reviews are of questions that read otherwise now, or are none: not counted"
    return Account(
        name="review-files",
        unit="reviews",
        entered=len(verdicts) + len(refused),
        kept=len(verdicts),
        rejects=rejects,
        sources=came_in((verdict.file for verdict in verdicts), rejects),
        table=REVIEWS.name,
        notes=[note] if stale else [],
    )


def _why_flagged(flags: Sequence[Verdict]) -> str:
    words = [f"{verdict.reviewer} says {', '.join(_flags(verdict))}" for verdict in flags]
    return f"expected no flag, found {len(flags)}: {'; '.join(words)}"


def _flags(verdict: Verdict) -> list[str]:
    """What speaks against the question, in words."""
    return [
        f"{'not ' if flag is False else ''}{name}" for name, flag in FLAGS_WHEN.items() if verdict.answers[name] is flag
    ]


def _review(config: ScoreQuestions, verdict: Verdict, contents: Mapping[str, str]) -> Row:
    return {
        "question_id": verdict.question_id,
        "reviewer": verdict.reviewer,
        **verdict.answers,
        "flagged": verdict.flagged,
        "note": verdict.note,
        "applies": applies(verdict, contents),
        "file": verdict.file,
        "line": verdict.line,
        "source": config.source.name,
    }


def _table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)
