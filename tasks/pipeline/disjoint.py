"""Compare two sets by clips, recordings and near-duplicate texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from earmark.schemas.errors import StoreError
from earmark.tasks.audio.recordings import Print, alike
from earmark.tasks.text.near_texts import near_any


@dataclass(frozen=True)
class Side:
    """One of two sets to compare."""

    name: str  # in messages, such as `test`
    clips: Sequence[str]  # SHA-256 of its clips, without duplicates
    texts: Sequence[str]  # its captions and instructions
    prints: Sequence[Print] = ()  # acoustic fingerprints of `clips`, in order; empty to skip recordings


@dataclass(frozen=True)
class Crossing:
    """Item of one set that the other set shares."""

    kind: str  # `clip`, `recording` or `text`
    here: int  # here, there: places in `clips` or `texts` of the first and the second set
    there: int
    likeness: float | None = None  # of two recordings, 0 to 1; None for the rest


def crossings(here: Side, there: Side, *, recording: float, text: float) -> Iterator[Crossing]:
    """Yield everything shared by two sets: clips, then recordings, then texts, each by its place in the first set.

    Args:
        here: the first set.
        there: the second set.
        recording: least likeness of fingerprints of one recording, 0.5 to 1.
        text: least Jaccard similarity of near-duplicate texts, 0.5 to 1.
    """
    places = {clip: at for at, clip in enumerate(there.clips)}
    for at, clip in enumerate(here.clips):
        if clip in places:
            yield Crossing("clip", at, places[clip])
    for pair in alike([*here.prints, *there.prints], recording):
        if pair.first < len(here.prints) <= pair.second:
            yield Crossing("recording", pair.first, pair.second - len(here.prints), pair.likeness)
    for at, other in enumerate(near_any(here.texts, there.texts, text)):
        if other is not None:
            yield Crossing("text", at, other)


def check_disjoint(here: Side, there: Side, *, recording: float, text: float) -> None:
    """Check that two sets have nothing in common. Arguments as `crossings`.

    Raises:
        StoreError: they share items; with their number and the first example.
    """
    shared = list(crossings(here, there, recording=recording, text=text))
    if not shared:
        return
    first = shared[0]
    if first.kind == "text":
        example = f"'{here.texts[first.here][:80]}' and '{there.texts[first.there][:80]}'"
    else:
        example = f"{here.clips[first.here][:16]} and {there.clips[first.there][:16]}"
        example += "" if first.likeness is None else f", fingerprints alike by {first.likeness:.3f}"
    raise StoreError(
        f"expected '{here.name}' and '{there.name}' to share no clip, recording or near-duplicate text, "
        f"found {len(shared)} in common; the first is a {first.kind}: {example}"
    )
