"""Describe what a model hears: a clip or a span of it, and the form of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AudioForm:
    """Form of audio sent to a model."""

    sample_rate_hz: int | None = 16_000  # rate after resampling; None keeps the file's
    channels: int | None = 1  # 1 mixes down; None keeps the file's
    codec: Literal["wav", "flac"] = "wav"  # container of the bytes that are sent
    longest_s: float | None = None  # the rest is cut; None sends all
    gain_db: float | None = None  # gain before sending; None keeps the level


@dataclass(frozen=True, slots=True)
class Audio:
    """Clip, or a span of a clip."""

    sha256: str  # SHA-256 of the clip's file, 64 hexadecimal digits
    path: str  # local path of the file; not part of the key
    start_s: float | None = None  # begin of the span in seconds; None is the clip's begin
    end_s: float | None = None  # end of the span in seconds; None is the clip's end
    # length of the whole clip, for the model's limits; not part of the key, since sha256 fixes it
    duration_s: float | None = None
    form: AudioForm = AudioForm()  # form of the sent audio
    # True for a clip decoded in part by Earmark 1.0.0: an answer about the part has another key
    redecoded: bool = False

    @property
    def length_s(self) -> float | None:
        """Return the length of the sent audio in seconds; None if the clip's duration is unknown."""
        end = self.end_s if self.end_s is not None else self.duration_s
        length = None if end is None else max(0.0, end - (self.start_s or 0.0))
        longest = self.form.longest_s
        if longest is None:
            return length
        return longest if length is None else min(length, longest)
