"""Place comparisons in splits: shared prompts or clips stay together; the test split is balanced."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from earmark.tasks.pipeline.grouping import group
from earmark.tasks.pipeline.quotas import share_out

STRONGEST = ("test", "validation", "train")


@dataclass(frozen=True)
class SplitItem:
    """A comparison, or a rated clip."""

    ties: Sequence[Hashable]  # shared things: its prompt, its clips
    fixed: str | None  # the split named by its source; None if it is to be drawn
    cell: str | None  # cell for balancing the drawn splits; None for pieces not counted, such as rated clips
    draw: str  # its place in the drawing, by seeded hash
    size: int = 1  # its number of samples: its votes, or 1


def place(pieces: Sequence[SplitItem], wanted: Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
    """Give each piece a split.

    Pieces sharing anything, directly or through others, form a group, and a group has one split: the strongest named by
    a source for one of its pieces (test, validation, train), else a drawn one. Groups are drawn in the order
    of their first piece's hash (the smallest hash would favour large groups), each taken if no cell exceeds its
    share, then groups fitting in the rest; the others are training data.

    Args:
        pieces: all of them.
        wanted: samples to draw into a split, in the order of drawing.

    Returns:
        The split of each piece, and the number of samples drawn into each.
    """
    groups = group([piece.ties for piece in pieces])
    split: dict[int, str] = {}
    free: dict[int, list[SplitItem]] = defaultdict(list)
    for piece, number in zip(pieces, groups, strict=True):
        if piece.fixed:
            split[number] = min(piece.fixed, split.get(number, "train"), key=STRONGEST.index)
        free[number].append(piece)
    order = sorted((number for number in free if number not in split), key=lambda number: free[number][0].draw)
    drawn = {}
    for name, count in wanted.items():
        chosen = _balanced([(number, _cells(free[number])) for number in order if number not in split], count)
        split.update(dict.fromkeys(chosen, name))
        drawn[name] = sum(_cells(free[number]).total() for number in chosen)
    return [split.get(number, "train") for number in groups], drawn


def _cells(pieces: Sequence[SplitItem]) -> Counter[str]:
    cells: Counter[str] = Counter()
    for piece in pieces:
        if piece.cell:
            cells[piece.cell] += piece.size
    return cells


def _balanced(groups: Sequence[tuple[int, Counter[str]]], count: int) -> list[int]:
    """Return groups with as many samples as wanted, spread evenly over the cells as far as possible."""
    available: Counter[str] = Counter()
    for _, cells in groups:
        available.update(cells)
    names = sorted(available)
    takes = share_out(count, {name: available[name] for name in names}, dict.fromkeys(names, 1.0))
    left = Counter(takes)
    chosen: dict[int, None] = {}
    for number, cells in groups:
        if cells and all(left[name] >= held for name, held in cells.items()):
            left.subtract(cells)
            chosen[number] = None
    room = count - sum(cells.total() for number, cells in groups if number in chosen)
    for number, cells in groups:  # the rest goes to groups overfilling a cell, since a group is not divided
        if number not in chosen and 0 < cells.total() <= room:
            chosen[number] = None
            room -= cells.total()
    return list(chosen)
