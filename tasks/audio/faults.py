"""Why an audio file cannot be used, and the bounds that decide it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LONGEST_S = 12 * 3600.0
"""Longest file that is read where nothing else is said; beyond, a header is taken for a mistake or a trap."""
MOST_CHANNELS = 64
RATES_HZ = (1_000, 768_000)
MOST_AMPLITUDE = 2.0**31
"""Files of floats may pass full scale (±1); 2^31 is what integers written as floats reach, and nothing passes it."""


class BadAudio(Exception):
    """An audio file that cannot be used."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason  # one of `schemas/reasons.py`, `audio_…`
        self.detail = detail  # what was expected and what was found; without the file's path


def check_form(sample_rate_hz: int, channels: int) -> None:
    """Refuse rates and channels that no recording has: blocks of such files would be huge, or seconds of nothing.

    Raises:
        BadAudio: `audio_odd_format`.
    """
    low, high = RATES_HZ
    if not (low <= sample_rate_hz <= high and 1 <= channels <= MOST_CHANNELS):
        raise BadAudio(
            "audio_odd_format",
            f"expected {low} to {high} Hz and at most {MOST_CHANNELS} channels, found {sample_rate_hz} Hz, {channels}",
        )


def check_length(duration_s: float, longest_s: float) -> None:
    """Refuse what is longer than a build reads.

    Raises:
        BadAudio: `audio_too_long`.
    """
    if duration_s > longest_s:
        raise BadAudio("audio_too_long", f"expected at most {_clock(longest_s)}, found {_clock(duration_s)} or more")


def check_finite(block: npt.NDArray[np.float32]) -> None:
    """Refuse samples that are no numbers, or far beyond any recording, which files of floats can hold.

    Raises:
        BadAudio: `audio_not_finite` or `audio_odd_format`.
    """
    if not block.size:
        return
    low, high = float(block.min()), float(block.max())  # NaN passes through both
    if not (np.isfinite(low) and np.isfinite(high)):
        raise BadAudio("audio_not_finite", "expected finite samples, found NaN or infinity")
    if max(-low, high) > MOST_AMPLITUDE:
        raise BadAudio(
            "audio_odd_format", f"expected samples within ±2^31, found an amplitude of {max(-low, high):.3g}"
        )


def _clock(seconds: float) -> str:
    return f"{seconds / 3600:.4g} h" if seconds >= 3600 else f"{seconds:.4g} s"
