"""Metrics held to scipy's, and intervals to what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score, roc_curve

from earmark.tasks.evaluation import statistics
from earmark.tasks.evaluation.statistics import accuracy, best_threshold, concordance, correlations, discrimination

NUMBERS = st.lists(st.tuples(st.integers(-4, 4), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40)
TENTHS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-30, 30)), min_size=3, max_size=40)
JUDGED = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=40)
SCIPY = {"lcc": stats.pearsonr, "srcc": stats.spearmanr, "ktau": stats.kendalltau}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer resamples where their number does not matter."""
    monkeypatch.setattr(statistics, "DRAWS", 20)


def drawn_of(size: int, seed: int) -> np.ndarray:
    """How often each of so many samples is drawn, in three resamples."""
    return np.random.default_rng(seed).multinomial(size, np.full(size, 1 / size), size=3).astype(np.int32)


def by_hand(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """AUROC by Mann and Whitney's U, and the equal-error rate by walking along the curve, threshold by threshold."""
    yes, no = scores[truth], scores[~truth]
    auroc = stats.mannwhitneyu(yes, no).statistic / len(yes) / len(no)
    before = (0.0, 1.0)
    for threshold in (*np.unique(scores)[1:], np.inf):
        missed, accepted = float(np.mean(yes < threshold)), float(np.mean(no >= threshold))
        if missed >= accepted:
            step = (before[1] - before[0]) / ((before[1] - before[0]) + (missed - accepted))
            return auroc, before[0] + step * (missed - before[0])
        before = (missed, accepted)
    raise AssertionError("the curve ends where every yes is missed")


@given(NUMBERS)
@settings(max_examples=60)
def test_correlations_are_scipys(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array(pairs, float).T
    y = np.round(y, 3)
    ours = correlations(x, y)
    for name, theirs in SCIPY.items():
        if len(set(x)) < 2 or len(set(y)) < 2:
            assert ours[name].value is None
        else:
            assert ours[name].value == pytest.approx(theirs(x, y).statistic, abs=1e-9)


@given(TENTHS, st.integers(0, 5))
@settings(max_examples=30)
def test_a_weighted_resample_is_the_repeated_sample(pairs: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(sorted(pairs), float).T
    if len(set(x)) < 2 or len(set(y)) < 2:
        return
    drawn = drawn_of(len(x), seed)
    ours = statistics._correlator(x, y / 10)(drawn)
    for place, times in enumerate(drawn):
        one, other = np.repeat(x, times), np.repeat(y / 10, times)
        for name, theirs in SCIPY.items():
            if len(set(one)) > 1 and len(set(other)) > 1:
                assert ours[name][place] == pytest.approx(theirs(one, other).statistic, abs=1e-9)
            else:
                assert math.isnan(ours[name][place])


@given(JUDGED, st.integers(0, 5))
@settings(max_examples=60)
def test_auroc_and_equal_error_rate_are_those_of_another_way(judged: list[tuple[int, bool]], seed: int) -> None:
    scores, truth = (np.array(one) for one in zip(*sorted(judged), strict=True))
    found = discrimination(scores / 10, truth)
    if len(set(truth)) < 2:
        assert found["auroc"].value is found["eer"].value is None
        return
    assert (found["auroc"].value, found["eer"].value) == pytest.approx(by_hand(scores, truth), abs=1e-9)
    drawn = drawn_of(len(scores), seed)
    ours = statistics._discriminator(scores / 10, truth)(drawn)
    for place, times in enumerate(drawn):
        one, other = np.repeat(scores, times), np.repeat(truth, times)
        if len(set(other)) > 1:
            assert (ours["auroc"][place], ours["eer"][place]) == pytest.approx(by_hand(one, other), abs=1e-9)
        else:
            assert math.isnan(ours["auroc"][place])


@pytest.mark.parametrize("size", [20, 2000])
def test_auroc_and_equal_error_rate_are_scikit_learns(size: int) -> None:
    source = np.random.default_rng(size)
    truth = source.random(size) < 0.4
    scores = np.round(truth + source.normal(size=size), 1)  # with many equal ones
    found = discrimination(scores, truth)
    accepted, caught, _ = roc_curve(truth, scores, drop_intermediate=False)
    crossing = optimize.brentq(lambda rate: np.interp(rate, accepted, caught) - (1 - rate), 0, 1, xtol=1e-14)
    assert found["auroc"].value == pytest.approx(roc_auc_score(truth, scores), abs=1e-9)
    assert found["eer"].value == pytest.approx(crossing, abs=1e-9)


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


def test_the_linear_part_gives_ktaus_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 400)
    source = np.random.default_rng(3)
    y = np.round(source.normal(size=1000), 1)
    x = y + source.normal(size=1000)
    monkeypatch.setattr(statistics, "LINEAR_FROM", 1001)
    exact = correlations(x, y)["ktau"]
    monkeypatch.setattr(statistics, "LINEAR_FROM", 2)
    linear = correlations(x, y)["ktau"]
    assert linear.value == exact.value
    assert (linear.low, linear.high) == pytest.approx((exact.low, exact.high), abs=0.003)


def test_intervals_hold_the_value_and_repeat() -> None:
    source = np.random.default_rng(1)
    x = source.normal(size=200)
    y = x + source.normal(size=200)
    values = correlations(x, y) | discrimination(x, y > 0)
    assert correlations(x, x)["lcc"] == statistics.Estimate(1.0, 1.0, 1.0, 200)
    assert values == correlations(x, y) | discrimination(x, y > 0)
    assert all(one.low < one.value < one.high for one in values.values())
    right = source.random(500) < 0.8
    share = accuracy(right)
    assert share.value == right.mean()
    assert share.low < share.value < share.high
    assert not share.small


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
    ours = correlations(x, y)["lcc"]
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
    order = np.argsort(x)  # a resample is the same only of samples in the same order
    x, y = x[order], y[order]
    copied = correlations(np.repeat(x, 5), np.repeat(y, 5), np.repeat(np.arange(40), 5))
    for name, once in correlations(x, y).items():
        both = (copied[name].low, copied[name].high)
        assert both == pytest.approx((once.low, once.high), abs=1e-12)


def test_few_samples_say_so() -> None:
    assert accuracy([]) == statistics.Estimate(None, None, None, 0)
    assert accuracy([True]) == statistics.Estimate(1.0, None, None, 1)
    assert accuracy([True, False]).small
    assert correlations([1.0], [2.0])["lcc"].value is None
    assert correlations([1.0, 2.0], [3.0, 3.0])["ktau"].value is None
    assert discrimination([0.1, 0.2], [True, True])["auroc"].value is None


@pytest.mark.parametrize("bad", [[1.0, math.nan], [1.0, math.inf], [1.0]])
def test_what_is_no_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="finite numbers of one length"):
        correlations(bad, [1.0, 2.0])
    with pytest.raises(ValueError, match="labels of clusters"):
        accuracy([True, False], ["a"])
