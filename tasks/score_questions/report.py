"""Build the report sections of `score-questions`: content, form, reviews, questions."""

import io

from PIL import Image

from earmark.schemas.score_questions import ScoreQuestion
from earmark.tasks.pipeline.report import Material, count, histogram, sample, shares
from earmark.tasks.score_questions.reading import grid_of
from earmark.tasks.score_questions.review_agreement import agreement_tables, agreements, alphas
from earmark.tasks.score_questions.reviews import CRITERIA, ReviewerVerdict
from earmark.tasks.score_questions.tables import kinds_read
from earmark.tasks.store.figures import Browser, Picture, Row, Section
from earmark.tasks.store.result_table import ResultTable, percent
from earmark.tasks.store.sql import query

SHOWN_PIXELS = (720, 540)
MOST_PICTURE_BYTES = 6_000_000  # pictures of a page, before base64 (a third more)


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    parts = [_about(material), _form(material), _scores(material)]
    if read := kinds_read(material.stage):
        parts.append(Section("Whether wrong options could be right", (grid_of(read),)))
    if count(db, "reviews"):
        parts.append(_reviews(material))
    return [*parts, Section("Questions", (_browser(material),))]


def _about(material: Material) -> Section:
    db = material.db
    rows = db.execute(query("score_questions/shown_topics")).fetchall()
    columns = ("category", "subcategory", "questions", "easy", "medium", "hard", percent("human preference"))
    return Section(
        "What is asked",
        (
            shares(db, "questions", "category", "Questions by category"),
            shares(db, "questions", "difficulty", "Questions by difficulty"),
            shares(db, "questions", "preference", "Who decided which option is right"),
            ResultTable("Categories and subcategories", columns, tuple(rows)),
        ),
    )


def _form(material: Material) -> Section:
    """Tabulate cues of form usable without understanding."""
    rows = material.db.execute(query("score_questions/shown_letters")).fetchall()
    positions = ResultTable(
        "Where the right option stands",
        ("options", "letter", "questions", percent("share"), percent("by chance")),
        tuple(rows),
        "Each letter should be right equally often.",
    )
    lengths = material.db.execute(query("score_questions/shown_lengths")).fetchall()
    given_away = ResultTable(
        "Whether length gives the right option away",
        ("options", "questions", percent("right one longest"), percent("right one shortest"), percent("by chance")),
        tuple(lengths),
        "By chance, if options were as long as each other on average; ties count as neither.",
    )
    return Section("Whether form gives answers away", (positions, given_away))


def _scores(material: Material) -> Section:
    db = material.db
    figures = (
        histogram(
            db, "sources", "score_confidence", "How sure the detector was that an image is a score", unit="1 is sure"
        ),
        histogram(db, "sources", "staves", "Staves found in an image", unit="staves"),
        histogram(db, "sources", "best_votes", "Votes of the best comment", unit="ups less downs"),
        shares(db, "sources", "year", "Threads by year"),
    )
    return Section("Threads and scores", figures)


def _reviews(material: Material) -> Section:
    db = material.db
    names = ("question_id", "reviewer", *CRITERIA, "file", "line")
    reviews = db.execute(f"SELECT {', '.join(names)} FROM reviews WHERE applies ORDER BY ALL").fetchall()
    verdicts = [
        ReviewerVerdict(row[0], "", row[1], dict(zip(CRITERIA, row[2:6], strict=True)), None, row[6], row[7])
        for row in reviews
    ]
    tables = agreement_tables(agreements(verdicts), alphas(verdicts))
    return Section("Reviews", (shares(db, "reviews", "flagged", "Reviews that flag a question"), *tables))


def _browser(material: Material) -> Browser:
    db = material.db
    rows = []
    size = 0
    questions: list[ScoreQuestion] = sample(db, "questions", "question_id", by="subcategory")
    for row in questions:
        assert row["image"] is not None  # as this build wrote it
        picture = _picture(row["image"]["bytes"], row["question_id"])
        size += len(picture.content)
        options = "\n".join(
            f"{letter}. {text}{'  ✓' if letter == row['truth_letter'] else ''}"
            for letter, text in zip("ABCDEFGH", row["options"], strict=False)
        )
        rows.append(
            Row(
                row["question_id"],
                {name: row[name] for name in ("category", "subcategory", "difficulty", "preference", "split")},
                {"written by": row["writer"], "labelled by": row["labeller"]},
                {"question": row["question"], "options": options},
                pictures=(picture,) if size <= MOST_PICTURE_BYTES else (),
            )
        )
    return Browser("questions", tuple(rows), count(db, "questions"))


def _picture(content: bytes, name: str) -> Picture:
    """Return the score, grey and small: a page holds sixty."""
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("L")
        small.thumbnail(SHOWN_PIXELS)
        out = io.BytesIO()
        small.save(out, "PNG", optimize=True)
    return Picture(f"The score of question {name}", out.getvalue(), "image/png")
