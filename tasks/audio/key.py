"""Estimate the musical key of a clip, by a pure function on an array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.floating]

LEAST_FIT = 0.5  # least correlation with the nearest key's profile; below, a clip has no key
LONGEST_S = 180.0
_MAJOR = (6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88)
_MINOR = (6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17)


def key_of(samples: Samples, sample_rate_hz: int) -> int:
    """Return the key with the best-fitting profile of pitch classes (Krumhansl and Kessler 1982, by correlation).

    Args:
        samples: (frames,) or (frames, channels), full scale ±1.

    Returns:
        0 to 11 for major keys from C upwards by semitones, 12 to 23 for minor ones, -1 for none.
    """
    mono = samples.reshape(len(samples), -1).mean(axis=1)[: round(LONGEST_S * sample_rate_hz)]
    chroma = pitch_classes(mono, sample_rate_hz)
    if np.ptp(chroma) < 1e-9:
        return -1
    fits = [
        float(np.corrcoef(chroma, np.roll(profile, tonic))[0, 1]) for profile in (_MAJOR, _MINOR) for tonic in range(12)
    ]
    best = int(np.argmax(fits))
    return best if fits[best] >= LEAST_FIT else -1


def pitch_classes(mono: Samples, sample_rate_hz: int) -> Samples:
    """Return the strength of each pitch class from C upwards, (12,), summing to 1; almost 0 for silence. Magnitudes
    from 100 to 2000 Hz of frames of about 0.4 s, enough to resolve semitones from 100 Hz on up."""
    size = 1 << round(np.log2(0.4 * sample_rate_hz))
    padded = np.pad(mono, (0, max(0, size - len(mono))))
    window = np.hanning(size)
    total = np.zeros(size // 2 + 1)
    for start in range(0, len(padded) - size + 1, size // 2):
        total += np.abs(np.fft.rfft(padded[start : start + size] * window))
    frequencies = np.fft.rfftfreq(size, 1 / sample_rate_hz)
    audible = (frequencies >= 100) & (frequencies <= 2000)
    places = np.round(69 + 12 * np.log2(frequencies[audible] / 440)).astype(int) % 12
    chroma = np.bincount(places, weights=total[audible] ** 2, minlength=12).astype(np.float64)
    return chroma / max(float(chroma.sum()), 1e-9)
