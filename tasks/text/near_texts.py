"""Texts that say nearly what another says, found over a whole corpus by MinHash (Broder 1997) and compared exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rensa import RMinHash, RMinHashLSH

SHINGLE_WORDS = 3
PERMUTATIONS, BANDS = 128, 32  # two texts of similarity 0.7 share a band with probability 0.9998

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"  # written without spaces: each sign counts as a word
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+(?:['’][^\W_{_HAN}]+)*")


def near_duplicates(texts: Sequence[str], threshold: float) -> list[int | None]:
    """Which texts say nearly what an earlier one says.

    Candidates come from MinHash and are then compared exactly, by the Jaccard similarity of their runs of three words;
    a text is compared with earlier texts that are no duplicates themselves.

    Args:
        texts: in a stable order.
        threshold: similarity from which a text is a duplicate, above 0 to 1. Below 0.5 MinHash may miss some.

    Returns:
        For each text the index of the first earlier text that it repeats, or None.
    """
    index = _index(threshold)
    repeats: list[int | None] = []
    for at, text in enumerate(texts):
        shingles = set(_shingles(text))
        repeated = None
        if shingles:
            sketch = _sketch(shingles)
            near = (other for other in sorted(index.query(sketch)) if _alike(shingles, texts[other]) >= threshold)
            repeated = next(near, None)
            if repeated is None:
                index.insert(at, sketch)
        repeats.append(repeated)
    return repeats


def near_any(texts: Sequence[str], others: Sequence[str], threshold: float) -> list[int | None]:
    """For each text the index of the first other that it nearly repeats, or None; those may repeat each other."""
    index = NearTexts(others, threshold)
    return [index.find(text) for text in texts]


class NearTexts:
    """Some texts, of which the first that another one repeats can be found. Arguments as `near_any`."""

    def __init__(self, others: Sequence[str], threshold: float) -> None:
        self._others, self._threshold = others, threshold
        self._index = _index(threshold)
        for at, other in enumerate(others):
            if shingles := set(_shingles(other)):
                self._index.insert(at, _sketch(shingles))

    def find(self, text: str) -> int | None:
        """The index of the first of them that a text repeats, or None."""
        shingles = set(_shingles(text))
        near = sorted(self._index.query(_sketch(shingles))) if shingles else []
        return next((at for at in near if _alike(shingles, self._others[at]) >= self._threshold), None)


def near_groups(texts: Sequence[str], threshold: float) -> list[int]:
    """For each text the first text that it nearly repeats, directly or over others: its own place if there is none.

    Unlike `near_duplicates`, texts that are duplicates themselves are compared too: texts of different groups are
    never nearly the same.

    Args:
        texts: in a stable order.
    """
    index = _index(threshold)
    heads = list(range(len(texts)))
    first: dict[str, int] = {}
    for at, text in enumerate(texts):
        same = first.setdefault(text, at)
        shingles = set(_shingles(text)) if same == at else set()
        if same != at:
            heads[at] = heads[same]
        elif shingles:
            sketch = _sketch(shingles)
            near = [at, *(other for other in index.query(sketch) if _alike(shingles, texts[other]) >= threshold)]
            low = min(_head(heads, other) for other in near)
            for other in near:
                heads[_head(heads, other)] = low
            index.insert(at, sketch)
    return [_head(heads, at) for at in range(len(texts))]


def _head(heads: list[int], at: int) -> int:
    while heads[at] != at:
        heads[at] = heads[heads[at]]
        at = heads[at]
    return at


def _index(threshold: float) -> RMinHashLSH:
    return RMinHashLSH(threshold=threshold, num_perm=PERMUTATIONS, num_bands=BANDS)


def _sketch(shingles: set[str]) -> RMinHash:
    sketch = RMinHash(num_perm=PERMUTATIONS, seed=1)
    sketch.update(sorted(shingles))
    return sketch


def _shingles(text: str) -> Iterator[str]:
    words = _WORD.findall(text.lower())
    for at in range(max(1, len(words) - SHINGLE_WORDS + 1) if words else 0):
        yield " ".join(words[at : at + SHINGLE_WORDS])


def _alike(shingles: set[str], other: str) -> float:
    others = set(_shingles(other))
    return len(shingles & others) / len(shingles | others)
