"""What an audio file is, from its header, its bytes and its samples."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from earmark.tasks.audio.faults import LONGEST_S, BadAudio, check_length
from earmark.tasks.audio.sound import Sound, open_file, sound_of

QUIET_DB = -60.0
FRAME_S = 0.05
LOWEST_DB = -200.0


class Probe(NamedTuple):
    """What was measured of one audio file."""

    clip_sha256: str  # SHA-256 of the file's bytes: the clip's identity
    duration_s: float  # length in seconds
    sample_rate_hz: int  # samples a second and channel
    channels: int  # 1 for mono, 2 for stereo
    peak_dbfs: float  # highest sample in dB of full scale, never below -200
    level_dbfs: float  # root mean square over all channels in dB of full scale, never below -200
    silent_share: float  # share of frames of 50 ms whose level is below -60 dB of full scale, 0 to 1
    codec: str  # `flac`, `mp3`, `vorbis`, `opus`, `aac`, or for plain samples their form: `pcm_16`, `float`


class AudioFault(NamedTuple):
    """Why an audio file cannot be used: a fixed word, and the detail."""

    reason: str
    detail: str


def probe(path: Path, longest_s: float = LONGEST_S) -> Probe | AudioFault:
    """Hash a file and decode it once, block by block; its measurements, or why there are none, as `BadAudio` says.

    A file that says it is too long is neither hashed nor decoded.
    """
    try:
        with open_file(path) as file, sound_of(file, path, longest_s) as sound:
            frames, peak, power, silent = _listen(sound)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            rate, channels, codec = sound.sample_rate_hz, sound.channels, sound.codec
    except BadAudio as bad:
        return AudioFault(bad.reason, bad.detail)
    except OSError as error:
        return AudioFault("audio_unreadable", f"expected a file that can be read: {error.strerror}")
    if frames == 0:
        return AudioFault("audio_empty", "expected at least one sample, found none")
    return Probe(digest, frames / rate, rate, channels, _decibels(peak), _decibels(math.sqrt(power)), silent, codec)


def within(result: Probe | AudioFault, longest_s: float) -> Probe | AudioFault:
    """A result, or the fault that the file is longer than is allowed: it may have been measured under another limit."""
    try:
        if isinstance(result, Probe):
            check_length(result.duration_s, longest_s)
    except BadAudio as bad:
        return AudioFault(bad.reason, bad.detail)
    return result


def _listen(sound: Sound) -> tuple[int, float, float, float]:
    """Frames there really are, highest sample, mean power of a sample, and share of silent frames of 50 ms."""
    size = max(1, round(FRAME_S * sound.sample_rate_hz))
    limit = 10 ** (QUIET_DB / 10) * size * sound.channels
    count, silent, whole = 0, 0, 0
    peak = total = 0.0
    rest = np.empty((0, sound.channels), np.float32)
    for block in sound.blocks():
        count += len(block)
        peak = max(peak, float(block.max()), -float(block.min()))
        joined = np.concatenate((rest, block)) if len(rest) else block
        upto = len(joined) // size * size
        parts = joined[:upto].reshape(-1, size * sound.channels)
        energies = np.einsum("ij,ij->i", parts, parts)
        total += float(energies.sum())
        silent += int((energies < limit).sum())
        whole += len(energies)
        rest = joined[upto:].copy()
    if len(rest):
        part = rest.reshape(1, -1)
        last = float(np.einsum("ij,ij->i", part, part)[0])
        total, silent, whole = total + last, silent + (last < limit * len(rest) / size), whole + 1
    return count, peak, total / max(1, count * sound.channels), silent / max(1, whole)


def _decibels(amplitude: float) -> float:
    return max(LOWEST_DB, 20 * math.log10(max(amplitude, 1e-10)))
