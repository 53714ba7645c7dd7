"""Sounds for the demo inputs: notes, and the faults that listeners mark down. Only numpy and soundfile.

Noise comes from `RandomState`, whose stream numpy promises never to change, so that every run makes the same clips.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

Samples = npt.NDArray[np.float64]  # (frames,), full scale ±1

STEPS = 2**10  # steps from 0 to full scale: eleven bits are plenty for a demo, and FLAC files stay small


def note(frequency_hz: float, seconds: float, rate_hz: int, *, brightness: float, decay: float) -> Samples:
    """One note of a made-up instrument.

    Args:
        frequency_hz: the fundamental.
        seconds: how long it lasts.
        rate_hz: samples a second.
        brightness: amplitude of each overtone over the one below it, 0 (a pure tone) to 1 (a buzz).
        decay: how fast it fades, in powers of e a second: 1 for a pad, 8 for something plucked.
    """
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    overtones = range(1, int(0.45 * rate_hz / frequency_hz) + 1)
    wave = sum((brightness ** (k - 1) * np.sin(2 * np.pi * k * frequency_hz * time) for k in overtones), 0 * time)
    fade_in = np.minimum(time / 0.008, 1.0)
    fade_out = np.minimum((seconds - time) / 0.008, 1.0)
    return np.asarray(wave * np.exp(-decay * time) * fade_in * fade_out)


def place(sound: Samples, into: Samples, start_s: float, rate_hz: int, gain: float = 1.0) -> None:
    """Mix a sound into a longer one; what reaches beyond its end is cut."""
    start = round(start_s * rate_hz)
    end = min(start + len(sound), len(into))
    into[start:end] += gain * sound[: end - start]


def at_peak(samples: Samples, peak: float) -> Samples:
    """Scaled so that the loudest sample is `peak`."""
    return np.asarray(samples * (peak / np.abs(samples).max()))


def with_noise(samples: Samples, level: float, random: np.random.RandomState) -> Samples:
    """White noise on top: a hiss; `level` is its largest amplitude."""
    return np.asarray(samples + level * random.uniform(-1.0, 1.0, len(samples)))


def clipped(samples: Samples, drive: float) -> Samples:
    """Distort a sound: turn it up by `drive` into a limit of full scale, then down again: distortion."""
    peak = np.abs(samples).max()
    return np.asarray(peak * np.clip(drive * samples / peak, -1.0, 1.0))


def low_passed(samples: Samples, cutoff_hz: float, rate_hz: int) -> Samples:
    """Without what lies above `cutoff_hz`: the sound of a telephone."""
    taps = np.arange(-64, 65)
    kernel = np.sinc(2 * cutoff_hz / rate_hz * taps) * np.hamming(len(taps))
    return np.convolve(samples, kernel / kernel.sum(), mode="same")


def with_dropouts(samples: Samples, starts_s: Sequence[float], seconds: float, rate_hz: int) -> Samples:
    """Silent for a moment at each of the starts, as if packets were lost."""
    holes = samples.copy()
    for start_s in starts_s:
        start = round(start_s * rate_hz)
        holes[start : start + round(seconds * rate_hz)] = 0.0
    return holes


def write(path: Path, samples: npt.NDArray[np.float64], rate_hz: int) -> None:
    """Write WAV or FLAC of 16 bits, of which the lowest five are empty.

    Args:
        path: its ending names the format; folders are made.
        samples: (frames,) or (frames, channels), full scale ±1.
        rate_hz: samples a second.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = np.round(np.clip(samples, -1.0, 1.0) * (STEPS - 1)).astype(np.int16)
    soundfile.write(path, steps * np.int16(2**15 // STEPS), rate_hz, subtype="PCM_16")
