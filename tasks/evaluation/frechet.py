"""The Fréchet distance between two sets of embeddings, such as the Fréchet audio distance (FAD). Pure functions.

FAD: Kilgour et al. 2019, Interspeech. Of Gaussians fitted to both sets, |m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^½). The
trace of the root is the sum of the singular values of X1 X2ᵀ, where Xᵀ X = C: no root of a matrix that few samples
leave without full rank, and so no numbers that hang on a small addition to its diagonal. All in float64.

Few samples make the distance too large. Its expectation falls about as 1/n, and FAD∞ is where a line through the
distances of subsets meets 1/n = 0 (Chong and Forsyth 2020, CVPR; for audio Gui et al. 2024, ICASSP). Far fewer samples
than dimensions bend that line: FAD∞ is then nearer to the truth than FAD is, and still too large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SIZES, SUBSETS = 6, 4  # sizes of subsets, from a half to all, at even steps of 1/n, and how many are drawn of each
PARTS = 30  # parts that the jackknife leaves out in turn, at most


@dataclass(frozen=True)
class Fad:
    """A Fréchet distance and what is known of its error."""

    value: float  # the distance, from 0; lower is better
    # low, high: 95 % by the jackknife, for the expectation at this number of samples: the bias is not in it. None for
    # fewer than 3 samples.
    low: float | None
    high: float | None
    # extrapolated to infinitely many samples; it can lie below 0. None for fewer than 20 samples.
    infinity: float | None
    samples: int  # how many embeddings
    reference: int  # how many embeddings the reference has
    dimensions: int  # of an embedding


class Gaussian:
    """What the distance needs of a set of embeddings.

    Args:
        embeddings: (samples, dimensions), at least two rows, finite.

    Raises:
        ValueError: they are not.
    """

    def __init__(self, embeddings: npt.ArrayLike) -> None:
        rows = _checked(embeddings)
        self.samples, self.dimensions = rows.shape
        self.mean: Floats = rows.mean(axis=0)
        root = (rows - self.mean) / np.sqrt(len(rows) - 1)
        self.spread = float(np.sum(root**2))
        self.root: Floats = _triangle(root) if len(root) > root.shape[1] else root


def frechet(reference: Gaussian, embeddings: npt.ArrayLike) -> float:
    """The distance of embeddings (samples, dimensions) from a reference.

    Raises:
        ValueError: fewer than two samples, values that are not finite, or another number of dimensions.
    """
    return _Against(reference, embeddings).distance()


def fad(reference: Gaussian, embeddings: npt.ArrayLike) -> Fad:
    """The distance of embeddings (samples, dimensions), its interval and its extrapolation.

    Raises:
        ValueError: as `frechet`.
    """
    against = _Against(reference, embeddings)
    count, value = against.count, against.distance()
    margin = None if count < 3 else 1.96 * _jackknife(against)
    return Fad(
        value,
        None if margin is None else value - margin,
        None if margin is None else value + margin,
        None if count < 20 else _extrapolated(against),
        count,
        reference.samples,
        reference.dimensions,
    )


class _Against:
    """Embeddings as seen from a reference: distances of subsets cost little."""

    def __init__(self, reference: Gaussian, embeddings: npt.ArrayLike) -> None:
        rows = _checked(embeddings)
        if rows.shape[1] != reference.dimensions:
            raise ValueError(f"expected embeddings of {reference.dimensions} dimensions, found {rows.shape[1]}")
        self.count, self._spread = len(rows), reference.spread
        self._rows = rows - reference.mean
        seen = self._rows @ reference.root.T
        # an orthogonal turn leaves singular values: at most as many columns as samples are needed
        self._seen: Floats = _triangle(seen.T).T if seen.shape[1] > len(seen) else seen

    def distance(self, kept: npt.NDArray[np.int64] | None = None) -> float:
        """Of all samples, or of those at some places."""
        rows, seen = (self._rows, self._seen) if kept is None else (self._rows[kept], self._seen[kept])
        mean, freedom = rows.mean(axis=0), len(rows) - 1
        spread = (float(np.sum(rows**2)) - len(rows) * float(mean @ mean)) / freedom
        shared = float(np.linalg.svd(seen - seen.mean(axis=0), compute_uv=False).sum()) / np.sqrt(freedom)
        return max(0.0, float(mean @ mean + spread + self._spread - 2 * shared))


def _jackknife(against: _Against) -> float:
    """The standard error by the delete-a-group jackknife; by single samples up to `PARTS` of them."""
    places = np.random.default_rng(0).permutation(against.count)
    parts = np.array_split(places, min(PARTS, against.count))
    values = np.array([against.distance(np.setdiff1d(places, part)) for part in parts])
    return float(np.sqrt((len(parts) - 1) * np.var(values)))


def _extrapolated(against: _Against) -> float:
    """Where the line through distances of subsets over 1/n meets 0."""
    source, count = np.random.default_rng(0), against.count
    sizes = np.unique(np.round(1 / np.linspace(2 / count, 1 / count, SIZES)).astype(int))
    values = [
        np.mean([against.distance(source.permutation(count)[:size]) for _ in range(SUBSETS if size < count else 1)])
        for size in sizes
    ]
    return float(np.polynomial.polynomial.polyfit(1 / sizes, values, 1)[0])


def _triangle(rows: Floats) -> Floats:
    """A triangle R with Rᵀ R = rowsᵀ rows, of at most as many rows as columns."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _checked(embeddings: npt.ArrayLike) -> Floats:
    rows = np.asarray(embeddings, np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise ValueError(f"expected two or more finite embeddings of one length, found shape {rows.shape}")
    return rows
