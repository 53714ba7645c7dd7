"""Make the decisions of `instruction-rubrics` as pure functions: draws, roles, verdicts, pairs."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from earmark.tasks.pipeline.ask import Fault
from earmark.tasks.pipeline.grouping import share_out


def draw(seed: int, *parts: object) -> float:
    """Return a number from 0 to below 1, determined by seed and parts alone."""
    text = "\n".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / 2**56


def role_of(seed: int, base: str, weights: Mapping[str, float]) -> str:
    """Draw the kind of negative paired with a caption's positive."""
    total, at = sum(weights.values()), draw(seed, "role", base)
    upto = 0.0
    for kind, weight in weights.items():
        upto += weight / total
        if at < upto and weight > 0:
            return kind
    return next(kind for kind, weight in reversed(list(weights.items())) if weight > 0)


def verdict(passes: Sequence[bool], similarity: float | None, least: float | None) -> tuple[bool, Fault | None]:
    """Decide whether a caption fits its clip.

    Args:
        passes: the judge's answers: one for real audio, two for generated audio, none without a judge.
        similarity: of clip and caption, if measured.
        least: required similarity of a positive.

    Returns:
        Whether it is a positive; and the fault of an unusable caption. Generated audio failing twice is no positive
        without a fault: it is a hard negative.
    """
    if len(passes) == 2 and passes[0] != passes[1]:
        return False, Fault("passes_disagree", "expected the same answer twice, found yes and no")
    if passes and not passes[0]:
        if len(passes) == 2:
            return False, None
        return False, Fault("not_verified", "expected a caption that fits the clip, found that the judge denies it")
    if least is not None and (similarity is None or similarity < least):
        return False, Fault("low_similarity", f"expected a similarity of at least {least:g}, found {similarity}")
    return True, None


def kind_of(verifiers: Sequence[str]) -> str:
    """Return a positive's kind in the authors' words, by its verifier."""
    return "pos_gemini" if "audio" in verifiers else "pos_clap" if "similarity" in verifiers else "pos"


def lost_by_kind(ends: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Summarise the losses to verification by subset and kind; `ends` has both of each sample, and whether it was
    lost."""
    counts: dict[tuple[str, str], list[int]] = {}
    for subset, kind, lost in ends:
        of = counts.setdefault((subset, kind), [0, 0])
        of[0] += lost
        of[1] += 1
    return [
        f"{subset} {kind}: {lost:,} of {tried:,} lost to verification ({lost / tried:.0%})"
        for (subset, kind), (lost, tried) in sorted(counts.items())
    ]


class RingCaption(NamedTuple):
    """A positive among those that may be swapped."""

    place: float  # in the draw
    row: int
    base: int
    group_id: str
    instruction_id: str
    language: str
    text: str


def partners(ring: Sequence[RingCaption], at: int, tries: int) -> Iterator[RingCaption]:
    """Yield the next captions on a ring for swapping in: of another group, in the same language, with other words.

    Args:
        ring: captions sorted by their hashes.
        at: the place of the caption in need of a partner.
        tries: the most captions.
    """
    caption, seen = ring[at], set[str]()
    for step in range(1, len(ring)):
        other = ring[(at + step) % len(ring)]
        apart = other.group_id != caption.group_id and other.language == caption.language
        if apart and other.instruction_id not in seen:
            seen.add(other.instruction_id)
            yield other
            if len(seen) == tries:
                return


class PairMember(NamedTuple):
    """A caption that fits its clip, or a clip with a wrong instruction, complete and ready to be paired."""

    place: float  # in the draw
    base: int
    number: int  # of a negative's row; a positive's base
    clip_sha256: str
    instruction_id: str
    kind: str  # of a negative; of a positive, the kind that it needs
    negative: "PairMember | None" = None


def may_be_paired(role: str, base: int, paired: Set[int]) -> bool:
    """Return whether a positive can be in a pair: with any failed clip, or with a negative of its own."""
    return role == "judged" or base in paired


def choose_pairs(
    positives: Sequence[PairMember], judged: Sequence[PairMember], count: int | None, weights: Mapping[str, float]
) -> list[tuple[PairMember, PairMember]]:
    """Pair positives and negatives of a subset and set, one to one, each kind of negative with its own positives.

    Args:
        positives: in order of choice, each with its verified negative or None.
        judged: hard negatives of generated audio, in order of choice.
        count: samples wanted, both labels together; None for all.
        weights: share of each kind of negative.

    Returns:
        Pairs of a positive and a negative.
    """
    by_kind = {
        kind: [(one, one.negative) for one in positives if one.kind == kind and one.negative is not None]
        for kind in ("swap", "perturb")
    }
    by_kind["judged"] = list(zip((one for one in positives if one.kind == "judged"), judged, strict=False))
    available = {kind: len(pairs) for kind, pairs in by_kind.items()}
    wanted = sum(available.values()) if count is None else count // 2
    takes = share_out(wanted, available, weights)
    return [pair for kind, pairs in by_kind.items() for pair in pairs[: takes[kind]]]
