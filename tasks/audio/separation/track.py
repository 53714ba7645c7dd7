"""Process a track: decode it into a spool, cut its windows, overwrite the mix by the instrumental.

A spool holds float32 stereo at the separator's rate: in memory up to `HELD_BYTES`, beyond in a nameless file beside the
target. Windows return in order, so all frames before the next window's start are final and can replace the mix.
"""

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import soxr

from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.separation.jobs import Samples, SeparationJob, Separator, Windows
from earmark.tasks.audio.sound import open_sound

HELD_BYTES = 96 << 20  # 4.5 minutes of stereo at 44.1 kHz
BLOCK = 1 << 16  # frames read or written at once
PEAK = 0.9  # audio-separator scales louder peaks down to this, of the mix before and of each stem after
FULL_SCALE = 1 - 2.0**-15
FLOOR_DB = -120.0
SOUNDING_DB, SILENT_DB = -50.0, -70.0
CELLS_PER_S = 10  # cells of levels, a tenth of a second each
FRAME_BYTES = 8


@dataclass
class Levels:
    """Sums of squares for each tenth of a second over both channels, and the sum of products."""

    sums: npt.NDArray[np.float64]  # (3, cells): of mix, instrumental and removed voice
    cell: int  # frames of a cell
    shared: float = 0.0

    def add(self, start: int, mix: Samples, kept: Samples, removed: Samples) -> None:
        """Add a span (frames, 2) starting at a frame."""
        first, inside = divmod(start, self.cell)
        cells = -(-(inside + len(mix)) // self.cell)
        power = np.zeros((cells + 1) * self.cell)  # a cell more, as NumPy sums a single column in another order
        span = power[inside : inside + len(mix)]
        for sums, samples in zip(self.sums, (mix, kept, removed), strict=True):
            np.square(samples[:, 0], out=span, dtype=np.float64)
            span += np.square(samples[:, 1], dtype=np.float64)
            by_frame = np.ascontiguousarray(power.reshape(-1, self.cell).T)  # summed frame after frame, bit for bit
            sums[first : first + cells] += by_frame.sum(axis=0)[:cells]
        self.shared += float(np.einsum("ij,ij->", kept, removed, dtype=np.float64))

    def correlation(self) -> float:
        """Return the correlation of instrumental and removed voice; 0 if either is silent."""
        _, kept, removed = self.sums
        norm = math.sqrt(float(kept.sum()) * float(removed.sum()))
        return self.shared / norm if norm > 0 else 0.0

    def emptied_share(self) -> float:
        """Return the share of the mix's sounding cells silent in the instrumental."""
        mix, kept, _ = self.sums
        sounding = mix > 2 * self.cell * 10 ** (SOUNDING_DB / 10)
        if not sounding.any():
            return 0.0
        return float((kept[sounding] < 2 * self.cell * 10 ** (SILENT_DB / 10)).mean())


@dataclass
class DecodedTrack:
    """A decoded track."""

    job: SeparationJob  # its job
    source_rate_hz: int  # source_rate_hz, channels, source_frames: of the source, after the crop
    channels: int
    source_frames: int
    rate_hz: int  # of the spool
    frames: int  # in the spool
    peak: np.float32  # highest absolute sample of the mix at the spool's rate
    clipped_share: float  # of the source's samples
    spool: tempfile.SpooledTemporaryFile[bytes]
    windows: Windows  # windows, starts: its division
    starts: list[int] = field(init=False)
    kept_peak: float = field(default=0.0, init=False)
    finite: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.starts = self.windows.starts(self.frames)
        cell = max(1, self.rate_hz // CELLS_PER_S)
        self.levels = Levels(np.zeros((3, -(-self.frames // cell))), cell)
        self.mix_gain = np.float32(PEAK) / self.peak if self.peak > PEAK else np.float32(1.0)
        self._sum = np.zeros((2, self.windows.length), np.float32)
        self._weight = np.zeros(self.windows.length, np.float32)
        self._origin = 0
        self._open = len(self.starts)

    @property
    def form(self) -> tuple[int, int]:
        """Return frames and rate of its windows, equal within a batch."""
        return min(self.windows.length, self.frames), self.rate_hz

    def window(self, start: int) -> Samples:
        """Return the scaled mix of a window, (2, frames)."""
        mix = self.read(start, min(self.windows.length, self.frames - start))
        mix *= self.mix_gain
        return np.ascontiguousarray(mix.T)

    def add(self, start: int, voice: Samples) -> bool:
        """Add a window's voice, (2, frames), in order of windows; return whether it was the last."""
        self._settle(start)
        length = min(voice.shape[1], self.windows.length, self.frames - start)
        weights = self.windows.weights[:length]
        self.finite = self.finite and bool(np.isfinite(voice[:, :length]).all())
        self._sum[:, :length] += voice[:, :length] * weights
        self._weight[:length] += weights
        self._open -= 1
        if not self._open:
            self._settle(self.frames)
        return not self._open

    def _settle(self, until: int) -> None:
        """Overwrite the mix of all frames before `until` by the instrumental."""
        count = until - self._origin
        if count <= 0:
            return
        weight = np.maximum(self._weight[:count], np.float32(1e-10))
        voice = np.empty((count, 2), np.float32)
        for channel, summed in zip(voice.T, self._sum, strict=True):
            np.divide(summed[:count], weight, out=channel)
        mix = self.read(self._origin, count)
        kept = mix * self.mix_gain
        kept -= voice
        self._write(self._origin, kept)
        self.kept_peak = max(self.kept_peak, float(np.abs(kept).max()))
        unscaled = np.float32(1.0) / self.mix_gain
        self.levels.add(self._origin, mix, kept * unscaled, voice * unscaled)
        for buffer in (self._sum.T, self._weight):
            buffer[: len(buffer) - count] = buffer[count:].copy()
            buffer[len(buffer) - count :] = 0
        self._origin = until

    def read(self, start: int, count: int) -> Samples:
        """Return frames of the spool, (count, 2): of the mix, or of the instrumental where final."""
        samples = np.empty((count, 2), np.float32)
        self.spool.seek(start * FRAME_BYTES)
        self.spool.readinto(samples.data)
        return samples

    def blocks(self) -> Iterator[Samples]:
        """Yield the whole spool in order, (frames, 2) each."""
        for start in range(0, self.frames, BLOCK):
            yield self.read(start, min(BLOCK, self.frames - start))

    def _write(self, start: int, samples: Samples) -> None:
        self.spool.seek(start * FRAME_BYTES)
        self.spool.write(np.ascontiguousarray(samples).data)

    def close(self) -> None:
        """Free the spool's memory."""
        self.spool.close()


def open_track(job: SeparationJob, separator: Separator, crop_s: float | None, longest_s: float) -> DecodedTrack:
    """Decode a job's source to stereo at the separator's rate, up to the crop.

    Mono is doubled; of more than two channels the first two are taken, as front left and right come first.
    """
    job.target.parent.mkdir(parents=True, exist_ok=True)
    spool = tempfile.SpooledTemporaryFile(HELD_BYTES, dir=str(job.target.parent))  # noqa: SIM115 - the track closes it
    try:
        return _decoded(job, separator, crop_s, longest_s, spool)
    except BaseException:
        spool.close()
        raise


def _decoded(
    job: SeparationJob,
    separator: Separator,
    crop_s: float | None,
    longest_s: float,
    spool: tempfile.SpooledTemporaryFile[bytes],
) -> DecodedTrack:
    peak, frames, source_frames, clipped, apart = np.float32(0.0), 0, 0, 0, False
    with open_sound(job.source, longest_s) as sound:
        source_rate, channels = sound.sample_rate_hz, sound.channels
        rate = separator.sample_rate_hz or source_rate
        most = None if crop_s is None else round(crop_s * source_rate)

        def heard() -> Iterator[Samples]:
            nonlocal source_frames, clipped, apart
            for block in _stereo(sound.blocks(), most):
                source_frames += len(block)
                clipped += int((np.abs(block) >= FULL_SCALE).sum())
                apart = apart or bool((block[:, 0] != block[:, 1]).any())
                yield block

        for block in resampled(heard(), source_rate, rate):
            frames += len(block)
            peak = max(peak, np.abs(block).max(initial=np.float32(0.0)))
            spool.write(np.ascontiguousarray(block).data)
    _check(separator, frames, rate, apart)
    return DecodedTrack(
        job, source_rate, channels, source_frames, rate, frames, peak, clipped / (2 * source_frames), spool,
        separator.windows(frames, rate),
    )  # fmt: skip


def resampled(blocks: Iterator[Samples], rate: int, wanted_rate: int, wanted: int | None = None) -> Iterator[Samples]:
    """Yield stereo blocks at another rate, in the exact length of the sound.

    Args:
        blocks: (frames, 2) each.
        rate, wanted_rate: in Hz; equal rates change nothing.
        wanted: frames in all; default: the sound's length at the new rate, rounded up.
    """
    if rate == wanted_rate:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate, wanted_rate, 2, dtype="float32", quality="HQ")
    taken = written = 0
    for block in blocks:
        taken += len(block)
        made = stream.resample_chunk(block)
        written += len(made)
        yield made
    left = (-(-taken * wanted_rate // rate) if wanted is None else wanted) - written
    last = stream.resample_chunk(np.empty((0, 2), np.float32), last=True)[:left]
    yield last
    yield np.zeros((left - len(last), 2), np.float32)


def _stereo(blocks: Iterator[Samples], most: int | None) -> Iterator[Samples]:
    """Yield two channels of each block, at most `most` frames in all."""
    left = most
    for block in blocks:
        kept = block if left is None else block[:left]
        yield np.repeat(kept, 2, axis=1) if kept.shape[1] == 1 else kept[:, :2]
        if left is not None:
            left -= len(kept)
            if left <= 0:
                return


def _check(separator: Separator, frames: int, rate: int, apart: bool) -> None:
    if frames == 0:
        raise BadAudio("file_empty", "expected at least one sample, found none")
    if frames < separator.least_frames:
        least = separator.least_frames / rate
        raise BadAudio("separation_too_short", f"expected at least {least:.3f} s, found {frames / rate:.3f} s")
    if separator.needs_stereo and not apart:
        raise BadAudio("separation_needs_stereo", f"{separator.name}: expected two channels that differ, found none")
