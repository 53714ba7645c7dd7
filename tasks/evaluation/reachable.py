"""Bound the number of preferences that clip scores can meet: cycles and contradictory votes exclude some."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

PATIENCE_S = 10.0  # time limit per knot of preferences; then the bound reached so far is reported


@dataclass(frozen=True)
class Reachable:
    """Number of preferences that can be met; `exact`, or else an upper bound."""

    met: int
    exact: bool


def reachable(preferences: Iterable[tuple[str, str, bool]]) -> Reachable:
    """Return the most preferences that any scores of the clips meet, where equal scores mean a tie.

    Two clips are in a knot if each is preferred, over some steps, to the other, ties counting both ways. Outside of
    knots all preferences can be met at once; a knot is a mixed-integer programme: `score[better] - score[worse] >= 1`
    for met preferences, and equal scores for met ties.

    Args:
        preferences: the better clip, the worse, and whether it is a tie instead.
    """
    votes = Counter(preferences)
    names = {name: place for place, name in enumerate(sorted({one for vote in votes for one in vote[:2]}))}
    edges = [(names[better], names[worse], tie, count) for (better, worse, tie), count in votes.items()]
    links = [(a, b) for a, b, _, _ in edges] + [(b, a) for a, b, tie, _ in edges if tie]
    if not links:
        return Reachable(0, True)
    graph = coo_array((np.ones(len(links)), np.array(links).T), shape=(len(names), len(names)))
    _, knot_of = connected_components(graph.tocsr(), directed=True, connection="strong")
    knots: dict[int, list[tuple[int, int, bool, int]]] = {}
    met, exact = 0, True
    for edge in edges:
        a, b, tie, count = edge
        if a == b:
            met += count * tie
        elif knot_of[a] == knot_of[b]:
            knots.setdefault(int(knot_of[a]), []).append(edge)
        else:
            met += count
    for knot in knots.values():
        most, sure = _most(knot)
        met, exact = met + most, exact and sure
    return Reachable(met, exact)


def _most(edges: Sequence[tuple[int, int, bool, int]]) -> tuple[int, bool]:
    """Return the most votes of a knot that scores meet, and whether the number is exact."""
    if all(tie for *_, tie, _ in edges):
        return sum(count for *_, count in edges), True
    places = {name: place for place, name in enumerate(sorted({one for edge in edges for one in edge[:2]}))}
    clips, span = len(places), float(len(places))
    rows: list[tuple[int, int, float]] = []
    least: list[float] = []

    def require(higher: int, lower: int, number: int, gap: float) -> None:
        """Require `score[higher] - score[lower] >= gap` if the vote of this number is met."""
        line = len(least)
        rows.extend([(line, higher, 1.0), (line, lower, -1.0), (line, clips + number, -(gap + span))])
        least.append(-span)

    for number, (better, worse, tie, _) in enumerate(edges):
        require(places[better], places[worse], number, 0.0 if tie else 1.0)
        if tie:
            require(places[worse], places[better], number, 0.0)
    lines, columns, values = zip(*rows, strict=True)
    size = clips + len(edges)
    found = milp(
        c=np.concatenate([np.zeros(clips), [-count for *_, count in edges]]),
        integrality=np.concatenate([np.zeros(clips), np.ones(len(edges))]),
        bounds=Bounds(np.zeros(size), np.concatenate([np.full(clips, span - 1), np.ones(len(edges))])),
        constraints=LinearConstraint(coo_array((values, (lines, columns)), shape=(len(least), size)).tocsr(), lb=least),
        options={"time_limit": PATIENCE_S, "mip_rel_gap": 0.0},
    )
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else -sum(count for *_, count in edges)
    return int(np.floor(-bound + 1e-6)), found.status == 0
