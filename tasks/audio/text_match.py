"""Match the words of a text with signal measurements of a clip: weak and honest rules for built-in annotators."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Measured: TypeAlias = Mapping[str, float]


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
    if clip["tempo_bpm"] and reference["tempo_bpm"]:
        near = abs(clip["tempo_bpm"] / reference["tempo_bpm"] - 1) < 0.08
        fit.see("the reference's tempo", fits=near, measured=f"{clip['tempo_bpm']:.0f} bpm")
    if clip["centroid_hz"] and reference["centroid_hz"]:
        near = 0.7 < clip["centroid_hz"] / reference["centroid_hz"] < 1.4
        fit.see("the reference's brightness", fits=near, measured=f"{clip['centroid_hz']:.0f} Hz centroid")
