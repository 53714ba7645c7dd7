"""Judge music without a model: by faults of the signal, and by measurements matched to a prompt's words."""

from collections.abc import Mapping
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.registry import register
from earmark.tasks.audio.text_match import Measured, alignment

TIE_QUALITY = 3.0  # points of quality below which two clips sound alike
TIE_ALIGNMENT = 0.5  # points of alignment below which two clips fit alike


@register("music-pair-2")
def music_pair(facts: Mapping[str, Any], clips: list[Measured]) -> dict[str, str]:
    """Judge two clips: musicality by faults of the signal, alignment by tag words.

    Args:
        facts: `text`, the words behind both clips; `dimensions`, of `musicality` and `alignment`,
            or `overall`; default: the first two.
        clips: measurements, the last two of which are A and B; one before them is a reference.

    Returns:
        A, B or tie for each asked dimension, and `reason`.
    """
    if len(clips) < 2:
        raise InputError(f"expected two clips, found {len(clips)}")
    a, b = clips[-2], clips[-1]
    dimensions = facts.get("dimensions") or ["musicality", "alignment"]
    if dimensions == ["overall"]:  # the better-sounding clip; if equal, the better-fitting clip
        both = music_pair({**facts, "dimensions": ["musicality", "alignment"]}, clips)
        choice = both["alignment"] if both["musicality"] == "tie" else both["musicality"]
        return {"overall": choice, "reason": both["reason"]}
    answer, reasons = {}, []
    if "musicality" in dimensions:
        points_a, why_a = quality(a)
        points_b, why_b = quality(b)
        answer["musicality"] = _prefer(points_a, points_b, TIE_QUALITY)
        reasons.append(f"Quality A {points_a:.0f} ({why_a}), B {points_b:.0f} ({why_b}) of 100.")
    if "alignment" in dimensions:
        text = str(facts.get("text") or "")
        reference = clips[-3] if len(clips) > 2 else None
        fit_a, fit_b = alignment(text, a, reference), alignment(text, b, reference)
        answer["alignment"] = _prefer(fit_a.points, fit_b.points, TIE_ALIGNMENT)
        notes = [f"{name}: {'; '.join(fit.notes)}" for name, fit in (("A", fit_a), ("B", fit_b)) if fit.notes]
        reasons.append(". ".join(notes) + "." if notes else "No word of the text can be measured.")
    answer["reason"] = " ".join(reasons)[:600]
    return answer


@register("music-clip-1")
def music_clip(facts: Mapping[str, Any], clips: list[Measured]) -> str:
    """Rate one clip from 1 to 5: musicality by faults of the signal, alignment by tag words.

    Args:
        facts: `text`, the words behind the clip; `dimensions`, the asked dimension.
        clips: measurements, the clip's last; one before it is a reference.
    """
    if not clips:
        raise InputError("expected one clip, found none")
    if facts.get("dimensions") == ["alignment"]:
        points = 50 + 25 * alignment(str(facts.get("text") or ""), clips[-1], clips[-2] if clips[1:] else None).points
    else:
        points, _ = quality(clips[-1])
    return str(round(1 + 4 * min(100.0, max(0.0, points)) / 100))


def quality(clip: Measured) -> tuple[float, str]:
    """Return points of signal quality, 0 to 100, and its faults, worst first."""
    faults = {
        f"{clip['clipped_share']:.2%} clipped": min(45.0, 1500 * clip["clipped_share"]),
        f"noise floor {clip['noise_floor_db']:.0f} dB": _beyond(
            clip["noise_floor_db"] - clip["level_db"], -35, 1.2, 30
        ),
        f"bandwidth {clip['bandwidth_hz'] / 1000:.1f} kHz": _beyond(6000 - clip["bandwidth_hz"], 0, 0.006, 30),
        f"{clip['dropouts_per_min']:.0f} dropouts a minute": min(40.0, 2.0 * clip["dropouts_per_min"]),
        f"loudness {clip['loudness_lufs']:.0f} LUFS": _beyond(-30 - clip["loudness_lufs"], 0, 1.0, 25),
        f"{clip['silent_share']:.0%} silent": _beyond(clip["silent_share"], 0.2, 50, 30),
        f"flat spectrum {clip['flatness']:.2f}": _beyond(clip["flatness"], 0.2, 60, 30),
        f"dull balance, {clip['low_share']:.0%} below 250 Hz": _beyond(clip["low_share"], 0.92, 150, 12),
    }
    worst = sorted(((points, name) for name, points in faults.items() if points >= 1), reverse=True)
    return max(0.0, 100.0 - sum(faults.values())), ", ".join(name for _, name in worst[:3]) or "no fault found"


def _prefer(a: float, b: float, tie: float) -> str:
    if abs(a - b) <= tie:
        return "tie"
    return "A" if a > b else "B"


def _beyond(value: float, least: float, slope: float, most: float) -> float:
    """Return the points lost: nothing up to `least`, then `slope` a unit, at most `most`."""
    return min(most, max(0.0, (value - least) * slope))
