"""How well scores and choices agree with what is true, with bootstrap intervals. Pure functions.

Accuracy, Pearson's LCC, Spearman's SRCC and Kendall's K-Tau (tau-b), overall and by group; intervals are percentiles of
resamples by cluster (Efron 1979, Annals of Statistics 7; clusters drawn whole: Field and Welsh 2007, JRSS B 69).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import kendalltau

Floats: TypeAlias = npt.NDArray[np.float64]
Weights: TypeAlias = npt.NDArray[np.int64]

DRAWS = 1000
COVERS = 0.95
SMALL = 30
"""Clusters below which an interval tells little; the table marks such groups."""
_AT_ONCE = 4_000_000  # counts of one block of resamples in memory


@dataclass(frozen=True)
class Estimate:
    """A metric over some samples.

    Attributes:
        value: None where it is not defined, such as a correlation with a constant.
        low, high: the interval that covers 95 %; None for fewer than two clusters, or an undefined value.
        samples: how many samples it is of.
        clusters: how many clusters they fall into.
    """

    value: float | None
    low: float | None
    high: float | None
    samples: int
    clusters: int

    @property
    def small(self) -> bool:
        """Whether there are too few clusters for the interval to be trusted."""
        return self.clusters < SMALL


def accuracy(right: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, seed: int = 0) -> Estimate:
    """The share of samples that are right, 0 to 1.

    Args:
        right: whether each sample is right.
        clusters: a label a sample; samples of one label are drawn together. Each is its own without it.
        seed: of the resamples.
    """
    rights = np.asarray(right, bool)
    which = _clusters(len(rights), clusters)
    if not len(rights):
        return Estimate(None, None, None, 0, 0)
    sizes = np.bincount(which)
    hits = np.bincount(which, weights=rights).astype(np.int64)
    value = float(rights.mean())
    if len(sizes) < 2:
        return Estimate(value, None, None, len(rights), len(sizes))
    kinds, counts = np.unique(np.stack([sizes, hits]), axis=1, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(sizes), counts / counts.sum(), size=DRAWS)
    return _estimate(value, (drawn @ kinds[1]) / (drawn @ kinds[0]), len(rights), len(sizes))


def lcc(x: npt.ArrayLike, y: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, seed: int = 0) -> Estimate:
    """Pearson's linear correlation, -1 to 1. Arguments as for `accuracy`; x and y are finite."""
    return _correlation(_weighted_lcc, x, y, clusters, seed)


def srcc(x: npt.ArrayLike, y: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, seed: int = 0) -> Estimate:
    """Spearman's rank correlation, -1 to 1: Pearson's over ranks, equal values sharing their mean rank."""
    return _correlation(_weighted_srcc, x, y, clusters, seed)


def ktau(x: npt.ArrayLike, y: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, seed: int = 0) -> Estimate:
    """Kendall's tau-b, -1 to 1."""
    return _correlation(_weighted_ktau, x, y, clusters, seed)


METRICS: dict[str, Callable[..., Estimate]] = {"accuracy": accuracy, "lcc": lcc, "srcc": srcc, "ktau": ktau}
LABELS = {"accuracy": "accuracy", "lcc": "LCC", "srcc": "SRCC", "ktau": "K-Tau"}


def _correlation(
    metric: Callable[[Floats, Floats, Weights], Floats], x: Any, y: Any, clusters: Any, seed: int
) -> Estimate:
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if xs.shape != ys.shape or xs.ndim != 1 or not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise ValueError("expected two lists of finite numbers of one length")
    which = _clusters(len(xs), clusters)
    held = int(which.max()) + 1 if len(which) else 0
    if len(xs) < 2:
        return Estimate(None, None, None, len(xs), held)
    once = float(metric(xs, ys, np.ones((1, len(xs)), np.int64))[0])
    if not np.isfinite(once):
        return Estimate(None, None, None, len(xs), held)
    if held < 2:
        return Estimate(once, None, None, len(xs), held)
    resampled = np.concatenate([metric(xs, ys, weights[:, which]) for weights in _resamples(held, len(xs), seed)])
    return _estimate(once, resampled, len(xs), held)


def _clusters(count: int, labels: Any) -> npt.NDArray[np.int64]:
    """The number of each sample's cluster, from 0, in the order in which they come."""
    if labels is None:
        return np.arange(count)
    if len(labels) != count:
        raise ValueError(f"expected {count} labels of clusters, found {len(labels)}")
    return pd.factorize(np.asarray(labels, object))[0].astype(np.int64)


def _resamples(clusters: int, samples: int, seed: int) -> Iterator[Weights]:
    """Blocks of resamples: how often each cluster is drawn, one row a resample."""
    source = np.random.default_rng(seed)
    rows = max(1, _AT_ONCE // samples)
    for start in range(0, DRAWS, rows):
        drawn = source.integers(clusters, size=(min(rows, DRAWS - start), clusters))
        counts = np.zeros(drawn.shape, np.int64)
        np.add.at(counts, (np.arange(len(drawn))[:, None], drawn), 1)
        yield counts


def _estimate(value: float, resampled: Floats, samples: int, clusters: int) -> Estimate:
    """The interval from resamples; those in which the metric is not defined are left out."""
    finite = resampled[np.isfinite(resampled)]
    if len(finite) < DRAWS // 2:
        return Estimate(value, None, None, samples, clusters)
    low, high = np.quantile(finite, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    return Estimate(value, float(low), float(high), samples, clusters)


def _weighted_lcc(x: Floats, y: Floats, weights: Weights) -> Floats:
    """Pearson's correlation of the sample in which each row of weights repeats the values. x and y may be of one
    dimension, or have a row for each row of weights."""
    total = weights.sum(axis=1, keepdims=True)
    dx = x - (weights * x).sum(axis=1, keepdims=True) / total
    dy = y - (weights * y).sum(axis=1, keepdims=True) / total
    shared = (weights * dx * dy).sum(axis=1)
    spread_x, spread_y = (weights * dx * dx).sum(axis=1), (weights * dy * dy).sum(axis=1)
    scale_x, scale_y = (float(np.max(np.abs(values), initial=0)) for values in (x, y))
    tiny = np.finfo(float).eps ** 2 * total[:, 0]  # what rounding alone leaves of a constant
    flat = (spread_x <= tiny * scale_x**2) | (spread_y <= tiny * scale_y**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.clip(shared / (np.sqrt(spread_x) * np.sqrt(spread_y)), -1, 1)
    return np.where(flat, np.nan, found)


def _weighted_srcc(x: Floats, y: Floats, weights: Weights) -> Floats:
    return _weighted_lcc(_weighted_ranks(x, weights), _weighted_ranks(y, weights), weights)


def _weighted_ranks(values: Floats, weights: Weights) -> Floats:
    """The mean rank of each value in each resample."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(distinct)))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    above = np.cumsum(counts, axis=1)
    ranks: Floats = (above - (counts - 1) / 2)[:, place]
    return ranks


def _weighted_ktau(x: Floats, y: Floats, weights: Weights) -> Floats:
    """One resample after the other: scipy's is O(n log n), where a whole block would be O(n^2)."""
    return np.array([kendalltau(np.repeat(x, times), np.repeat(y, times)).statistic for times in weights])
