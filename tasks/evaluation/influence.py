"""Estimate metrics with the influence of each sample, their intervals, and tests of differences.

A metric's value is near the truth plus the sum of its samples' influences (Hampel 1974, JASA 69). Their variance over
units that samples share (`units.py`) gives intervals and tests without resamples: a table of many models takes seconds.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import special  # scipy.stats takes a second to import, in each build of preferences

from earmark.schemas.results import ClipMean, GapFacts, MetricFacts, PairGap
from earmark.tasks.evaluation.statistics import Floats, Places, concordance, holm, middle_ranks
from earmark.tasks.evaluation.units import Units
from earmark.tasks.store.agreement import COVERS

Scale: TypeAlias = Literal["share", "correlation", "positive"]
SCALES: dict[str, Scale] = {"lcc": "correlation", "srcc": "correlation", "ktau": "correlation", "mse": "positive"}
ROUNDING = 1e-20  # the variance of a metric without any, after rounding
SMALL = 30  # units below which an interval is unreliable; tables mark such groups


def scale_of(metric: str) -> Scale:
    """Return the range that a metric's interval keeps to."""
    return SCALES.get(metric, "share")


class Influence(NamedTuple):
    """A metric's value, None if undefined, and the influence of each sample."""

    value: float | None
    parts: Floats


class Bounds(NamedTuple):
    """Ends of a 95 % interval; None for fewer than two units, or without a bound."""

    low: float | None
    high: float | None


def bounds(value: float, variance: float, units: float, scale: Scale) -> Bounds:
    """Return the interval of a value, on a scale that keeps it within its range; None without a bound.

    `units` are as from `independent`.
    """
    if units < 2:
        return Bounds(None, None)
    t = float(special.stdtrit(units - 1, (1 + COVERS) / 2))
    variance *= units / (units - 1)
    if scale == "share":  # Wilson's interval with the effective number of samples
        count = value * (1 - value) / variance if variance > 0 else units
        middle = value + t * t / (2 * count)
        spread = t * np.sqrt(max(0.0, value * (1 - value)) / count + (t / (2 * count)) ** 2)
        low, high = ((middle + sign * spread) / (1 + t * t / count) for sign in (-1, 1))
        return Bounds(max(0.0, low), min(1.0, high))
    # a few samples in perfect order, or of two points, have influences of 0 and would leave an interval without width
    if variance <= ROUNDING * (value**2 if scale == "positive" else 1):
        return Bounds(None, None)
    error = t * np.sqrt(variance)
    if scale == "positive":  # of 1 / value, which is less skewed
        share = float(error) / value
        return Bounds(value / (1 + share), value / (1 - share)) if share < 1 else Bounds(None, None)
    ends = np.arctanh(value) + np.array([-1, 1]) * error / (1 - value**2)
    return Bounds(*map(float, np.tanh(ends)))


class Estimate(NamedTuple):
    """Metric over some samples, with its 95 % interval."""

    value: float | None  # None if undefined, such as a correlation with a constant
    low: float | None
    high: float | None
    units: float  # number of independent units behind the samples

    @property
    def small(self) -> bool:
        """Return whether there are too few units for a reliable interval."""
        return self.units < SMALL

    def facts(self) -> MetricFacts:
        """Return the value and the interval."""
        return {"value": self.value, "low": self.low, "high": self.high}


def estimates(found: Mapping[str, Influence], units: Units, places: Places | None = None) -> dict[str, Estimate]:
    """Return the intervals of metrics, by name.

    Args:
        places: of the metrics' samples among those of the units; by default all.
    """
    parts = _placed([one.parts for one in found.values()], units, places)
    independent = units.independent(np.arange(len(parts)) if places is None else places)
    ends = [
        Bounds(None, None) if one.value is None else bounds(one.value, variance, independent, scale_of(name))
        for (name, one), variance in zip(found.items(), units.variance(parts).tolist(), strict=True)
    ]
    return {name: Estimate(one.value, *end, independent) for (name, one), end in zip(found.items(), ends, strict=True)}


def _placed(parts: Sequence[Floats], units: Units, places: Places | None) -> Floats:
    """Return influences (samples, metrics) over all samples of the units."""
    if places is None:
        return np.stack(parts, axis=1)
    found = np.zeros((units.sets.shape[0], len(parts)))
    found[places] = np.stack(parts, axis=1)
    return found


def share(right: Iterable[Any], shared: Iterable[Hashable] | None = None) -> Estimate:
    """Return the mean of values from 0 to 1.

    Args:
        shared: a label of each sample; those of one label depend on each other.
    """
    values = np.array([*right], float)
    units = Units.apart(len(values)) if shared is None else Units.of([[(one,) for one in shared]])
    return estimates({"share": mean(values)}, units)["share"]


def mean_of(values: Sequence[float | None], *, shares: bool = False) -> ClipMean | None:
    """Return the mean of the known values, with Student's 95 % interval, or Wilson's of shares; None without any."""
    known = np.array([value for value in values if value is not None], float)
    if not len(known):
        return None
    found = mean(known)
    value, variance = float(known.mean()), float((found.parts**2).sum())
    low, high = bounds(value, variance, len(known), "share") if shares else gap(value, variance, len(known))[1:3]
    return {"value": value, "low": low, "high": high, "clips": len(known)}


class Gap(NamedTuple):
    """Difference between two models on the same samples, with its 95 % interval, and p of no difference."""

    value: float | None  # first minus second; None if either is undefined
    low: float | None
    high: float | None
    p: float | None

    def facts(self) -> GapFacts:
        """Return the difference, the interval and p."""
        return {"value": self.value, "low": self.low, "high": self.high, "p": self.p}


def gap(value: float | None, variance: float, units: float) -> Gap:
    """Return a difference by Student's test; p is at least the least of a test that changes the units' signs."""
    if value is None or units < 2:
        return Gap(value, None, None, None)
    error = float(np.sqrt(variance * units / (units - 1)))
    spread = float(special.stdtrit(units - 1, (1 + COVERS) / 2)) * error
    tail = 2 * float(special.stdtr(units - 1, -abs(value) / error)) if error else float(value == 0)
    p = min(1.0, max(tail, 2.0 ** (1 - min(units, 50))))
    alike = variance <= ROUNDING * value**2  # units that all differ by one number do not tell that others would
    return Gap(value, None if alike else value - spread, None if alike else value + spread, p)


def pair_differences(
    metric: str, found: Mapping[str, Influence], units: Units, places: Places | None = None
) -> list[PairGap]:
    """Return the difference of each pair of models, first minus second, with p adjusted by Holm over the pairs.

    Args:
        found: the metric of each model, on the same samples.
        places: as for `estimates`.
    """
    pairs = [*combinations(found, 2)]
    parts = _placed([found[a].parts - found[b].parts for a, b in pairs], units, places)
    independent = units.independent(np.arange(len(parts)) if places is None else places)
    gaps = []
    for (a, b), variance in zip(pairs, units.variance(parts).tolist(), strict=True):
        first, second = found[a].value, found[b].value
        gaps.append(gap(None if first is None or second is None else first - second, variance, independent))
    return [
        {"metric": metric, "first": a, "second": b, **one.facts(), "p_holm": p}
        for (a, b), one, p in zip(pairs, gaps, holm([one.p for one in gaps]), strict=True)
    ]


# -- metrics ------------------------------------------------------------------------------------------------------


def mean(x: Floats) -> Influence:
    """Return the mean."""
    if not len(x):
        return Influence(None, x)
    value = float(x.mean())
    return Influence(value, (x - value) / len(x))


def squared_error(x: Floats, y: Floats) -> Influence:
    """Return the mean squared error."""
    return mean((x - y) ** 2)


def pearson(x: Floats, y: Floats) -> Influence:
    """Return Pearson's correlation."""
    u, v = _standard(x), _standard(y)
    return _correlation(u * v, u * u, v * v)


def _standard(x: Floats) -> Floats:
    """Return values less their mean, over the largest; zeros if rounding alone tells them apart."""
    centred: Floats = x - x.mean()
    alike = np.ptp(x) <= 16 * np.finfo(float).eps * np.abs(x).max()
    return np.zeros(len(x)) if alike else centred / np.abs(centred).max()


def spearman(x: Floats, y: Floats) -> Influence:
    """Return Spearman's correlation: Pearson's of the middle ranks, each sample moving the ranks of the others too."""
    u, v = (middle_ranks(values) / len(x) - (len(x) + 1) / (2 * len(x)) for values in (x, y))
    shared, spread_x, spread_y = u * v, u * u, v * v
    moved = (shared + _moved(x, u, v) + _moved(y, v, u), spread_x + 2 * _moved(x, u, u), spread_y + 2 * _moved(y, v, v))
    return _correlation(shared, spread_x, spread_y, moved)


def kendall(x: Floats, y: Floats) -> Influence:
    """Return Kendall's tau-b."""
    count = len(x)
    by_x, by_y = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    agree = concordance(by_x, by_y) / count
    untied_x, untied_y = (1 - np.bincount(place)[place] / count for place in (by_x, by_y))
    moved = (2 * agree - agree.mean(), 2 * untied_x - untied_x.mean(), 2 * untied_y - untied_y.mean())
    return _correlation(agree, untied_x, untied_y, moved)


def auroc(x: Floats, y: Floats) -> Influence:
    """Return the share of pairs of a yes and a no in which the yes scores higher, equal scores counting one half."""
    yes = y > 0
    count, total = int(yes.sum()), len(x)
    if count in (0, total):
        return Influence(None, np.zeros(total))
    ranks, parts = middle_ranks(x), np.empty(total)
    parts[yes] = (ranks[yes] - middle_ranks(x[yes])) / (total - count)
    parts[~yes] = 1 - (ranks[~yes] - middle_ranks(x[~yes])) / count
    value = float(parts[yes].mean())
    return Influence(value, (parts - value) / np.where(yes, count, total - count))


def equal_error(x: Floats, y: Floats) -> Influence:
    """Return the rate of missed yes and of accepted no where they are equal, on the lines between thresholds.

    A sample's influence is its own part in the two rates, weighed by their slopes around the crossing.
    """
    yes, total = y > 0, len(x)
    count = int(yes.sum())
    if count in (0, total):
        return Influence(None, np.zeros(total))
    distinct, place = np.unique(x, return_inverse=True)
    missed, refused = (np.r_[0, np.cumsum(np.bincount(place[kind], minlength=len(distinct)))] / kind.sum()
                       for kind in (yes, ~yes))  # fmt: skip
    lead = missed + refused - 1  # rises from -1 to 1
    value, crossing = (float(np.interp(0, lead, one)) for one in (missed, np.arange(len(lead))))
    below, near = np.clip(crossing - place, 0, 1), total**-0.25
    rise = float(np.diff(np.interp([-near, near], lead, missed))[0]) / (2 * near)
    parts = np.where(yes, (1 - rise) * (below - value) / count, rise * (1 - below - value) / (total - count))
    return Influence(value, parts)


METRICS: dict[str, Callable[[Floats, Floats], Influence]] = {
    "lcc": pearson,
    "srcc": spearman,
    "ktau": kendall,
    "mse": squared_error,
    "auroc": auroc,
    "eer": equal_error,
}


def measure(metric: str, x: Floats, y: Floats) -> Influence:
    """Return a metric of scores and truths; undefined for fewer than two samples."""
    return METRICS[metric](x, y) if len(x) > 1 else Influence(None, np.zeros(len(x)))


def _correlation(
    shared: Floats, spread_x: Floats, spread_y: Floats, moved: tuple[Floats, Floats, Floats] | None = None
) -> Influence:
    """Return a correlation from its parts by sample, and from how each sample moves their means."""
    means = [float(one.mean()) for one in (shared, spread_x, spread_y)]
    if min(means[1:]) <= 1e-12:
        return Influence(None, np.zeros(len(shared)))
    value = float(np.clip(means[0] / np.sqrt(means[1] * means[2]), -1, 1))
    by, of_x, of_y = (one - middle for one, middle in zip(moved or (shared, spread_x, spread_y), means, strict=True))
    parts = by / np.sqrt(means[1] * means[2]) - value / 2 * (of_x / means[1] + of_y / means[2])
    return Influence(value, parts / len(shared))


def _moved(values: Floats, ranks: Floats, weights: Floats) -> Floats:
    """Return how each sample changes the mean of ranks times weights, by raising the ranks above its value."""
    distinct, place = np.unique(values, return_inverse=True)
    by_value = np.bincount(place, weights=weights, minlength=len(distinct))
    above = by_value.sum() - np.cumsum(by_value)
    moved: Floats = ((above + by_value / 2)[place] - float(((ranks + 0.5) * weights).sum())) / len(values)
    return moved
