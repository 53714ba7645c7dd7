"""The separation's pipeline: every job gets a result, files are whole or not there, memory and order do not matter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import StoreError
from earmark.tasks.audio.separation import track as track_module
from earmark.tasks.audio.separation.choice import FRAME, HOP, CentreRemoval, band, centre
from earmark.tasks.audio.separation.jobs import (
    FailedTrack,
    Output,
    Samples,
    SeparatedTrack,
    SeparationJob,
    Separator,
    Windows,
)
from earmark.tasks.audio.separation.pipeline import separate
from earmark.tasks.audio.separation.track import Levels
from tests.audio.separating import Halving, snr_db, song, write_song
from tests.conftest import ROOT


def only(job: SeparationJob, separator: Separator, output: Output | None = None) -> SeparatedTrack:
    (result,) = separate([job], separator, output)
    assert isinstance(result, SeparatedTrack), result
    return result


def test_centre_removal_takes_the_middle_and_keeps_the_sides(tmp_path: Path) -> None:
    source = write_song(tmp_path / "mix.wav", 4.0)
    done = only(SeparationJob("t", source, tmp_path / "out/t.flac"), CentreRemoval())
    voice, sides = song(4.0)
    kept, rate = soundfile.read(tmp_path / "out/t.flac", dtype="float32")
    assert rate == 44_100
    assert kept.shape == sides.shape
    kept /= 10 ** (done.gain_db / 20)
    left = np.sum((kept - sides) ** 2)
    assert 10 * np.log10(np.sum(voice**2) / left) > 10  # of the voice's energy less than a tenth is left or missing
    assert done.removed_db == pytest.approx(10 * np.log10(np.mean(voice**2)), abs=1.0)
    assert done.instrumental_db == pytest.approx(10 * np.log10(np.mean(sides**2)), abs=1.0)
    assert abs(done.correlation) < 0.3
    assert done.emptied_share == 0.0


@pytest.mark.parametrize("frames", [1, HOP, 47_999, 100_000])
def test_blocks_of_frames_give_the_bits_of_the_whole_window(frames: int) -> None:
    """Kept files of a store count for the separator's digest, so its bits may not change with its speed."""
    window = np.random.default_rng(frames).normal(0, 0.2, (2, frames)).astype(np.float32)
    padded = np.pad(window, ((0, 0), (FRAME - HOP, FRAME - HOP + -frames % HOP)))
    shape = np.hanning(FRAME + 1)[:FRAME].astype(np.float32)
    left, right = (
        np.stack([np.fft.rfft(side[at : at + FRAME] * shape) for at in range(0, len(side) - FRAME + 1, HOP)])
        for side in padded
    )
    middle, side = (left + right) / 2, (left - right) / 2
    powers = [part.real**2 + part.imag**2 for part in (middle, side)]
    gain = np.maximum(0, 1 - powers[1] / np.maximum(powers[0], np.finfo(np.float32).tiny)) * band(44_100)
    voices = np.fft.irfft(middle * gain, FRAME, axis=1).astype(np.float32) * shape
    whole = np.zeros(padded.shape[1], np.float32)
    for turn in range(FRAME // HOP):  # in this order: sums of float32 depend on it
        for number in range(turn, len(voices), FRAME // HOP):
            whole[number * HOP : number * HOP + FRAME] += voices[number]
    expected = whole[FRAME - HOP : FRAME - HOP + frames] / np.float32(1.5)
    np.testing.assert_array_equal(centre(window, band(44_100)), np.stack([expected, expected]))


def test_every_job_gets_one_result_and_bad_files_stop_nothing(tmp_path: Path) -> None:
    sources = {
        name: tmp_path / name for name in ("good.wav", "noise.wav", "empty.wav", "gone.wav", "mono.wav", "wide.wav")
    }
    write_song(sources["good.wav"], 1.0)
    sources["noise.wav"].write_bytes(b"no audio")
    sources["empty.wav"].write_bytes(b"")
    soundfile.write(sources["mono.wav"], song(1.0)[0][:, 0], 44_100)
    soundfile.write(sources["wide.wav"], np.tile(song(1.0)[1], (1, 3)), 44_100, subtype="FLOAT")
    jobs = [SeparationJob(name, source, tmp_path / f"out/{name}.flac") for name, source in sources.items()]
    results = {result.job.track: result for result in separate(jobs, CentreRemoval())}
    assert set(results) == set(sources)
    reasons = {name: result.reason for name, result in results.items() if isinstance(result, FailedTrack)}
    assert reasons == {
        "noise.wav": "file_unreadable",
        "empty.wav": "file_empty",
        "gone.wav": "file_missing",
        "mono.wav": "separation_needs_stereo",
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["good.wav.flac", "wide.wav.flac"]
    assert str(tmp_path) not in "".join(result.detail for result in results.values() if isinstance(result, FailedTrack))


@pytest.mark.parametrize(
    ("codec", "bits", "least_db"), [("flac", 24, 120), ("flac", 16, 70), ("wav", 24, 120), ("mp3", 24, 20)]
)
def test_what_is_written_is_what_was_left(tmp_path: Path, codec: str, bits: int, least_db: float) -> None:
    source = write_song(tmp_path / "mix.wav", 1.5)
    output = Output(codec=codec, bits=bits, crop_s=1.0)  # type: ignore[arg-type]
    done = only(SeparationJob("t", source, tmp_path / f"t.{codec}"), Halving(), output)
    mix, _ = soundfile.read(source, dtype="float32")
    found, rate = soundfile.read(tmp_path / f"t.{codec}", dtype="float32")
    assert (rate, done.frames, done.duration_s) == (44_100, 44_100, 1.0)
    assert done.written_frames == len(found)
    assert snr_db(mix[:44_100] / 2, found[:44_100]) > least_db


@pytest.mark.parametrize("bitrate_kbps", [128, 320])
def test_an_mp3_has_the_size_of_its_bit_rate(tmp_path: Path, bitrate_kbps: int) -> None:
    source = write_song(tmp_path / "mix.wav", 8.0)
    done = only(
        SeparationJob("t", source, tmp_path / "t.mp3"), Halving(), Output(codec="mp3", bitrate_kbps=bitrate_kbps)
    )
    kbps = (tmp_path / "t.mp3").stat().st_size * 8 / done.duration_s / 1000
    assert kbps == pytest.approx(bitrate_kbps, rel=0.03)


def test_another_rate_comes_back_at_the_source_s(tmp_path: Path) -> None:
    class At44100(Halving):
        sample_rate_hz = 44_100

    source = write_song(tmp_path / "mix.wav", 1.2345, rate=48_000)
    done = only(SeparationJob("t", source, tmp_path / "t.wav"), At44100(), Output(codec="wav"))
    mix, _ = soundfile.read(source, dtype="float32")
    found, rate = soundfile.read(tmp_path / "t.wav", dtype="float32")
    assert (rate, len(found), done.frames) == (48_000, len(mix), len(mix))
    assert snr_db(mix[2000:-2000] / 2, found[2000:-2000]) > 25  # what lies above 20 kHz went with the rate


def test_loud_mixes_are_scaled_and_say_so(tmp_path: Path) -> None:
    class Nothing(Halving):
        def start(self, batch: Samples, sample_rate_hz: int):  # type: ignore[no-untyped-def]
            return lambda: batch * 0

    source = write_song(tmp_path / "mix.wav", 1.0, gain=3.0)
    mix, _ = soundfile.read(source, dtype="float32")
    done = only(SeparationJob("t", source, tmp_path / "t.wav"), Nothing(), Output(codec="wav"))
    found, _ = soundfile.read(tmp_path / "t.wav")
    peak = float(np.abs(mix).max())
    assert peak > 0.9
    assert np.abs(found).max() == pytest.approx(0.9, abs=1e-6)
    assert done.gain_db == pytest.approx(20 * np.log10(0.9 / peak), abs=1e-4)
    assert done.mix_db == pytest.approx(done.instrumental_db, abs=1e-4)
    assert done.clipped_share > 0


def test_a_track_that_falls_silent_is_told(tmp_path: Path) -> None:
    class Everything(Halving):
        def start(self, batch: Samples, sample_rate_hz: int):  # type: ignore[no-untyped-def]
            return lambda: batch.copy()

    done = only(SeparationJob("t", write_song(tmp_path / "mix.wav", 1.0), tmp_path / "t.flac"), Everything())
    assert done.emptied_share == 1.0
    assert done.instrumental_db < -100
    assert done.removed_db == pytest.approx(done.mix_db, abs=1e-3)


def test_numbers_that_are_none_fail_the_track_alone(tmp_path: Path) -> None:
    class Broken(Halving):
        def start(self, batch: Samples, sample_rate_hz: int):  # type: ignore[no-untyped-def]
            return lambda: np.where(np.abs(batch).max(axis=(1, 2), keepdims=True) > 0.5, np.float32(np.nan), batch / 2)

    jobs = [
        SeparationJob("loud", write_song(tmp_path / "loud.wav", 1.0, gain=2.0), tmp_path / "out/loud.flac"),
        SeparationJob("soft", write_song(tmp_path / "soft.wav", 1.0, gain=0.1), tmp_path / "out/soft.flac"),
    ]
    results = {result.job.track: result for result in separate(jobs, Broken())}
    assert isinstance(results["soft"], SeparatedTrack)
    assert isinstance(results["loud"], FailedTrack)
    assert results["loud"].reason == "separation_not_finite"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["soft.flac"]


@pytest.mark.parametrize(("batch_size", "in_flight", "tracks"), [(1, 1, 1), (7, 2, 2), (64, 2, 3), (5, 1, None)])
def test_company_and_order_change_nothing(tmp_path: Path, batch_size: int, in_flight: int, tracks: int | None) -> None:
    lengths = [0.01, 0.2, 0.05, 0.013, 0.3, 0.02, 0.1, 0.005]
    jobs = [
        SeparationJob(str(n), write_song(tmp_path / f"{n}.wav", length, seed=n), tmp_path / f"out/{n}.flac")
        for n, length in enumerate(lengths)
    ]
    separator = Halving(batch_size=batch_size, in_flight=in_flight)
    results = list(separate(jobs, separator, tracks=tracks))
    assert sorted(result.job.track for result in results) == sorted(job.track for job in jobs)
    for n, length in enumerate(lengths):
        found, _ = soundfile.read(tmp_path / f"out/{n}.flac", dtype="float32")
        mix, _ = soundfile.read(tmp_path / f"{n}.wav", dtype="float32")
        assert len(found) == round(length * 44_100)
        assert snr_db(mix / 2, found) > 90
    if batch_size == 7:
        assert 7 in separator.batches, "windows of several tracks go together"


def test_a_long_track_lies_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_song(tmp_path / "mix.wav", 1.0)
    only(SeparationJob("t", source, tmp_path / "held.flac"), Halving())
    monkeypatch.setattr(track_module, "HELD_BYTES", 1000)
    only(SeparationJob("t", source, tmp_path / "spooled.flac"), Halving())
    assert (tmp_path / "held.flac").read_bytes() == (tmp_path / "spooled.flac").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held.flac", "mix.wav", "spooled.flac"]


@given(cell=st.integers(1, 60), ends=st.lists(st.integers(1, 300), min_size=1, unique=True), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_levels_are_sums_in_the_order_of_frames_to_the_last_bit(cell: int, ends: list[int], seed: int) -> None:
    """Levels are columns of published tables: a faster sum in another order would change their last digits."""
    frames, starts = max(ends), [0, *sorted(ends)]
    sounds = np.random.default_rng(seed).normal(0, 0.2, (3, frames, 2)).astype(np.float32)
    levels, expected = Levels(np.zeros((3, -(-frames // cell))), cell), np.zeros((3, -(-frames // cell)))
    for start, end in pairwise(starts):
        levels.add(start, *sounds[:, start:end])
        span = np.zeros_like(expected)
        for at, frame in enumerate(sounds[:, start:end].astype(np.float64).transpose(1, 0, 2), start):
            span[:, at // cell] += frame[:, 0] ** 2 + frame[:, 1] ** 2
        expected += span
    np.testing.assert_array_equal(levels.sums, expected)


@given(frames=st.integers(1, 5000), length=st.integers(1, 1200), parts=st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_windows_cover_a_track_and_none_is_there_twice(frames: int, length: int, parts: int) -> None:
    step = max(1, length // parts)
    starts = Windows(length, step, np.ones(length, np.float32)).starts(frames)
    covered = np.zeros(frames, bool)
    for start in starts:
        covered[start : start + length] = True
    assert covered.all()
    assert starts == sorted(set(starts))
    assert all(start + length <= frames for start in starts) or starts == [0]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    source = write_song(tmp_path / "mix.wav", 0.5)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"^cannot write t\.flac: "):
        list(separate([SeparationJob("t", source, tmp_path / "file/t.flac")], Halving()))


KILLED = """
import sys, time
from pathlib import Path
from earmark.tasks.audio.separation.jobs import SeparationJob
from earmark.tasks.audio.separation import pipeline
from tests.audio.separating import Halving

class Slow(Halving):
    def start(self, batch, rate):
        time.sleep(0.02)
        return super().start(batch, rate)

folder = Path(sys.argv[1])
encode = pipeline._encode
def stuck(track, path, *rest):
    encode(track, path, *rest)
    if track.job.track == "3":
        print("writing", flush=True)
        time.sleep(600)
pipeline._encode = stuck
jobs = [SeparationJob(str(n), folder / "mix.wav", folder / f"out/{n}.flac") for n in range(6)]
for result in pipeline.separate(jobs, Slow()):
    print(result.job.track, flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_whole_files_only_and_the_rest_is_swept(tmp_path: Path) -> None:
    source = write_song(tmp_path / "mix.wav", 0.2)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout
    for line in process.stdout:
        if "writing" in line:  # a track's name may be printed in its midst
            break
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    out = tmp_path / "out"
    left = [path for path in out.iterdir() if path.suffix == ".part"]
    assert [path.name for path in left] == [f".3.flac.{process.pid}.part"]
    for path in out.glob("*.flac"):
        assert soundfile.info(path).frames == round(0.2 * 44_100)
    assert not (out / "3.flac").exists()
    only(SeparationJob("3", source, out / "3.flac"), Halving())
    assert not [path for path in out.iterdir() if path.suffix == ".part"]
    assert soundfile.info(out / "3.flac").frames == round(0.2 * 44_100)


def test_a_caller_that_stops_early_leaves_no_thread_waiting(tmp_path: Path) -> None:
    jobs = [
        SeparationJob(str(n), write_song(tmp_path / f"{n}.wav", 0.2), tmp_path / f"out/{n}.flac") for n in range(20)
    ]
    results = separate(jobs, Halving(), tracks=2)
    next(results)
    results.close()
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix == ".part"]
