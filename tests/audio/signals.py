"""Music whose tempo is known, and known degradations of it."""

from __future__ import annotations

import numpy as np

from earmark.tasks.audio.measure import Samples

RATE = 22_050


def music(seconds: float = 6.0, bpm: float = 120.0) -> Samples:
    """Decaying chords on a steady pulse."""
    rng, t = np.random.default_rng(3), np.arange(int(seconds * RATE)) / RATE
    beat = t % (60 / bpm)
    tone = sum(np.sin(2 * np.pi * f * t) / n for n, f in enumerate((220.0, 277.2, 329.6, 880.0, 3520.0), 1))
    hit = rng.standard_normal(len(t)) * np.exp(-beat * 60) * 0.5
    samples: Samples = 0.2 * (tone * np.exp(-beat * 5) + hit)
    return samples


def worse(kind: str, x: Samples) -> Samples:
    """A known degradation."""
    match kind:
        case "clipping":
            return np.clip(x * 12, -0.9, 0.9)
        case "noise":
            return x + 0.1 * np.random.default_rng(5).standard_normal(len(x))
        case "lowpass":
            bins = np.fft.rfft(x)
            bins[np.fft.rfftfreq(len(x), 1 / RATE) > 1500] = 0
            return np.fft.irfft(bins, len(x))
        case "dropouts":
            holed = x.copy()
            for start in range(1000, len(x), RATE // 3):
                holed[start : start + RATE // 25] = 0
            return holed
        case "quiet":
            return x * 0.01
    raise ValueError(kind)
