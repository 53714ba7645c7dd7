"""What is asked of the separation and what it answers: jobs, output settings, results, and what a separator is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]
Codec = Literal["flac", "wav", "mp3"]


@dataclass(frozen=True, slots=True)
class Job:
    """One track to separate."""

    track: str  # the track's id, for the caller
    source: Path  # the file to read
    target: Path  # the file to write; its folder is made. The codec is the output's, whatever this name ends in.


@dataclass(frozen=True, slots=True)
class Output:
    """How instrumentals are written. Stereo always, at the source's own rate."""

    codec: Codec = "flac"  # `flac` or `wav` (lossless) or `mp3` (rates that MP3 lacks become 48 kHz)
    bits: Literal[16, 24] = 24  # bits a sample of the lossless codecs. What is written is rounded once, from float.
    crop_s: float | None = None  # only so much from the track's start is separated
    bitrate_kbps: int = 320  # constant bit rate of MP3, 32 to 320

    def __post_init__(self) -> None:
        if self.crop_s is not None and self.crop_s <= 0:
            raise ValueError(f"expected a crop of more than 0 s, found {self.crop_s:g}")


@dataclass(frozen=True, slots=True)
class Done:
    """A track that was separated; `job.target` is complete.

    Levels are root mean squares over both channels in dB of full scale at the source's own scale, never below -120.
    """

    job: Job
    duration_s: float  # length of what was separated
    sample_rate_hz: int  # rate of the source
    channels: int  # channels of the source
    frames: int  # frames that the source gave, after the crop, at its rate
    written_frames: int  # frames that the written file says it has; MP3 adds some at its ends
    written_rate_hz: int  # rate of the written file
    gain_db: float  # how much the file is louder than at the source's scale: below 0 where peaks were scaled to 0.9
    mix_db: float  # level of the mix
    instrumental_db: float  # level of what stays
    removed_db: float  # level of what was taken out
    # between what stays and what was removed, -1 to 1: 0 where they have nothing in common; well above 0 means that
    # some of the voice stays
    correlation: float
    clipped_share: float  # share of the mix's samples at full scale, 0 to 1
    emptied_share: float  # share of the mix's sounding tenths of a second that are silent in the instrumental, 0 to 1


@dataclass(frozen=True, slots=True)
class Failed:
    """A track that could not be separated; nothing was written."""

    job: Job
    # a fixed word: one of the audio room's (`audio_unreadable`, …), or `separation_too_short`,
    # `separation_needs_stereo`, `separation_not_finite`
    reason: str
    detail: str  # what was expected and what was found, without the file's path


@dataclass(frozen=True, slots=True)
class Windows:
    """How a track is cut for a separator and put together again: a weighted sum over a sum of weights."""

    length: int  # frames of a window; a track that is shorter is one window of its own length
    step: int  # frames from one window to the next; the last one is moved back to end where the track ends
    weights: Samples = field(repr=False)  # (length,), above 0

    def starts(self, frames: int) -> list[int]:
        """First frame of each window of a track, ascending."""
        starts: list[int] = []
        for start in range(0, frames, self.step):
            if start + self.length >= frames:
                last = max(frames - self.length, 0)
                return starts if starts and starts[-1] == last else [*starts, last]
            starts.append(start)
        return starts


class Separator(Protocol):
    """Takes the voice out of windows of stereo sound. One per device; not safe for threads."""

    name: str  # what it is called in tables: `centre-removal`, or the checkpoint's file name
    # SHA-256 (hex) of all that decides its output: checkpoint, model settings, precision; not batch size, device and
    # compilation, which change rounding only
    digest: str
    sample_rate_hz: int | None  # the rate it works at; None: any
    batch_size: int  # most windows it takes at once
    in_flight: int  # batches it can work on while results are put away: 1 on a CPU, 2 where a device works by itself
    needs_stereo: bool  # whether it can do nothing with two equal channels
    least_frames: int  # shortest track at its rate

    def windows(self, frames: int, sample_rate_hz: int) -> Windows:
        """How a track of so many frames is cut."""
        ...

    def start(self, batch: Samples, sample_rate_hz: int) -> Callable[[], Samples]:
        """Begin with a batch of windows (windows, 2, frames) at a rate; the result waits for the voices, of that shape.

        Voices may be a little shorter than windows: what lacks at the end counts as silence.
        """
        ...
