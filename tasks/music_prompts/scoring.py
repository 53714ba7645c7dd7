"""What the benchmark counts with: how many of a prompt's concepts are heard, and ranks over several measures.

Plain functions on plain values: `from earmark.tasks.music_prompts.scoring import concept_coverage, borda_ranks`.
Source: the Academic Text-to-Music challenge (ATTM), concept coverage score and Borda ranking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

CONCEPTS = 3  # genre, instrument, mood or theme
HEARD = 0.5  # the judge gives yes the larger probability
LOWER_IS_BETTER = ("fad",)
HIGHER_IS_BETTER = ("clap", "ccs")


class Entry(NamedTuple):
    """What a system scores.

    Attributes:
        name: the entry, unique.
        fad: Fréchet audio distance, from 0; lower is better.
        clap: similarity of sound and prompt, -1 to 1; higher is better.
        ccs: concept coverage score, 0 to 1; higher is better.
        team: whose entry it is; None for the baseline, which is everyone's measure and never left out.
        track: which track of the challenge it entered.
    """

    name: str
    fad: float
    clap: float
    ccs: float
    team: str | None = None
    track: str | None = None


def concept_coverage(detections: Iterable[Sequence[float]]) -> float:
    """The concept coverage score (CCS): of all concepts of all prompts, the share that is heard.

    Args:
        detections: for each prompt's clip, three values for genre, instrument and mood or theme: a judge's P(yes), 0
            to 1, or 1 and 0 for its yes and no. A concept is heard from 0.5.

    Returns:
        Detected concepts over 3 N, 0 to 1.

    Raises:
        ValueError: no clips, a clip without exactly three values, or a value that is no probability.
    """
    clips = [tuple(values) for values in detections]
    if not clips:
        raise ValueError("expected at least one clip, found none")
    for place, values in enumerate(clips):
        if len(values) != CONCEPTS or not all(0 <= value <= 1 for value in values):
            raise ValueError(f"clip {place}: expected {CONCEPTS} values from 0 to 1, found {values}")
    return sum(value >= HEARD for values in clips for value in values) / (CONCEPTS * len(clips))


def borda_points(entries: Sequence[Entry]) -> dict[str, int]:
    """Points by Borda count: in a pool of M submissions and the baseline, M + 1 - rank for each measure, summed.

    Equal values share the worse rank: two that are both best are both second.

    Raises:
        ValueError: two entries of one name.
    """
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("expected entries of different names")
    points = dict.fromkeys((entry.name for entry in entries), 0)
    for measure in (*LOWER_IS_BETTER, *HIGHER_IS_BETTER):
        sign = 1 if measure in LOWER_IS_BETTER else -1
        values = [sign * getattr(entry, measure) for entry in entries]
        for entry, value in zip(entries, values, strict=True):
            rank = sum(other <= value for other in values)
            points[entry.name] += len(entries) - rank  # the pool is the M submissions and the baseline: M + 1 entries
    return points


def ranks(points: Mapping[str, int]) -> dict[str, int]:
    """Final ranks, 1 for the most points; equal points share the better rank."""
    return {name: 1 + sum(other > own for other in points.values()) for name, own in points.items()}


def borda_ranks(entries: Sequence[Entry]) -> dict[str, int]:
    """Ranks of all entries in one pool."""
    return ranks(borda_points(entries))


def two_stage_ranks(entries: Sequence[Entry]) -> dict[str, int]:
    """The challenge's ranks: first within each track, where a team's better entry stays, then of these all together.

    The baseline, the entry without a team, is in every pool. Of equally good entries the one named first stays.

    Returns:
        The rank of each entry that stayed, and of the baseline.
    """
    baseline = [entry for entry in entries if entry.team is None]
    kept: list[Entry] = []
    for track in dict.fromkeys(entry.track for entry in entries if entry.team is not None):
        pool = [entry for entry in entries if entry.track == track and entry.team is not None]
        points = borda_points([*pool, *baseline])
        for team in dict.fromkeys(entry.team for entry in pool):
            kept.append(max((e for e in pool if e.team == team), key=lambda entry: points[entry.name]))
    return borda_ranks([*kept, *baseline])
