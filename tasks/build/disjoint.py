"""Whether two sets have nothing in common: no clip, no recording, no caption that says nearly the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from earmark.schemas.errors import StoreError
from earmark.tasks.audio.recordings import Print, alike
from earmark.tasks.text.near_texts import near_any


@dataclass(frozen=True)
class Side:
    """One of the sets."""

    name: str  # as messages call it, such as `test`
    clips: Sequence[str]  # SHA-256 of its clips, each once
    texts: Sequence[str]  # its captions and instructions
    prints: Sequence[Print] = ()  # their acoustic fingerprints in the same order; none to leave recordings out


@dataclass(frozen=True)
class Crossing:
    """Something of one set that is in the other too."""

    kind: str  # `clip`, `recording` or `text`
    here: int  # here, there: places in `clips` or `texts` of the first and the second set
    there: int
    likeness: float | None = None  # of two recordings, 0 to 1; None for the rest


def crossings(here: Side, there: Side, *, recording: float, text: float) -> Iterator[Crossing]:
    """Everything that two sets have in common: clips, then recordings, then texts, each by its place in the first.

    Args:
        here: the one set.
        there: the other.
        recording: likeness of fingerprints from which two clips are one recording, 0.5 to 1.
        text: Jaccard similarity from which texts say nearly the same, 0.5 to 1.
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
        StoreError: how much they share, with the first example.
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
