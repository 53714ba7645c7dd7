"""The walk of one thread: what is asked, what is kept, and where it is given up; and what a dry run expects of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from earmark.flows.score_questions import build
from earmark.schemas.questions import Image, Text
from earmark.schemas.score_questions import CORPUS, ScoreQuestions
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered
from earmark.tasks.pipeline.ask import Ask, Asker, GivenUp, Row
from earmark.tasks.score_questions.forum import images
from earmark.tasks.score_questions.writing import CHECK, CONTRADICT, write_questions
from earmark.tasks.store.versions import open_store
from tests.builds import forecast
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
    comments = [
        {"comment_key": f"c{n}", "text": CLAUSES[n], "score": score, "unripe": False} for n, score in enumerate(scores)
    ]
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
    if name in ("contradict", "check"):
        return "Yes" if name == "contradict" or row["kind"] == "truth" else "No"
    return "B" if name == "settle" else LABELS[row["label"]]


def lead(row: Row, fates: Fates | None = None, **questions: Any) -> tuple[Row, Counter[str]]:
    """What comes of a thread, and how often each ask was asked, save the reader's; `fates` has other answers by ask,
    label or an option that is read.
    """
    config = forum_config(Path(), questions={"wrong": "comments", **questions}, reader=BUILTIN["reader"])
    asked: Counter[str] = Counter()

    async def put(ask: Ask[Any], role: str, about: Row, request: Request) -> Outcome:
        name = about.get("label", ask.name)
        asked.update([name] if role != "reader" else [])
        name = f"{name} {about['option']}" if role == "reader" else name
        value = (fates or {}).get(name, good(ask.name, about))
        return Unanswered(request.key, value, "no", final=True) if value == "refused" else Answer(request.key, value)

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


WRITTEN = {
    "Option A": "A fermata silences the whole bar",
    "Option B": "Trills repeat every second beat",
    "Option C": "An accent raises the third voice",
}


def test_letters_of_the_writer_reach_no_option() -> None:
    texts = [{"comment": n, "text": f"{'ABC'[n - 1]}. {CLAUSES[n - 1]}"} for n in (1, 2, 3)]
    draft = {"usable": True, "why": "", "question": "What does the dash mean?", "options": texts}
    question, _ = lead(thread(9, 3, 2), {"rewrite": draft, "distract": {"Option A": "A. A fermata silences the bar"}})
    assert [question["truth_text"], *question["other_texts"]] == list(CLAUSES[:3])
    assert question["distractors"] == ["A fermata silences the bar"]


def test_a_refusal_in_place_of_a_question_is_none() -> None:
    draft = good("rewrite", thread(9, 3, 2, 1)) | {"question": "I'm sorry, I cannot help with writing this question."}
    with pytest.raises(GivenUp) as caught:
        lead(thread(9, 3, 2, 1), {"rewrite": draft})
    assert (caught.value.stage, caught.value.reason) == ("rewrite", "refused")


def test_a_second_comment_that_is_right_is_no_wrong_option() -> None:
    row = thread(9, 8, 2)
    row["best_comments"][1]["text"] = (
        "It holds each note longer than written"  # what the best comment says, in other words
    )
    question, asked = lead(row, {"distract": WRITTEN}, wrong="written")
    assert asked == {"rewrite": 1, "distract": 1, "taxonomy": 1, "difficulty": 1}
    assert (question["truth_text"], question["other_texts"]) == (CLAUSES[0], [])
    assert question["distractors"] == list(WRITTEN.values())


def test_a_comment_that_lost_a_tie_is_no_wrong_option() -> None:
    question, asked = lead(thread(5, 5, 2), {"distract": WRITTEN}, wrong="written")
    assert (asked["settle"], asked["distract"]) == (1, 1)
    assert (question["truth_text"], question["preference"], question["tied"]) == (CLAUSES[1], "language_model", 2)
    assert (question["other_texts"], question["distractors"]) == ([], list(WRITTEN.values()))


def test_a_comment_that_lost_a_tie_is_not_written_again() -> None:
    lost = f"{CLAUSES[0]}!"
    question, asked = lead(thread(5, 5, 2), {"distract": {**WRITTEN, "Option A": lost}}, wrong="written")
    assert (question["truth_text"], asked["distract"]) == (CLAUSES[1], 3)
    assert question["distractors"] == [WRITTEN["Option B"], WRITTEN["Option C"]]
    short = {"Option A": lost, "Option B": WRITTEN["Option B"]}
    with pytest.raises(GivenUp) as caught:
        lead(thread(5, 5, 2), {"distract": short}, wrong="written")
    assert (caught.value.stage, caught.value.reason) == ("distract", "options_alike")


SHORT = {"Option A": "A fermata silences the whole bar", "Option B": "Too short"}
MANY_WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
OTHER = {"category": "Form", "subcategory": "polyphonic"}


def test_what_can_be_used_of_the_last_distractors_is_kept() -> None:
    question, asked = lead(thread(9, 3), {"distract": SHORT})
    assert asked["distract"] == 3
    assert question["distractors"] == [SHORT["Option A"]]


@pytest.mark.parametrize(
    ("fates", "wrong", "end"),
    [
        ({"rewrite": "refused"}, "comments", ("rewrite", "refused", "no")),
        (
            {"rewrite": {"usable": False, "why": " only\n a joke"}},
            "comments",
            ("rewrite", "unusable", "the writer finds no question in it: only a joke"),
        ),
        ({"distract": "refused"}, "comments", ("distract", "refused", "no")),
        (
            {"distract": SHORT},
            "written",
            ("distract", "option_length", "expected 5 to 10 words, found 2: 'Too short'; asked 3 times"),
        ),
        ({"taxonomy": OTHER, "difficulty": "refused"}, "comments", ("label", "other_category", None)),
        ({"difficulty": "refused"}, "comments", ("label", "refused", "no")),
    ],
)
def test_where_a_thread_is_given_up(fates: Fates, wrong: str, end: tuple[str, str, str | None]) -> None:
    with pytest.raises(GivenUp) as caught:
        lead(thread(9, 3), fates, wrong=wrong)
    stage, reason, detail = end
    assert (caught.value.stage, caught.value.reason) == (stage, reason)
    assert detail in (None, caught.value.detail)


def test_a_right_option_that_its_length_gives_away_is_given_up() -> None:
    row = thread(9, 3, 2)
    row["best_comments"][0]["text"] = MANY_WORDS
    with pytest.raises(GivenUp) as caught:
        lead(row)
    assert (caught.value.stage, caught.value.reason) == ("distract", "longer_is_right")


def test_what_could_be_right_leaves_the_question() -> None:
    fates = {f"contradict {CLAUSES[1]}": "No", f"check {CLAUSES[2]}": "Yes", "distract": WRITTEN}
    question, asked = lead(thread(9, 3, 2, 1), fates)
    assert asked["distract"] == 1  # what does not contradict makes room before wrong options are written
    assert question["other_texts"] == [CLAUSES[3]]
    assert question["distractors"] == list(WRITTEN.values())[:1]


def test_an_option_about_which_the_reader_says_nothing_leaves() -> None:
    question, _ = lead(thread(9, 3, 2, 1), {f"check {CLAUSES[3]}": "refused", f"check {CLAUSES[0]}": "refused"})
    assert (question["truth_text"], question["other_texts"]) == (CLAUSES[0], list(CLAUSES[1:3]))


def test_a_question_left_with_too_few_options_is_given_up() -> None:
    fates = {f"check {clause}": "Yes" for clause in CLAUSES[2:]}
    with pytest.raises(GivenUp, match="expected at least 3 options, found 2 left") as caught:
        lead(thread(9, 3, 2, 1), fates)
    assert (caught.value.stage, caught.value.reason) == ("check", "too_few_options")


def test_options_that_are_left_do_not_give_the_right_one_away() -> None:
    row = thread(9, 3, 2, 1)
    row["best_comments"][0]["text"] = "one two three four five six seven eight nine ten"
    row["best_comments"][1]["text"] = "The slur which is here joins two old notes now"
    with pytest.raises(GivenUp, match="longer_is_right") as caught:
        lead(row, {"check The slur which is here joins two old notes now": "Yes"})
    assert caught.value.stage == "check"


def test_the_reader_is_not_shown_which_option_is_right() -> None:
    shown = [words(thread(9, 3, 2, 1), name) for name in ("check", "contradict")]
    assert [CLAUSES[0] in text for text in shown] == [False, True]
    assert all(CLAUSES[1] in text and CLAUSES[2] not in text for text in shown)


def words(row: Row, name: str) -> str:
    """All that a reader gets about the second comment."""
    config = forum_config(Path(), reader=BUILTIN["reader"])
    about = {**row, "question": "What is it?", "truth_text": CLAUSES[0], "option": CLAUSES[1]}
    ask = {"check": CHECK, "contradict": CONTRADICT}[name]
    request = ask.pose(config, about).request
    assert [part for part in request.parts() if isinstance(part, Image)]
    return "\n".join(part.text for part in request.parts() if isinstance(part, Text))


def test_comments_need_a_reader() -> None:
    with pytest.raises(ValueError, match=r"needs a \[reader\]"):
        forum_config(Path(), questions={"wrong": "comments"})


RIGHT, CONTRADICTS, TELLS, ALARMS = 0.5, {True: 0.4, False: 0.9}, 0.6, 0.1
"""How often a second comment is right; how often the reader says of a right one and of a wrong one that it contradicts;
how often it knows a right option; how often it takes a wrong one for right."""


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["comments", "written"])
def test_second_right_options_are_as_rare_as_the_readers_errors_let_them_be(wrong: str) -> None:
    """A simulated forum and writer, half of whose second options are right, and a reader with known rates of error."""
    config = forum_config(Path(), questions={"wrong": wrong}, reader=BUILTIN["reader"])
    draw = random.Random(5)
    second, kept, drawn = "That sign prolongs the first note", Counter[bool](), Counter[bool]()

    def chance(share: float) -> bool:
        return draw.random() < share

    async def question(number: int) -> None:
        right = chance(RIGHT)
        drawn[right] += 1

        async def put(ask: Ask[Any], role: str, about: Row, request: Request) -> Outcome:
            value = good(ask.name, about)
            if ask.name == "distract":
                texts = [*([second] if wrong == "written" else []), *WRITTEN.values()]
                value = dict(zip(WRITTEN, texts[: about["lacks"]], strict=False))
            is_right = about.get("kind") == "truth" or (right and about.get("option") == second)
            if ask.name == "contradict":
                value = "Yes" if chance(CONTRADICTS[is_right]) else "No"
            if ask.name == "check":
                value = "Yes" if chance(TELLS if is_right else ALARMS) else "No"
            return Answer(request.key, value)

        row = thread(9, 3)
        if wrong == "comments":
            row["best_comments"][1]["text"] = second
        made = await write_questions.function(Asker[ScoreQuestions](config, number, write_questions.columns, put), row)
        kept[right] += second in (*made["other_texts"], *made["distractors"])

    async def all_questions() -> None:
        for number in range(700):
            with suppress(GivenUp):  # all wrong options left: fewer than one in hundred, where nothing is kept anyway
                await question(number)

    asyncio.run(all_questions())
    passes = CONTRADICTS if wrong == "comments" else {True: 1.0, False: 1.0}
    for right, reads in ((True, 1 - TELLS), (False, 1 - ALARMS)):
        share = passes[right] * reads
        spread = (share * (1 - share) / drawn[right]) ** 0.5
        assert kept[right] / drawn[right] == pytest.approx(share, abs=4 * spread)
    expected = RIGHT * passes[True] * (1 - TELLS)
    others = (1 - RIGHT) * passes[False] * (1 - ALARMS)
    assert kept[True] / kept.total() == pytest.approx(expected / (expected + others), abs=0.06)
    assert kept[True] / kept.total() < 0.4 < drawn[True] / drawn.total()  # without a reader, half would be right


@pytest.mark.parametrize(("wrong", "distract"), [("written", 4), ("comments", 2)])
def test_a_dry_run_takes_each_image_for_a_score_and_downloads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, distract: int
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
        (images, "download", fails), (images, "open_detector", fails)
    ]  # fmt: skip
    for module, name, function in called:
        monkeypatch.setattr(module, name, function)
    story = build.story  # type: ignore[attr-defined]
    facts = forecast(
        CORPUS,
        story,
        forum_config(tmp_path, **BUILTIN, questions={"wrong": wrong}),
        open_store(str(tmp_path / "store")),
    )
    assert facts is not None
    counts = {facts["stage"]: facts["requests"]} | {
        name: facts[name]["requests"] for name in ("settle", "distract", "check", "label")
    }
    assert counts == {"rewrite": 4, "settle": 2, "distract": distract, "check": 16, "label": 8}
    assert (facts["about"], facts["tries"], facts["settle"]["tries"]) == ("4 threads", 3, 1)
    assert not list((tmp_path / "store").rglob("*.parquet"))
