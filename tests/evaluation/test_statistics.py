"""Metrics held to scipy's, and intervals to what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tasks.evaluation import statistics
from tasks.evaluation.statistics import METRICS, accuracy, ktau, lcc, srcc

NUMBERS = st.lists(st.tuples(st.integers(-4, 4), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40)
SCIPY = {"lcc": stats.pearsonr, "srcc": stats.spearmanr, "ktau": stats.kendalltau}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer resamples where their number does not matter."""
    monkeypatch.setattr(statistics, "DRAWS", 60)


@given(NUMBERS)
@settings(max_examples=60)
def test_correlations_are_scipys(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array(pairs, float).T
    y = np.round(y, 3)
    for name, theirs in SCIPY.items():
        ours = METRICS[name](x, y).value
        if len(set(x)) < 2 or len(set(y)) < 2:
            assert ours is None
        else:
            assert ours == pytest.approx(theirs(x, y).statistic, abs=1e-9)


@given(NUMBERS, st.integers(0, 5))
@settings(max_examples=30)
def test_a_weighted_resample_is_the_repeated_sample(pairs: list[tuple[int, float]], seed: int) -> None:
    x, y = np.array(pairs, float).T
    y = np.round(y, 2)
    drawn = np.random.default_rng(seed).multinomial(len(x), np.full(len(x), 1 / len(x)), size=3)
    repeated = [(np.repeat(x, times), np.repeat(y, times)) for times in drawn]
    for ours, theirs in ((statistics._weighted_lcc, "lcc"), (statistics._weighted_srcc, "srcc")):
        for found, (one, other) in zip(ours(x, y, drawn), repeated, strict=True):
            if len(set(one)) > 1 and len(set(other)) > 1:
                assert found == pytest.approx(SCIPY[theirs](one, other).statistic, abs=1e-9)
            else:
                assert math.isnan(found)


def test_intervals_hold_the_value_and_repeat() -> None:
    source = np.random.default_rng(1)
    x = source.normal(size=200)
    y = x + source.normal(size=200)
    for metric in (lcc, srcc, ktau):
        found = metric(x, y, seed=3)
        assert found == metric(x, y, seed=3)
        assert found.low < found.value < found.high
    right = source.random(500) < 0.8
    found = accuracy(right)
    assert found.value == right.mean()
    assert found.low < found.value < found.high
    assert not found.small


def test_the_interval_of_accuracy_is_the_normal_one_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 20_000)
    right = np.arange(4000) % 5 > 0
    found = accuracy(right)
    half = 1.959964 * math.sqrt(0.8 * 0.2 / 4000)
    assert found.low == pytest.approx(0.8 - half, abs=5e-4)
    assert found.high == pytest.approx(0.8 + half, abs=5e-4)


def test_scipys_bootstrap_gives_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 4000)
    source = np.random.default_rng(2)
    x = source.normal(size=80)
    y = x + source.normal(size=80)
    theirs = stats.bootstrap(
        (x, y),
        lambda a, b, axis: stats.pearsonr(a, b, axis=axis).statistic,
        paired=True, method="percentile", n_resamples=4000, vectorized=True, rng=np.random.default_rng(5),
    ).confidence_interval  # fmt: skip
    ours = lcc(x, y)
    assert ours.low == pytest.approx(theirs.low, abs=0.02)
    assert ours.high == pytest.approx(theirs.high, abs=0.02)


def test_clusters_widen_what_copies_would_narrow() -> None:
    source = np.random.default_rng(4)
    right = np.repeat(source.random(40) < 0.7, 25)
    labels = np.repeat(np.arange(40), 25)
    alone, together = accuracy(right), accuracy(right, labels)
    assert together.clusters == 40
    assert together.high - together.low > 3 * (alone.high - alone.low)
    once = accuracy(right[::25])
    assert (together.low, together.high) == (once.low, once.high)  # copies tell nothing new
    x = source.normal(size=40)
    y = x + source.normal(size=40)
    copied = lcc(np.repeat(x, 5), np.repeat(y, 5), np.repeat(np.arange(40), 5))
    assert (copied.low, copied.high) == pytest.approx((lcc(x, y).low, lcc(x, y).high))


def test_few_samples_say_so() -> None:
    assert accuracy([]) == statistics.Estimate(None, None, None, 0, 0)
    assert accuracy([True]) == statistics.Estimate(1.0, None, None, 1, 1)
    assert accuracy([True, False]).small
    assert lcc([1.0], [2.0]).value is None
    assert lcc([1.0, 2.0], [3.0, 3.0]).value is None


@pytest.mark.parametrize("bad", [[1.0, math.nan], [1.0, math.inf], [1.0]])
def test_what_is_no_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite numbers of one length"):
        lcc(bad, [1.0, 2.0])
    with pytest.raises(ValueError, match="labels of clusters"):
        accuracy([True, False], ["a"])
