"""Compute the kernel distance between sets of embeddings (Kernel Audio Distance, KAD). Pure functions.

KAD (Chung et al. 2025) is 100 times the unbiased estimate of the squared maximum mean discrepancy, under a Gaussian
kernel as wide as the median distance between two reference clips. Few clips do not bias it; it may be below 0.
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist, squareform

from earmark.tasks.evaluation.frechet import Floats, checked_embeddings, margin_of

FACTOR = 100
MOST = 5000  # reference clips: memory and time grow with the square


class KernelReference:
    """A reference for the distance: the first `MOST` of embeddings (samples, dimensions).

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


def kad(reference: KernelReference, embeddings: npt.ArrayLike) -> dict[str, float | None]:
    """Return the distance of embeddings (samples, dimensions) with its interval: `value`, `low`, `high`.

    Raises:
        ValueError: invalid embeddings, or another number of dimensions.
    """
    kernel = _Kernel(reference, embeddings)
    value, margin = kernel.distance(), margin_of(kernel)
    ends = (None, None) if margin is None else (value - margin, value + margin)
    return {"value": value, "low": ends[0], "high": ends[1]}
