"""Define the separation's types: jobs, output settings, results, and the interface of separators."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
Codec = Literal["flac", "wav", "mp3"]


@dataclass(frozen=True, slots=True)
class SeparationJob:
    """A track to separate."""

    track: str  # the track's id, for the caller
    source: Path  # the file to read
    target: Path  # the file to write; its folder is made. `Output` decides the codec, not this name's ending.


@dataclass(frozen=True, slots=True)
class Output:
    """Settings of written instrumentals, always in stereo at the source's own rate."""

    codec: Codec = "flac"  # `flac` or `wav` (lossless) or `mp3` (rates unknown to MP3 become 48 kHz)
    bits: Literal[16, 24] = 24  # bits a sample of the lossless codecs, rounded once, from float
    crop_s: float | None = None  # seconds to separate from the track's start; None: all
    bitrate_kbps: int = 320  # constant bit rate of MP3, 32 to 320

    def __post_init__(self) -> None:
        if self.crop_s is not None and self.crop_s <= 0:
            raise ValueError(f"expected a crop of more than 0 s, found {self.crop_s:g}")


@dataclass(frozen=True, slots=True)
class SeparatedTrack:
    """A separated track; `job.target` is complete. Levels are root mean squares over both channels in dB of full scale
    at the source's own scale, at least -120."""

    job: SeparationJob
    sha256: str  # of the written file
    bytes: int  # of the written file
    duration_s: float  # length of the separated part
    sample_rate_hz: int  # rate of the source
    channels: int  # channels of the source
    frames: int  # frames of the source after the crop, at its rate
    written_frames: int  # frames of the written file by its header; MP3 adds some at its ends
    written_rate_hz: int  # rate of the written file
    gain_db: float  # gain of the file over the source's scale; below 0 if peaks were scaled to 0.9
    mix_db: float  # level of the mix
    instrumental_db: float  # level of the instrumental
    removed_db: float  # level of the removed voice
    # between instrumental and removed voice, -1 to 1: 0 if they have nothing in common; well above 0, some of the voice
    # remains
    correlation: float
    clipped_share: float  # share of the mix's samples at full scale, 0 to 1
    emptied_share: float  # share of the mix's sounding tenths of a second silent in the instrumental, 0 to 1


@dataclass(frozen=True, slots=True)
class FailedTrack:
    """A track not separated; nothing was written."""

    job: SeparationJob
    # a fixed word: from `audio.faults` (`file_unreadable`, …), or `separation_too_short`,
    # `separation_needs_stereo`, `separation_not_finite`
    reason: str
    detail: str  # expected and found values, without the file's path


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of a track for a separator, joined by a weighted sum over a sum of weights."""

    length: int  # frames of a window; a shorter track is a single window of its own length
    step: int  # frames from window to window; the last is moved back to end with the track
    weights: Samples = field(repr=False)  # (length,), above 0

    def starts(self, frames: int) -> list[int]:
        """Return the first frame of each window of a track, ascending."""
        starts: list[int] = []
        for start in range(0, frames, self.step):
            if start + self.length >= frames:
                last = max(frames - self.length, 0)
                return starts if starts and starts[-1] == last else [*starts, last]
            starts.append(start)
        return starts


class Separator(Protocol):
    """Interface for taking the voice out of windows of stereo sound. For a single device; not safe for threads."""

    name: str  # its name in tables: `centre-removal`, or the checkpoint's file name
    # SHA-256 (hex) of everything behind its output: checkpoint, model settings, precision; not batch size, device and
    # compilation, as these change rounding only
    digest: str
    sample_rate_hz: int | None  # its working rate; None: any
    batch_size: int  # most windows in a batch
    in_flight: int  # concurrent batches: 1 on a CPU, 2 for a device working by itself
    needs_stereo: bool  # whether it needs two different channels
    least_frames: int  # shortest track at its rate

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        """Return the windows of a track of `frames`."""
        ...

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        """Start a batch of windows (windows, 2, frames); return a function that waits for the voices, of this shape.
        Voices may be a little shorter than windows: the missing end counts as silence."""
        ...
