"""What an audio file is, from its header and its bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import soundfile


class Probe(NamedTuple):
    """What was measured of one audio file.

    Attributes:
        clip_sha256: SHA-256 of the file's bytes: the clip's identity.
        duration_s: length in seconds.
        sample_rate_hz: samples a second and channel.
        channels: 1 for mono, 2 for stereo.
    """

    clip_sha256: str
    duration_s: float
    sample_rate_hz: int
    channels: int


class AudioFault(NamedTuple):
    """Why an audio file cannot be used: a fixed word, and what was found."""

    reason: str
    detail: str


def probe(path: Path) -> Probe | AudioFault:
    """Hash a file and read its header.

    Returns:
        The measurements, or why there are none: `audio_missing`, `audio_unreadable` or `audio_empty`.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            info = soundfile.info(file)
    except FileNotFoundError:
        return AudioFault("audio_missing", f"expected an audio file, found nothing at {path.name}")
    except (OSError, soundfile.LibsndfileError) as error:
        return AudioFault("audio_unreadable", f"expected WAV, FLAC, MP3 or OGG audio: {_reason(error)}")
    if info.frames <= 0:
        return AudioFault("audio_empty", "expected at least one sample, found none")
    return Probe(digest, info.frames / info.samplerate, info.samplerate, info.channels)


def _reason(error: OSError | soundfile.LibsndfileError) -> str:
    """The error's own words, without the path that soundfile puts before them."""
    if isinstance(error, soundfile.LibsndfileError):
        return str(error.error_string)
    return error.strerror or type(error).__name__
