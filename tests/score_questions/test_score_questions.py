"""`score-questions`: threads become questions, with every thread accounted for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.score_questions import CATEGORIES, Questions
from earmark.tasks.score_questions.builtin import score_writer
from earmark.tasks.score_questions.checks import (
    alike,
    check_left,
    check_options,
    given_away,
    good_distractors,
    speaks_of_options,
    without_letters,
)
from earmark.tasks.score_questions.option_order import in_order, right_places
from tests.score_questions.questions import BODIES, build_questions, config_of, rows_of, thread

TIE = [(BODIES[0], 5), (BODIES[1], 5), (BODIES[2], 1)]


def by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["question_id"]: row for row in rows}


def test_threads_become_questions(tmp_path: Path) -> None:
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(number) for number in range(12)])
    questions, options = rows_of(version, "questions"), rows_of(version, "options")
    assert len(questions) == 12
    for row in questions:
        own = [option for option in options if option["question_id"] == row["question_id"]]
        assert [option["text"] for option in own] == row["options"]
        assert [option["letter"] for option in own if option["correct"]] == [row["truth_letter"]]
        assert next(option["votes"] for option in own if option["correct"]) == 9
        assert row["preference"] == "human"
        assert row["judge"] is None
        assert row["subcategory"] in CATEGORIES[row["category"]]
        assert row["image"]["path"] == f"{row['image_sha256']}.png"
    letters = Counter(row["truth_letter"] for row in questions)
    assert max(letters.values()) - min(letters.values()) <= 1
    assert set(letters) == set("ABCD")


def test_no_other_comment_is_an_option_by_default(tmp_path: Path) -> None:
    config = config_of(tmp_path, questions={"wrong": Questions().wrong})
    assert Questions().wrong == config.questions.wrong == "written"
    comments = [("The dash holds the note to its end", 5), (BODIES[1], 5), (BODIES[2], 1)]
    rows = [thread(1, comments=comments), thread(2, comments=comments[::-1]), thread(3, comments=comments[::2])]
    version = build_questions(config, tmp_path / "store", rows)
    options = rows_of(version, "options")
    assert Counter(row["question_id"] for row in options) == dict.fromkeys(by_id(rows_of(version, "questions")), 4)
    assert [row["origin"] for row in options if row["correct"]] == ["comment"] * 3
    assert {row["origin"] for row in options if not row["correct"]} == {"distractor"}
    assert {row["comment_id"] for row in options if not row["correct"]} == {None}


def test_options_that_could_be_right_are_rejects_and_the_card_has_their_share(tmp_path: Path) -> None:
    """The builtin reader takes an answer that repeats the question's words for right, and repetition for agreement."""
    rows = [thread(number) for number in range(6)]
    repeats = "What does the dash above note 9 mean"
    rows.append(thread(9, comments=[(BODIES[0], 9), (BODIES[1], 8), (repeats, 7), (BODIES[2], 6)]))
    version = build_questions(config_of(tmp_path), tmp_path / "store", rows)
    (reject,) = rows_of(version, "rejects")
    assert (reject["table"], reject["item"], reject["reason"]) == ("options", f"{9:016x}", "may_be_right")
    assert repeats[:20] in reject["detail"]
    assert len(by_id(rows_of(version, "questions"))[f"{9:016x}"]["options"]) == 3
    (step,) = [step for step in version.manifest.steps if step.name == "options"]
    assert (step.entered, step.kept) == (21, 20)
    says = (version.folder / "README.md").read_text("utf-8")
    assert "Of 21 wrong options 1 left (4.8%)" in says
    assert "It did not write them." in says
    assert "People's votes decided 7 of 7 questions; a language model decided 0 ties." in says
    assert "Whether wrong options could be right" in (version.folder / "report.html").read_text("utf-8")
    assert {row["may_be_right"] for row in rows_of(version, "options")} == {False}


@pytest.mark.slow
def test_same_threads_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [thread(number) for number in range(5)]
    first = build_questions(config_of(tmp_path), tmp_path / "one", rows)
    again = build_questions(config_of(tmp_path), tmp_path / "two", rows[::-1])
    digests = [{file.path: file.sha256 for file in version.manifest.files} for version in (first, again)]
    assert digests[0] == digests[1]


def test_tie_is_settled_by_the_judge_and_says_so(tmp_path: Path) -> None:
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(1), thread(2, comments=TIE)])
    questions, sources = by_id(rows_of(version, "questions")), by_id(rows_of(version, "sources"))
    tied = f"{2:016x}"
    assert questions[tied]["preference"] == "language_model"
    assert questions[tied]["judge"] == "builtin:score-judge-1"
    assert {name: row["tied"] for name, row in sources.items()} == {f"{1:016x}": 1, tied: 2}
    assert {name: len(row["tied_options"]) for name, row in sources.items()} == {f"{1:016x}": 0, tied: 2}
    right = next(o for o in rows_of(version, "options") if o["question_id"] == tied and o["correct"])
    assert right["votes"] == 5


def test_few_comments_are_filled_up_with_distractors(tmp_path: Path) -> None:
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(1, comments=TIE[:2])])
    origins = Counter(option["origin"] for option in rows_of(version, "options"))
    assert origins == {"comment": 2, "distractor": 2}
    written = [option for option in rows_of(version, "options") if option["origin"] == "distractor"]
    assert all(5 <= option["words"] <= 10 and option["votes"] is None for option in written)


def test_thread_whose_best_answers_say_the_same_is_a_reject(tmp_path: Path) -> None:
    rows = [thread(1), thread(2, comments=[("Hm.", 3), ("Hm!", 3), (BODIES[0], 1)])]
    version = build_questions(config_of(tmp_path), tmp_path / "store", rows)
    (reject,) = rows_of(version, "rejects")
    assert (reject["item"], reject["stage"], reject["reason"]) == (f"{2:016x}", "rewrite", "unusable")
    assert len(rows_of(version, "questions")) == 1


def test_an_authors_threads_share_a_split(tmp_path: Path) -> None:
    config = config_of(tmp_path, shares={"train": 0.5, "test": 0.5})
    rows = [thread(number, author=f"{number % 6:016x}") for number in range(24)]
    sources = rows_of(build_questions(config, tmp_path / "store", rows), "sources")
    splits: dict[str, set[str]] = {}
    for row in sources:
        splits.setdefault(row["author_id"], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())
    assert {split for found in splits.values() for split in found} == {"train", "test"}


@given(st.dictionaries(st.text(max_size=8), st.integers(2, 8), max_size=60), st.integers(0, 9))
def test_every_place_is_dealt_equally_often(counts: dict[str, int], seed: int) -> None:
    places = right_places(counts, seed)
    assert places.keys() == counts.keys()
    for count in set(counts.values()):
        dealt = Counter(places[name] for name in counts if counts[name] == count)
        assert all(0 <= place < count for place in dealt)
        assert max(dealt.values()) - min(dealt[place] for place in range(count)) <= 1


@given(st.lists(st.text(min_size=1), min_size=1, max_size=7, unique=True), st.integers(0, 7), st.integers(0, 9))
def test_letters_keep_all_options(others: list[str], place: int, seed: int) -> None:
    place = min(place, len(others))
    options = in_order("q", "\x00truth", others, place, seed)
    assert options[place] == "\x00truth"
    assert sorted(options) == sorted(["\x00truth", *others])
    assert options == in_order("q", "\x00truth", others[::-1], place, seed)


@pytest.mark.parametrize(
    "text",
    [
        "All of the above",
        "none of these",
        "Both A and B",
        "neither a nor c.",
        "Option B is right",
        "Any of the options",
        "Both of them.",
        "None of those is right",
        "I think both (A) and (B) are correct",
        "As answer C says",
        "Both A and B apply",
        "Neither A nor B fits here",
        "All of those answers are right",
        "None of them apply",
        "Any of them could be right",
        "All of them are equally valid",
    ],
)
def test_options_about_options_are_seen(text: str) -> None:
    assert speaks_of_options(text)


@pytest.mark.parametrize(
    "text",
    ["It moves from A minor to C", "Both hands play the melody", "All notes are tied", "An answer in the dominant",
     "Both A and E belong to the tonic chord", "Neither F nor C is a chord tone", "The tenor answers a fifth below",
     "Either D or E sounds as a pedal", "Both of them resolve up by step", "The chord holds both C and E",
     "Both A and E fit the key"],
)  # fmt: skip
def test_statements_about_music_are_none(text: str) -> None:
    assert not speaks_of_options(text)


def test_options_alike() -> None:
    assert alike("It is a trill.", "it is a TRILL")
    assert alike(
        "The mark tells the player to hold this note longer", "This mark tells the player to hold the note longer!"
    )
    assert not alike("It is a major chord", "It is a minor chord")
    assert not alike("C#", "C")
    assert alike("A trill on the note", "a trill on the note")
    assert alike("Violins play thirds, above the violas and a horn", "Violins play thirds above violas and the horn")
    assert alike("I think it's a fugue", "i think it's a fugue")
    assert alike("It is a fugue", "IT IS A FUGUE")
    assert alike("It has a suspended fourth", "It Has A Suspended Fourth")


@pytest.mark.parametrize(
    ("one", "other"),
    [("The bass moves from V to I", "The bass moves from I to V"), ("Cm7", "CM7"), ("It is iv", "It is IV"),
     ("The left hand crosses over the right", "The right hand crosses over the left"),
     ("It goes from A to C", "It goes from C to A"),
     ("The bass line moves down from V to I here", "A bass line moves down from I to V here"),
     ("V7/ii, then vi", "V7/II, then vi"), ("F#m", "F#M")],
)  # fmt: skip
def test_the_same_words_may_say_another_thing(one: str, other: str) -> None:
    assert not alike(one, other)
    assert alike(one, one)
    assert check_options([one, other], 14) is None


def test_options_are_held_to_their_form() -> None:
    assert check_options(["One thing", "Another thing"], 14) is None
    assert check_options(["word " * 15, "Another thing"], 14).reason == "option_length"  # type: ignore[union-attr]
    assert check_options(["One thing", "one thing."], 14).reason == "options_alike"  # type: ignore[union-attr]
    assert check_options(["One thing", "None of the above"], 14).reason == "speaks_of_options"  # type: ignore[union-attr]


def test_distractors_are_sifted() -> None:
    truth = "It is a trill that begins on the upper note"
    written = ["It is a trill that begins on the upper note!", "Too short", "It is a mordent that begins below"]
    good, fault = good_distractors(written, truth, [], 3)
    assert good == ["It is a mordent that begins below"]
    assert fault is not None
    assert fault.reason == "options_alike"
    long = "word " * 14
    good, fault = good_distractors(["It lasts one beat only"], long, [], 1)
    assert fault is not None
    assert fault.reason == "longer_is_right"


TRUTH = "It is a dominant seventh chord in root position"
PLAIN = [
    "The chord is a plain tonic triad",
    "The passage stays within the home key",
    "A plagal cadence closes the phrase",
]


@pytest.mark.parametrize("letters", [("A. ", "B. ", "C) "), ("(A) ", "(B) ", "(C) "), ("a) ", "b) ", "c) ")])
def test_letters_before_options_go(letters: tuple[str, ...]) -> None:
    lettered = [letter + text for letter, text in zip(letters, PLAIN, strict=True)]
    assert good_distractors(lettered, TRUTH, [], 3) == (PLAIN, None)
    assert good_distractors(lettered[:1], TRUTH, PLAIN[1:], 1) == (PLAIN[:1], None)
    assert without_letters(lettered) == PLAIN


@pytest.mark.parametrize(
    "texts",
    [
        ["C: I-IV-V-I", "G: I-IV-V-I", "F: V-I-II-V"],
        ["D: dominant", "G: tonic", "C: subdominant"],
        ["A: the tonic note", "B: the leading note", "It is C"],
        ["A. Scarlatti", "D. Scarlatti", "J. S. Bach"],
        ["E. Power Biggs arranged it"],
        ["C major", "A minor", "G major"],
        ["C. Debussy wrote it", *PLAIN],
        ["C. P. E. Bach wrote it", "E. T. A. Hoffmann did"],
    ],
)
def test_names_of_notes_and_people_stay(texts: list[str]) -> None:
    assert without_letters(texts) == texts


@pytest.mark.parametrize(
    "text",
    [
        "The chord is a tonic triad (incorrect).",
        "Wrong: The passage stays in the home key.",
        "A plagal cadence closes it. (distractor)",
        "Incorrect answer: the chord is a triad",
        "The chord is a seventh chord [correct]",
    ],
)
def test_an_option_that_says_whether_it_is_right_is_none(text: str) -> None:
    good, fault = good_distractors([text, *PLAIN[:2]], TRUTH, [], 3)
    assert (good, fault and fault.reason) == (PLAIN[:2], "speaks_of_options")
    assert speaks_of_options(text)
    assert not speaks_of_options("A wrong note enters the chord (false relation)")


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, I cannot see the attached score.",
        "As an AI, I cannot answer this question.",
        "Unable to write this without an image.",
    ],
)
def test_a_refusal_is_no_option(text: str) -> None:
    good, fault = good_distractors([text, *PLAIN[:2]], TRUTH, [], 3)
    assert (good, fault and fault.reason) == (PLAIN[:2], "refused")
    refused = check_options([PLAIN[0], text], 14)
    assert (refused and refused.reason) == "refused"


def test_a_short_right_option_stands_among_short_ones() -> None:
    """Wrong options had five words at least, so that a name such as this one was always the shortest."""
    truth = "A Neapolitan sixth"
    long = ["A diminished seventh over the bass note", "A dominant chord in its first inversion",
            "An augmented chord with a raised fifth"]  # fmt: skip
    assert check_left([truth, "A German sixth", *long[:2]]) is None
    good, fault = good_distractors(["A German sixth", "A dominant seventh", "A pedal"], truth, [], 3)
    assert good == ["A German sixth", "A dominant seventh"]
    assert fault is not None
    assert fault.detail.startswith("expected 3 to 10 words, found 2")
    assert good_distractors(long, truth, [], 3)[1] is None, "the prompt asks for five words or more"


@given(st.integers(1, 30), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_only_a_much_longer_truth_is_given_away(truth: int, others: list[int]) -> None:
    options = [" ".join(["word"] * count) for count in (truth, *others)]
    assert given_away(options, 0) == (truth >= max(others) + 4 and 2 * truth > 3 * max(others))


@given(
    st.lists(st.tuples(st.text(max_size=80), st.booleans()), min_size=1, max_size=6),
    st.text(max_size=60),
)
def test_builtin_writer_answers_whatever_people_write(comments: list[tuple[str, bool]], title: str) -> None:
    facts = {
        "step": "rewrite",
        "title": title,
        "text": "",
        "comments": [{"text": text, "needed": needed} for text, needed in comments],
        "options": 4,
        "longest": 14,
    }
    answer = score_writer(facts, [])
    assert set(answer) == {"usable", "why", "question", "options"}
    assert all(1 <= option["comment"] <= len(comments) for option in answer["options"])
    assert len(answer["options"]) <= 4


def test_a_config_without_a_reader_builds_questions_whose_options_nobody_checked(tmp_path: Path) -> None:
    config = config_of(tmp_path, questions={"wrong": "written"}, reader=None)
    comments = [("The dash holds the note to its end", 5), (BODIES[1], 5)]
    version = build_questions(config, tmp_path / "store", [thread(1, comments=comments)])
    options = rows_of(version, "options")
    assert len(options) == 4
    assert {row["may_be_right"] for row in options} == {None}
    assert "Nobody checked the options" in (version.folder / "README.md").read_text("utf-8")
