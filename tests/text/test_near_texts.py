"""Near duplicates against comparing every text with every other."""

from __future__ import annotations

import random
import tracemalloc
from itertools import product

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.store.sql import query
from earmark.tasks.text.near_texts import NearTexts, near_any, near_duplicates, near_groups

TEXTS = st.lists(st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join), max_size=12)
THRESHOLDS = st.sampled_from([0.05, 0.3, 0.5, 0.6, 0.7, 2 / 3, 0.8, 0.9, 1.0])


def runs(text: str) -> set[tuple[str, ...]]:
    """Runs of three words; all words where there are fewer."""
    words = text.split()
    return {tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2))} if words else set()


def alike(one: str, two: str, threshold: float) -> bool:
    """Whether the runs of two texts are that similar (Jaccard)."""
    mine, others = runs(one), runs(two)
    return bool(mine and others) and len(mine & others) / len(mine | others) >= threshold


def first_like(text: str, others: list[tuple[int, str]], threshold: float) -> int | None:
    return next((at for at, other in others if alike(text, other, threshold)), None)


@given(TEXTS, TEXTS, THRESHOLDS)
def test_what_comparing_all_finds_is_found(texts: list[str], others: list[str], threshold: float) -> None:
    entries: list[tuple[int, str]] = []
    expected: list[int | None] = []
    for at, text in enumerate(texts):
        expected.append(first_like(text, entries, threshold))
        if expected[-1] is None:
            entries.append((at, text))
    assert near_duplicates(texts, threshold) == expected
    assert near_any(texts, others, threshold) == [first_like(text, [*enumerate(others)], threshold) for text in texts]


@given(TEXTS, THRESHOLDS)
def test_groups_are_what_likeness_connects(texts: list[str], threshold: float) -> None:
    heads = list(range(len(texts)))
    for _ in texts:
        for one, two in product(range(len(texts)), repeat=2):
            if texts[one] == texts[two] or alike(texts[one], texts[two], threshold):
                heads[one] = heads[two] = min(heads[one], heads[two])
    assert near_groups(texts, threshold) == heads


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9])
def test_long_texts_of_which_words_were_changed(threshold: float) -> None:
    dice = random.Random(17)
    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(dice.choices(words, k=dice.randint(20, 60))) for _ in range(60)]
    for text in dice.choices(texts, k=120):
        changed = text.split()
        for _ in range(dice.randint(0, 4)):
            changed[dice.randrange(len(changed))] = dice.choice(words)
        texts.append(" ".join(changed))
    expected = [first_like(text, [*enumerate(texts[:60])], threshold) for text in texts]
    assert near_any(texts, texts[:60], threshold) == expected
    assert sum(at is not None for at in expected[60:]) > 20


@pytest.mark.parametrize(
    "other",
    [
        "A cafe\u0301 song that doesn\u2019t stop & goes on",
        "a caf\u00e9 song that doesn\u02bct stop &amp; goes on",
        "a ca\u200bf\u00e9 song that doesn't\u00a0stop & goes\u00ad on",
    ],
)
def test_forms_of_unicode_entities_and_signs_of_no_width_are_one_text(other: str) -> None:
    text = "a caf\u00e9 song that doesn't stop & goes on"
    assert near_duplicates([text, other], 1.0) == [None, 0]
    plain = duckdb.connect().execute(query("text/plain_words"))
    told = plain.execute(
        "SELECT plain_words($1) = plain_words($2)", [text, "A Cafe\u0301  song\u00a0that doesn't stop & go\u200bes on"]
    )
    assert told.fetchall() == [(True,)]


def test_an_index_takes_few_bytes_for_each_text() -> None:
    """At ten times the paper's rows half a million captions are searched at once."""
    dice = random.Random(17)
    words = [f"w{number}" for number in range(2000)]
    texts = [" ".join(dice.choices(words, k=16)) for _ in range(2000)]

    def held(count: int) -> int:
        tracemalloc.start()
        index = NearTexts(texts[:count], 0.8)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert index.find(texts[count - 1]) == count - 1
        return size

    held(1)  # what stays after the first use
    assert held(2000) - held(500) < 1500 * 100
