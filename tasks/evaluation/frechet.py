"""Compute the Fréchet distance between sets of embeddings, e.g. the Fréchet audio distance (FAD). Pure functions.

FAD: Kilgour et al. 2019, Interspeech. Of Gaussians fitted to both sets, |m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^½). The
trace of the root is the sum of the singular values of X1 X2ᵀ, where Xᵀ X = C: this avoids the root of a matrix that few
samples leave rank-deficient, and results that depend on a small addition to its diagonal. All in float64.

The distance is biased upwards for few samples. Its expectation falls about as 1/n, and FAD∞ is the intercept at 1/n = 0
of a line through the distances of subsets (Chong and Forsyth 2020, CVPR; for audio Gui et al. 2024, ICASSP). With far
fewer samples than dimensions the line bends: FAD∞ is then nearer to the truth than FAD, but still too large.
"""

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist, squareform

from earmark.schemas.results import FadFacts, MetricFacts

Floats = npt.NDArray[np.float64]

SIZES, SUBSETS = 6, 4  # sizes of subsets, from a half to all, at even steps of 1/n, and draws of each size
PARTS = 30  # most parts that the jackknife leaves out in turn


class Gaussian:
    """Statistics of a set of embeddings for the distance.

    Args:
        embeddings: (samples, dimensions), at least two rows, finite.

    Raises:
        ValueError: invalid embeddings.
    """

    def __init__(self, embeddings: npt.ArrayLike) -> None:
        rows = checked_embeddings(embeddings)
        self.samples: int | None = len(rows)
        self.mean: Floats = rows.mean(axis=0)
        root = (rows - self.mean) / np.sqrt(len(rows) - 1)
        self.spread = float(np.sum(root**2))
        self.root: Floats = _triangle(root) if len(root) > root.shape[1] else root

    @classmethod
    def of_moments(cls, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Self:
        """Make it from statistics alone."""
        made = cls.__new__(cls)
        made.mean, matrix = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
        size = made.mean.size
        if made.mean.shape != (size,) or matrix.shape != (size, size) or not np.allclose(matrix, matrix.T):
            raise ValueError(f"expected a mean and its covariances, found shapes {made.mean.shape} and {matrix.shape}")
        if not (np.isfinite(made.mean).all() and np.isfinite(matrix).all()):
            raise ValueError("expected finite statistics")
        roots, axes = np.linalg.eigh(matrix)
        if roots.min() < -1e-6 * roots.max():
            raise ValueError(f"expected covariances, found a matrix with the eigenvalue {roots.min():.3g}")
        made.samples, made.spread = None, float(np.trace(matrix))
        made.root = np.sqrt(np.maximum(roots, 0))[:, None] * axes.T
        return made


def frechet(reference: Gaussian, embeddings: npt.ArrayLike) -> float:
    """Return the distance of embeddings (samples, dimensions) from a reference."""
    return _Against(reference, embeddings).distance()


def fad(reference: Gaussian, embeddings: npt.ArrayLike) -> FadFacts:
    """Return the distance of embeddings (samples, dimensions), its interval and its extrapolation.

    Raises:
        ValueError: as `frechet`.
    """
    against = _Against(reference, embeddings)
    count, value, margin = against.count, against.distance(), margin_of(against)
    return {
        "value": value,
        "low": None if margin is None else max(0.0, value - margin),
        "high": None if margin is None else value + margin,
        "infinity": None if count < 20 else _extrapolated(against),
        "samples": count,
        "reference": reference.samples,
        "dimensions": reference.mean.size,
    }


class _Against:
    """Embeddings projected on a reference, for cheap distances of subsets."""

    def __init__(self, reference: Gaussian, embeddings: npt.ArrayLike) -> None:
        rows = checked_embeddings(embeddings)
        if rows.shape[1] != reference.mean.size:
            raise ValueError(f"expected embeddings of {reference.mean.size} dimensions, found {rows.shape[1]}")
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


class Subsets(Protocol):
    """Samples whose subsets have a distance."""

    count: int

    def distance(self, kept: npt.NDArray[np.int64] | None = None) -> float:
        """Return the distance of all samples, or of the samples at some places."""


def margin_of(against: Subsets) -> float | None:
    """Return the half of the 95 % interval by the delete-a-group jackknife, of single samples up to `PARTS` of them;
    None for fewer than 3."""
    if against.count < 3:
        return None
    places = np.random.default_rng(0).permutation(against.count)
    parts = np.array_split(places, min(PARTS, against.count))
    values = np.array([against.distance(np.setdiff1d(places, part)) for part in parts])
    return float(1.96 * np.sqrt((len(parts) - 1) * np.var(values)))


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


def checked_embeddings(embeddings: npt.ArrayLike) -> Floats:
    """Return embeddings as float64."""
    rows = np.asarray(embeddings, np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise ValueError(f"expected two or more finite embeddings of one length, found shape {rows.shape}")
    return rows


FACTOR = 100
MOST = 5000  # reference clips: memory and time grow with the square


class KernelReference:
    """A reference for the kernel distance: the first `MOST` of embeddings (samples, dimensions).

    The Kernel Audio Distance (KAD, Chung et al. 2025) is 100 times the unbiased estimate of the squared maximum mean
    discrepancy, under a Gaussian kernel as wide as the median distance between two reference clips. Few clips do not
    bias it; it may be below 0.

    Raises:
        ValueError: invalid embeddings.
    """

    def __init__(self, embeddings: npt.ArrayLike) -> None:
        self.rows = checked_embeddings(embeddings)[:MOST]
        squared = pdist(self.rows, "sqeuclidean")
        self.sharpness = 1 / (2 * float(np.median(np.sqrt(squared))) ** 2 + 1e-8)
        self.own = float(np.exp(-self.sharpness * squared).mean())


class _Kernel:
    """Embeddings beside a reference, for cheap distances of subsets."""

    def __init__(self, reference: KernelReference, embeddings: npt.ArrayLike) -> None:
        rows = checked_embeddings(embeddings)
        self.count, self._own = len(rows), reference.own
        self._within: Floats = squareform(np.exp(-reference.sharpness * pdist(rows, "sqeuclidean")))
        across = np.exp(-reference.sharpness * cdist(rows, reference.rows, "sqeuclidean"))
        self._across: Floats = across.mean(axis=1)

    def distance(self, kept: npt.NDArray[np.int64] | None = None) -> float:
        """Return the distance of all samples, or of the samples at some places."""
        places = np.arange(self.count) if kept is None else kept
        within = self._within[np.ix_(places, places)].sum() / (len(places) * (len(places) - 1))
        return float(FACTOR * (self._own + within - 2 * self._across[places].mean()))


def kad(reference: KernelReference, embeddings: npt.ArrayLike) -> MetricFacts:
    """Return the distance of embeddings (samples, dimensions) with its interval: `value`, `low`, `high`.

    Raises:
        ValueError: invalid embeddings, or another number of dimensions.
    """
    kernel = _Kernel(reference, embeddings)
    value, margin = kernel.distance(), margin_of(kernel)
    ends = (None, None) if margin is None else (value - margin, value + margin)
    return {"value": value, "low": ends[0], "high": ends[1]}
