"""The walk of one thread: what is asked, what is kept, and where it is given up; and what a dry run expects of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from earmark.flows.score_questions import build
from earmark.schemas.score_questions import CORPUS, ScoreQuestions
from earmark.tasks.annotation.outcome import Answer, Outcome, Reject
from earmark.tasks.annotation.request import Request
from earmark.tasks.build.ask import Ask, Asker, GivenUp, Row
from earmark.tasks.build.forecast import forecast
from earmark.tasks.score_questions.forum import images, measuring
from earmark.tasks.score_questions.writing import write_questions
from earmark.tasks.store.versions import open_store
from tests.score_questions.forum.threads_of import SALT, comment, forum_config, submission, write_dump
from tests.score_questions.questions import BUILTIN

CLAUSES = (
    "The dash prolongs the note",
    "The dot shortens the note",
    "The slur joins both notes",
    "A turn ornaments it",
)
LABELS = {"taxonomy": {"category": "Form", "subcategory": "phrase structure"}, "difficulty": {"difficulty": "easy"}}
Fates = dict[str, Any]


def thread(*scores: int) -> Row:
    """A row of the pool, whose comments have these scores."""
    comments = [{"comment_key": f"c{n}", "text": CLAUSES[n], "score": score} for n, score in enumerate(scores)]
    image = {"image_sha256": "0" * 64, "image_file": "none.png", "extension": "png"}
    return {"thread_key": "t", "title": "A dash?", "text": "", "best_comments": comments, **image}


def good(name: str, row: Row) -> Any:
    """An answer that passes each check."""
    if name == "rewrite":
        options = [{"comment": n, "text": one["text"]} for n, one in enumerate(row["best_comments"], 1)]
        return {"usable": True, "why": "", "question": "What does the dash mean?", "options": options}
    if name == "distract":
        wrong = {"Option A": "A fermata silences the whole bar", "Option B": "Trills repeat every second beat"}
        return dict(list(wrong.items())[: row["lacks"]])
    return "B" if name == "settle" else LABELS[row["label"]]


def lead(row: Row, fates: Fates | None = None, **questions: Any) -> tuple[Row, Counter[str]]:
    """What comes of a thread, and how often each ask was asked; `fates` has other answers by ask or label."""
    config = forum_config(Path(), questions=questions)
    asked: Counter[str] = Counter()

    async def put(ask: Ask[Any], role: str, about: Row, request: Request) -> Outcome:
        name = about.get("label", ask.name)
        asked[name] += 1
        value = (fates or {}).get(name, good(ask.name, about))
        return Reject(request.key, value, "no", final=True) if value == "refused" else Answer(request.key, value)

    asker = Asker[ScoreQuestions](config, 0, write_questions.columns, put)
    return asyncio.run(write_questions.function(asker, row)), asked


def test_what_people_decided_no_judge_is_asked() -> None:
    question, asked = lead(thread(9, 3, 2, 1))
    assert asked == {"rewrite": 1, "taxonomy": 1, "difficulty": 1}
    assert (question["truth_text"], question["other_texts"]) == (CLAUSES[0], list(CLAUSES[1:]))
    assert (question["preference"], question["tied"], question["distractors"]) == ("human", 1, [])
    assert [question[name] for name in ("category", "subcategory", "difficulty")] == [
        "Form", "phrase structure", "easy"
    ]  # fmt: skip


def test_a_judge_chooses_among_those_that_tie() -> None:
    question, asked = lead(thread(1, 5, 5, 2))
    assert asked["settle"] == 1
    assert (question["truth_text"], question["preference"], question["tied"]) == (CLAUSES[2], "language_model", 2)


SHORT = {"Option A": "A fermata silences the whole bar", "Option B": "Too short"}
MANY_WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
OTHER = {"category": "Form", "subcategory": "polyphonic"}


def test_what_can_be_used_of_the_last_distractors_is_kept() -> None:
    question, asked = lead(thread(9, 3), {"distract": SHORT})
    assert asked["distract"] == 3
    assert question["distractors"] == [SHORT["Option A"]]


@pytest.mark.parametrize(
    ("fates", "questions", "end"),
    [
        ({"rewrite": "refused"}, {}, ("rewrite", "refused", "no")),
        (
            {"rewrite": {"usable": False, "why": " only\n a joke"}},
            {},
            ("rewrite", "unusable", "the writer finds no question in it: only a joke"),
        ),
        ({"distract": "refused"}, {}, ("distract", "refused", "no")),
        (
            {"distract": SHORT},
            {"least_options": 4},
            ("distract", "distractor_length", "expected 5 to 10 words, found 2: 'Too short'; asked 3 times"),
        ),
        ({"taxonomy": OTHER, "difficulty": "refused"}, {"tries": 1}, ("label", "other_category", None)),
        ({"difficulty": "refused"}, {}, ("label", "refused", "no")),
    ],
)
def test_where_a_thread_is_given_up(fates: Fates, questions: Fates, end: tuple[str, str, str | None]) -> None:
    with pytest.raises(GivenUp) as caught:
        lead(thread(9, 3), fates, **questions)
    stage, reason, detail = end
    assert (caught.value.stage, caught.value.reason) == (stage, reason)
    assert detail in (None, caught.value.detail)


def test_a_right_option_that_its_length_gives_away_is_given_up() -> None:
    row = thread(9, 3, 2)
    row["best_comments"][0]["text"] = MANY_WORDS
    with pytest.raises(GivenUp) as caught:
        lead(row)
    assert (caught.value.stage, caught.value.reason) == ("distract", "longer_is_right")


def test_a_dry_run_takes_each_image_for_a_score_and_downloads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    write_dump(tmp_path / "RS.ndjson", [submission(number) for number in range(4)])
    scores = ([5, 5, 1], [9, 4, 3, 2, 1], [2, 2, 2, 2], [3, 2, 1])  # two ties; two threads with fewer than four answers
    answers = [
        comment(100 * number + place, number, score=score)
        for number, row in enumerate(scores)
        for place, score in enumerate(row)
    ]
    write_dump(tmp_path / "RC.ndjson", answers)

    def fails(*_: Any, **__: Any) -> Any:
        raise AssertionError("a dry run looks at nothing")

    called: list[tuple[Any, str, Callable[..., Any]]] = [
        (images, "download", fails), (images, "open_detector", fails), (measuring, "open_detector", fails)
    ]  # fmt: skip
    for module, name, function in called:
        monkeypatch.setattr(module, name, function)
    story = build.story  # type: ignore[attr-defined]
    facts = forecast(CORPUS, story, forum_config(tmp_path, **BUILTIN), open_store(str(tmp_path / "store")))
    assert facts is not None
    counts = {facts["stage"]: facts["requests"]} | {
        name: facts[name]["requests"] for name in ("settle", "distract", "label")
    }
    assert counts == {"rewrite": 4, "settle": 2, "distract": 2, "label": 8}
    assert (facts["about"], facts["tries"], facts["settle"]["tries"]) == ("4 threads", 3, 1)
    assert not list((tmp_path / "store").rglob("*.parquet"))
