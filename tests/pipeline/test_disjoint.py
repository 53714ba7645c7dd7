"""Two sets that share nothing: clips, recordings, texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import StoreError
from earmark.tasks.pipeline.references import Side, check_disjoint, crossings
from earmark.tasks.text.near_texts import near_any, near_groups

PRINTS = np.random.default_rng(5).integers(0, 2**32, (4, 40), dtype=np.uint32)
HERE = Side("test", ["a" * 64, "b" * 64], ["A slow piece for piano and strings."], [PRINTS[0], PRINTS[1]])
THERE = Side("train", ["c" * 64, "d" * 64], ["A dog barks at a passing train."], [PRINTS[2], PRINTS[3]])
BOUNDS = {"recording": 0.85, "text": 0.8}


def test_sets_that_share_nothing_pass() -> None:
    check_disjoint(HERE, THERE, **BOUNDS)
    assert not list(crossings(HERE, THERE, **BOUNDS))


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (replace(THERE, clips=["c" * 64, "a" * 64]), "the first is a clip: aaaaaaaaaaaaaaaa"),
        (
            replace(THERE, prints=[PRINTS[2], PRINTS[1][4:]]),
            "a recording: b{16} and d{16}, fingerprints",
        ),
        (replace(THERE, texts=["x y z", "A slow piece for piano and strings"]), "a text: 'A slow piece"),
    ],
)
def test_what_is_shared_is_named(there: Side, says: str) -> None:
    with pytest.raises(StoreError, match=f"expected 'test' and 'train' .* found 1 in common; .*{says}"):
        check_disjoint(HERE, there, **BOUNDS)


SOME = ["slow", "fast", "piano", "song", "a", "dog", "barks", "twice"]
WORDS = st.lists(st.sampled_from(SOME), max_size=9).map(" ".join)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=20), st.floats(0.5, 1))
def test_texts_of_different_groups_never_cross(texts: list[str], threshold: float) -> None:
    groups = near_groups(texts, threshold)
    assert all(groups[head] == head <= at for at, head in enumerate(groups))
    for head in set(groups):
        inside = [text for text, group in zip(texts, groups, strict=True) if group == head]
        outside = [text for text, group in zip(texts, groups, strict=True) if group != head]
        assert near_any(inside, outside, threshold) == [None] * len(inside)


def test_a_text_joins_two_that_are_apart() -> None:
    long = [f"w{at}" for at in range(24)]
    texts = [" ".join(long[:20]), " ".join(long[4:]), " ".join(long[2:22]), "else", "…", "…"]
    assert near_groups(texts, 0.65) == [0, 0, 0, 3, 4, 4]
