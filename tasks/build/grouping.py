"""What belongs together because it shares something, directly or by way of others. Pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def group(ties: Sequence[Sequence[Hashable]]) -> list[int]:
    """The number of each item's group; items whose ties reach one another are in one group.

    Args:
        ties: for each item, what it has in common with others, such as its prompt and its clips.
    """
    from scipy.sparse import coo_array  # half a second, of which a build that is up to date should know nothing
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
