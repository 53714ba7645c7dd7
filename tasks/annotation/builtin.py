"""Answer without a model, by functions of signal measurements and facts: weak, honest and always named as such.

A corpus's functions are in `tasks/<corpus>/builtin.py`, which exports `FUNCTIONS` by name. Another package adds a
function by an entry point of the group `earmark.builtins`, `lab-judge-1 = "lab.builtin:judge"`. A name includes its
version: other rules get another name, so that their answers have other keys.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import nearest
from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.registry import Registry
from earmark.tasks.annotation.answers import Reply
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.errors import BadMedia
from earmark.tasks.annotation.request import Audio, Request

Measured: TypeAlias = Mapping[str, float]
Span: TypeAlias = tuple[str, float | None, float | None, float | None, float | None]

MOST_MEASURED = 50_000
"""Number of clips with measurements kept in memory."""


@cache
def functions() -> Registry[FunctionType]:
    """Return every builtin function by its name with version, for a request's facts and its clips' measurements."""
    own: dict[str, FunctionType | str] = {}
    for path in sorted(Path(__file__).parents[1].glob("*/builtin.py")):
        module = import_module(f"earmark.tasks.{path.parent.name}.builtin")
        named: Mapping[str, FunctionType] = getattr(module, "FUNCTIONS", {})
        own |= {name: f"{module.__name__}:{function.__name__}" for name, function in named.items()}
    return Registry("builtin function", "earmark.builtins", FunctionType, own)


class Builtin:
    """Backend of a registered function on a request's facts and the measurements of its clips."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        name = config.annotator.partition(":")[2]
        known = functions().entries
        if name not in known:
            raise ConfigError(f"annotator '{config.annotator}': no builtin function '{name}'{nearest(name, known)}")
        self._name = name
        self._function = functions().find(name)
        self._measure = media.measure
        self._by_span: dict[Span, Measured] = {}

    async def open(self) -> None:
        """Open nothing."""

    async def send(self, request: Request) -> str:
        """Measure and decide; return the answer in the form of a chat completion."""
        audios = [part for part in request.parts() if isinstance(part, Audio)]
        measured = await asyncio.to_thread(lambda: [self._measured(audio) for audio in audios])
        answer = self._function(json.loads(request.facts) or {}, measured)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        message = {"role": "assistant", "content": text}
        return json.dumps({"model": self._name, "choices": [{"message": message, "finish_reason": "stop"}]})

    def read(self, request: Request, raw: str) -> Reply:
        """Return the function's answer."""
        from earmark.tasks.annotation.openai_compatible import (
            read_chat_completion,  # here: looking up a name needs no HTTP
        )

        return replace(read_chat_completion(raw), embedded=True)

    async def close(self) -> None:
        """Close nothing."""

    def _measured(self, audio: Audio) -> Measured:
        """Measure each clip once: it appears in several pairs, and in both orders of each."""
        if self._measure is None:
            raise ConfigError(f"annotator 'builtin:{self._name}' needs measurements; pass Media(measure=…)")
        span = (audio.sha256, audio.start_s, audio.end_s, audio.form.longest_s, audio.form.gain_db)
        if span not in self._by_span:
            try:
                measured = self._measure(audio)
            except (InputError, ValueError) as error:
                raise BadMedia(f"clip {audio.sha256[:12]}: {error}") from None
            if len(self._by_span) >= MOST_MEASURED:
                self._by_span.clear()
            self._by_span[span] = measured
        return self._by_span[span]


@dataclass
class TextMatch:
    """Match of a clip with a text: points, notes for and against it, and the mismatched words."""

    points: float = 0.0
    notes: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)

    def see(self, word: str, *, fits: bool, measured: str) -> None:
        self.points += 1.0 if fits else -1.0
        if not fits:
            self.wrong[word] = measured
        self.notes.append(f"{measured} {'fits' if fits else 'does not fit'} '{word}'")


def alignment(text: str, clip: Measured, reference: Measured | None = None) -> TextMatch:
    """Match a clip's tempo, brightness and loudness with the words of a text, and with a reference clip if given."""
    words, fit = set(re.findall(r"[a-z]+", text.lower())), TextMatch()
    pace = re.search(r"(\d{2,3})\s*bpm", text.lower())
    tempo = clip["tempo_bpm"]
    if pace and tempo:
        wanted = float(pace.group(1))
        near = min(abs(tempo * factor / wanted - 1) for factor in (0.5, 1.0, 2.0))
        fit.see(f"{wanted:.0f} bpm", fits=near < 0.06, measured=f"{tempo:.0f} bpm")
    for group, name, unit, least, most in TAG_WORDS:
        for word in sorted(words & group):
            value = clip[name]
            if name != "tempo_bpm" or tempo:
                fit.see(word, fits=least <= value <= most, measured=f"{value:.0f} {unit}")
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
"""Words, their measurement, and its range."""


def _like(fit: TextMatch, clip: Measured, reference: Measured) -> None:
    """Match tempo and brightness with a reference."""
    if clip["tempo_bpm"] and reference["tempo_bpm"]:
        near = abs(clip["tempo_bpm"] / reference["tempo_bpm"] - 1) < 0.08
        fit.see("the reference's tempo", fits=near, measured=f"{clip['tempo_bpm']:.0f} bpm")
    if clip["centroid_hz"] and reference["centroid_hz"]:
        near = 0.7 < clip["centroid_hz"] / reference["centroid_hz"] < 1.4
        fit.see("the reference's brightness", fits=near, measured=f"{clip['centroid_hz']:.0f} Hz centroid")
