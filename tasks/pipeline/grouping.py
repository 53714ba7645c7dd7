"""Group items that share something, and divide a quota among categories. Pure functions."""

from array import array
from collections.abc import Hashable, Iterable, Mapping

import numpy as np


def group(ties: Iterable[Iterable[Hashable]]) -> list[int]:
    """Return the number of each item's group, by connected components of their ties.

    Args:
        ties: for each item, its links to others, such as its prompt and its clips.
    """
    from scipy.sparse import coo_array  # half a second to import, which an up-to-date build should not spend
    from scipy.sparse.csgraph import connected_components

    places: dict[Hashable, int] = {}
    rows, columns, items = array("q"), array("q"), 0
    for own in ties:
        for tie in own:
            rows.append(items)
            columns.append(places.setdefault(tie, len(places)))
        items += 1
    size = items + len(places)
    if not size:
        return []
    ends = (np.frombuffer(rows, np.int64), np.frombuffer(columns, np.int64) + items)
    graph = coo_array((np.ones(len(rows), np.int8), ends), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return [int(label) for label in labels[:items]]


def share_out(quota: int, available: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, int]:
    """Divide a quota by weights; pass the shortfall of a category to the others, again by weight.

    Args:
        quota: total to take.
        available: size of each category.
        weights: each category's share; a category of weight 0 gets nothing.

    Returns:
        Number to take of each category: never more than its size, in all the quota or everything available.
        Remainders go to the largest fraction, then to the category named first.
    """
    takes = dict.fromkeys(available, 0)
    while True:
        left = quota - sum(takes.values())
        open_ = [name for name in available if weights.get(name, 0) > 0 and takes[name] < available[name]]
        if left <= 0 or not open_:
            return takes
        total = sum(weights[name] for name in open_)
        shares = {name: left * weights[name] / total for name in open_}
        extra = {name: int(share) for name, share in shares.items()}
        rest = left - sum(extra.values())
        for name in sorted(open_, key=lambda name: extra[name] - shares[name])[:rest]:
            extra[name] += 1
        for name in open_:
            takes[name] += min(extra[name], available[name] - takes[name])
