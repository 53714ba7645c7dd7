"""Estimate metrics with the influence of each sample, and intervals for samples that share clips, prompts or systems.

A metric's value is near the truth plus the sum of its samples' influences (Hampel 1974, JASA 69). Samples that share a
unit depend on each other; the variance is the sum of the products of influences over all such pairs: the two-way form
of the cluster variance (Cameron, Gelbach and Miller 2011, JBES 29), and the dyadic one (Aronow, Samii and Assenova
2015, Political Analysis 23). No resample is drawn: a table of many models takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse, stats
from scipy.sparse.csgraph import connected_components

from earmark.schemas.errors import InputError
from earmark.tasks.evaluation.statistics import COVERS, Floats, concordance

MOST_UNITS = 8
"""Units of a sample: their sets are counted, two to this power."""
Scale: TypeAlias = Literal["share", "correlation", "positive"]


class Influence(NamedTuple):
    """A metric's value, None if undefined, and the influence of each sample."""

    value: float | None
    parts: Floats


class Bounds(NamedTuple):
    """Ends of a 95 % interval; None for fewer than two units."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Units:
    """The units that samples share."""

    kinds: tuple[Any, ...]  # for each kind of unit, the sparse matrix of samples by units
    sets: Any  # the sparse matrix of samples by sets of units that they hold
    signs: Floats  # for each set, 1 if its size is odd, else -1

    @classmethod
    def of(cls, kinds: Sequence[Sequence[Iterable[Hashable]]]) -> Units:
        """Return the units of samples, from the labels of each sample for each kind; without a label, its own unit.

        Raises:
            InputError: a sample has more units than pairs of samples can be counted by.
        """
        held = [[[*dict.fromkeys(one)] or [("", place)] for place, one in enumerate(labels)] for labels in kinds]
        whole = [
            sorted({(kind, str(label)) for kind, labels in enumerate(one) for label in labels})
            for one in zip(*held, strict=True)
        ]
        if (most := max(map(len, whole), default=0)) > MOST_UNITS:
            raise InputError(f"expected at most {MOST_UNITS} sampled units for a sample, found one with {most}")
        sets = [[one for size in range(1, len(labels) + 1) for one in combinations(labels, size)] for labels in whole]
        matrix, known = _incidence(sets)
        signs = np.array([1.0 if len(one) % 2 else -1.0 for one in known])
        return cls(tuple(_incidence(one)[0] for one in held), matrix, signs)

    def independent(self, used: npt.NDArray[np.bool_]) -> float:
        """Return the number of independent units behind these samples: of the rarest kind, or of knots that share none.

        Where each sample has k units of a kind, the variance over them is as uncertain as from 1 / k² of them.
        """
        places = np.flatnonzero(used)
        held = [matrix[places] for matrix in self.kinds]
        found = [1 + (np.count_nonzero(one.sum(axis=0)) - 1) / (one.sum() / len(places)) ** 2 for one in held]
        both = sparse.hstack(held, format="csr")
        links = sparse.block_array([[None, both], [both.T, None]])
        labels = connected_components(links, directed=False)[1]
        knots = len(np.unique(labels[: len(places)]))
        return float(max(knots, min(found)))

    def variance(self, parts: Floats) -> Floats:
        """Return the variance of metrics from their influences (samples, metrics), at least that of independence.

        Samples that share any unit are counted once, by inclusion and exclusion of the sets of units.
        """
        shared = self.signs @ (self.sets.T @ parts) ** 2
        found: Floats = np.maximum(shared, (parts**2).sum(axis=0))
        return found


def _incidence(labels: Sequence[Sequence[Hashable]]) -> tuple[Any, list[Any]]:
    """Return the sparse matrix of samples by labels, and the labels."""
    numbers: dict[Hashable, int] = {}
    columns = [numbers.setdefault(one, len(numbers)) for held in labels for one in held]
    rows = np.repeat(np.arange(len(labels)), [len(held) for held in labels])
    shape = (len(labels), len(numbers))
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape), [*numbers]


def bounds(value: float, variance: float, units: float, scale: Scale) -> Bounds:
    """Return the interval of a value, on a scale that keeps it within its range; `units` as from `independent`."""
    if units < 2:
        return Bounds(None, None)
    t = float(stats.t.ppf((1 + COVERS) / 2, units - 1))
    variance *= units / (units - 1)
    if scale == "share":  # Wilson's interval with the effective number of samples
        count = value * (1 - value) / variance if variance > 0 else units
        middle = value + t * t / (2 * count)
        spread = t * np.sqrt(max(0.0, value * (1 - value)) / count + (t / (2 * count)) ** 2)
        low, high = ((middle + sign * spread) / (1 + t * t / count) for sign in (-1, 1))
        return Bounds(max(0.0, low), min(1.0, high))
    if not variance:
        return Bounds(value, value)
    error = t * np.sqrt(variance)
    if scale == "positive":
        return Bounds(value * float(np.exp(-error / value)), value * float(np.exp(error / value)))
    if abs(value) >= 1:
        return Bounds(value, value)
    ends = np.arctanh(value) + np.array([-1, 1]) * error / (1 - value**2)
    return Bounds(*map(float, np.tanh(ends)))


class Gap(NamedTuple):
    """Difference between two models on the same samples, with its 95 % interval, and p of no difference."""

    value: float
    low: float | None
    high: float | None
    p: float | None


def gap(value: float, variance: float, units: float) -> Gap:
    """Return a difference by Student's test; p is at least the least of a test that changes the units' signs."""
    if units < 2:
        return Gap(value, None, None, None)
    error = float(np.sqrt(variance * units / (units - 1)))
    spread = float(stats.t.ppf((1 + COVERS) / 2, units - 1)) * error
    tail = 2 * float(stats.t.sf(abs(value) / error, units - 1)) if error else float(value == 0)
    return Gap(value, value - spread, value + spread, min(1.0, max(tail, 2.0 ** (1 - min(units, 50)))))


# -- metrics ------------------------------------------------------------------------------------------------------


def mean(x: Floats) -> Influence:
    """Return the mean."""
    value = float(x.mean())
    return Influence(value, (x - value) / len(x))


def squared_error(x: Floats, y: Floats) -> Influence:
    """Return the mean squared error."""
    return mean((x - y) ** 2)


def pearson(x: Floats, y: Floats) -> Influence:
    """Return Pearson's correlation."""
    u, v = x - x.mean(), y - y.mean()
    return _correlation(u * v, u * u, v * v)


def spearman(x: Floats, y: Floats) -> Influence:
    """Return Spearman's correlation: Pearson's of the middle ranks, each sample moving the ranks of the others too."""
    u, v = (stats.rankdata(values) / len(x) - (len(x) + 1) / (2 * len(x)) for values in (x, y))
    shared, spread_x, spread_y = u * v, u * u, v * v
    moved = (
        shared + _moved(x, u, v) + _moved(y, v, u),
        spread_x + 2 * _moved(x, u, u),
        spread_y + 2 * _moved(y, v, v),
    )
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
    ranks, parts = stats.rankdata(x), np.empty(total)
    parts[yes] = (ranks[yes] - stats.rankdata(x[yes])) / (total - count)
    parts[~yes] = 1 - (ranks[~yes] - stats.rankdata(x[~yes])) / count
    value = float(parts[yes].mean())
    return Influence(value, (parts - value) / np.where(yes, count, total - count))


METRICS: dict[str, Callable[[Floats, Floats], Influence]] = {
    "lcc": pearson,
    "srcc": spearman,
    "ktau": kendall,
    "mse": squared_error,
    "auroc": auroc,
}


def _correlation(
    shared: Floats, spread_x: Floats, spread_y: Floats, moved: tuple[Floats, Floats, Floats] | None = None
) -> Influence:
    """Return a correlation from its parts by sample, and from how each sample moves their means."""
    means = [float(one.mean()) for one in (shared, spread_x, spread_y)]
    if min(means[1:]) <= 1e-12 * max(1.0, *np.abs(spread_x), *np.abs(spread_y)):
        return Influence(None, np.zeros(len(shared)))
    value = means[0] / float(np.sqrt(means[1] * means[2]))
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
