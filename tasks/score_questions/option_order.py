"""Assign letters to options: shuffled by seed, with every letter right equally often. Pure."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

LETTERS = "ABCDEFGH"


def right_places(counts: Mapping[str, int], seed: int) -> dict[str, int]:
    """Return the place of each question's right option, from 0, by the number of its options.

    Questions with the same number of options are sorted by their hashes and take the places in turn. Each place of such
    a set thus occurs equally often, to within one; the price: a new question moves others' letters.
    """
    by_count: dict[int, list[str]] = defaultdict(list)
    for question, count in counts.items():
        by_count[count].append(question)
    places = {}
    for count, questions in by_count.items():
        for rank, question in enumerate(sorted(questions, key=lambda name: _hash(seed, "place", name))):
            places[question] = rank % count
    return places


def in_order(question: str, truth: str, others: Sequence[str], place: int, seed: int) -> list[str]:
    """Return the options in the order of their letters: the right one at its place, the others by their hashes."""
    shuffled = sorted(others, key=lambda text: _hash(seed, "option", question, text))
    return [*shuffled[:place], truth, *shuffled[place:]]


def _hash(seed: int, *words: str) -> str:
    return hashlib.sha256("\x1f".join((str(seed), *words)).encode("utf-8", "surrogatepass")).hexdigest()
