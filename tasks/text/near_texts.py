"""Find near-duplicate texts by prefix filtering, without misses (Chaudhuri et al. 2006; Bayardo et al. 2007)."""

import html
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil, inf
from zlib import crc32

SHINGLE_WORDS = 3
COUNTERS = 1 << 20  # runs of words are counted by checksum; collisions only raise the counts

_APOSTROPHES = str.maketrans("’ʼ", "''")
_HAN = "\u3400-\u4dbf\u4e00-\u9fff"  # written without spaces: each character counts as a word
_WORD = re.compile(rf"[{_HAN}]|[^\W_{_HAN}]+(?:'[^\W_{_HAN}]+)*")


def near_duplicates(texts: Sequence[str], threshold: float) -> list[int | None]:
    """Find the texts nearly equal to an earlier text.

    Texts are compared by the Jaccard similarity of their runs of three words, each with earlier texts not duplicates
    themselves.

    Args:
        threshold: least similarity of duplicates, above 0 to 1.

    Returns:
        For each text the index of the first earlier text repeated by it, or None.
    """
    index = _Index(texts, threshold)
    repeats: list[int | None] = []
    for at, text in enumerate(texts):
        repeats.append(next(index.like(text), None))
        if repeats[-1] is None:
            index.add(at)
    return repeats


def near_any(texts: Sequence[str], others: Sequence[str], threshold: float) -> list[int | None]:
    """Return for each text the index of the first of `others` it nearly repeats, or None; `others` may be alike."""
    index = NearTexts(others, threshold)
    return [index.find(text) for text in texts]


class NearTexts:
    """Texts to search for near-duplicates of another text. Arguments as for `near_any`."""

    def __init__(self, others: Sequence[str], threshold: float) -> None:
        self._index = _Index(others, threshold)
        for at in range(len(others)):
            self._index.add(at)

    def find(self, text: str) -> int | None:
        """Return the index of the first text repeated by another text, or None."""
        return next(self._index.like(text), None)


def near_groups(texts: Sequence[str], threshold: float) -> list[int]:
    """Return for each text the index of the first text of its group of near-duplicates: its own if alone. Unlike
    `near_duplicates`, duplicates themselves are compared too: texts of different groups are never nearly the same."""
    index = _Index(texts, threshold)
    heads = list(range(len(texts)))
    first: dict[str, int] = {}
    for at, text in enumerate(texts):
        same = first.setdefault(text, at)
        if same != at:
            heads[at] = heads[same]
            continue
        near = [at, *index.like(text)]
        low = min(_head(heads, other) for other in near)
        for other in near:
            heads[_head(heads, other)] = low
        index.add(at)
    return [_head(heads, at) for at in range(len(texts))]


def _head(heads: list[int], at: int) -> int:
    while heads[at] != at:
        heads[at] = heads[heads[at]]
        at = heads[at]
    return at


class _Index:
    """Index of texts by their rarest runs of words.

    With runs of words in the same order for all texts, two texts of n and m runs sharing at least t of each have a run
    in common among the first n - ⌈t·n⌉ + 1 and m - ⌈t·m⌉ + 1. The rarest runs are first, so few texts share any; texts
    sharing some are compared whole.

    Args:
        texts: the texts numbered by `add`; the frequency of their runs of words sets the order.
        threshold: t, above 0 to 1.
    """

    def __init__(self, texts: Sequence[str], threshold: float) -> None:
        self._texts, self._threshold = texts, threshold
        self._counts, self._sizes = _zeros(COUNTERS), _zeros(len(texts))
        # the first runs of all texts, chained by their checksums: a list for each run would take thirty times as much
        self._last, self._before, self._sums, self._owners = _zeros(COUNTERS), _zeros(1), _zeros(1), _zeros(1)
        for text in texts:
            for shingle in _shingles(text):
                self._counts[_counter(shingle)] += 1

    def add(self, at: int) -> None:
        shingles = _shingles(self._texts[at])
        self._sizes[at] = len(shingles)
        for shingle in self._first(shingles):
            counter = _counter(shingle)
            self._before.append(self._last[counter])
            self._last[counter] = len(self._sums)
            self._sums.append(crc32(shingle.encode()))
            self._owners.append(at)

    def like(self, text: str) -> Iterator[int]:
        mine = _shingles(text)
        shared = Counter(at for shingle in self._first(mine) for at in self._beginning_with(shingle))
        sizes, threshold, size = self._sizes, self._threshold, len(mine)
        for at in sorted(at for at, runs in shared.items() if runs >= _least_shared(threshold, size, sizes[at])):
            both = len(mine.intersection(_shingles(self._texts[at])))
            if both / (size + sizes[at] - both) >= threshold:
                yield at

    def _beginning_with(self, shingle: str) -> Iterator[int]:
        """Yield the texts with a run of this checksum among their first; texts are compared whole later."""
        place, checksum = self._last[_counter(shingle)], crc32(shingle.encode())
        while place:
            if self._sums[place] == checksum:
                yield self._owners[place]
            place = self._before[place]

    def _first(self, shingles: set[str]) -> list[str]:
        """Return the rarest of a text's runs."""
        ordered = sorted(shingles, key=lambda shingle: (self._counts[_counter(shingle)], shingle))
        return ordered[: len(ordered) - _rest(self._threshold, len(ordered))]


def _rest(threshold: float, size: int) -> int:
    """Return the number of a text's runs not among its first."""
    return max(0, ceil(threshold * size - 1e-9) - 1)


@lru_cache(1 << 16)
def _least_shared(threshold: float, one: int, two: int) -> float:
    """Return the least number of first runs shared by two similar texts of `one` and `two` runs. Further shared runs
    are behind the first runs of either text (Xiao et al. 2008)."""
    if min(one, two) < threshold * max(one, two) - 1e-9:
        return inf
    return threshold / (1 + threshold) * (one + two) - max(_rest(threshold, one), _rest(threshold, two)) - 1e-9


def _zeros(size: int) -> "array[int]":
    return array("I", bytes(size * array("I").itemsize))


def _counter(shingle: str) -> int:
    return crc32(shingle.encode()) % COUNTERS


def _in_one_form(text: str) -> str:
    """Return a text in one form of Unicode, with plain apostrophes, without HTML entities and signs of no width."""
    if text.isascii() and "&" not in text:
        return text
    normal = unicodedata.normalize("NFKC", html.unescape(text)).translate(_APOSTROPHES)
    return "".join(char for char in normal if unicodedata.category(char) != "Cf")


def _shingles(text: str) -> set[str]:
    words = _WORD.findall(_in_one_form(text).lower())
    if not words:
        return set()
    return {" ".join(words[at : at + SHINGLE_WORDS]) for at in range(max(1, len(words) - SHINGLE_WORDS + 1))}
