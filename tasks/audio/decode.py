"""Decode audio files, average to mono, resample, with the same bytes in every run. soundfile and soxr release other
threads: two threads on two cores decode twice as much."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import soxr

from earmark.tasks.audio.faults import LONGEST_S, BadAudio
from earmark.tasks.audio.sound import Samples, open_sound


def decode(path: Path, *, first_s: float | None = None) -> tuple[Samples, int]:
    """Return samples (frames, channels), full scale ±1, and the rate in Hz of a whole file.

    Args:
        path: WAV, FLAC, MP3, OGG (Vorbis or Opus), or M4A.
        first_s: seconds to decode from the start; default: all.

    Raises:
        BadAudio: the file has no samples, or cannot be decoded.
    """
    with open_sound(path) as sound:
        rate, wanted = sound.sample_rate_hz, None if first_s is None else round(first_s * sound.sample_rate_hz)
        blocks, done = [], 0
        for block in sound.blocks():
            blocks.append(block.copy())
            done += len(block)
            if wanted is not None and done >= wanted:
                break
        if not done:
            raise BadAudio("file_empty", "expected at least one sample, found none")
    return joined(blocks)[:wanted], rate


def decode_mono(path: Path, sample_rate_hz: int) -> Samples:
    """Decode a file to mono at a given rate, with soxr's HQ quality.

    Args:
        path: WAV, FLAC, MP3, OGG (Vorbis or Opus), or M4A.

    Returns:
        Samples of shape (frames,), nominally within [-1, 1]. Channels are averaged.
    """
    return joined(list(mono_blocks(path, sample_rate_hz)))


def mono_blocks(path: Path, sample_rate_hz: int, *, longest_s: float = LONGEST_S) -> Iterator[Samples]:
    """Yield the samples of `decode_mono` in parts of a few hundred kilobytes, for files of any length."""
    with open_sound(path, longest_s) as sound:
        rate, empty = sound.sample_rate_hz, True
        resampler = soxr.ResampleStream(rate, sample_rate_hz, 1, dtype="float32", quality="HQ")
        for block in sound.blocks():
            mono, empty = average(block), False
            yield mono if rate == sample_rate_hz else resampler.resample_chunk(mono)
        if empty:
            raise BadAudio("file_empty", "expected at least one sample, found none")
        if rate != sample_rate_hz:
            yield resampler.resample_chunk(np.empty(0, np.float32), last=True)


def convert(source: Path, target: Path, sample_rate_hz: int) -> None:
    """Write a file as mono 16-bit PCM WAV at a given rate; samples beyond full scale are clipped.

    Raises:
        BadAudio: as `decode_mono`; `target` is then a part of a file.
    """
    with soundfile.SoundFile(target, "w", sample_rate_hz, 1, subtype="PCM_16", format="WAV") as file:
        for block in mono_blocks(source, sample_rate_hz):
            file.write(np.clip(block, -1.0, 1.0))


def average(samples: Samples) -> Samples:
    """Return the mean over channels, (frames,), by summing columns: far faster than `mean(axis=1)` on few channels."""
    total = samples[:, 0].copy()
    for channel in range(1, samples.shape[1]):
        total += samples[:, channel]
    if samples.shape[1] > 1:
        total *= np.float32(1.0 / samples.shape[1])
    return total


def joined(parts: list[Samples]) -> Samples:
    """Return parts concatenated, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
