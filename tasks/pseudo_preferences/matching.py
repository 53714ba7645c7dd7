"""Match a pair's clips for hearing: as long as the shorter, as loud as the quieter of the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.audio.index import Beginning
from earmark.tasks.pipeline.media import loudness_of
from earmark.tasks.store.staging import Stage

Row = dict[str, Any]
CHANGED = ("heard_s", "a_gain_db", "b_gain_db")
QUIETEST_LUFS = -70.0
"""The absolute gate of BS.1770: at or below it, a clip has no loudness to match."""


def matched(stage: Stage, config: PseudoPreferences, pairs: Sequence[Row]) -> list[Row]:
    """Return the changes to each pair's clips before hearing: `heard_s`, `a_gain_db`, `b_gain_db`; None is no change.

    Loudness is measured on the heard part: on the cut clips, if cut. Nothing is made louder, so nothing clips.

    Args:
        stage: the build.
        config: its config; `judge.match` names the properties to match.
        pairs: rows of `questions.sql`, or with their columns of clips.
    """
    judge = config.judge
    heard = [_shorter_s(pair) if "length" in judge.match else None for pair in pairs]
    gains: list[tuple[float | None, ...]] = [(None, None)] * len(pairs)
    if "loudness" in judge.match:
        folder = config.clips_folder()
        beginnings = [
            Beginning(
                pair[f"{side}_sha256"],
                folder / pair[f"{side}_file"],
                heard_s or pair[f"{side}_duration_s"],
            )
            for pair, heard_s in zip(pairs, heard, strict=True)
            for side in "ab"
        ]
        loudness = loudness_of(stage.store, beginnings)
        gains = [_gains(*both) for both in zip(loudness[::2], loudness[1::2], strict=True)]
    return [{"heard_s": heard_s, "a_gain_db": a, "b_gain_db": b} for heard_s, (a, b) in zip(heard, gains, strict=True)]


def _shorter_s(pair: Row) -> float | None:
    """Return the end of the shorter clip; None for clips of equal length."""
    a, b = pair["a_duration_s"], pair["b_duration_s"]
    return None if a == b else min(a, b)


def _gains(*loudness: float) -> tuple[float | None, ...]:
    """Return the gains bringing two clips to the lower loudness, in dB; None is no gain."""
    lower = min(loudness)
    if lower <= QUIETEST_LUFS:
        return None, None
    return tuple(round(lower - one, 2) if one > lower else None for one in loudness)
