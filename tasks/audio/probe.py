"""What an audio file is, from its header and its bytes."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

BLOCK = 1 << 16  # frames decoded at once
LONGEST_S = 12 * 3600  # beyond, a header is taken for a mistake or a trap


class Probe(NamedTuple):
    """What was measured of one audio file.

    Attributes:
        clip_sha256: SHA-256 of the file's bytes: the clip's identity.
        duration_s: length in seconds.
        sample_rate_hz: samples a second and channel.
        channels: 1 for mono, 2 for stereo.
        peak_dbfs: highest sample in dB of full scale, never below -200.
    """

    clip_sha256: str
    duration_s: float
    sample_rate_hz: int
    channels: int
    peak_dbfs: float


class AudioFault(NamedTuple):
    """Why an audio file cannot be used: a fixed word, and what was found."""

    reason: str
    detail: str


def probe(path: Path) -> Probe | AudioFault:
    """Hash a file and decode it once, block by block.

    Returns:
        The measurements, or why there are none: `audio_missing`, `audio_unreadable`, `audio_empty` or `audio_too_long`.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            with soundfile.SoundFile(file) as sound:
                if sound.frames > LONGEST_S * sound.samplerate:
                    hours = sound.frames / sound.samplerate / 3600
                    return AudioFault("audio_too_long", f"expected at most {LONGEST_S / 3600:g} h, found {hours:.1f} h")
                frames, peak = _listen(sound)
                rate, channels = sound.samplerate, sound.channels
    except FileNotFoundError:
        return AudioFault("audio_missing", f"expected an audio file, found nothing at {path.name}")
    except (OSError, soundfile.LibsndfileError) as error:
        return AudioFault("audio_unreadable", f"expected WAV, FLAC, MP3 or OGG audio: {_reason(error)}")
    if frames == 0:
        return AudioFault("audio_empty", "expected at least one sample, found none")
    return Probe(digest, frames / rate, rate, channels, max(-200.0, 20 * math.log10(max(peak, 1e-10))))


def _listen(sound: soundfile.SoundFile) -> tuple[int, float]:
    """How many frames there really are, whatever the header says, and the highest sample."""
    frames, peak = 0, 0.0
    for block in sound.blocks(BLOCK, dtype="float32"):
        frames += len(block)
        peak = max(peak, float(np.abs(block).max()))
    return frames, peak


def _reason(error: OSError | soundfile.LibsndfileError) -> str:
    """The error's own words, without the path that soundfile puts before them."""
    if isinstance(error, soundfile.LibsndfileError):
        return str(error.error_string)
    return error.strerror or type(error).__name__
