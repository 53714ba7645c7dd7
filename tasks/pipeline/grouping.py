"""Group items that share something, directly or through others. Pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def group(ties: Sequence[Sequence[Hashable]]) -> list[int]:
    """Return the number of each item's group, by connected components of their ties.

    Args:
        ties: for each item, its links to others, such as its prompt and its clips.
    """
    from scipy.sparse import coo_array  # half a second to import, which an up-to-date build should not spend
    from scipy.sparse.csgraph import connected_components

    places: dict[Hashable, int] = {}
    edges = [(row, places.setdefault(tie, len(places))) for row, own in enumerate(ties) for tie in own]
    size = len(ties) + len(places)
    if not size:
        return []
    rows = np.array([row for row, _ in edges], np.int64)
    columns = np.array([place for _, place in edges], np.int64) + len(ties)
    graph = coo_array((np.ones(len(edges), np.int8), (rows, columns)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return [int(label) for label in labels[: len(ties)]]
