"""Adjust tests, choose thresholds, and count concordant pairs. Pure functions."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]


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
    xs, ys = np.asarray(scores, float), np.asarray(truth, float)
    if xs.shape != ys.shape or xs.ndim != 1 or not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise ValueError("expected two lists of finite numbers of one length")
    distinct, place = np.unique(xs, return_inverse=True)
    yes = np.bincount(place, weights=ys > 0)
    no = np.bincount(place) - yes
    right = np.concatenate([[0.0], np.cumsum(no)]) + np.concatenate([np.cumsum(yes[::-1])[::-1], [0.0]])
    edges = np.concatenate([distinct[:1], (distinct[1:] + distinct[:-1]) / 2, np.nextafter(distinct[-1:], np.inf)])
    best = np.flatnonzero(right == right.max())
    return float(edges[best[len(best) // 2]])


def middle_ranks(x: npt.ArrayLike) -> Floats:
    """Rank values from 1, equal ones by the middle of their ranks."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    ranks: Floats = (counts.cumsum() - (counts - 1) / 2)[place]
    return ranks


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
