"""Group items that share something, and divide a quota among categories. Pure functions."""

from collections.abc import Hashable, Iterable, Mapping


def group(ties: Iterable[Iterable[Hashable]]) -> list[int]:
    """Return the number of each item's group, by connected components of their ties.

    Args:
        ties: for each item, its links to others, such as its prompt and its clips.
    """
    parents, first = list[int](), dict[Hashable, int]()  # an item of the same group before it; the first of each tie

    def root(item: int) -> int:
        while (parent := parents[item]) != item:
            parents[item] = item = parents[parent]  # paths are halved, so that they stay short
        return item

    for item, own in enumerate(ties):
        parents.append(item)
        for tie in own:
            one, other = root(item), root(first.setdefault(tie, item))
            parents[max(one, other)] = min(one, other)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(item), len(numbers)) for item in range(len(parents))]


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
