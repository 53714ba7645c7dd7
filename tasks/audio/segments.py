"""Cut long recordings into segments of about a minute, by a pure rule over levels; write their files. The paper
(AnyAudio-Judge) has one-minute segments of films, without a method of cutting them; the rule is ours."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.tasks.audio.decode import average
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.audio.measure import FLOOR_DB
from earmark.tasks.audio.sound import Samples, open_sound

Levels = npt.NDArray[np.float64]
Lost = Literal["segment_silent", "segment_fades", "segment_too_short"]

FRAME_S = 0.1
SILENT_BELOW_DBFS = -60.0  # frames below it are silent
BLOCK = 5  # frames: half a second, the unit for fades and quiet places
FADE_STEP_DB = 0.5  # least rise from block to block of a fade, away from the silence
FADE_RISE_DB = 10.0  # least rise of a whole fade; below, it is an ordinary beginning or end


class CutRule(NamedTuple):
    """Parameters of cutting a recording."""

    least_s: float  # least_s, most_s: lengths of a segment, 0 < least_s <= most_s
    most_s: float
    longest_silence_s: float = 3.0  # silence of at least this length is left out of segments


class Piece(NamedTuple):
    """A part of a recording: a segment, or a part outside of any segment."""

    start: int  # start, end: frames of `FRAME_S`, the end not included
    end: int
    lost: Lost | None = None  # reason for leaving it out; None for a segment


def levels_of(path: Path, longest_s: float = LONGEST_S) -> tuple[Levels, float]:
    """Return the levels of a file's frames of 0.1 s, (frames,), and the length of a frame in seconds.

    Levels are root mean squares over samples and channels in dB full scale. A partial last frame counts as a frame; a
    frame has a whole number of samples.

    Raises:
        BadAudio: the file cannot be decoded.
    """
    levels: list[float] = []
    with open_sound(path, longest_s) as sound:
        for frame in _in_parts(sound.blocks(), _frame(sound.sample_rate_hz)):
            levels.append(10 * np.log10(float(np.mean(np.square(frame, dtype=np.float64))) + 1e-24))
        frame_s = _frame(sound.sample_rate_hz) / sound.sample_rate_hz
    return np.maximum(np.array(levels), FLOOR_DB), frame_s


def pieces_of(levels: Levels, rule: CutRule) -> list[Piece]:
    """Cut long silence out of a recording, then adjacent fades, then divide the rest into segments.

    A fade grows louder with every half second away from silence, or from the recording's end. A segment ends in the
    middle of the longest silence within its allowed lengths, else in the quietest half second; of equal candidates,
    nearest to the middle of the allowed lengths. A rest is lost only if no number of segments can fill it.

    Returns:
        Pieces in order, covering every frame once.
    """
    pieces: list[Piece] = []
    silent = levels < SILENT_BELOW_DBFS
    at = 0
    for start, end in [*_runs(silent, _frames(rule.longest_silence_s)), (len(levels), len(levels))]:
        pieces += _scene(levels, silent, at, start, rule)
        if start < end:
            pieces.append(Piece(start, end, "segment_silent"))
        at = end
    return pieces


def write_segments(source: Path, ends: Sequence[int], targets: Sequence[Path | None], longest_s: float) -> None:
    """Write the parts of a recording as 16-bit FLAC: one or two channels unchanged, more of them averaged.

    Args:
        source: the recording.
        ends: end frames of the parts, in order; the last is the recording's.
        targets: the file of each part; None to skip it.
        longest_s: as `levels_of`.

    Raises:
        BadAudio: the recording cannot be decoded.
    """
    with open_sound(source, longest_s) as sound:
        frame, rate = _frame(sound.sample_rate_hz), sound.sample_rate_hz
        channels = sound.channels if sound.channels <= 2 else 1
        frames = enumerate(_in_parts(sound.blocks(), frame))
        for end, target in zip(ends, targets, strict=True):
            part = (samples for _, samples in _up_to(frames, end))
            if target is None:
                for _ in part:
                    pass
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with soundfile.SoundFile(target, "w", rate, channels, subtype="PCM_16", format="FLAC") as file:
                for samples in part:
                    mixed = samples if sound.channels <= 2 else average(samples)
                    file.write(np.clip(mixed, -1.0, 1.0))


def _up_to(frames: Iterator[tuple[int, Samples]], end: int) -> Iterator[tuple[int, Samples]]:
    """Yield frames up to the last before `end`; the rest stays in the iterator."""
    for number, samples in frames:
        yield number, samples
        if number + 1 == end:
            return


def _in_parts(blocks: Iterator[Samples], size: int) -> Iterator[Samples]:
    """Yield samples in parts of `size` frames; the last may be shorter."""
    rest: Samples | None = None
    for block in blocks:
        whole = block if rest is None else np.concatenate((rest, block))
        cut = len(whole) // size * size
        yield from (whole[start : start + size] for start in range(0, cut, size))
        rest = whole[cut:].copy()  # a block's memory may be used again
    if rest is not None and len(rest):
        yield rest


def _frame(sample_rate_hz: int) -> int:
    return round(FRAME_S * sample_rate_hz)


def _frames(seconds: float) -> int:
    return max(1, round(seconds / FRAME_S))


def _runs(marks: npt.NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], marks.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= least]


def _scene(levels: Levels, silent: npt.NDArray[np.bool_], start: int, end: int, rule: CutRule) -> Iterator[Piece]:
    if start == end:
        return
    first = min(end, start + _fade(levels[start:end]))
    last = max(first, end - _fade(levels[start:end][::-1]))
    if start < first:
        yield Piece(start, first, "segment_fades")
    yield from _segments(levels, silent, first, last, rule)
    if last < end:
        yield Piece(last, end, "segment_fades")


def _fade(levels: Levels) -> int:
    """Return the number of frames of a fade at the beginning; 0 for none."""
    blocks = len(levels) // BLOCK
    means = 10 * np.log10((10 ** (levels[: blocks * BLOCK] / 10)).reshape(blocks, BLOCK).mean(axis=1))
    rising = 0
    while rising + 1 < blocks and means[rising + 1] >= means[rising] + FADE_STEP_DB:
        rising += 1
    return rising * BLOCK if rising and means[rising] - means[0] >= FADE_RISE_DB else 0


def _segments(levels: Levels, silent: npt.NDArray[np.bool_], start: int, end: int, rule: CutRule) -> Iterator[Piece]:
    shortest, longest = _frames(rule.least_s), _frames(rule.most_s)
    while end - start > longest:
        cuts = np.arange(start + shortest, start + longest + 1)
        fits = end - cuts <= (end - cuts) // shortest * longest  # some number of segments fills the rest
        cut = _best(levels, silent, cuts[fits] if fits.any() else cuts, start + (shortest + longest) / 2)
        yield Piece(start, cut)
        start = cut
    if start < end:
        yield Piece(start, end, None if end - start >= shortest else "segment_too_short")


def _best(levels: Levels, silent: npt.NDArray[np.bool_], cuts: npt.NDArray[np.int64], middle: float) -> int:
    low, high = int(cuts[0]), int(cuts[-1])
    allowed = set(cuts.tolist())
    pauses = [(low + (a + b) // 2, b - a) for a, b in _runs(silent[low:high], 1)]
    if pauses := [(at, length) for at, length in pauses if at in allowed]:
        return min(pauses, key=lambda one: (-one[1], abs(one[0] - middle), one[0]))[0]
    near = 10 ** (levels[max(0, low - BLOCK) : high + BLOCK] / 10)
    around = np.convolve(near, np.ones(BLOCK), "same")[cuts - max(0, low - BLOCK)]
    return int(cuts[np.lexsort((cuts, np.abs(cuts - middle), around))[0]])
