"""What a prompt must meet: its tags, no others, no voices."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.tracks import Tag
from earmark.tasks.annotation.prompts import packaged
from earmark.tasks.music_prompts.asking import prompt_fault
from earmark.tasks.music_prompts.builtin import music_prompt
from earmark.tasks.music_prompts.checks import check_prompt
from earmark.tasks.text.tag_words import Lexicon, everyday_tags, vocal_tags, written, written_forms
from tests.music_prompts.prompt_builds import config_of

TRIPLET = (Tag("genre", "jazz"), Tag("instrument", "piano"), Tag("mood/theme", "calm"))
LEXICON = Lexicon(written_forms())
POOL = sorted(set(written_forms()) - set(vocal_tags()))


def reason(text: str, style: str = "strict", longest: int = 400) -> str | None:
    """Why a prompt cannot be kept, or None."""
    fault = check_prompt(text, TRIPLET, style, LEXICON, longest).fault
    return fault.reason if fault else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A calm jazz piece led by the piano.", None),
        ("Calming, jazzy pianos.", None),
        (
            "A calm jazz piece on a world stage, with a steady beat, the piano in the background.",
            None,
        ),  # everyday words
        ("A calm jazz piece.", "wrong_tags"),
        ("A calm jazz piece led by an electric piano.", "wrong_tags"),
        ("A calm jazz piece for piano and cello.", "wrong_tags"),
        ("A calm jazz fusion piece for piano.", "wrong_tags"),
        ("A calm jazz piece with a dark piano.", "wrong_tags"),
        ("A calm jazz piece with piano, no vocals.", "mentions_vocals"),
        ("A calm jazz piano. " * 30, "too_long"),
    ],
)
def test_strict_prompts(text: str, expected: str | None) -> None:
    assert reason(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A calm jazz piece for piano with double bass.", None),
        ("A calm jazz piece for piano with double bass, drums and saxophone.", None),
        ("A calm jazz piece for piano.", "wrong_instruments"),
        ("A calm jazz piece for piano and more pianos.", "wrong_instruments"),
        ("A calm jazz piece for piano, bass, drums, cello and saxophone.", "wrong_instruments"),
        ("A calm jazz piece for piano, bass and voice.", "mentions_vocals"),
    ],
)
def test_improvised_prompts(text: str, expected: str | None) -> None:
    assert reason(text, "improvised") == expected


@pytest.mark.parametrize(
    ("shots", "expected"), [(["A calm jazz\npiece, with PIANO."], "repeats_example"), (["A calm jazz piece."], None)]
)
def test_a_copied_example_is_no_prompt(tmp_path: Path, shots: list[str], expected: str | None) -> None:
    row = {tag.category.replace("/", "_"): tag.name for tag in TRIPLET}
    row |= {"stratum": "strict_id", "shots": shots, "lexicon": LEXICON}
    fault = prompt_fault(config_of(tmp_path), row, {"prompt": "A calm jazz piece, with piano."})
    assert (fault.reason if fault else None) == expected


def test_added_instruments_are_named_once() -> None:
    text = "A calm jazz piece for piano with drums, an upright bass, and more drums."
    assert check_prompt(text, TRIPLET, "improvised", LEXICON, 400).added == ("drums", "double bass")


def test_one_place_is_one_instrument() -> None:
    text = "A calm jazz piece for piano with bass guitar and drums."  # "bass guitar" is a form of bass, too
    assert check_prompt(text, TRIPLET, "improvised", LEXICON, 400).added == ("bass guitar", "drums")


def test_the_strict_writer_reads_what_the_check_does() -> None:
    """Each word that the prompt calls free passes, and each that it says counts is another tag."""
    lines = packaged("music-prompt-strict").text.splitlines()
    words = {
        kind: [word for line in lines if line.startswith(mark) for word in line.removeprefix(mark).split(", ")]
        for kind, mark in ((None, "- free: "), ("wrong_tags", "- counts: "))
    }
    assert min(map(len, words.values())) > 10
    found = {word: reason(f"A calm jazz piece for piano, {word}.") for listed in words.values() for word in listed}
    assert found == {word: kind for kind, listed in words.items() for word in listed}


def draw(category: str) -> st.SearchStrategy[Tag]:
    return st.sampled_from([tag for tag in POOL if tag.category == category])


@given(draw("genre"), draw("instrument"), draw("mood/theme"), st.sets(draw("instrument"), min_size=1, max_size=3))
def test_the_builtin_writer_meets_the_checks(genre: Tag, instrument: Tag, mood: Tag, further: set[Tag]) -> None:
    facts = {"genre": written(genre), "instrument": written(instrument), "mood": written(mood)}
    triplet = (genre, instrument, mood)
    assert check_prompt(music_prompt(facts, [])["prompt"], triplet, "strict", LEXICON, 400).fault is None
    added = sorted(written(tag) for tag in further - {instrument} - everyday_tags())
    if added:
        text = music_prompt({**facts, "added": added}, [])["prompt"]
        checked = check_prompt(text, triplet, "improvised", LEXICON, 400)
        assert (checked.fault, sorted(checked.added)) == (None, added)
