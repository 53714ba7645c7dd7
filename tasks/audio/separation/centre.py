"""Remove the centre of a stereo track, taking sound common to both channels above the bass for the voice.

A voice is mixed to the middle nearly always, the accompaniment to the sides. Let M and S be mid and side, (L ± R) / 2,
in a cell of the short-time spectrum. Sound off the middle adds equal power to both (for sources panned hard, and on
average for several that spread evenly), so the middle's own power is |M|² − |S|², and the gain that estimates it best
in the least-squares sense is Wiener's, g = max(0, 1 − |S|² / |M|²). The voice is g·M in both channels; each channel
keeps the rest, so the result stays stereo. Below 90 Hz nothing is removed: bass and bass drum are in the middle too.

No model: everything else in the middle (snare, bass above 150 Hz, solos) goes with the voice, and the voice's
reverberation stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from earmark.tasks.audio.separation.jobs import Samples, Windows

WINDOW_S = 3.0  # of sound in a window
FRAME = 4096
HOP = FRAME // 4
KEPT_BELOW_HZ, REMOVED_ABOVE_HZ = 90.0, 150.0


class CentreRemoval:
    """The separator `centre-removal`: needs only NumPy and stereo, works at any rate."""

    name = "centre-removal"
    sample_rate_hz: int | None = None
    batch_size = 1
    in_flight = 1
    needs_stereo = True
    least_frames = 1

    def __init__(self) -> None:
        settings = ["centre-removal", 1, WINDOW_S, FRAME, HOP, KEPT_BELOW_HZ, REMOVED_ABOVE_HZ]
        self.digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        """Return windows of about three seconds, half overlapping, Hamming-weighted."""
        length = max(1, round(WINDOW_S * sample_rate_hz / HOP)) * HOP
        return Windows(length, length // 2 // HOP * HOP or length, np.hamming(length).astype(np.float32))

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        """Remove the centre at once; return a function returning the result."""
        voices = np.stack([centre(window, band(sample_rate_hz)) for window in batch])
        return lambda: voices


@lru_cache(8)
def band(sample_rate_hz: int) -> Samples:
    """Return the removed share of the centre at each frequency of the spectrum, (FRAME / 2 + 1,), 0 to 1."""
    frequencies = np.fft.rfftfreq(FRAME, 1 / sample_rate_hz)
    share = np.clip((frequencies - KEPT_BELOW_HZ) / (REMOVED_ABOVE_HZ - KEPT_BELOW_HZ), 0.0, 1.0)
    kept: Samples = (0.5 - 0.5 * np.cos(np.pi * share)).astype(np.float32)
    return kept


def centre(window: Samples, removed: Samples) -> Samples:
    """Return the centre of a window.

    Args:
        window: (2, frames), full scale ±1.
        removed: the result of `band` for its rate.

    Returns:
        (2, frames): the same in both channels.
    """
    frames = window.shape[1]
    whole = -(-frames // HOP) * HOP
    padded = np.pad(window, ((0, 0), (FRAME - HOP, FRAME - HOP + whole - frames)))
    shape = np.hanning(FRAME + 1)[:FRAME].astype(np.float32)
    cut = np.lib.stride_tricks.sliding_window_view(padded, FRAME, axis=1)[:, ::HOP] * shape
    left, right = np.fft.rfft(cut, axis=2)
    middle, side = (left + right) / 2, (left - right) / 2
    power = _power(middle)
    gain = np.maximum(0.0, 1.0 - _power(side) / np.maximum(power, np.finfo(np.float32).tiny)) * removed
    voice = np.fft.irfft(middle * gain, FRAME, axis=1).astype(np.float32) * shape
    summed = np.zeros(padded.shape[1], np.float32)
    for turn in range(FRAME // HOP):  # frames without overlap lie end to end
        part = voice[turn :: FRAME // HOP].reshape(-1)
        summed[turn * HOP : turn * HOP + len(part)] += part
    voice_sum = summed[FRAME - HOP : FRAME - HOP + frames] / np.float32(1.5)  # the squared windows' sum at this hop
    return np.stack([voice_sum, voice_sum])


def _power(spectrum: npt.NDArray[np.complexfloating]) -> npt.NDArray[np.floating]:
    power: npt.NDArray[np.floating] = spectrum.real**2 + spectrum.imag**2
    return power
