"""Separate files: decode and encode tracks in threads while the separator processes windows of several.

Memory: `tracks` spools (see `track.py`, 96 MB each at most) besides the separator's own batch; longer tracks are on
disk until written. A file is written under a temporary name beside its target and renamed when complete.
"""

import hashlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile

from earmark.schemas.errors import StoreError
from earmark.tasks.audio.faults import LONGEST_S, BadAudio
from earmark.tasks.audio.separation.jobs import FailedTrack, Output, Samples, SeparatedTrack, SeparationJob, Separator
from earmark.tasks.audio.separation.track import FLOOR_DB, PEAK, DecodedTrack, open_track, resampled

SPARE_TRACKS = 4  # tracks being decoded or written, besides tracks in the separator
MP3_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)

Part = tuple[DecodedTrack, int]


def separate(
    jobs: Iterable[SeparationJob],
    separator: Separator,
    output: Output | None = None,
    *,
    longest_s: float = LONGEST_S,
    tracks: int | None = None,
    threads: int = 2,
) -> Iterator[SeparatedTrack | FailedTrack]:
    """Separate tracks. A bad file is a `FailedTrack` and never stops the others.

    Targets must differ; existing files are replaced.

    Args:
        longest_s: longer sources are refused before they are decoded.
        tracks: tracks in memory at once; default: enough to fill batches with windows of short tracks.

    Yields:
        A result for each job, in order of completion.

    Raises:
        StoreError: a file cannot be written (a full disk, a read-only folder).
    """
    output = output or Output()
    tracks = tracks or SPARE_TRACKS + separator.batch_size * separator.in_flight // 2
    with ThreadPoolExecutor(threads) as reading, ThreadPoolExecutor(threads) as writing:
        line = _OpenTracks(iter(jobs), separator, output, longest_s, tracks, reading, writing)
        try:
            yield from line.run()
        finally:
            line.abandon()


@dataclass
class _OpenTracks:
    _jobs: Iterator[SeparationJob]
    _separator: Separator
    _output: Output
    _longest_s: float
    _tracks: int
    _reading: ThreadPoolExecutor
    _writing: ThreadPoolExecutor
    _opening: deque[tuple[SeparationJob, Future[DecodedTrack]]] = field(default_factory=deque, init=False)
    _at_work: dict[int, DecodedTrack] = field(default_factory=dict, init=False)
    _closing: dict[Future[SeparatedTrack | FailedTrack], DecodedTrack] = field(default_factory=dict, init=False)
    _results: deque[SeparatedTrack | FailedTrack] = field(default_factory=deque, init=False)

    def run(self) -> Iterator[SeparatedTrack | FailedTrack]:
        running: deque[tuple[list[Part], Callable[[], Samples]]] = deque()
        for batch in self._batches():
            while running and not batch:
                self._put_away(*running.popleft())
            if not batch:
                continue
            windows = np.stack([track.window(start) for track, start in batch])
            running.append((batch, self._separator.start(windows, batch[0][0].rate_hz)))
            if len(running) >= self._separator.in_flight:
                self._put_away(*running.popleft())
            yield from self._drain()
        while running:
            self._put_away(*running.popleft())
        while self._closing:
            self._collect(wait_for_one=True)
            yield from self._drain()
        yield from self._drain()

    def _batches(self) -> Iterator[list[Part]]:
        """Yield batches of windows of the same form, across tracks; an empty batch means to wait for running ones."""
        batch: list[Part] = []
        for track in self._opened():
            if track is None:
                yield batch
                if batch:
                    yield []
                batch = []
                continue
            for start in track.starts:
                if batch and batch[0][0].form != track.form:
                    yield batch
                    batch = []
                batch.append((track, start))
                if len(batch) == self._separator.batch_size:
                    yield batch
                    batch = []

    def _opened(self) -> Iterator[DecodedTrack | None]:
        """Yield decoded tracks in the jobs' order; None means to wait for tracks in progress."""
        while True:
            self._refill()
            if not self._opening:
                if self._at_work:
                    yield None
                elif self._closing:
                    self._collect(wait_for_one=True)
                else:
                    return
                continue
            job, future = self._opening.popleft()
            try:
                track = future.result()
            except BadAudio as bad:
                self._results.append(FailedTrack(job, bad.reason, bad.detail))
                continue
            except OSError as error:
                raise StoreError(f"cannot write {job.target.name}: {error.strerror or error}") from None
            self._at_work[id(track)] = track
            yield track

    def _refill(self) -> None:
        self._collect(wait_for_one=False)
        while len(self._opening) + len(self._at_work) + len(self._closing) < self._tracks:
            job = next(self._jobs, None)
            if job is None:
                return
            crop_s = self._output.crop_s
            future = self._reading.submit(open_track, job, self._separator, crop_s, self._longest_s)
            self._opening.append((job, future))

    def _put_away(self, batch: list[Part], voices: Callable[[], Samples]) -> None:
        for (track, start), voice in zip(batch, voices(), strict=True):
            if track.add(start, voice):
                del self._at_work[id(track)]
                self._closing[self._writing.submit(write_track, track, self._separator.name, self._output)] = track

    def _collect(self, *, wait_for_one: bool) -> None:
        if not self._closing:
            return
        done, _ = wait(self._closing, None if wait_for_one else 0, return_when=FIRST_COMPLETED)
        for future in done:
            del self._closing[future]
            self._results.append(future.result())

    def _drain(self) -> Iterator[SeparatedTrack | FailedTrack]:
        while self._results:
            yield self._results.popleft()

    def abandon(self) -> None:
        """Cancel pending work, wait for running work, and free every track's memory."""
        for pool in (self._reading, self._writing):
            pool.shutdown(cancel_futures=True)
        for _, future in self._opening:
            if not future.cancelled() and future.exception() is None:
                future.result().close()
        for track in (*self._at_work.values(), *self._closing.values()):
            track.close()


builder_pid = 0
"""Process of the build for which this one separates, if it is another: parts go with the build, which ends first."""


def part_path(target: Path) -> Path:
    """Return the temporary path of a target; writing the target again removes those of killed builds."""
    build = f"{builder_pid}." if builder_pid else ""
    return target.with_name(f".{target.name}.{build}{os.getpid()}.part")


def write_track(track: DecodedTrack, name: str, output: Output) -> SeparatedTrack | FailedTrack:
    """Encode a finished track and rename it into place."""
    target = track.job.target
    temporary = part_path(target)
    try:
        if not track.finite:
            return FailedTrack(
                track.job, "separation_not_finite", f"{name}: expected finite samples, found NaN or infinity"
            )
        _sweep(target)
        rate = track.source_rate_hz
        if output.codec == "mp3" and rate not in MP3_RATES_HZ:
            rate = 48_000
        gain = np.float32(PEAK) / np.float32(track.kept_peak) if track.kept_peak > PEAK else np.float32(1.0)
        _encode(track, temporary, rate, gain, output)
        frames = soundfile.info(temporary).frames
        with temporary.open("rb") as file:
            sha256, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
            os.fsync(file.fileno())
        temporary.replace(target)
        return _done(track, sha256, size, rate, frames, float(gain * track.mix_gain))
    except (OSError, soundfile.LibsndfileError) as error:
        reason = error.error_string if isinstance(error, soundfile.LibsndfileError) else error.strerror
        raise StoreError(f"cannot write {target.name}: {reason or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
        track.close()


class UnsyncedSoundFile(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """A file whose closing waits for no disk: soundfile's waits before the header is there, `write_track` after."""

    def flush(self) -> None:
        """Leave buffered data to the closing."""


def _encode(track: DecodedTrack, path: Path, rate: int, gain: np.float32, output: Output) -> None:
    highest, lowest = (320, 32) if rate >= 32_000 else (160, 8)  # the range of libsndfile's levels
    level = (highest - min(highest, output.bitrate_kbps)) / (highest - lowest)
    forms: dict[str, dict[str, Any]] = {
        "flac": {"format": "FLAC", "subtype": f"PCM_{output.bits}"},
        "wav": {"format": "WAV", "subtype": f"PCM_{output.bits}"},
        "mp3": {"format": "MP3", "bitrate_mode": "CONSTANT", "compression_level": level},
    }
    wanted = -(-track.source_frames * rate // track.source_rate_hz)
    with UnsyncedSoundFile(path, "w", rate, 2, **forms[output.codec]) as file:
        for block in resampled(_scaled(track, gain), track.rate_hz, rate, wanted):
            file.write(np.clip(block, -1.0, 1.0))


def _scaled(track: DecodedTrack, gain: np.float32) -> Iterator[Samples]:
    for block in track.blocks():
        block *= gain
        yield block


def _done(track: DecodedTrack, sha256: str, size: int, rate: int, frames: int, gain: float) -> SeparatedTrack:
    levels, values = track.levels, 2 * track.frames
    mix_db, kept_db, removed_db = (
        max(FLOOR_DB, 10 * math.log10(max(float(sums.sum()) / values, 1e-13))) for sums in levels.sums
    )
    return SeparatedTrack(
        job=track.job,
        sha256=sha256,
        bytes=size,
        duration_s=track.source_frames / track.source_rate_hz,
        sample_rate_hz=track.source_rate_hz,
        channels=track.channels,
        frames=track.source_frames,
        written_frames=frames,
        written_rate_hz=rate,
        gain_db=20 * math.log10(gain),
        mix_db=mix_db,
        instrumental_db=kept_db,
        removed_db=removed_db,
        correlation=levels.correlation(),
        clipped_share=track.clipped_share,
        emptied_share=levels.emptied_share(),
    )


def _sweep(target: Path) -> None:
    """Remove this file's temporary files of killed processes."""
    head, tail = f".{target.name}.", ".part"
    for name in os.listdir(target.parent):  # noqa: PTH208  # paths of a full folder take longer
        if name.startswith(head) and name.endswith(tail):
            pid = name.removeprefix(head).removesuffix(tail).partition(".")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                target.with_name(name).unlink(missing_ok=True)
