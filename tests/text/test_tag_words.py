"""Tags in texts: whole words, written forms, the longest first; and the reviewed lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.tracks import Tag
from earmark.tasks.importers.tracks import CATEGORIES
from earmark.tasks.text.tag_words import (
    Lexicon,
    everyday_tags,
    tokens_of,
    vocal_tags,
    written,
    written_forms,
)
from tests.conftest import real_path

LEXICON = Lexicon([*written_forms(), Tag("genre", "vaporwave"), Tag("instrument", "banjo")])


def names(text: str) -> set[str]:
    return {tag.name for tag in LEXICON.named(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Soft piano over strings", {"soft", "piano", "strings"}),
        ("Three double basses", {"doublebass"}),
        ("Two Electric-Guitars and a saxophone", {"electricguitar", "saxophone"}),
        ("punk rock", {"punkrock"}),
        ("punk, rock", {"punkrock", "rock"}),  # "punk" alone is a form of punk rock; nothing goes across a comma
        ("rocking, rockers, a bassist, a pianist", set()),
        ("R&B with drum & bass", {"rnb", "drumnbass"}),
        ("rock 'n' roll from the ’90s", {"rocknroll", "90s"}),
        ("hip hop, hip-hop, hiphop", {"hiphop"}),
        ("banjos of vaporwave", {"banjo", "vaporwave"}),
        ("a happily melancholy waltz", {"happy", "melancholic", "waltz"}),
        ("dark\nambient", {"dark", "ambient"}),
        ("", set()),
    ],
)
def test_tags_are_found_as_whole_words(text: str, expected: set[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize("tag", sorted(written_forms()), ids="---".join)
def test_a_tag_is_found_in_each_of_its_forms(tag: Tag) -> None:
    for form in written_forms()[tag]:
        assert tag in LEXICON.named(f"It has {form.upper()} in it."), form
    assert LEXICON.named(written(tag)) >= {tag}


@pytest.mark.slow
@given(st.text(max_size=60), st.sampled_from(sorted(written_forms())), st.text(max_size=60))
def test_what_stands_between_marks_is_found_in_any_text(before: str, tag: Tag, after: str) -> None:
    assert tag in LEXICON.named(f"{before}. {written(tag)}. {after}")


@given(st.text(max_size=200))
def test_every_naming_stands_in_the_text(text: str) -> None:
    tokens = " ".join(tokens_of(text))
    for naming in LEXICON.namings(text):
        assert f" {naming.words} " in f" {tokens} "


def test_the_lists_are_in_order() -> None:
    for tags in (written_forms(), vocal_tags(), everyday_tags()):
        assert {tag.category for tag in tags} <= set(CATEGORIES)
        assert all(tag.name == tag.name.lower().replace(" ", "") for tag in tags)
    assert everyday_tags() <= set(written_forms())
    assert {"voice", "choir", "rap", "singersongwriter"} <= {tag.name for tag in vocal_tags()}


def test_no_form_belongs_to_two_tags_of_one_category_but_two_that_lists_tag_twice() -> None:
    held: dict[tuple[str, str], Tag] = {}
    for tag, forms in written_forms().items():
        for form in forms:
            key = (tag.category, " ".join(tokens_of(form)))
            assert held.setdefault(key, tag) == tag or form in {"bass guitar", "spacey"}


def _rows(name: str) -> list[list[str]]:
    """Rows of a tab-separated file beside this test, without its head."""
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines]


PEOPLE = {Tag(category, tag): form for category, tag, form in _rows("run_together_tags.tsv")}


@pytest.mark.parametrize("tag", sorted(PEOPLE), ids="---".join)
def test_a_tag_that_lists_run_together_is_found_as_people_write_it(tag: Tag) -> None:
    assert tag in Lexicon([*written_forms(), *PEOPLE]).named(f"Some {PEOPLE[tag]}, run together: {tag.name}.")
    assert tag in Lexicon([tag]).named(f"Some {tag.name} here")


def test_every_real_tag_has_a_form_that_a_person_would_write() -> None:
    """All tags of MTG-Jamendo: those in the file by its form, and no other falls into two words of the taxonomy."""
    folder = real_path("mtg-jamendo")
    tags = {
        Tag(path.stem.replace("_", "/"), line.split("\t")[0])
        for path in (folder / "stats").glob("*.tsv")
        for line in path.read_text("utf-8").splitlines()[1:]
    }
    listed = (folder / "autotagging.tsv").read_text("utf-8")
    tags |= {Tag(*mark.split("---")) for mark in re.findall(r"(?:genre|instrument|mood/theme)---\w+", listed)}
    assert len(tags) == 595
    lexicon = Lexicon(tags)
    words = {tag.name for tag in tags} | {
        word for form in PEOPLE.values() for word in re.findall(r"\w{3,}", form.lower())
    }
    for tag in tags:
        assert tag in lexicon.named(f"There is {PEOPLE.get(tag, tag.name)} in it."), tag
        parts = {(tag.name[:at], tag.name[at:]) for at in range(3, len(tag.name) - 2)}
        assert tag in PEOPLE or tag.name in {"soundscapes"} or not any(a in words and b in words for a, b in parts), tag


UNLISTED = {
    "genre": "baroque flamenco garage glitch island krautrock ragtime samba ska tango",
    "instrument": "cowbell erhu kora pandeiro surdo",
    "mood/theme": "dirty silly surf western yoga",
}
SENTENCES = Lexicon(
    [*written_forms(), *PEOPLE, *(Tag(category, tag) for category, tags in UNLISTED.items() for tag in tags.split())]
)


@pytest.mark.parametrize(("sentence", "tags"), _rows("tag_sentences.tsv"))
def test_a_natural_sentence_names_its_tags(sentence: str, tags: str) -> None:
    assert {tag.name for tag in SENTENCES.named(sentence)} == set(tags.split())
