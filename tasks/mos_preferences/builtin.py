"""Critique voices by signal measurements of noise, distortion and continuity: the builtin critic.

Weak and honest: it hears no speech, and judges naturalness only by the signal's bandwidth.
"""

import math
from collections.abc import Mapping
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register

Measured = Mapping[str, float]

LEAST_GAP = 2.0  # least difference in points of 100 between clips with different scores


@register("speech-critique-1")
def speech_critique(facts: Mapping[str, Any], clips: list[Measured]) -> dict[str, str] | str:
    """Describe one clip, or compare and score two.

    Args:
        facts: `free_text`: whether to add it to the description of one clip.
        clips: measurements of one or two clips.

    Returns:
        Four descriptions of one clip, and free text if wanted; of two, a text ending with `Final Scores: [[x, y]]`.
    """
    if len(clips) == 1:
        parts = {aspect: f"{text[0].upper()}{text[1:]}." for aspect, text in describe(clips[0]).items()}
        free = f"The signal's quality, as far as it was measured, is {points(clips[0]):.0f} of 100."
        return parts | ({"free_text": free} if facts.get("free_text") else {})
    if len(clips) != 2:
        raise InputError(f"expected one or two clips, found {len(clips)}")
    first, second = map(describe, clips)
    lines = [f"{aspect.capitalize()}: clip 1: {first[aspect]}; clip 2: {second[aspect]}." for aspect in first]
    one, two = scores(points(clips[0]), points(clips[1]))
    return "\n".join([*lines, f"Final Scores: [[{one}, {two}]]"])


def describe(clip: Measured) -> dict[str, str]:
    """Describe the measurements under each of the four headings."""
    above = clip["level_db"] - clip["noise_floor_db"]
    hiss = hiss_db(clip)
    loud = "no hiss" if hiss < 3 else "slight hiss" if hiss < 12 else "strong hiss"
    noise = f"{loud}, spectral flatness {clip['flatness']:.4f}; the quietest parts lie {above:.0f} dB below the level"
    clipped = clip["clipped_share"]
    width = clip["bandwidth_hz"] / 1000
    timbre = "dull" if width < 2 else "telephone-like" if width < 3.6 else "full"
    gaps, silent = clip["dropouts_per_min"], clip["silent_share"]
    return {
        "noise": noise,
        "distortion": f"{clipped:.2%} of the samples are clipped" if clipped > 0.0005 else "no clipping",
        "naturalness": f"{timbre}, bandwidth {width:.1f} kHz; whether the voice is human was not measured",
        "continuity": f"{f'{gaps:.0f} drop-outs a minute' if gaps >= 1 else 'no drop-outs'}; {silent:.0%} of it silent",
    }


def hiss_db(clip: Measured) -> float:
    """Return the spectrum's flatness, as a level above a clean tone's; 0 to about 33 dB."""
    return max(0.0, 10 * math.log10(max(clip["flatness"], 1e-9) / 0.0005))


def points(clip: Measured) -> float:
    """Return points of signal quality, 0 to 100."""
    above = clip["level_db"] - clip["noise_floor_db"]
    lost = (
        min(10.0, max(0.0, 0.4 * (30 - above)))
        + min(40.0, 1.6 * hiss_db(clip))
        + min(45.0, 1500 * clip["clipped_share"])
        + min(15.0, max(0.0, 3600 - clip["bandwidth_hz"]) * 0.004)
        + min(40.0, 0.15 * clip["dropouts_per_min"])
    )
    return max(0.0, 100.0 - lost)


@register("speech-pair-1")
def speech_pair(facts: Mapping[str, Any], clips: list[Measured]) -> str:
    """Return the clip of better quality by `points`: `A`, `B`, or `tie` for equal ones."""
    if len(clips) != 2:
        raise InputError(f"expected two clips, found {len(clips)}")
    one, two = points(clips[0]), points(clips[1])
    return "tie" if one == two else "A" if one > two else "B"


def scores(first: float, second: float) -> tuple[int, int]:
    """Map points of two clips to scores from 1 to 10; clearly different points give different scores."""
    one, two = (1 + round(9 * value / 100) for value in (first, second))
    if one == two and abs(first - second) >= LEAST_GAP:
        lower = -1 if one > 1 else 0
        one, two = (one + 1 + lower, two + lower) if first > second else (one + lower, two + 1 + lower)
    return one, two
