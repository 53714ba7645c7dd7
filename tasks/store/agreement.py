"""Compute the agreement of annotators: rates over pairs of votes, and Krippendorff's nominal alpha, with intervals.

Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section D: any number of observers, missing data. A
unit with m votes adds, for each ordered pair of its votes, 1 / (m - 1) to the coincidences. Alpha is 1 - (n - 1) * sum
of o_ck (c differs from k) / sum of n_c * n_k (c differs from k).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float64]
COVERS = 0.95
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Agreement:
    """Agreement over some comparisons; the intervals cover 95 %."""

    comparisons: int
    votes: int
    vote_pairs: int
    agree: int
    rate: float
    rate_low: float | None
    rate_high: float | None
    alpha: float | None
    alpha_low: float | None
    alpha_high: float | None


def agreement(
    counts: npt.ArrayLike, annotator_counts: npt.ArrayLike | None = None, *, draws: int = 1000, seed: int = 0
) -> Agreement | None:
    """Compute rate and alpha of the comparisons with at least two votes; None without any.

    Args:
        counts: votes by comparison and choice, shape (comparisons, choices).
        annotator_counts: one annotator's votes by comparison and choice; the rate is then over pairs of a vote of this
            annotator and a vote of another; alpha stays over all votes.
    """
    votes = np.asarray(counts, float)
    enough = votes.sum(axis=1) >= 2
    votes = votes[enough]
    if not len(votes):
        return None
    sizes = votes.sum(axis=1)
    if annotator_counts is None:
        pairs, same = sizes * (sizes - 1) / 2, (votes * (votes - 1) / 2).sum(axis=1)
    else:
        theirs = np.asarray(annotator_counts, float)[enough]
        pairs, same = theirs.sum(axis=1) * (votes - theirs).sum(axis=1), (theirs * (votes - theirs)).sum(axis=1)
    # per comparison: vote pairs, agreeing pairs, disagreement, and the votes by choice
    parts = np.column_stack([pairs, same, (sizes**2 - (votes**2).sum(axis=1)) / (sizes - 1), votes])
    (rate,), (alpha,) = _figures(parts.sum(axis=0)[None])
    rates, alphas = _figures(_resampled(parts, draws, seed) if len(votes) > 1 else parts[:0])
    return Agreement(
        len(votes),
        int(sizes.sum()),
        int(pairs.sum()),
        int(same.sum()),
        float(rate),
        *_percentiles(rates),
        float(alpha) if np.isfinite(alpha) else None,
        *_percentiles(alphas),
    )


def alpha(counts: npt.ArrayLike) -> float | None:
    """Return Krippendorff's nominal alpha of votes by unit and value; None if undefined."""
    votes = np.asarray(counts, float)
    votes = votes[votes.sum(axis=1) >= 2]
    sizes = votes.sum(axis=1)
    disagreement = ((sizes**2 - (votes**2).sum(axis=1)) / (sizes - 1)).sum()
    _, (value,) = _figures(np.array([[0.0, 0.0, disagreement, *votes.sum(axis=0)]]))
    return float(value) if np.isfinite(value) else None


def _figures(sums: Counts) -> tuple[Counts, Counts]:
    """Return rates and alphas from summed parts of comparisons."""
    by_choice = sums[:, 3:]
    total = by_choice.sum(axis=1)
    expected = total**2 - (by_choice**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[:, 1] / sums[:, 0], np.where(expected > 0, 1 - (total - 1) * sums[:, 2] / expected, np.nan)


def _resampled(parts: Counts, draws: int, seed: int) -> Counts:
    """Return sums of resamples; equal comparisons are drawn as one kind, which is equivalent and fast."""
    kinds, count = np.unique(parts, axis=0, return_counts=True)
    source = np.random.default_rng(seed)
    step = max(1, _AT_ONCE // len(kinds))
    sizes = [min(step, draws - start) for start in range(0, draws, step)]
    return np.concatenate([source.multinomial(len(parts), count / count.sum(), size=size) @ kinds for size in sizes])


def _percentiles(resampled: Counts) -> tuple[float | None, float | None]:
    """Return the 95 % interval of the defined resamples; None if they are fewer than half."""
    finite = resampled[np.isfinite(resampled)]
    if len(finite) < max(1, len(resampled) // 2):
        return None, None
    low, high = np.quantile(finite, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    return float(low), float(high)
