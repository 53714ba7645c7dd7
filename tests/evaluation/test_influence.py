"""Metrics held to scipy's and scikit-learn's, influences to slopes, and intervals and tests to what they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score, roc_curve

from earmark.tasks.evaluation.influence import (
    METRICS,
    Estimate,
    Influence,
    bounds,
    estimates,
    gap,
    mean,
    mean_of,
    measure,
    pair_differences,
    share,
)
from earmark.tasks.evaluation.statistics import middle_ranks
from earmark.tasks.evaluation.units import Units

NUMBERS = st.lists(st.tuples(st.integers(-4, 4), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40)
JUDGED = st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=40)
SCIPY = {"lcc": stats.pearsonr, "srcc": stats.spearmanr, "ktau": stats.kendalltau}


def holds(found: Influence, units: Units, truth: float, metric: str = "share") -> bool:
    """Return whether the interval of a metric holds the truth."""
    one = estimates({metric: found}, units)[metric]
    assert one.low is not None
    assert one.high is not None
    return bool(one.low <= truth <= one.high)


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
    for name, theirs in SCIPY.items():
        value = measure(name, x, y).value
        if len(set(x)) < 2 or len(set(y)) < 2:
            assert value is None
        else:
            assert value == pytest.approx(theirs(x, y).statistic, abs=1e-9)


@pytest.mark.parametrize("metric", [*SCIPY])
def test_a_correlation_knows_no_unit(metric: str) -> None:
    source = np.random.default_rng(6)
    x = source.normal(size=30)
    y = x + source.normal(size=30)
    value, parts = measure(metric, x, y)
    for unit in (1e-9, 1e9):
        scaled = measure(metric, 3e6 * unit + unit * x, y)
        assert scaled.value == pytest.approx(value, abs=1e-6)
        assert scaled.parts == pytest.approx(parts, abs=1e-6)
    assert measure("lcc", np.array([0.3, 0.1 + 0.2, 0.3]), y[:3]).value is None  # equal but for the last bit


@given(JUDGED)
@settings(max_examples=60)
def test_auroc_and_equal_error_rate_are_those_of_another_way(judged: list[tuple[int, bool]]) -> None:
    scores, truth = (np.array(one) for one in zip(*judged, strict=True))
    found = [measure(name, scores / 10, truth.astype(float)) for name in ("auroc", "eer")]
    if len(set(truth)) < 2:
        assert [one.value for one in found] == [None, None]
        return
    assert [one.value for one in found] == pytest.approx(by_hand(scores, truth), abs=1e-9)
    assert [one.parts.sum() for one in found] == pytest.approx([0, 0], abs=1e-9)


@pytest.mark.parametrize("size", [20, 2000])
def test_auroc_and_equal_error_rate_are_scikit_learns(size: int) -> None:
    source = np.random.default_rng(size)
    truth = source.random(size) < 0.4
    scores = np.round(truth + source.normal(size=size), 1)  # with many equal ones
    accepted, caught, _ = roc_curve(truth, scores, drop_intermediate=False)
    crossing = optimize.brentq(lambda rate: np.interp(rate, accepted, caught) - (1 - rate), 0, 1, xtol=1e-14)
    assert measure("auroc", scores, truth * 1.0).value == pytest.approx(roc_auc_score(truth, scores), abs=1e-9)
    assert measure("eer", scores, truth * 1.0).value == pytest.approx(crossing, abs=1e-9)


@pytest.mark.parametrize("name", ["lcc", "srcc", "ktau", "mse", "auroc"])
def test_an_influence_is_the_slope_of_the_metric_at_a_sample(name: str) -> None:
    """Each sample in turn gets a little more weight, by repeating all others."""
    source = np.random.default_rng(3)
    x = source.integers(0, 9, 40).astype(float)
    y = np.round(x / 2 + source.normal(size=40) * 2)
    y = (y > np.median(y)).astype(float) if name == "auroc" else y
    ways: dict[str, Callable[[Any, Any], float]] = {
        "lcc": lambda x, y: float(stats.pearsonr(x, y).statistic),
        "srcc": lambda x, y: float(stats.spearmanr(x, y).statistic),
        "ktau": lambda x, y: float(stats.kendalltau(x, y).statistic),
        "mse": lambda x, y: float(np.mean((x - y) ** 2)),
        "auroc": lambda x, y: float(roc_auc_score(y, x)),
    }
    found = METRICS[name](x, y)
    assert found.value == pytest.approx(ways[name](x, y))
    for place in range(0, 40, 7):
        more = [np.append(np.repeat(values, 300), values[place]) for values in (x, y)]
        slope = (ways[name](*more) - ways[name](x, y)) * len(more[0]) / 40
        assert found.parts[place] == pytest.approx(slope, rel=0.02, abs=1e-5)


def test_the_variance_is_the_sum_over_all_pairs_of_samples_that_share_a_unit() -> None:
    source = np.random.default_rng(5)
    clips = [source.choice(12, 2, replace=False).tolist() for _ in range(40)]
    prompts = [[int(one)] if one else [] for one in source.integers(0, 9, 40)]
    units = Units.of([clips, prompts])
    parts = mean(source.integers(0, 2, 40).astype(float)).parts
    slow = sum(
        parts[a] * parts[b]
        for a in range(40)
        for b in range(40)
        if a == b or {*clips[a]} & {*clips[b]} or {*prompts[a]} & {*prompts[b]}
    )
    assert units.variance(parts[:, None])[0] == pytest.approx(max(slow, float((parts**2).sum())))


def test_independent_samples_have_students_interval_and_test() -> None:
    units = Units.of([[[place] for place in range(50)]])
    assert units.independent(np.ones(50, bool)) == 50
    lead = np.random.default_rng(7).normal(0.3, 1, 50)
    found = mean(lead)
    one = gap(found.value or 0.0, float(units.variance(found.parts[:, None])[0]), 50)
    test = stats.ttest_1samp(lead, 0)
    assert (one.p, one.low, one.high) == pytest.approx((test.pvalue, *test.confidence_interval()))
    share = bounds(0.5, 0.25 / 50 * 49 / 50, 50, "share")
    assert share.high == pytest.approx(stats.binomtest(25, 50).proportion_ci(method="wilson").high, abs=0.01)


@pytest.mark.parametrize("metric", [*SCIPY])
def test_samples_that_show_no_spread_have_no_interval(metric: str) -> None:
    """Two points are always on a line; four systems in order, or with two swaps, move the figure by nothing each."""
    order = np.arange(4.0)
    for x, y in ((order[:2], order[:2]), (order, order), (order, -order), (order, order[[1, 0, 3, 2]])):
        if metric == "lcc" and len({*x - y}) > 1:
            continue
        one = estimates({metric: measure(metric, x, y)}, Units.apart(len(x)))[metric]
        assert one.value == pytest.approx(SCIPY[metric](x, y).statistic)
        assert (one.low, one.high) == (None, None)


@pytest.mark.parametrize("metric", ["srcc", "ktau"])
def test_intervals_of_few_systems_hold_the_truth_where_there_is_one(metric: str) -> None:
    """Five systems of a true correlation of 0.9 are often in perfect order, which does not tell that the truth is 1."""
    source = np.random.default_rng(2)
    truth = (6 * np.arcsin(0.45) if metric == "srcc" else 2 * np.arcsin(0.9)) / np.pi
    held = []
    for _ in range(300):
        x = source.normal(size=5)
        found = measure(metric, x, 0.9 * x + 0.19**0.5 * source.normal(size=5))
        one = estimates({metric: found}, Units.apart(5))[metric]
        if one.low is not None and one.high is not None:
            held.append(one.low <= truth <= one.high)
    assert len(held) > 200
    assert np.mean(held) > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("clips", "pairs"), [(294, 1311), (100, 300)])
def test_intervals_hold_the_truth_in_95_of_100_where_pairs_share_clips(clips: int, pairs: int) -> None:
    """Clips of normal quality, heard with noise of their own; the truth by a large sample. Nobody's clip is special."""
    source = np.random.default_rng(1)

    def draw(clips: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
        quality = source.normal(size=clips)
        scores = quality + 0.8 * source.normal(size=clips)
        first = source.integers(0, clips, pairs)
        second = (first + source.integers(1, clips, pairs)) % clips
        said = (quality[first] > quality[second]) == (scores[first] > scores[second])
        return said.astype(float), np.stack([first, second], axis=1)

    truth = np.mean([draw(3000, 200_000)[0].mean() for _ in range(20)])
    held = narrow = 0
    for _ in range(400):
        said, both = draw(clips, pairs)
        held += holds(mean(said), Units.of([both.tolist()]), truth)
        few = stats.binomtest(int(said.sum()), pairs).proportion_ci(method="wilson")
        narrow += few.low <= truth <= few.high
    assert 0.93 <= held / 400 <= 0.97
    assert narrow / 400 < 0.88  # pairs as if they were independent


@pytest.mark.slow
def test_intervals_hold_and_tests_err_rarely_where_pairs_share_clips_and_prompts() -> None:
    """Two models of equal skill; prompts differ in how hard they are."""
    source = np.random.default_rng(4)

    def draw(prompts: int, pairs: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        prompt = np.repeat(np.arange(prompts), 6)
        quality, hard = source.normal(size=len(prompt)), np.exp(source.normal(size=prompts) / 2)[prompt]
        scores = [quality + source.normal(size=len(prompt)) * hard for _ in range(2)]
        first = source.integers(0, len(prompt), pairs)
        second = prompt[first] * 6 + (first % 6 + source.integers(1, 6, pairs)) % 6
        better = quality[first] > quality[second]
        said = [(better == (one[first] > one[second])).astype(float) for one in scores]
        return said, np.stack([first, second], axis=1), prompt[first]

    truth = np.mean([draw(3000, 100_000)[0][0].mean() for _ in range(10)])
    held = found = 0
    for _ in range(400):
        said, both, prompt = draw(60, 400)
        units = Units.of([both.tolist(), prompt[:, None].tolist()])
        (one,) = pair_differences("accuracy", dict(zip("ab", map(mean, said), strict=True)), units)
        held += holds(mean(said[0]), units, truth)
        found += one["p"] < 0.05
    assert 0.93 <= held / 400 <= 0.97
    assert 0.02 <= found / 400 <= 0.07


@pytest.mark.slow
def test_intervals_hold_where_votes_share_clips_and_listeners() -> None:
    """Listeners of different skill; the votes of a listener are dependent, and so are those on a clip."""
    source = np.random.default_rng(4)

    def draw(clips: int, listeners: int, votes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        quality = source.normal(size=clips)
        scores, skill = quality + 0.8 * source.normal(size=clips), 0.8 + 0.8 * source.normal(size=listeners)
        first, who = source.integers(0, clips, votes), source.integers(0, listeners, votes)
        second = (first + source.integers(1, clips, votes)) % clips
        heard = (quality[first] - quality[second]) * skill[who] + source.normal(size=votes)
        said = (heard > 0) == (scores[first] > scores[second])
        return said.astype(float), np.stack([first, second], axis=1), who

    truth = np.mean([draw(3000, 3000, 200_000)[0].mean() for _ in range(20)])
    held = 0
    for _ in range(400):
        said, both, who = draw(150, 60, 1200)
        held += holds(mean(said), Units.of([both.tolist(), who[:, None].tolist()]), truth)
    assert 0.93 <= held / 400 <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("metric", [*METRICS])
def test_intervals_of_scores_hold_where_clips_share_prompts(metric: str) -> None:
    source = np.random.default_rng(2)

    def draw(prompts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        prompt = np.repeat(np.arange(prompts), 5)
        x = source.normal(size=prompts)[prompt] + source.normal(size=len(prompt))
        y = 0.6 * x + source.normal(size=prompts)[prompt] + source.normal(size=len(prompt))
        return x, (y > 0.5).astype(float) if metric in ("auroc", "eer") else y, prompt

    truth = METRICS[metric](*draw(20_000)[:2]).value or 0.0
    held = 0
    for _ in range(1000):
        x, y, prompt = draw(60)
        held += holds(METRICS[metric](x, y), Units.of([prompt[:, None].tolist()]), truth, metric)
    assert 0.93 <= held / 1000 <= 0.97


def test_copies_tell_nothing_new() -> None:
    source = np.random.default_rng(4)
    right = source.random(40) < 0.7
    once, copied = share(right), share(np.repeat(right, 25), np.repeat(np.arange(40), 25))
    assert copied == pytest.approx(once)
    assert share(np.repeat(right, 25)).units == 1000
    x = source.normal(size=40)
    y = x + source.normal(size=40)
    for name in SCIPY:
        labels = Units.of([[[place] for place in np.repeat(np.arange(40), 5).tolist()]])
        many = estimates({name: measure(name, np.repeat(x, 5), np.repeat(y, 5))}, labels)[name]
        assert many == pytest.approx(estimates({name: measure(name, x, y)}, Units.apart(40))[name], abs=0.02)


def test_a_difference_is_students_on_independent_samples_and_near_mcnemars() -> None:
    first, second = np.zeros(300), np.zeros(300)
    first[:150], second[:120] = 1, 1
    first[200:212], second[220:240] = 1, 1
    found = {"a": mean(first), "b": mean(second), "c": Influence(None, np.zeros(300))}
    one, *undefined = pair_differences("accuracy", found, Units.apart(300))
    test = stats.ttest_rel(first, second)
    assert (one["value"], one["p"]) == pytest.approx((first.mean() - second.mean(), test.pvalue))
    assert (one["low"], one["high"]) == pytest.approx(tuple(test.confidence_interval()))
    only = int(np.sum(first > second)), int(np.sum(first < second))
    assert one["p"] == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue, abs=0.02)
    assert [(row["value"], row["p"], row["p_holm"]) for row in undefined] == [(None, None, None)] * 2
    assert one["p_holm"] == one["p"]


@pytest.mark.parametrize("metric", ["lcc", "srcc", "mse"])
def test_a_difference_has_the_interval_of_scipys_paired_bootstrap(metric: str) -> None:
    source = np.random.default_rng(1)
    truth, shared = source.normal(size=200), source.normal(size=200)
    first, second = (truth + by * shared + 0.3 * source.normal(size=200) for by in (1, 1.3))
    ways: dict[str, Callable[[Any, Any], Any]] = {
        "lcc": lambda x, t: stats.pearsonr(x, t, axis=-1).statistic,
        "srcc": lambda x, t: np.array(
            [stats.spearmanr(*pair).statistic for pair in zip(np.atleast_2d(x), np.atleast_2d(t), strict=True)]
        ),
        "mse": lambda x, t: ((x - t) ** 2).mean(axis=-1),
    }

    def lead(a: Any, b: Any, t: Any, axis: int) -> Any:
        return ways[metric](a, t) - ways[metric](b, t)

    theirs = stats.bootstrap(
        (first, second, truth), lead, paired=True, method="percentile", n_resamples=600, vectorized=True,
        rng=np.random.default_rng(3),
    ).confidence_interval  # fmt: skip
    found = {name: measure(metric, scores, truth) for name, scores in (("a", first), ("b", second))}
    (ours,) = pair_differences(metric, found, Units.apart(200))
    width = float(theirs.high - theirs.low)
    assert (ours["low"], ours["high"]) == pytest.approx((float(theirs.low), float(theirs.high)), abs=0.2 * width)
    alone = estimates(found, Units.apart(200))["a"] if metric == "lcc" else None
    assert alone is None or ours["high"] - ours["low"] < (alone.high or 0) - (alone.low or 0)  # they err alike


@pytest.mark.slow
@pytest.mark.parametrize("units", [2, 4, 6])
def test_equal_models_do_not_differ_by_a_few_units(units: int) -> None:
    """Two units that happen to lean one way leave little to learn from."""
    source, below = np.random.default_rng(units), 0
    for _ in range(150):
        labels = np.repeat(np.arange(units), 20)
        levels = np.clip(0.7 + 0.2 * source.standard_normal((2, units)), 0, 1)  # units are easy or hard
        right = [(source.random(len(labels)) < level[labels]) * 1.0 for level in levels]
        held = Units.of([labels[:, None].tolist()])
        (one,) = pair_differences("accuracy", dict(zip("ab", map(mean, right), strict=True)), held)
        below += one["p"] <= 0.05
    assert below <= stats.binom.ppf(0.999, 150, 0.05 if units > 5 else 0.0) + (4 if units > 5 else 0)


def test_units_that_all_differ_by_one_number_give_no_interval() -> None:
    """Three systems in perfect order against their reverse, or one model right where the other is wrong."""
    truth = np.array([1.0, 2.0, 3.0])
    order = {"a": measure("srcc", truth, truth), "b": measure("srcc", -truth, truth)}
    right = {"a": mean(np.ones(9)), "b": mean(np.zeros(9))}
    same = {"a": mean(np.array([0.1, 0.7, 0.3])), "b": mean(np.array([0.1, 0.7, 0.3]))}
    for value, p, found in ((2.0, 0.25, order), (1.0, 2.0**-8, right), (0.0, 1.0, same)):
        (one,) = pair_differences("srcc", found, Units.apart(len(found["a"].parts)))
        assert (one["value"], one["p"]) == pytest.approx((value, p))
        assert (one["low"], one["high"]) == (None, None)
    assert mean_of([0.3] * 7) == {"value": pytest.approx(0.3), "low": None, "high": None, "clips": 7}


def test_few_samples_say_so() -> None:
    assert share([]) == Estimate(None, None, None, 0)
    assert share([True]) == Estimate(1.0, None, None, 1)
    assert share([True, False]).small
    assert not share([True] * 30).small
    for metric, x, y in (("lcc", [1.0], [2.0]), ("ktau", [1.0, 2.0], [3.0, 3.0]), ("auroc", [0.1, 0.2], [1.0, 1.0])):
        assert measure(metric, np.array(x), np.array(y)).value is None


def test_a_mean_has_students_interval() -> None:
    values = [0.1, 0.4, None, 0.35, 0.8]
    known = [one for one in values if one is not None]
    ends = stats.ttest_1samp(known, 0).confidence_interval()
    found = mean_of(values)
    assert found is not None
    assert [*found.values()] == pytest.approx([np.mean(known), ends.low, ends.high, 4])
    assert mean_of([None]) is None


def test_a_mean_of_shares_keeps_to_0_to_1_and_is_not_sure_where_all_are_equal() -> None:
    """Wilson's interval of shares that are all 0 or 1, by scipy; 14 clips that all got 1 are 14 yes of 14."""
    for right in ([1.0] * 14, [0.0] * 14, [1.0] * 40 + [0.0] * 9):
        found = mean_of(right, shares=True)
        theirs = stats.binomtest(int(sum(right)), len(right)).proportion_ci(method="wilson")
        assert found is not None
        assert [found["low"], found["high"]] == pytest.approx([theirs.low, theirs.high], abs=0.06)
        assert 0 <= (found["low"] or 0) < (found["high"] or 0) <= 1
    near = mean_of([1.0] * 13 + [2 / 3], shares=True)
    assert near is not None
    assert near["low"] < near["value"] < near["high"] <= 1  # type: ignore[operator]


@given(st.lists(st.sampled_from([-1.5, 0.0, 0.1, 1e300, np.inf]), min_size=1, max_size=40))
def test_equal_values_have_the_middle_rank_as_in_scipy(values: list[float]) -> None:
    assert middle_ranks(values).tolist() == stats.rankdata(values).tolist()


@pytest.mark.parametrize("units", [2.0, 2.7, 30.0, 1e6])
def test_p_and_spread_of_a_difference_are_those_of_scipys_t(units: float) -> None:
    error, law = np.sqrt(units / (units - 1)), stats.t(units - 1)
    found = gap(1.5, 1.0, units)
    assert found.p == pytest.approx(max(2 * law.sf(1.5 / error), 2.0 ** (1 - min(units, 50))), rel=1e-12)
    assert found.high == pytest.approx(1.5 + law.ppf(0.975) * error, rel=1e-12)
