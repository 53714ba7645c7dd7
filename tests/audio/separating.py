"""Sounds and separators for tests of the separation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.tasks.audio.separation.jobs import Samples, Windows


def song(seconds: float, rate: int = 44_100, seed: int = 0) -> tuple[Samples, Samples]:
    """A voice in the middle and an accompaniment at the sides, (frames, 2) each."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed)
    lead = sum(np.sin(2 * np.pi * 220 * k * time + 3 * np.sin(2 * np.pi * 5 * time)) / k for k in range(1, 8))
    lead = 0.15 * np.asarray(lead) * (0.6 + 0.4 * np.sin(2 * np.pi * 0.7 * time))
    left, right = (
        0.2 * np.sin(2 * np.pi * pitch * time) + 0.02 * noise.standard_normal(len(time)) for pitch in (331, 554)
    )
    sides = np.stack([left, right], axis=1)
    return np.stack([lead, lead], axis=1).astype(np.float32), sides.astype(np.float32)


def write_song(path: Path, seconds: float, rate: int = 44_100, seed: int = 0, gain: float = 1.0) -> Path:
    """The mix as a file of floats."""
    voice, sides = song(seconds, rate, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, gain * (voice + sides), rate, subtype="FLOAT")
    return path


def snr_db(wanted: npt.NDArray[np.floating], found: npt.NDArray[np.floating]) -> float:
    """How far the difference lies below what is wanted."""
    error = np.sum((wanted.astype(np.float64) - found) ** 2)
    return float(10 * np.log10(np.sum(wanted.astype(np.float64) ** 2) / max(error, 1e-30)))


class Halving:
    """A separator for tests: half of the mix is the voice; it keeps the sizes of its batches."""

    name = "halving"
    digest = hashlib.sha256(b"halving").hexdigest()
    sample_rate_hz: int | None = None
    needs_stereo = False
    least_frames = 10

    def __init__(self, length: int = 1000, step: int = 400, batch_size: int = 4, in_flight: int = 2) -> None:
        self.length, self.step, self.batch_size, self.in_flight = length, step, batch_size, in_flight
        self.batches: list[int] = []

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        return Windows(self.length, self.step, np.hamming(self.length).astype(np.float32))

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        self.batches.append(len(batch))
        return lambda: batch / 2
