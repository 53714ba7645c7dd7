"""Score entries of a music generation benchmark: shares of audible concepts, and ranks over several measures.

Source: the Academic Text-to-Music challenge (ATTM), concept coverage score and Borda ranking.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from earmark.schemas.questions import says_yes

LOWER_IS_BETTER = ("fad",)
MEASURES = (*LOWER_IS_BETTER, "clap", "ccs")


class Entry(NamedTuple):
    """Scores of a system."""

    name: str
    # Fréchet audio distance, from 0; lower is better. Like the other measures, None if not measured.
    fad: float | None
    clap: float | None  # similarity of sound and prompt, -1 to 1; higher is better
    ccs: float | None  # concept coverage score, 0 to 1; higher is better
    team: str | None = None  # the entry's team; None for the baseline, which is in every pool and never left out
    track: str | None = None  # the challenge's track it entered
    more: Mapping[str, float | None] = {}  # further measures by name, higher is better


def concept_shares(detections: Iterable[Sequence[float | None]]) -> list[float | None]:
    """Return the share of each prompt's concepts that is audible; the mean is the concept coverage score (CCS).

    Args:
        detections: for each prompt's clip, a judge's P(yes) of each concept, 0 to 1, or 1 and 0 for yes and no; None
            without an answer. A concept is audible if yes is more probable than no; equal probabilities do not count.

    Returns:
        0 to 1 over the answered concepts; None for a prompt without any.
    """
    shares: list[float | None] = []
    for place, values in enumerate(detections):
        known = [value for value in values if value is not None]
        if not all(0 <= value <= 1 for value in known):
            raise ValueError(f"clip {place}: expected values from 0 to 1, found {tuple(values)}")
        shares.append(sum(map(says_yes, known)) / len(known) if known else None)
    return shares


def borda_points(entries: Sequence[Entry]) -> dict[str, int]:
    """Return points by Borda count: in a pool of M submissions and the baseline, M + 1 - rank for each measure, summed.

    Equal values share the worse rank: the two best of equal value are both second. Measures without values give no
    points.
    """
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("expected entries of different names")
    points = dict.fromkeys((entry.name for entry in entries), 0)
    named = [{measure: getattr(entry, measure) for measure in MEASURES} | {**entry.more} for entry in entries]
    for measure in dict.fromkeys(measure for held in named for measure in held):
        sign = 1 if measure in LOWER_IS_BETTER else -1
        known = [value for value in (held.get(measure) for held in named) if value is not None]
        if not known:
            continue
        if len(known) < len(entries):
            raise ValueError(f"expected {measure} of every entry, or of none")
        values = [sign * value for value in known]
        for entry, value in zip(entries, values, strict=True):
            rank = sum(other <= value for other in values)
            points[entry.name] += len(entries) - rank  # the pool is the M submissions and the baseline: M + 1 entries
    return points


def ranks(points: Mapping[str, int]) -> dict[str, int]:
    """Return final ranks, 1 for the most points; equal points share the better rank."""
    return {name: 1 + sum(other > own for other in points.values()) for name, own in points.items()}


def borda_ranks(entries: Sequence[Entry]) -> dict[str, int]:
    """Rank all entries in one pool."""
    return ranks(borda_points(entries))


def two_stage_ranks(entries: Sequence[Entry]) -> dict[str, int]:
    """Rank by the challenge's rule: first within each track, keeping each team's better entry, then all kept entries.

    The baseline, the entry without a team, is in every pool and is ranked too. Of equally good entries the first is
    kept.
    """
    baseline = [entry for entry in entries if entry.team is None]
    kept: list[Entry] = []
    for track in dict.fromkeys(entry.track for entry in entries if entry.team is not None):
        pool = [entry for entry in entries if entry.track == track and entry.team is not None]
        points = borda_points([*pool, *baseline])
        for team in dict.fromkeys(entry.team for entry in pool):
            kept.append(max((e for e in pool if e.team == team), key=lambda entry: points[entry.name]))
    return borda_ranks([*kept, *baseline])
