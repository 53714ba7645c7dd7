"""How far annotators agree: the rate over pairs of votes, and Krippendorff's alpha for nominal data, with intervals.

Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section D: any number of observers, missing data.
A unit with m votes adds, for each ordered pair of its votes, 1 / (m - 1) to the coincidences. Alpha is
1 - (n - 1) * sum of o_ck (c differs from k) / sum of n_c * n_k (c differs from k).
"""

from __future__ import annotations

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
    counts: npt.ArrayLike, own: npt.ArrayLike | None = None, *, draws: int = 1000, seed: int = 0
) -> Agreement | None:
    """Rate and alpha of comparisons with two votes or more; None if there is none.

    Args:
        counts: votes by comparison and choice, shape (comparisons, choices).
        own: of each comparison, an annotator's own votes by choice: the rate is then over pairs of one vote of theirs
            and one of another's; alpha stays that of the comparisons.
    """
    held = np.asarray(counts, float)
    enough = held.sum(axis=1) >= 2
    held = held[enough]
    if not len(held):
        return None
    theirs = None if own is None else np.asarray(own, float)[enough]
    sizes = held.sum(axis=1)
    pairs, same = _pairs(held, theirs)
    # for each comparison: vote pairs, those that agree, disagreement, and the votes by choice
    parts = np.column_stack([pairs, same, (sizes**2 - (held**2).sum(axis=1)) / (sizes - 1), held])
    once = parts.sum(axis=0)[None]
    rate, alpha = _rate(once)[0], _alpha(once)[0]
    rates, alphas = _resampled(parts, draws, seed) if len(held) > 1 else (np.array([]), np.array([]))
    return Agreement(
        comparisons=len(held),
        votes=int(sizes.sum()),
        vote_pairs=int(pairs.sum()),
        agree=int(same.sum()),
        rate=float(rate),
        **dict(zip(("rate_low", "rate_high"), _interval(rates, draws), strict=True)),
        alpha=float(alpha) if np.isfinite(alpha) else None,
        **dict(zip(("alpha_low", "alpha_high"), _interval(alphas, draws), strict=True)),
    )


def alpha(counts: npt.ArrayLike) -> float:
    """Krippendorff's nominal alpha of votes by unit and value; NaN where it is not defined."""
    held = np.asarray(counts, float)
    held = held[held.sum(axis=1) >= 2]
    sizes = held.sum(axis=1)
    disagreement = ((sizes**2 - (held**2).sum(axis=1)) / (sizes - 1)).sum() if len(held) else 0.0
    return float(_alpha(np.concatenate([[0.0, 0.0, disagreement], held.sum(axis=0)])[None])[0])


def _pairs(held: Counts, theirs: Counts | None) -> tuple[Counts, Counts]:
    """Pairs of votes of each comparison, and those that agree."""
    if theirs is None:
        sizes = held.sum(axis=1)
        return sizes * (sizes - 1) / 2, (held * (held - 1) / 2).sum(axis=1)
    others = held - theirs
    return theirs.sum(axis=1) * others.sum(axis=1), (theirs * others).sum(axis=1)


def _rate(sums: Counts) -> Counts:
    with np.errstate(divide="ignore", invalid="ignore"):
        rates: Counts = sums[:, 1] / sums[:, 0]
    return rates


def _alpha(sums: Counts) -> Counts:
    by_choice = sums[:, 3:]
    total = by_choice.sum(axis=1)
    expected = total**2 - (by_choice**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Counts = np.where(expected > 0, 1 - (total - 1) * sums[:, 2] / expected, np.nan)
    return found


def _resampled(parts: Counts, draws: int, seed: int) -> tuple[Counts, Counts]:
    """Rates and alphas of resamples: comparisons that look alike are drawn as one kind, which is the same and fast."""
    kinds, count = np.unique(parts, axis=0, return_counts=True)
    source = np.random.default_rng(seed)
    step = max(1, _AT_ONCE // len(kinds))
    sums = [
        source.multinomial(len(parts), count / count.sum(), size=min(step, draws - start)) @ kinds
        for start in range(0, draws, step)
    ]
    drawn = np.concatenate(sums)
    return _rate(drawn), _alpha(drawn)


def _interval(values: Counts, draws: int) -> tuple[float | None, float | None]:
    finite = values[np.isfinite(values)]
    if len(finite) < max(1, draws // 2):
        return None, None
    low, high = np.quantile(finite, [(1 - COVERS) / 2, (1 + COVERS) / 2])
    return float(low), float(high)
