"""Measure the agreement of scores and choices with the truth, with bootstrap intervals. Pure functions.

Shares (accuracy); Pearson's LCC, Spearman's SRCC and Kendall's K-Tau (tau-b); AUROC and the equal-error rate. Intervals
are percentiles of resamples by cluster (Efron 1979, Annals of Statistics 7; clusters drawn whole: Field and Welsh 2007,
JRSS B 69). All metrics of one call use the same resamples. Blocks of weights are (resamples, samples) and fit into a
processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import kendalltau, pearsonr, spearmanr

Floats: TypeAlias = npt.NDArray[np.float64]
Weights: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.int64]
Measure: TypeAlias = Literal["accuracy", "correlations", "discrimination"]

DRAWS = 2000
COVERS = 0.95
SMALL = 30  # clusters below which an interval is unreliable; the table marks such groups
LINEAR_FROM = 500  # samples from which K-Tau is resampled by its linear part
_AT_ONCE = 50_000  # weights in one block of resamples: memory for small arrays is reused, for large ones allocated anew
_THREADS = 2


@dataclass(frozen=True)
class Estimate:
    """Metric over some samples."""

    value: float | None  # None if undefined, such as a correlation with a constant
    # low, high: the 95 % interval; None for fewer than two clusters, or an undefined value
    low: float | None
    high: float | None
    clusters: int  # number of clusters of the samples

    @property
    def small(self) -> bool:
        """Return whether there are too few clusters for a reliable interval."""
        return self.clusters < SMALL


def accuracy(right: npt.ArrayLike, clusters: npt.ArrayLike | None = None) -> Estimate:
    """Return the share of right samples, 0 to 1.

    Args:
        right: correctness of each sample: 0 or 1, or 0.5 where a tie counts one half.
        clusters: a label per sample; samples of one label are drawn together. Default one cluster per sample.
    """
    rights = np.asarray(right, float)
    which = _clusters(len(rights), clusters)
    if not len(rights):
        return _certain(None, which)
    sizes = np.bincount(which).astype(float)
    hits = np.bincount(which, weights=rights)
    value = float(rights.mean())
    if len(sizes) < 2:
        return Estimate(value, None, None, len(sizes))
    # equal clusters are drawn as one kind, which is equivalent and fast
    kinds, counts = np.unique(np.stack([sizes, hits]), axis=1, return_counts=True)
    drawn = np.random.default_rng(0).multinomial(len(sizes), counts / counts.sum(), size=DRAWS)
    return Estimate(value, *percentiles((drawn @ kinds[1]) / (drawn @ kinds[0])), len(sizes))


def mean_of(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Return the mean of the known values, with its 95 % interval by bootstrap; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    found = accuracy(known)
    return {"value": found.value, "low": found.low, "high": found.high, "clips": len(known)}


def correlations(x: npt.ArrayLike, y: npt.ArrayLike, clusters: npt.ArrayLike | None = None) -> dict[str, Estimate]:
    """Return `lcc`, `srcc` and `ktau`, -1 to 1. Arguments as for `accuracy`; x and y are finite.

    Raises:
        ValueError: values are not finite, or lengths differ.
    """
    xs, ys = _pair_of(x, y)
    which = _clusters(len(xs), clusters)
    if len(xs) < 2 or np.ptp(xs) == 0 or np.ptp(ys) == 0:
        return dict.fromkeys(("lcc", "srcc", "ktau"), _certain(None, which))
    order = np.argsort(xs, kind="stable")  # sorted values need no sorting in every resample
    xs, ys, which = xs[order], ys[order], which[order]
    once = {"lcc": pearsonr(xs, ys), "srcc": spearmanr(xs, ys), "ktau": kendalltau(xs, ys)}
    values = {name: float(found.statistic) for name, found in once.items()}
    if np.array_equal(xs, ys):
        return dict.fromkeys(values, _certain(1.0, which))
    return _resampled(values, _correlator(xs, ys), which)


def discrimination(
    scores: npt.ArrayLike, truth: npt.ArrayLike, clusters: npt.ArrayLike | None = None
) -> dict[str, Estimate]:
    """Return `auroc` and `eer`, 0 to 1, of scores against yes and no.

    AUROC is the share of pairs of a yes and a no in which the yes scores higher, equal scores counting one half. The
    equal-error rate is the intersection of the shares of missed yes and of accepted no, on the lines between
    thresholds.

    Raises:
        ValueError: scores are not finite, or lengths differ.
    """
    xs, ys = _pair_of(scores, truth)
    which = _clusters(len(xs), clusters)
    if len(np.unique(ys)) < 2:
        return dict.fromkeys(("auroc", "eer"), _certain(None, which))
    order = np.argsort(xs, kind="stable")
    xs, ys, which = xs[order], ys[order], which[order]
    metric = _discriminator(xs, ys > 0)
    values = {name: float(found[0]) for name, found in metric(np.ones((1, len(xs)), np.int32)).items()}
    if values["auroc"] in (0.0, 1.0):
        return {name: _certain(value, which) for name, value in values.items()}
    return _resampled(values, metric, which)


@dataclass(frozen=True)
class Difference:
    """Difference of a metric between two models, over the same samples."""

    value: float | None  # first minus second; None if either is undefined
    low: float | None  # low, high: the 95 % interval
    high: float | None
    p: float | None  # two-sided, of no difference: twice the share of resamples on the other side of zero


def resample(
    metric: Measure, x: npt.ArrayLike, y: npt.ArrayLike, clusters: npt.ArrayLike | None = None
) -> dict[str, Floats]:
    """Compute metrics over resamples that depend only on the clusters, for comparing models in pairs.

    Args:
        metric: `accuracy` of samples' correctness (x; y is ignored), `correlations`, or `discrimination`.
        x, y: a model's number per sample, and the truth.

    Returns:
        `DRAWS` values of each metric; NaN if undefined.
    """
    xs, ys = _pair_of(x, y)
    which = _clusters(len(xs), clusters)
    if metric == "accuracy":
        return _draws(lambda weights: {"accuracy": weights @ xs / weights.sum(axis=1)}, which)
    if len(xs) < 2 or np.ptp(xs) == 0 or np.ptp(ys) == 0:
        names = ("lcc", "srcc", "ktau") if metric == "correlations" else ("auroc", "eer")
        return {name: np.full(DRAWS, np.nan) for name in names}
    return _draws(_correlator(xs, ys) if metric == "correlations" else _discriminator(xs, ys > 0), which)


def difference(first: float | None, second: float | None, resampled: Floats, clusters: int) -> Difference:
    """Return a difference, from both values and the differences of the same resamples.

    Source: Efron and Tibshirani 1993, ch. 16. A bootstrap over few clusters knows only their few values, and is
    overconfident: p is at least the least p of a test that changes the clusters' signs, 2 of 2 ** clusters.
    """
    if first is None or second is None:
        return Difference(None, None, None, None)
    low, high = percentiles(resampled)
    if low is None:
        return Difference(first - second, None, None, None)
    beyond = 1 + min(np.sum(resampled <= 0), np.sum(resampled >= 0))  # undefined values count on neither side
    least = 2.0 ** (1 - min(clusters, 50))
    p = min(1.0, max(least, float(2 * beyond / (1 + np.isfinite(resampled).sum()))))
    return Difference(first - second, low, high, p)


def pair_differences(
    metric: str, values: Mapping[str, tuple[float | None, Floats]], clusters: int
) -> list[dict[str, Any]]:
    """Return the difference of each pair of models, first minus second, with p adjusted by Holm over the pairs.

    Args:
        values: of each model, the metric's value and its resampled values.
    """
    pairs = list(combinations(values, 2))
    differences = [difference(values[a][0], values[b][0], values[a][1] - values[b][1], clusters) for a, b in pairs]
    return [
        {"metric": metric, "first": a, "second": b, **asdict(one), "p_holm": p}
        for (a, b), one, p in zip(pairs, differences, holm([one.p for one in differences]), strict=True)
    ]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values of several tests to control the chance of any false finding among them (Holm 1979)."""
    order = sorted((value, place) for place, value in enumerate(values) if value is not None)
    found: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, place) in enumerate(order):
        highest = max(highest, min(1.0, value * (len(order) - rank)))
        found[place] = highest
    return found


def best_threshold(scores: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return the threshold with the highest share of right answers, where scores from it on mean yes.

    It lies halfway between two scores (the middle one of equally good ones), or at the lowest or above the highest.
    """
    xs, ys = _pair_of(scores, truth)
    distinct, place = np.unique(xs, return_inverse=True)
    yes = np.bincount(place, weights=ys > 0)
    no = np.bincount(place) - yes
    right = np.concatenate([[0.0], np.cumsum(no)]) + np.concatenate([np.cumsum(yes[::-1])[::-1], [0.0]])
    edges = np.concatenate([distinct[:1], (distinct[1:] + distinct[:-1]) / 2, np.nextafter(distinct[-1:], np.inf)])
    best = np.flatnonzero(right == right.max())
    return float(edges[best[len(best) // 2]])


def _pair_of(x: Any, y: Any) -> tuple[Floats, Floats]:
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if xs.shape != ys.shape or xs.ndim != 1 or not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise ValueError("expected two lists of finite numbers of one length")
    return xs, ys


def _clusters(count: int, labels: Any) -> Places:
    """Return the number of each sample's cluster, from 0, in the order of appearance."""
    if labels is None:
        return np.arange(count)
    if len(labels) != count:
        raise ValueError(f"expected {count} labels of clusters, found {len(labels)}")
    return pd.factorize(np.asarray(labels))[0].astype(np.int64)


def _certain(value: float | None, which: Places) -> Estimate:
    """Return an estimate that is constant over resamples, or undefined."""
    clusters = int(which.max(initial=-1)) + 1
    bound = value if clusters > 1 else None
    return Estimate(value, bound, bound, clusters)


Metric: TypeAlias = Callable[[Weights], dict[str, Floats]]


def _resampled(values: dict[str, float], metric: Metric, which: Places) -> dict[str, Estimate]:
    """Return estimates of several metrics over the same resamples."""
    clusters = int(which.max()) + 1
    if clusters < 2:
        return {name: Estimate(value, None, None, clusters) for name, value in values.items()}
    drawn = _draws(metric, which)
    return {name: Estimate(value, *percentiles(drawn[name]), clusters) for name, value in values.items()}


def _draws(metric: Metric, which: Places) -> dict[str, Floats]:
    """Compute metrics over resamples, which are the same for the same clusters."""
    clusters = int(which.max()) + 1
    rows = max(1, _AT_ONCE // len(which))
    sizes = [min(rows, DRAWS - start) for start in range(0, DRAWS, rows)]

    def block(size: int, source: np.random.Generator) -> dict[str, Floats]:
        return metric(_weights(which, clusters, size, source))

    with ThreadPoolExecutor(_THREADS) as threads:
        blocks = list(threads.map(block, sizes, np.random.default_rng(0).spawn(len(sizes))))
    return {name: np.concatenate([found[name] for found in blocks]) for name in blocks[0]}


def _weights(which: Places, clusters: int, size: int, source: np.random.Generator) -> Weights:
    """Draw the number of times each sample occurs, (resamples, samples)."""
    drawn = source.integers(clusters, size=(size, clusters), dtype=np.int32)
    counts = np.stack([np.bincount(one, minlength=clusters) for one in drawn]).astype(np.int32)
    return counts if clusters == len(which) else np.take(counts, which, axis=1)


def percentiles(resampled: Floats) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the defined resamples; None if they are fewer than half."""
    finite = resampled[np.isfinite(resampled)]
    if len(finite) < max(1, len(resampled) // 2):
        return None, None
    low, high = np.quantile(finite, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    return float(low), float(high)


# -- of a block of resamples --------------------------------------------------------------------------------------


class _Levels:
    """Distinct values of samples, in order, and their place for each sample."""

    def __init__(self, values: Floats) -> None:
        distinct, self.place = np.unique(values, return_inverse=True)
        order = np.argsort(self.place, kind="stable")
        self._starts = np.searchsorted(self.place[order], np.arange(len(distinct)))
        self._alone = len(distinct) == len(values)
        self._order = None if np.array_equal(order, np.arange(len(order))) else order

    def counts(self, weights: Weights) -> Weights:
        """Count the draws of each distinct value, (resamples, distinct)."""
        ordered = weights if self._order is None else np.take(weights, self._order, axis=1)
        return ordered if self._alone else np.add.reduceat(ordered, self._starts, axis=1, dtype=np.int32)

    def of_samples(self, values: Floats) -> Floats:
        """Expand values per distinct value to values per sample."""
        return values if self._alone and self._order is None else np.take(values, self.place, axis=1)


def _correlator(xs: Floats, ys: Floats) -> Metric:
    """Return the metric of LCC, SRCC and K-Tau under weights that repeat samples."""
    x, y = ((values - values.mean()) / np.abs(values - values.mean()).max() for values in (xs, ys))
    moments = (x, y, x * x, y * y, x * y)
    by_x, by_y = _Levels(xs), _Levels(ys)
    linear = len(xs) >= LINEAR_FROM
    lead = concordance(by_x.place, by_y.place) / len(xs) ** 2 if linear else np.zeros(0)

    def metric(weights: Weights) -> dict[str, Floats]:
        real = weights.astype(np.float64)
        total = real.sum(axis=1)
        sx, sy, sxx, syy, sxy = (_sum(real, moment) for moment in moments)
        found = {"lcc": _pearson(sxx - sx * sx / total, syy - sy * sy / total, sxy - sx * sy / total, total)}
        counts_x, counts_y = by_x.counts(weights), by_y.counts(weights)
        ranks_x, ranks_y = _centred_ranks(counts_x), _centred_ranks(counts_y)
        shared = _dot(real * by_x.of_samples(ranks_x), by_y.of_samples(ranks_y))
        spread_x, spread_y = _dot(counts_x * ranks_x, ranks_x), _dot(counts_y * ranks_y, ranks_y)
        found["srcc"] = _pearson(spread_x, spread_y, shared, total)
        if linear:
            untied = [1 - _dot(counts, counts) / total**2 for counts in (counts_x, counts_y)]
            concordant = (2 * _sum(real, lead) * len(xs) / total - lead.sum()) * (1 - 1 / len(xs))
            found["ktau"] = _ratio(concordant, np.sqrt(untied[0] * untied[1]))
        else:
            drawn = ((np.repeat(xs, times), np.repeat(ys, times)) for times in weights)
            found["ktau"] = np.array([float(kendalltau(*pair).statistic) for pair in drawn])
        return found

    return metric


def _discriminator(scores: Floats, truth: npt.NDArray[np.bool_]) -> Metric:
    """Return the metric of AUROC and equal-error rate under weights that repeat samples."""
    by_score = _Levels(scores)

    def metric(weights: Weights) -> dict[str, Floats]:
        both, yes = by_score.counts(weights), by_score.counts(weights * truth)
        missed, passed = (np.cumsum(counts, axis=1, dtype=np.int32) for counts in (yes, both))
        refused = passed - missed
        all_yes, all_no = missed[:, -1].astype(np.float64), refused[:, -1].astype(np.float64)
        found = {"auroc": _ratio(_dot(yes, 2 * refused - (both - yes)), 2 * all_yes * all_no)}
        # the equal-error rate lies between the last threshold with a smaller share of missed yes than of accepted no,
        # and the next; below all scores no yes is missed and every no accepted
        above = np.argmax(missed * all_no[:, None] + refused * all_yes[:, None] >= (all_yes * all_no)[:, None], axis=1)
        miss, accept = _ratio(missed, all_yes[:, None]), 1 - _ratio(refused, all_no[:, None])
        row = np.arange(len(miss))
        low = np.where(above > 0, miss[row, above - 1], 0.0)
        gap = np.where(above > 0, accept[row, above - 1], 1.0) - low
        high = miss[row, above]
        found["eer"] = low + _ratio(gap, gap + high - accept[row, above]) * (high - low)
        return found

    return metric


def _centred_ranks(counts: Weights) -> Floats:
    """Return twice the mean rank of each distinct value, less its mean over the samples."""
    above = np.cumsum(counts, axis=1, dtype=np.int32)
    ranks: Floats = (2 * above - counts - above[:, -1:]).astype(np.float64)
    return ranks


def _sum(weights: Floats, values: Floats) -> Floats:
    """Return weighted sums, one per resample; einsum stays in this thread, while BLAS would start others."""
    found: Floats = np.einsum("ij,j->i", weights, values)
    return found


def _dot(x: Any, y: Any) -> Floats:
    """Return sums of products over samples, one per resample."""
    found: Floats = np.einsum("ij,ij->i", np.asarray(x, np.float64), np.asarray(y, np.float64))
    return found


def _pearson(spread_x: Floats, spread_y: Floats, shared: Floats, total: Floats) -> Floats:
    """Return the correlation of standardised sums; undefined if a spread is rounding error only."""
    flat = np.minimum(spread_x, spread_y) <= 16 * np.finfo(float).eps * total
    found = _ratio(shared, np.sqrt(np.maximum(spread_x, 0)) * np.sqrt(np.maximum(spread_y, 0)))
    return np.where(flat, np.nan, np.clip(found, -1, 1))


def _ratio(above: Any, below: Any) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.true_divide(above, below)
    return found


def concordance(x: Places, y: Places) -> Floats:
    """Count for each sample the others that agree with it on the order of x and y, minus the others that disagree.

    Equal values count as neither. Half the sum is Kendall's numerator; each sample's share is the linear part of a
    resample's (Hoeffding 1948, Annals of Mathematical Statistics 19), off by the order of 1 over the number of samples.
    Takes O(n log² n): two values of y differ first in one bit, where all values with equal bits above it stand
    together, in the order of x.

    Args:
        x, y: places of the values among the distinct ones, from 0.
    """
    found = np.zeros(len(x))
    for bit in range(int(y.max()).bit_length()):
        above = y >> (bit + 1)
        order = np.lexsort((x, above))
        node, level, high = above[order], x[order], (y[order] >> bit & 1).astype(bool)
        first = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
        tie = np.flatnonzero(np.r_[True, (node[1:] != node[:-1]) | (level[1:] != level[:-1])])
        of_node = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(x)]))
        of_tie = np.repeat(np.arange(len(tie)), np.diff(np.r_[tie, len(x)]))
        for side, sign in ((high, -1), (~high, 1)):  # samples of the other side: with lower x, and with higher x
            seen = np.r_[0, np.cumsum(side)]
            below = seen[tie][of_tie] - seen[first][of_node]
            beyond = seen[np.r_[first[1:], len(x)]][of_node] - seen[np.r_[tie[1:], len(x)]][of_tie]
            found[order] += np.where(side, 0, sign * (below - beyond))
    return found
