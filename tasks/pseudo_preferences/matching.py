"""Pairs whose clips are heard alike: as long as the shorter, as loud as the quieter of the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.audio.index import Beginning
from earmark.tasks.build.media import loudness_of
from earmark.tasks.store.staging import Stage

Row = dict[str, Any]
CHANGED = ("heard_s", "a_gain_db", "b_gain_db")
QUIETEST_LUFS = -70.0
"""The absolute gate of BS.1770: what is not above it has no loudness that another clip could be brought to."""


def matched(stage: Stage, config: PseudoPreferences, pairs: Sequence[Row]) -> list[Row]:
    """How each pair's clips are changed before they are heard: `heard_s`, `a_gain_db`, `b_gain_db`; None is not at all.

    Loudness is that of what is heard: of the cut clips, where they are cut. Nothing is made louder, so nothing clips.

    Args:
        stage: the build.
        config: its config; `judge.match` says in what clips are made alike.
        pairs: rows of `questions.sql`, or with their columns of clips.
    """
    judge = config.judge
    heard = [_shorter_s(pair) if "length" in judge.match else None for pair in pairs]
    gains: list[tuple[float | None, ...]] = [(None, None)] * len(pairs)
    if "loudness" in judge.match:
        folder = config.path(config.generations).parent
        beginnings = [
            Beginning(
                pair[f"{side}_sha256"],
                folder / pair[f"{side}_file"],
                min(heard_s or pair[f"{side}_duration_s"], judge.hearing.longest_s or float("inf")),
            )
            for pair, heard_s in zip(pairs, heard, strict=True)
            for side in "ab"
        ]
        loudness = loudness_of(stage.store, beginnings)
        gains = [_gains(*both) for both in zip(loudness[::2], loudness[1::2], strict=True)]
    return [{"heard_s": heard_s, "a_gain_db": a, "b_gain_db": b} for heard_s, (a, b) in zip(heard, gains, strict=True)]


def _shorter_s(pair: Row) -> float | None:
    """Where the longer of two clips ends; None where both are of one length."""
    a, b = pair["a_duration_s"], pair["b_duration_s"]
    return None if a == b else min(a, b)


def _gains(*loudness: float) -> tuple[float | None, ...]:
    """What brings two clips to the lower loudness, in dB; None is none."""
    lower = min(loudness)
    if lower <= QUIETEST_LUFS:
        return None, None
    return tuple(round(lower - one, 2) if one > lower else None for one in loudness)
