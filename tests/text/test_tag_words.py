"""Tags in texts: whole words, written forms, the longest first; and the reviewed lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.importers.jamendo import CATEGORIES, Tag
from earmark.tasks.text.tag_words import (
    Lexicon,
    everyday_tags,
    names_voices,
    tokens_of,
    vocal_tags,
    written,
    written_forms,
)

LEXICON = Lexicon([*written_forms(), Tag("genre", "vaporwave"), Tag("instrument", "banjo")])


def names(text: str) -> set[str]:
    """Names of the tags that a text names."""
    return {tag.name for tag in LEXICON.named(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Soft piano over strings", {"soft", "piano", "strings"}),
        ("Two Electric-Guitars and a saxophone", {"electricguitar", "saxophone"}),
        ("punk rock", {"punkrock"}),
        ("punk, rock", {"punkrock", "rock"}),  # "punk" alone is a form of punk rock; nothing goes across a comma
        ("rocking, rockers, a bassist, a pianist", set()),
        ("R&B with drum & bass", {"rnb", "drumnbass"}),
        ("rock 'n' roll from the ’90s", {"rocknroll", "90s"}),
        ("hip hop, hip-hop, hiphop", {"hiphop"}),
        ("banjos of vaporwave", {"banjo", "vaporwave"}),
        ("a happily melancholy waltz", {"happy", "melancholic"}),
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


@given(st.text(max_size=60), st.sampled_from(sorted(written_forms())), st.text(max_size=60))
def test_what_stands_between_marks_is_found_in_any_text(before: str, tag: Tag, after: str) -> None:
    assert tag in LEXICON.named(f"{before}. {written(tag)}. {after}")


@given(st.text(max_size=200))
def test_every_naming_stands_in_the_text(text: str) -> None:
    tokens = " ".join(tokens_of(text))
    for naming in LEXICON.namings(text):
        assert f" {naming.words} " in f" {tokens} "


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("A female voice sings softly", "voice"),
        ("No vocals.", "vocals"),
        ("A Cappella", "a cappella"),
        ("spoken-word parts", "spoken word"),
        ("a singer", "singer"),
        ("a single sound of choirlike pads, invoiced", None),
        ("chord voicings on a rhodes", None),
    ],
)
def test_words_of_voices_are_found(text: str, word: str | None) -> None:
    assert names_voices(text) == word


def test_the_lists_are_in_order() -> None:
    for tags in (written_forms(), vocal_tags(), everyday_tags()):
        assert {tag.category for tag in tags} <= set(CATEGORIES)
        assert all(tag.name == tag.name.lower().replace(" ", "") for tag in tags)
    assert everyday_tags() <= set(written_forms())
    assert {"voice", "choir", "rap", "singersongwriter"} <= {tag.name for tag in vocal_tags()}


def test_no_form_belongs_to_two_tags_of_one_category() -> None:
    held: dict[tuple[str, str], Tag] = {}
    for tag, forms in written_forms().items():
        for form in forms:
            key = (tag.category, " ".join(tokens_of(form)))
            assert held.setdefault(key, tag) == tag
