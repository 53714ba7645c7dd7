"""Thresholds, concordant pairs and adjusted tests, each by another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.tasks.evaluation.statistics import best_threshold, concordance, holm

TENTHS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-30, 30)), min_size=3, max_size=40)
JUDGED = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=40)


@given(JUDGED)
@settings(max_examples=60)
def test_no_other_threshold_is_better(judged: list[tuple[int, bool]]) -> None:
    scores, truth = (np.array(one) for one in zip(*judged, strict=True))
    best = np.mean((scores >= best_threshold(scores, truth)) == truth)
    assert all(np.mean((scores >= other) == truth) <= best for other in np.arange(-0.5, 11.0, 0.5))


@given(TENTHS)
@settings(max_examples=40)
def test_concordance_is_counted_pair_by_pair(pairs: list[tuple[int, int]]) -> None:
    x, y = (np.unique(values, return_inverse=True)[1] for values in np.array(pairs).T)
    counted = [int(np.sum(np.sign(a - x) * np.sign(b - y))) for a, b in zip(x, y, strict=True)]
    assert concordance(x, y).tolist() == counted


def test_holm_is_worked_out_by_hand() -> None:
    """Holm 1979: the least of four times four, the next times three …, and none below one before it."""
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("bad", [[1.0, math.nan], [1.0, math.inf], [1.0]])
def test_what_is_no_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite numbers of one length"):
        best_threshold(bad, [1.0, 2.0])
