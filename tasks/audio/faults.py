"""Define faults of audio files, and the limits that decide them."""

import numpy as np
import numpy.typing as npt

LONGEST_S = 12 * 3600.0
"""Default limit of a file's length; a longer length in a header is taken for a mistake or a trap."""
MOST_CHANNELS = 64
RATES_HZ = (1_000, 768_000)
MOST_AMPLITUDE = 2.0**31  # files of floats may exceed full scale (±1); integers written as floats reach 2^31, the limit


class BadAudio(Exception):
    """Raised for an unusable audio file."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason  # from `schemas/reasons.toml`, `audio_…`
        self.detail = detail  # expected and found values, without the file's path


def check_form(sample_rate_hz: int, channels: int) -> None:
    """Refuse implausible rates and channels: blocks of such files would be huge, or seconds of nothing."""
    low, high = RATES_HZ
    if not (low <= sample_rate_hz <= high and 1 <= channels <= MOST_CHANNELS):
        raise BadAudio(
            "file_odd_format",
            f"expected {low} to {high} Hz and at most {MOST_CHANNELS} channels, found {sample_rate_hz} Hz, {channels}",
        )


def check_length(duration_s: float, longest_s: float) -> None:
    """Refuse files longer than the limit."""
    if duration_s > longest_s:
        raise BadAudio("audio_too_long", f"expected at most {_clock(longest_s)}, found {_clock(duration_s)} or more")


def check_finite(block: npt.NDArray[np.float32]) -> None:
    """Refuse samples either not finite or far beyond any recording, possible in files of floats."""
    if not block.size:
        return
    low, high = float(block.min()), float(block.max())  # NaN passes through both
    if not (np.isfinite(low) and np.isfinite(high)):
        raise BadAudio("file_corrupt", "expected finite samples, found NaN or infinity")
    if max(-low, high) > MOST_AMPLITUDE:
        raise BadAudio("file_odd_format", f"expected samples within ±2^31, found an amplitude of {max(-low, high):.3g}")


def _clock(seconds: float) -> str:
    return f"{seconds / 3600:.4g} h" if seconds >= 3600 else f"{seconds:.4g} s"
