"""Judges without a model: signal measurements and tag words. Weak, honest, and always named as what they are.

A function's name carries its version; other rules are another name, so that their answers have other keys.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.annotation import AnnotatorConfig
from schemas.config import nearest
from schemas.errors import ConfigError, InputError
from tasks.annotation.answers import Reply
from tasks.annotation.backend import Media
from tasks.annotation.builtin_captions import music_caption, refine_caption
from tasks.annotation.builtin_prompts import music_prompt
from tasks.annotation.builtin_rubrics import contradictions, rubric_writer
from tasks.annotation.builtin_scores import score_judge, score_labeller, score_writer
from tasks.annotation.builtin_speech import speech_critique, speech_pair
from tasks.annotation.errors import BadMedia, BadRequest
from tasks.annotation.request import Audio, Request
from tasks.annotation.rubric_words import language_of, phrase_book

Measured: TypeAlias = Mapping[str, float]
Judge: TypeAlias = Callable[[Mapping[str, Any], list[Measured]], Any]

Span: TypeAlias = tuple[str, float | None, float | None, float | None]

HELD_AT_MOST = 50_000
"""Clips whose measurements are kept in memory."""
TIE_QUALITY = 3.0
"""Points of quality below which two clips sound alike."""
TIE_ALIGNMENT = 0.5
"""Points of alignment below which two clips fit alike."""


class Builtin:
    """Runs a registered function on a request's facts and the measurements of its clips."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        name = config.annotator.partition(":")[2]
        if name not in JUDGES:
            raise ConfigError(f"annotator '{config.annotator}': no builtin function '{name}'{nearest(name, JUDGES)}")
        self._name = name
        self._judge = JUDGES[name]
        self._measure = media.measure
        self._held: dict[Span, Measured] = {}

    async def open(self) -> None:
        """Nothing to open."""

    async def send(self, request: Request) -> str:
        """Measure and decide; the answer comes in the form of a chat completion."""
        audios = [part for part in request.parts() if isinstance(part, Audio)]
        measured = await asyncio.to_thread(lambda: [self._measured(audio) for audio in audios])
        answer = self._judge(json.loads(request.facts) or {}, measured)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        message = {"role": "assistant", "content": text}
        return json.dumps({"model": self._name, "choices": [{"message": message, "finish_reason": "stop"}]})

    def read(self, request: Request, raw: str) -> Reply:
        """What the function said."""
        from tasks.annotation.openai_compatible import (
            read_chat_completion,  # here: HTTP is not needed to look a name up
        )

        return read_chat_completion(raw)

    async def close(self) -> None:
        """Nothing to close."""

    def _measured(self, audio: Audio) -> Measured:
        """Each clip once: it stands in several pairs, and in both orders of each."""
        if self._measure is None:
            raise ConfigError(f"annotator 'builtin:{self._name}' needs measurements; pass Media(measure=…)")
        span = (audio.sha256, audio.start_s, audio.end_s, audio.form.longest_s)
        held = self._held.get(span)
        if held is None:
            try:
                held = self._measure(audio)
            except (InputError, ValueError) as error:
                raise BadMedia(f"clip {audio.sha256[:12]}: {error}") from None
            if len(self._held) >= HELD_AT_MOST:
                self._held.clear()
            self._held[span] = held
        return held


@dataclass
class _Fit:
    """How a clip fits words: points, what speaks for and against it, and the words that it does not fit."""

    points: float = 0.0
    notes: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)

    def see(self, word: str, *, fits: bool, said: str) -> None:
        self.points += 1.0 if fits else -1.0
        if not fits:
            self.wrong[word] = said
        self.notes.append(f"{said} {'fits' if fits else 'does not fit'} '{word}'")


def music_pair(facts: Mapping[str, Any], clips: list[Measured]) -> dict[str, str]:
    """Judge two clips: musicality by faults of the signal, alignment by tag words.

    Args:
        facts: `text`, the words that both clips were made from; `dimensions`, which of `musicality` and `alignment`
            are asked, or `overall`; the first two without it.
        clips: measurements, the last two of which are A and B; one before them is a reference.

    Returns:
        A, B or tie for each dimension that is asked, and `reason`.

    Raises:
        BadRequest: fewer than two clips.
    """
    if len(clips) < 2:
        raise BadRequest(f"expected two clips, found {len(clips)}")
    a, b = clips[-2], clips[-1]
    dimensions = facts.get("dimensions") or ["musicality", "alignment"]
    if dimensions == ["overall"]:  # what sounds better; where neither does, what fits better
        said = music_pair({**facts, "dimensions": ["musicality", "alignment"]}, clips)
        choice = said["alignment"] if said["musicality"] == "tie" else said["musicality"]
        return {"overall": choice, "reason": said["reason"]}
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
        heard = [f"{name}: {'; '.join(fit.notes)}" for name, fit in (("A", fit_a), ("B", fit_b)) if fit.notes]
        reasons.append(". ".join(heard) + "." if heard else "No word of the text can be measured.")
    answer["reason"] = " ".join(reasons)[:600]
    return answer


def rubric_judge(facts: Mapping[str, Any], clips: list[Measured]) -> dict[str, str] | str:
    """Whether a clip fits a text: by measured tempo, brightness and loudness, and by the words of its own caption.

    Args:
        facts: `instruction`, or `item`, a question about it; `ask`: `verify` (does it fit?), `mismatch` (is it wrong?),
            or nothing for a plain Yes or No; `truth`, the clip's own caption, where it is known.
        clips: one clip's measurements.

    Returns:
        `answer` and `evidence`, or the word alone. Evidence names what was measured, and what of the text could fit.

    Raises:
        BadRequest: not one clip, or no text.
    """
    text = str(facts.get("item") or facts.get("instruction") or "")
    if len(clips) != 1 or not text:
        raise BadRequest(f"expected one clip and an instruction or item, found {len(clips)} and {text[:40]!r}")
    fit = alignment(phrase_book(text, "en") if language_of(text) == "zh" else text, clips[0])
    wrong = contradictions(str(facts["truth"]), text) if facts.get("truth") else []
    fits = not wrong and not fit.wrong
    if not facts.get("ask"):
        return "Yes" if fits else "No"
    if fits:
        evidence = "; ".join(fit.notes) or "nothing that can be measured speaks against it"
    else:
        left = _without(text, [*fit.wrong, *wrong])
        heard = ", ".join(dict.fromkeys(fit.wrong.values())) or "its caption names something else"
        evidence = f"Heard instead: {heard}. What could fit: {left[:400]}"
    yes = fits if facts["ask"] == "verify" else not fits
    return {"answer": "yes" if yes else "no", "evidence": evidence[:600]}


def _without(text: str, words: Sequence[str]) -> str:
    """A text without these words, in whichever language it has them."""
    both = [rf"\b{re.escape(word)}\b" for word in words] + [re.escape(phrase_book(word, "zh")) for word in words]
    return " ".join(re.sub("|".join(both), "", text, flags=re.IGNORECASE).split())


def quality(clip: Measured) -> tuple[float, str]:
    """Points of signal quality, 0 to 100, and the faults found, worst first."""
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
    found = sorted(((points, name) for name, points in faults.items() if points >= 1), reverse=True)
    return max(0.0, 100.0 - sum(faults.values())), ", ".join(name for _, name in found[:3]) or "no fault found"


def alignment(text: str, clip: Measured, reference: Measured | None = None) -> _Fit:
    """How measured tempo, brightness and loudness fit the words of a text, and a reference clip if there is one."""
    words, fit = set(re.findall(r"[a-z]+", text.lower())), _Fit()
    said = re.search(r"(\d{2,3})\s*bpm", text.lower())
    tempo = clip["tempo_bpm"]
    if said and tempo:
        wanted = float(said.group(1))
        near = min(abs(tempo * factor / wanted - 1) for factor in (0.5, 1.0, 2.0))
        fit.see(f"{wanted:.0f} bpm", fits=near < 0.06, said=f"{tempo:.0f} bpm")
    for group, name, unit, least, most in TAG_WORDS:
        for word in sorted(words & group):
            value = clip[name]
            if name != "tempo_bpm" or tempo:
                fit.see(word, fits=least <= value <= most, said=f"{value:.0f} {unit}")
    if reference is not None:
        _like(fit, clip, reference)
    return fit


TAG_WORDS: tuple[tuple[frozenset[str], str, str, float, float], ...] = (
    (frozenset({"fast", "upbeat", "energetic", "driving", "allegro", "presto"}), "tempo_bpm", "bpm", 112, 999),
    (frozenset({"slow", "calm", "ballad", "adagio", "relaxing", "ambient"}), "tempo_bpm", "bpm", 0, 96),
    (frozenset({"bright", "sparkling", "crisp", "shimmering"}), "centroid_hz", "Hz centroid", 2200, 99_999),
    (frozenset({"dark", "warm", "mellow", "deep", "muffled"}), "centroid_hz", "Hz centroid", 0, 2000),
    (frozenset({"loud", "aggressive", "heavy", "powerful"}), "loudness_lufs", "LUFS", -18, 99),
    (frozenset({"quiet", "soft", "gentle", "delicate"}), "loudness_lufs", "LUFS", -120, -19),
)
"""Words, the measurement that they speak of, and its range."""


def _like(fit: _Fit, clip: Measured, reference: Measured) -> None:
    """Likeness to a reference in tempo and brightness."""
    if clip["tempo_bpm"] and reference["tempo_bpm"]:
        near = abs(clip["tempo_bpm"] / reference["tempo_bpm"] - 1) < 0.08
        fit.see("the reference's tempo", fits=near, said=f"{clip['tempo_bpm']:.0f} bpm")
    if clip["centroid_hz"] and reference["centroid_hz"]:
        near = 0.7 < clip["centroid_hz"] / reference["centroid_hz"] < 1.4
        fit.see("the reference's brightness", fits=near, said=f"{clip['centroid_hz']:.0f} Hz centroid")


def _prefer(a: float, b: float, tie: float) -> str:
    if abs(a - b) <= tie:
        return "tie"
    return "A" if a > b else "B"


def _beyond(value: float, least: float, slope: float, most: float) -> float:
    """Points lost: nothing up to `least`, then `slope` a unit, at most `most`."""
    return min(most, max(0.0, (value - least) * slope))


JUDGES: dict[str, Judge] = {
    "caption-refine-1": refine_caption,
    "music-caption-1": music_caption,
    "music-pair-2": music_pair,
    "music-prompt-1": music_prompt,
    "rubric-judge-1": rubric_judge,
    "rubric-writer-1": rubric_writer,
    "score-judge-1": score_judge,
    "score-labeller-1": score_labeller,
    "score-writer-1": score_writer,
    "speech-critique-1": speech_critique,
    "speech-pair-1": speech_pair,
}
"""Name with version → function of facts and measurements."""
