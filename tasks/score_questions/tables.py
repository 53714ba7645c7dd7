"""Write the published tables: assign letters, apply reviews, embed images, account for every thread."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pydantic import TypeAdapter

from earmark.schemas.places import without_place
from earmark.schemas.reasons import Reject
from earmark.schemas.score_questions import OPTIONS, QUESTIONS, REVIEWS, SOURCES, TRANSCRIPTS, ScoreQuestions
from earmark.schemas.tables import SPLITS, UNSPLIT, Table
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.step import Account, Done, came_in, step
from earmark.tasks.pipeline.walk import Walked
from earmark.tasks.score_questions.checks import check_left, words_of
from earmark.tasks.score_questions.deletion import content_of, without_deleted
from earmark.tasks.score_questions.option_order import LETTERS, in_order, right_places
from earmark.tasks.score_questions.reading import Kind, account_of, kinds_of, readings_of
from earmark.tasks.score_questions.requests import options_of
from earmark.tasks.score_questions.reviews import (
    FLAGS_WHEN,
    ReviewerVerdict,
    applies,
    gather_reviews,
    latest,
    left_out,
)
from earmark.tasks.score_questions.rows import LabelledQuestion, LetteredQuestion
from earmark.tasks.score_questions.transcripts import read_transcripts
from earmark.tasks.score_questions.writing import STAGES
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.languages import language_of

IMAGES_AT_ONCE = 64


@step("review", unit="submissions", follows=STAGES[-1], table=QUESTIONS.name, final=True, label="write questions")
def write_tables(stage: Stage, config: ScoreQuestions, written: Walked) -> Done[list[Kind]]:
    """Write `questions`, `options`, `sources` and `reviews`; reject threads without a question.

    Returns:
        The readings of options, by kind; empty without a reader.

    Raises:
        InputError: a review file cannot be read.
    """
    results: Iterable[tuple[int, LabelledQuestion]] = written.results()
    drafts = {question["thread_key"]: question for _, question in results}
    files = [(config.path(name), without_place(name)) for name in config.review]
    readings = readings_of(written)
    verdicts, refused = gather_reviews(files)
    by_id: dict[str, list[ReviewerVerdict]] = defaultdict(list)
    for verdict in verdicts:
        by_id[verdict.question_id].append(verdict)
    left = {name: without_deleted(row, by_id[name]) for name, row in drafts.items()}
    contents = {name: one.contents for name, one in left.items()}
    questions = _with_letters([one.row for one in left.values()], config.seed)
    faults = {name: check_left(options_of(one.row)) for name, one in left.items()}
    spoilt = {name: fault for name, fault in faults.items() if fault and left[name].rejects}
    counted = latest(verdicts, contents)
    flagged = left_out([verdict for verdict in counted if applies(verdict, contents)], "any")
    published = [row for name, row in questions.items() if name not in flagged and name not in spoilt]
    as_right = {(one.thread, one.option): one.may_be_right for one in readings if one.ask == "check"}
    transcripts, transcribed = read_transcripts(config, published)
    for split in SPLITS:
        rows = [row for row in published if row["split"] == split]
        stage.write(QUESTIONS, split, _questions(config, rows))
        _write(stage, OPTIONS, split, [option for row in rows for option in _options(row, as_right)])
        _write(stage, SOURCES, split, [_source(config, row) for row in rows])
        _write(stage, TRANSCRIPTS, split, [row for row in transcripts if row["split"] == split])
    _write(stage, REVIEWS, UNSPLIT, [_review(config, one, contents) for one in counted])
    for table in (QUESTIONS, OPTIONS, SOURCES, REVIEWS, TRANSCRIPTS):
        stage.drop_empty_splits(table)
    stages = [name for name in STAGES if name != "check" or config.reader]
    first, *others = written.accounts(stages, lambda thread, *why: _reject(thread["thread_key"], *why))
    rejects = [
        _reject(name, "flagged", _why_flagged(flags), [verdict.reviewer for verdict in flags])
        for name, flags in sorted(flagged.items())
    ]
    rejects += [
        _reject(name, *fault, left[name].reviewers) for name, fault in sorted(spoilt.items()) if name not in flagged
    ]
    deleted = [reject for _, one in sorted(left.items()) for reject in one.rejects]
    shown = sum(len(options_of(row)) for row in drafts.values())
    return Done(
        kinds_of(readings),
        replace(first, follows="scores"),
        *others,
        *([account_of(readings)] if config.reader else []),
        *([Account(shown, shown - len(deleted), deleted, name="deletions", unit="options")] if deleted else []),
        *([_review_files(verdicts, counted, refused, contents)] if files else []),
        *transcribed,
        Account(len(questions), len(published), rejects),
    )


def _write(stage: Stage, table: Table, split: str, rows: list[Row]) -> None:
    stage.write(table, split, [pa.Table.from_pylist(rows, table.schema)])


def kinds_read(stage: Stage) -> list[Kind]:
    """Return the readings of a build's options, by kind; empty without a reader."""
    text = stage.output(write_tables.name)
    return [] if text is None else TypeAdapter(list[Kind]).validate_json(text)


def decided(stage: Stage) -> dict[str, str]:
    """Write the card's section on who decided which option is right (WildScore, Table 2)."""
    rows = stage.rows(QUESTIONS, ["preference"])
    counts = Counter(row["preference"] for row in rows)
    people, model = counts["human"], counts["language_model"]
    said = f"People's votes decided {people:,} of {len(rows):,} questions; a language model decided {model:,} ties."
    return {"Who decided which option is right": said}


def _reject(thread: str, reason: str, detail: str, reviewers: Sequence[str] = ()) -> tuple[str, Reject]:
    who = tuple(("annotator", reviewer) for reviewer in reviewers)
    return QUESTIONS.name, Reject(thread, reason, detail, "", None, made_from=who)


def _with_letters(questions: Sequence[LabelledQuestion], seed: int) -> dict[str, LetteredQuestion]:
    """Return questions by id, with their options in the order of the letters, and their content hash."""
    places = right_places({row["thread_key"]: len(options_of(row)) for row in questions}, seed)
    by_id: dict[str, LetteredQuestion] = {}
    for row in questions:
        name, (truth, *others) = row["thread_key"], options_of(row)
        texts = in_order(name, truth, others, places[name], seed)
        by_id[name] = {**row, "texts": texts, "place": places[name], "content_sha256": content_of(row)}
    return by_id


def _questions(config: ScoreQuestions, rows: Sequence[LetteredQuestion]) -> Iterator[pa.Table]:
    for start in range(0, len(rows), IMAGES_AT_ONCE):
        part = []
        for row in rows[start : start + IMAGES_AT_ONCE]:
            path = Path(row["image_file"])
            part.append(
                {
                    **row,
                    "question_id": row["thread_key"],
                    "options": row["texts"],
                    "truth_letter": LETTERS[row["place"]],
                    "image": {"bytes": path.read_bytes(), "path": path.name},
                    "writer": config.writer.annotator,
                    "judge": config.judge.annotator if row["preference"] == "language_model" else None,
                    "labeller": config.labeller.annotator,
                    "source": config.source.name,
                    "language": language_of(row["question"]),
                }
            )
        yield pa.Table.from_pylist(part, QUESTIONS.schema)
    if not rows:
        yield QUESTIONS.schema.empty_table()


def _options(row: LetteredQuestion, as_right: Mapping[tuple[str, str], bool | None]) -> Iterator[Row]:
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
            "may_be_right": as_right.get((row["thread_key"], text)),
        }


def _source(config: ScoreQuestions, row: LetteredQuestion) -> Row:
    return {
        **row,
        "question_id": row["thread_key"],
        "best_votes": max(comment["score"] for comment in row["best_comments"]),
        "source": config.source.name,
    }


def _review_files(
    verdicts: Sequence[ReviewerVerdict],
    counted: Sequence[ReviewerVerdict],
    refused: Sequence[Reject],
    contents: Mapping[str, tuple[str, ...]],
) -> Account:
    rejects = [(REVIEWS.name, reject) for reject in refused]
    stale = sum(not applies(verdict, contents) for verdict in counted)
    note = f"{stale} of {len(counted)} reviews are of questions that read otherwise now, or are none: not counted"
    return Account(
        name="review-files",
        unit="reviews",
        entered=len(verdicts) + len(refused),
        kept=len(counted),
        rejects=rejects,
        filtered={"of an earlier wording": len(verdicts) - len(counted)},
        sources=came_in((verdict.file for verdict in verdicts), rejects),
        table=REVIEWS.name,
        notes=[note] if stale else [],
    )


def _why_flagged(flags: Sequence[ReviewerVerdict]) -> str:
    words = []
    for verdict in flags:
        against = (name for name, flag in FLAGS_WHEN.items() if verdict.answers[name] is flag)
        named = (name if FLAGS_WHEN[name] else f"not {name}" for name in against)
        words.append(f"{verdict.reviewer} says {', '.join(named)}")
    return f"expected no flag, found {len(flags)}: {'; '.join(words)}"


def _review(config: ScoreQuestions, verdict: ReviewerVerdict, contents: Mapping[str, tuple[str, ...]]) -> Row:
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
