"""Measure an audio file by its header, bytes and samples."""

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from earmark.schemas.reasons import AudioFault
from earmark.tasks.audio.decode import average
from earmark.tasks.audio.faults import LONGEST_S, BadAudio, check_length
from earmark.tasks.audio.sound import Sound, open_file, sound_of

QUIET_DB = -60.0
SILENCE_DBFS = -60.0  # clips with a lower peak are silent: 16 bits leave 36 dB below it for noise
FRAME_S = 0.05
LEAST_S = 0.01  # shorter clips are useless to a model: at 16 kHz 160 samples
MOST_CLIPPED = 0.1  # share of the mixed samples beyond full scale; loud masters decoded from MP3 stay below 0.03
HIGHEST_PEAK = 16.0  # 24 dB above full scale, beyond any master; integers between long pauses are few samples
CANCEL_DB = -40.0  # level of the mix relative to the channels; below, they cancel each other
LOWEST_DB = -200.0


class Probe(NamedTuple):
    """Measurements of an audio file."""

    clip_sha256: str  # SHA-256 of the file's bytes: the clip's identity
    duration_s: float  # length in seconds
    sample_rate_hz: int  # samples a second and channel
    channels: int  # 1 for mono, 2 for stereo
    peak_dbfs: float  # highest sample in dB of full scale, never below -200
    level_dbfs: float  # root mean square over all channels in dB of full scale, never below -200
    silent_share: float  # share of frames of 50 ms below -60 dB of full scale, 0 to 1
    codec: str  # `flac`, `mp3`, `vorbis`, `opus`, `aac`, or for plain samples their form: `pcm_16`, `float`


def probe(path: Path, longest_s: float = LONGEST_S) -> Probe | AudioFault:
    """Hash a file and decode it once, block by block; return its measurements, or its fault as for `BadAudio`. A file
    too long by its header is neither hashed nor decoded."""
    try:
        with open_file(path) as file, sound_of(file, longest_s) as sound:
            heard = _listen(sound)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            rate, channels, codec = sound.sample_rate_hz, sound.channels, sound.codec
    except BadAudio as bad:
        return AudioFault(bad.reason, bad.detail)
    except OSError as error:
        return AudioFault("file_unreadable", f"expected a file that can be read: {error.strerror}")
    fault = _unheard(heard, rate)
    if fault is not None:
        return fault
    peak, level = _decibels(heard.peak), _decibels(math.sqrt(heard.power))
    return Probe(digest, heard.frames / rate, rate, channels, peak, level, heard.silent_share, codec)


def within(result: Probe | AudioFault, longest_s: float) -> Probe | AudioFault:
    """Return a result, or a fault if the file exceeds this limit: its measurement may have had another."""
    try:
        if isinstance(result, Probe):
            check_length(result.duration_s, longest_s)
    except BadAudio as bad:
        return AudioFault(bad.reason, bad.detail)
    return result


class _Heard(NamedTuple):
    """Sums over a clip's samples."""

    frames: int  # frames decoded
    peak: float  # highest sample of any channel, full scale 1
    power: float  # mean square over all channels
    silent_share: float  # share of frames of 50 ms below -60 dB, 0 to 1
    mixed_power: float  # mean square of the mean over channels, the input of models
    clipped_share: float  # share of the mix's samples beyond full scale, 0 to 1


def _unheard(heard: _Heard, rate: int) -> AudioFault | None:
    """Return the fault of a clip inaudible to a model: too short, beyond full scale, or silent once mixed to mono."""
    if heard.frames == 0:
        return AudioFault("file_empty", "expected at least one sample, found none")
    if heard.frames < LEAST_S * rate:
        return AudioFault("file_empty", f"expected at least {LEAST_S:g} s, found {heard.frames} samples at {rate} Hz")
    if heard.clipped_share > MOST_CLIPPED or heard.peak > HIGHEST_PEAK:
        return AudioFault(
            "file_odd_format",
            f"expected samples within full scale (±1), found {heard.clipped_share:.0%} beyond it, the highest "
            f"{heard.peak:.4g}: integers written as floats? Divide them by 32768 and write the file anew",
        )
    if heard.power > 10 ** (QUIET_DB / 10) and heard.mixed_power < heard.power * 10 ** (CANCEL_DB / 10):
        return AudioFault(
            "file_odd_format",
            "expected channels whose mean can be heard, found channels that cancel each other; "
            "turn the phase of one, or keep one channel",
        )
    return None


def _listen(sound: Sound) -> _Heard:
    size = max(1, round(FRAME_S * sound.sample_rate_hz))
    limit = 10 ** (QUIET_DB / 10) * size * sound.channels
    count = silent = whole = clipped = 0
    peak = total = mixed = 0.0
    rest = np.empty((0, sound.channels), np.float32)
    for block in sound.blocks():
        count += len(block)
        highest = max(float(block.max()), -float(block.min()))
        peak = max(peak, highest)
        if sound.channels > 1 or highest > 1:
            mono = average(block)
            mixed += float(np.dot(mono, mono))
            clipped += int(np.count_nonzero(np.abs(mono) > 1)) if highest > 1 else 0
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
    frames = max(1, count)
    power = total / (frames * sound.channels)
    mixed_power = mixed / frames if sound.channels > 1 else power
    return _Heard(count, peak, power, silent / max(1, whole), mixed_power, clipped / frames)


def _decibels(amplitude: float) -> float:
    return max(LOWEST_DB, 20 * math.log10(max(amplitude, 1e-10)))
