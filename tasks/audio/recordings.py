"""Group clips of one recording by acoustic fingerprints: copies, other encodings, excerpts.

Chromaprint (through pyacoustid) writes eight 32-bit numbers a second, each an image of moving pitch classes. Two clips
are compared at their best alignment: the likeness is the share of equal bits over their overlap, without the places
where neither clip changes, as silence is equal in all clips. Clips of one recording have 0.85 and more, others about
0.5.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from earmark.schemas.errors import ConfigError
from earmark.tasks.audio.decode import mono_blocks
from earmark.tasks.audio.faults import LONGEST_S

Print: TypeAlias = npt.NDArray[np.uint32]
Changes: TypeAlias = npt.NDArray[np.bool_]

RATE_HZ = 11_025  # Chromaprint's sample rate
LEAST_NUMBERS = 16
"""Least overlap of two clips in changing numbers, about two seconds; clips below about four and a half seconds have no
usable fingerprint."""
LEAST_DISTINCT = 8  # least different numbers of a fingerprint: silence and steady tones all look alike
NEIGHBOURS = 32  # neighbours, in order of number and clip, paired as candidates if they share the number
PLACES = 3  # alignments tried for two clips, starting from the most common numbers


class Alike(NamedTuple):
    """Two clips that sound like one recording."""

    first: int  # first, second: their indices, first < second
    second: int
    likeness: float  # share of equal bits, 0 to 1


def fingerprint(path: Path, *, longest_s: float = LONGEST_S) -> Print:
    """Return a clip's fingerprint, (numbers,), about eight a second; empty for clips too short or too uniform.

    Raises:
        BadAudio: the clip cannot be decoded.
        ConfigError: Chromaprint is not installed.
    """
    chromaprint = require_chromaprint()
    listener = chromaprint.Fingerprinter()
    listener.start(RATE_HZ, 1)
    for block in mono_blocks(path, RATE_HZ, longest_s=longest_s):
        listener.feed((np.clip(block, -1, 1) * 32_767).astype("<i2").tobytes())
    numbers, _ = chromaprint.decode_fingerprint(listener.finish())
    fingerprint = np.array(numbers, dtype=np.uint32)
    usable = len(fingerprint) >= LEAST_NUMBERS and len(np.unique(fingerprint)) >= LEAST_DISTINCT
    return fingerprint if usable else fingerprint[:0]


def alike(prints: Sequence[Print], threshold: float) -> list[Alike]:
    """Return pairs of clips that sound like one recording, each once, in order.

    Candidates have a number in common; they are then compared bit by bit. In large groups of similar clips not every
    pair is compared, but enough to connect the group.

    Args:
        prints: fingerprints in a stable order; an empty fingerprint matches nothing.
        threshold: least likeness, 0.5 to 1; 0.85 separates other encodings from other recordings.
    """
    fresh = [np.diff(one, prepend=~one[:1]) != 0 for one in prints]
    near = _near(prints, fresh)
    pairs = (Alike(first, second, _likeness(prints, fresh, first, second, shifts)) for first, second, shifts in near)
    return [pair for pair in pairs if pair.likeness >= threshold]


def recordings(prints: Sequence[Print], threshold: float) -> list[int]:
    """Return for each clip the index of its recording's first clip, found directly or over others: its own if alone."""
    from scipy.sparse import coo_array  # imported here: loading takes longer than most commands
    from scipy.sparse.csgraph import connected_components

    pairs = np.array([(pair.first, pair.second) for pair in alike(prints, threshold)], np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(len(prints), len(prints)))
    _, first, groups = np.unique(connected_components(links)[1], return_index=True, return_inverse=True)
    return [int(at) for at in first[groups]]


def _near(prints: Sequence[Print], fresh: Sequence[Changes]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield candidate pairs, and the shifts of the second clip with the most equal numbers."""
    lengths = np.array([len(one) for one in prints], dtype=np.int64)
    if not lengths.sum():
        return
    numbers = np.concatenate([one for one in prints if len(one)])
    clips = np.repeat(np.arange(len(prints)), lengths)
    places = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    once = np.concatenate(fresh)
    numbers, clips, places = numbers[once], clips[once], places[once]
    order = np.lexsort((clips, numbers))
    numbers, clips, places = numbers[order], clips[order], places[order]
    rows = []
    for step in range(1, min(NEIGHBOURS, len(numbers) - 1) + 1):
        same = np.flatnonzero((numbers[step:] == numbers[:-step]) & (clips[step:] != clips[:-step]))
        rows.append(np.stack([clips[same], clips[same + step], places[same] - places[same + step]], axis=1))
    if not rows or not sum(map(len, rows)):
        return
    votes, counts = np.unique(np.concatenate(rows), axis=0, return_counts=True)
    ranked = np.lexsort((votes[:, 2], -counts, votes[:, 1], votes[:, 0]))
    votes = votes[ranked]
    begins = np.flatnonzero(np.any(np.diff(votes[:, :2], axis=0, prepend=-1) != 0, axis=1))
    for begin, end in zip(begins, [*begins[1:], len(votes)], strict=True):
        yield int(votes[begin, 0]), int(votes[begin, 1]), [int(shift) for shift in votes[begin:end, 2][:PLACES]]


def _likeness(
    prints: Sequence[Print], fresh: Sequence[Changes], first: int, second: int, shifts: Sequence[int]
) -> float:
    """Return the share of equal bits at the best of some alignments; 0 if the overlap is too short.

    Args:
        fresh: for each fingerprint a mask of numbers different from the preceding one.
    """
    a, b, best = prints[first], prints[second], 0.0
    for shift in shifts:
        begin, end = max(0, shift), min(len(a), len(b) + shift)
        one, other = slice(begin, end), slice(begin - shift, end - shift)
        told = fresh[first][one] | fresh[second][other]
        if (count := int(told.sum())) >= LEAST_NUMBERS:
            differ = np.bitwise_count((a[one] ^ b[other])[told]).sum()
            best = max(best, 1.0 - float(differ) / (32 * count))
    return best


def require_chromaprint() -> ModuleType:
    """Import Chromaprint's binding.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        import chromaprint
    except ImportError:
        raise ConfigError(
            "acoustic fingerprints need the library Chromaprint, which is not installed; install it (Debian: apt-get "
            "install libchromaprint1), or set fingerprint = 0 and leave fingerprint out of decontaminate.near"
        ) from None
    return chromaprint  # type: ignore[no-any-return]
