"""Compute the Fréchet distance between sets of embeddings, e.g. the Fréchet audio distance (FAD). Pure functions.

FAD: Kilgour et al. 2019, Interspeech. Of Gaussians fitted to both sets, |m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^½). The
trace of the root is the sum of the singular values of X1 X2ᵀ, where Xᵀ X = C: this avoids the root of a matrix that few
samples leave rank-deficient, and results that depend on a small addition to its diagonal. All in float64.

The distance is biased upwards for few samples. Its expectation falls about as 1/n, and FAD∞ is the intercept at 1/n = 0
of a line through the distances of subsets (Chong and Forsyth 2020, CVPR; for audio Gui et al. 2024, ICASSP). With far
fewer samples than dimensions the line bends: FAD∞ is then nearer to the truth than FAD, but still too large.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SIZES, SUBSETS = 6, 4  # sizes of subsets, from a half to all, at even steps of 1/n, and draws of each size
PARTS = 30  # most parts that the jackknife leaves out in turn


@dataclass(frozen=True)
class Fad:
    """Fréchet distance with its error."""

    value: float  # the distance, from 0; lower is better
    # low, high: 95 % by the jackknife, for the expectation at this number of samples, without its bias. None for fewer
    # than 3 samples.
    low: float | None
    high: float | None
    # extrapolated to infinitely many samples; may be below 0. None for fewer than 20 samples.
    infinity: float | None
    samples: int  # number of embeddings
    reference: int  # number of the reference's embeddings
    dimensions: int  # of an embedding


class Gaussian:
    """Statistics of a set of embeddings for the distance.

    Args:
        embeddings: (samples, dimensions), at least two rows, finite.

    Raises:
        ValueError: invalid embeddings.
    """

    def __init__(self, embeddings: npt.ArrayLike) -> None:
        rows = _checked(embeddings)
        self.samples, self.dimensions = rows.shape
        self.mean: Floats = rows.mean(axis=0)
        root = (rows - self.mean) / np.sqrt(len(rows) - 1)
        self.spread = float(np.sum(root**2))
        self.root: Floats = _triangle(root) if len(root) > root.shape[1] else root


def frechet(reference: Gaussian, embeddings: npt.ArrayLike) -> float:
    """Return the distance of embeddings (samples, dimensions) from a reference.

    Raises:
        ValueError: fewer than two samples, values that are not finite, or another number of dimensions.
    """
    return _Against(reference, embeddings).distance()


def fad(reference: Gaussian, embeddings: npt.ArrayLike) -> Fad:
    """Return the distance of embeddings (samples, dimensions), its interval and its extrapolation.

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
    """Embeddings projected on a reference, for cheap distances of subsets."""

    def __init__(self, reference: Gaussian, embeddings: npt.ArrayLike) -> None:
        rows = _checked(embeddings)
        if rows.shape[1] != reference.dimensions:
            raise ValueError(f"expected embeddings of {reference.dimensions} dimensions, found {rows.shape[1]}")
        self.count, self._spread = len(rows), reference.spread
        self._rows = rows - reference.mean
        seen = self._rows @ reference.root.T
        # an orthogonal transform keeps singular values: at most as many columns as samples are needed
        self._seen: Floats = _triangle(seen.T).T if seen.shape[1] > len(seen) else seen

    def distance(self, kept: npt.NDArray[np.int64] | None = None) -> float:
        """Return the distance of all samples, or of the samples at some places."""
        rows, seen = (self._rows, self._seen) if kept is None else (self._rows[kept], self._seen[kept])
        mean, freedom = rows.mean(axis=0), len(rows) - 1
        spread = (float(np.sum(rows**2)) - len(rows) * float(mean @ mean)) / freedom
        shared = float(np.linalg.svd(seen - seen.mean(axis=0), compute_uv=False).sum()) / np.sqrt(freedom)
        return max(0.0, float(mean @ mean + spread + self._spread - 2 * shared))


def _jackknife(against: _Against) -> float:
    """Return the standard error by the delete-a-group jackknife; single samples up to `PARTS` of them."""
    places = np.random.default_rng(0).permutation(against.count)
    parts = np.array_split(places, min(PARTS, against.count))
    values = np.array([against.distance(np.setdiff1d(places, part)) for part in parts])
    return float(np.sqrt((len(parts) - 1) * np.var(values)))


def _extrapolated(against: _Against) -> float:
    """Return the intercept of the line through distances of subsets over 1/n."""
    source, count = np.random.default_rng(0), against.count
    sizes = np.unique(np.round(1 / np.linspace(2 / count, 1 / count, SIZES)).astype(int))
    values = [
        np.mean([against.distance(source.permutation(count)[:size]) for _ in range(SUBSETS if size < count else 1)])
        for size in sizes
    ]
    return float(np.polynomial.polynomial.polyfit(1 / sizes, values, 1)[0])


def _triangle(rows: Floats) -> Floats:
    """Return a triangle R with Rᵀ R = rowsᵀ rows, of at most as many rows as columns."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _checked(embeddings: npt.ArrayLike) -> Floats:
    rows = np.asarray(embeddings, np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise ValueError(f"expected two or more finite embeddings of one length, found shape {rows.shape}")
    return rows
