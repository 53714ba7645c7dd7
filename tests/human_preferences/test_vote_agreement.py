"""Agreement between annotators: a worked example of the literature, another implementation, a paper's figures."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.human_preferences.derived import agreement_rows
from earmark.tasks.store.agreement import agreement, alpha

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section C: four observers, twelve units, five
# values, 0 for missing; nominal alpha is 0.743 there.
OBSERVED = """
1 2 3 3 2 1 4 1 2 0 0 0
1 2 3 3 2 2 4 1 2 5 0 3
0 3 3 3 2 3 4 2 2 5 1 0
1 2 3 3 2 4 4 1 2 5 1 0
"""


def counts_of(units: list[list[int]], values: int) -> np.ndarray:
    found = np.zeros((len(units), values))
    for place, unit in enumerate(units):
        for value in unit:
            found[place, value] += 1
    return found


def test_krippendorffs_own_example() -> None:
    rows = [[int(cell) for cell in line.split()] for line in OBSERVED.split("\n") if line]
    units = [[row[unit] - 1 for row in rows if row[unit]] for unit in range(12)]
    assert alpha(counts_of(units, 5)) == pytest.approx(0.743, abs=5e-4)


def test_by_hand() -> None:
    # Units aa, ab, bb: o_ab = 1 each way, n_a = n_b = 3, n = 6; alpha = 1 - 5 * 2 / 18.
    assert alpha([[2, 0], [1, 1], [0, 2]]) == pytest.approx(1 - 10 / 18)


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=40))
def test_alpha_is_that_of_a_published_library(units: list[list[int]]) -> None:
    counts = counts_of(units, 3)
    paired = counts[counts.sum(axis=1) >= 2]
    if np.count_nonzero(paired.sum(axis=0)) < 2:
        assert alpha(counts) is None
        return
    expected = krippendorff.alpha(value_counts=paired, level_of_measurement="nominal")
    assert alpha(counts) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=20))
def test_pairs_are_those_that_one_counts(units: list[list[int]]) -> None:
    pairs = [(a, b) for unit in units for i, a in enumerate(unit) for b in unit[i + 1 :]]
    found = agreement(counts_of(units, 3), draws=100)
    if not pairs:
        assert found is None
        return
    assert found is not None
    assert (found.vote_pairs, found.agree) == (len(pairs), sum(a == b for a, b in pairs))
    assert found.rate == pytest.approx(found.agree / found.vote_pairs)
    assert found.votes == sum(len(unit) for unit in units if len(unit) > 1)


# 492 pairs with 1,056 votes and 644 vote pairs can be 428 pairs of two votes, 56 of three and 8 of four. How the votes
# agree within these is not published: here as much as in all, and both clips are preferred equally often.
@pytest.mark.parametrize(("agreed", "rate", "published"), [(445, 0.691, 0.382), (466, 0.724, 0.447)])
def test_figures_of_the_paper_follow_from_its_counts(agreed: int, rate: float, published: float) -> None:
    three = round((168 * rate - 56) / 2)  # unanimous ones, with 3 equal pairs; the others have 1
    units = [[place % 2] * 3 if place < three else [0, 1, place % 2] for place in range(56)]
    units += [[place % 2] * 4 for place in range(4)] + [[0, 1, place % 2, place % 2] for place in range(4)]
    left = agreed - 3 * three - (56 - three) - 4 * 6 - 4 * 3
    units += [[place % 2] * 2 if place < left else [0, 1] for place in range(428)]
    found = agreement(counts_of(units, 2))
    assert found is not None
    assert (found.comparisons, found.votes, found.vote_pairs, found.agree) == (492, 1056, 644, agreed)
    assert found.rate == pytest.approx(rate, abs=5e-4)
    assert found.alpha == pytest.approx(published, abs=0.01)
    assert found.rate_low is not None
    assert found.rate_high is not None
    assert found.rate_low < found.rate < found.rate_high


def test_intervals_cover_what_they_should() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        same = random.random(80) < 0.7
        found = agreement([[2, 0] if one else [1, 1] for one in same], draws=400, seed=trial)
        assert found is not None
        assert found.rate_low is not None
        assert found.rate_high is not None
        covered += found.rate_low <= 0.7 <= found.rate_high
    assert 175 <= covered <= 200


def test_an_annotators_pairs_are_those_with_others() -> None:
    def vote(comparison: str, who: str | None, choice: int) -> dict[str, object]:
        about = {"dimension": "musicality", "source": "s", "month": "2025-05"}
        return {"comparison_id": comparison, "annotator": who, "choice": choice, **about}

    votes = [vote("c1", "ann", 0), vote("c1", "bob", 0), vote("c1", None, 1), vote("c2", "bob", 1), vote("c2", "cy", 1)]
    rows = {(row["scope"], row["value"]): row for row in agreement_rows(votes, 100, 0)}
    assert {name: (row["vote_pairs"], row["agree"]) for name, row in rows.items()} == {
        ("all", "all"): (4, 2),
        ("source", "s"): (4, 2),
        ("month", "2025-05"): (4, 2),
        ("annotator", "ann"): (2, 1),
        ("annotator", "bob"): (3, 2),
        ("annotator", "cy"): (1, 1),
    }
