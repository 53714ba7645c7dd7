"""Samples out of audio files: decoded, averaged to mono, resampled; the same bytes from one run to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr


def decode_mono(path: Path, sample_rate_hz: int) -> npt.NDArray[np.float32]:
    """Decode a file to mono at a given rate, with soxr's HQ quality.

    Args:
        path: WAV, FLAC, MP3 or OGG.
        sample_rate_hz: the rate wanted.

    Returns:
        Samples of shape (frames,), nominally within [-1, 1]. Channels are averaged.

    Raises:
        soundfile.LibsndfileError: the file cannot be decoded.
    """
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples[:, 0] if samples.shape[1] == 1 else _average(samples)
    return mono if rate == sample_rate_hz else soxr.resample(mono, rate, sample_rate_hz, quality="HQ")


def write_wav(path: Path, samples: npt.NDArray[np.float32], sample_rate_hz: int) -> None:
    """Write mono samples as 16-bit PCM WAV; samples beyond full scale are clipped."""
    soundfile.write(path, np.clip(samples, -1.0, 1.0), sample_rate_hz, subtype="PCM_16", format="WAV")


def _average(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The mean over channels by summing columns, which is many times faster than `mean(axis=1)` on few channels."""
    total = samples[:, 0].copy()
    for channel in range(1, samples.shape[1]):
        total += samples[:, channel]
    total *= np.float32(1.0 / samples.shape[1])
    return total
