"""Decoding: every format by its content, mono at any rate, and bad files as typed faults that cost little."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.reasons import AudioFault
from earmark.tasks.audio import decode as decode_module
from earmark.tasks.audio import sound as sound_module
from earmark.tasks.audio.decode import convert, decode, decode_mono
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.index import MediaIndex
from earmark.tasks.audio.probe import Probe, probe
from earmark.tasks.audio.sound import Samples
from tests.conftest import ROOT

FORMS = {
    "wav": ("WAV", "PCM_16", 44_100), "float.wav": ("WAV", "FLOAT", 44_100), "flac": ("FLAC", "PCM_16", 44_100),
    "mp3": ("MP3", "MPEG_LAYER_III", 44_100), "ogg": ("OGG", "VORBIS", 44_100), "opus": ("OGG", "OPUS", 48_000),
}  # fmt: skip
CODECS = {"wav": "pcm_16", "float.wav": "float", "flac": "flac", "mp3": "mp3", "ogg": "vorbis", "opus": "opus"}
needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")


def tune(rate: int, seconds: float = 1.5, channels: int = 2) -> Samples:
    """A chord, another on each channel."""
    t = np.arange(round(rate * seconds)) / rate
    return np.stack([0.4 * np.sin(2 * np.pi * 220 * (c + 1) * t) for c in range(channels)], 1).astype(np.float32)


def write(path: Path, form: str, seconds: float = 1.5, channels: int = 2) -> Path:
    """A tune as a file."""
    container, subtype, rate = FORMS[form]
    soundfile.write(path, tune(rate, seconds, channels), rate, format=container, subtype=subtype)
    return path


def reason(path: Path, longest_s: float = 3600.0) -> str:
    """Why a file is refused."""
    found = probe(path, longest_s)
    assert isinstance(found, AudioFault), found
    assert found.detail
    assert str(path.parent) not in found.detail
    return found.reason


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_is_told_by_its_content(tmp_path: Path, form: str, channels: int) -> None:
    rate = FORMS[form][2]
    for name in (f"right.{form}", "wrong.wav", "wrong.mp3", "wrong.raw", "none"):
        found = probe(write(tmp_path / name, form, channels=channels))
        assert isinstance(found, Probe), (name, found)
        assert (found.codec, found.sample_rate_hz, found.channels) == (CODECS[form], rate, channels)
        assert found.duration_s == pytest.approx(1.5, abs=0.03)
        assert found.peak_dbfs == pytest.approx(-8, abs=3)  # lossy codecs overshoot
        assert found.level_dbfs == pytest.approx(-11, abs=0.5)
        assert found.silent_share == pytest.approx(0, abs=0.04)
        samples, decoded_rate = decode(tmp_path / name)
        assert samples.shape == (round(found.duration_s * rate), channels)
        assert decoded_rate == rate


@pytest.mark.system
@needs_ffmpeg
@pytest.mark.parametrize("codec", ["aac", "alac"])
def test_m4a(tmp_path: Path, codec: str) -> None:
    source, target = write(tmp_path / "a.wav", "wav"), tmp_path / "a; echo $(x) 'b'.mp3"  # a name that is only a name
    subprocess.run(["ffmpeg", "-v", "error", "-i", source, "-c:a", codec, "-f", "ipod", f"file:{target}"], check=True)
    found = probe(target)
    assert isinstance(found, Probe), found
    assert (found.codec, found.sample_rate_hz, found.channels) == (codec, 44_100, 2)
    assert found.duration_s == pytest.approx(1.5, abs=0.05)
    heard, told = decode_mono(target, 16_000), decode_mono(source, 16_000)
    size = min(len(heard), len(told))
    assert np.corrcoef(heard[:size], told[:size])[0, 1] > 0.98
    assert reason(target, longest_s=1.0) == "audio_too_long"
    cut = tmp_path / "cut.m4a"
    cut.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    assert reason(cut) in ("file_unreadable", "file_corrupt", "file_truncated")


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([8_000, 11_025, 22_050, 44_100, 48_000, 96_000]),
    target=st.sampled_from([8_000, 16_000, 44_100]),
    channels=st.integers(1, 6), block=st.sampled_from([64, 1_000, 1 << 17]), frames=st.integers(1, 30_000),
)  # fmt: skip
def test_blocks_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, rate: int, target: int, channels: int, block: int, frames: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.wav"
    samples = np.random.default_rng(frames).uniform(-0.9, 0.9, (frames, channels)).astype(np.float32)
    soundfile.write(path, samples, rate, subtype="FLOAT")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sound_module, "BLOCK_VALUES", max(block, channels))
        found = decode_mono(path, target)
        assert np.array_equal(found, decode_mono(path, target))
    mono = decode_module.average(samples)
    np.testing.assert_allclose(mono, samples.mean(axis=1), atol=1e-6)
    whole = mono if rate == target else soxr.resample(mono, rate, target, quality="HQ")
    assert len(found) == len(whole)
    np.testing.assert_allclose(found, whole, atol=1e-6)


def test_converted_files_are_the_decoded_samples(tmp_path: Path) -> None:
    source = write(tmp_path / "a.mp3", "mp3", seconds=5)
    convert(source, tmp_path / "a.wav", 16_000)
    convert(source, tmp_path / "b.wav", 16_000)
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    held, rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    assert rate == 16_000
    np.testing.assert_allclose(held, decode_mono(source, 16_000), atol=1 / 32_000)


def test_the_first_seconds_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", "flac", seconds=8)
    whole, rate = decode(path)
    first, _ = decode(path, first_s=2.5)
    assert np.array_equal(first, whole[: round(2.5 * rate)])
    assert len(decode(path, first_s=100)[0]) == len(whole)


# -- bad files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_was_cut_is_refused(tmp_path: Path, form: str) -> None:
    held = write(tmp_path / "a", form, seconds=10).read_bytes()
    (tmp_path / "cut").write_bytes(held[: len(held) * 6 // 10])
    assert reason(tmp_path / "cut") in ("file_truncated", "file_corrupt")
    with pytest.raises(BadAudio):
        decode(tmp_path / "cut")


@pytest.mark.parametrize("form", ["flac", "mp3"])
def test_damage_in_the_middle(tmp_path: Path, form: str) -> None:
    held = bytearray(write(tmp_path / "a", form, seconds=10).read_bytes())
    held[len(held) // 2 : len(held) // 2 + 3000] = np.random.RandomState(1).bytes(3000)
    (tmp_path / "a").write_bytes(held)
    assert reason(tmp_path / "a") in ("file_corrupt", "file_truncated")  # an MP3 decoder may skip the damage


def test_what_is_no_audio(tmp_path: Path) -> None:
    (tmp_path / "void.wav").touch()
    (tmp_path / "words.mp3").write_text("no audio\n" * 50)
    (tmp_path / "noise.flac").write_bytes(np.random.RandomState(2).bytes(5_000))
    (tmp_path / "folder.wav").mkdir()
    soundfile.write(tmp_path / "none.wav", np.zeros((0, 2)), 8_000)
    soundfile.write(tmp_path / "nan.wav", np.array([0.1, np.nan, 0.1]), 8_000, subtype="FLOAT")
    soundfile.write(tmp_path / "huge.wav", np.array([0.1, 1e30, 0.1]), 8_000, subtype="FLOAT")
    soundfile.write(tmp_path / "deep.wav", np.array([0.1, -1e30, 0.1]), 8_000, subtype="FLOAT")
    soundfile.write(tmp_path / "slow.wav", np.zeros(10), 10)
    expected = {
        "void.wav": "file_empty", "words.mp3": "file_unreadable", "noise.flac": "file_unreadable",
        "folder.wav": "file_unreadable", "none.wav": "file_empty", "nan.wav": "file_corrupt",
        "huge.wav": "file_odd_format", "deep.wav": "file_odd_format",
        "slow.wav": "file_odd_format", "gone.wav": "file_missing", "x" * 300: "file_unreadable",
    }  # fmt: skip
    assert {name: reason(tmp_path / name) for name in expected} == expected


def test_silence_is_measured(tmp_path: Path) -> None:
    samples = tune(8_000, 4.0)
    samples[8_000:] = 0
    soundfile.write(tmp_path / "a.wav", samples, 8_000)
    found = probe(tmp_path / "a.wav")
    assert isinstance(found, Probe)
    assert found.silent_share == pytest.approx(0.75, abs=0.02)
    soundfile.write(tmp_path / "b.wav", np.zeros((8_000, 2)), 8_000)
    still = probe(tmp_path / "b.wav")
    assert isinstance(still, Probe)
    assert (still.silent_share, still.level_dbfs, still.peak_dbfs) == (1.0, -200, -200)


def stated_frames(flac: Path, frames: int) -> None:
    """Make a FLAC file's header state another length."""
    held = bytearray(flac.read_bytes())
    held[21] = (held[21] & 0xF0) | (frames >> 32)
    held[22:26] = struct.pack(">I", frames & 0xFFFFFFFF)
    flac.write_bytes(held)


def test_a_header_that_states_weeks_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.flac", "flac")
    stated_frames(path, (1 << 36) - 1)
    monkeypatch.setattr(sound_module._Sndfile, "blocks", lambda self: pytest.fail("decoded"))
    assert reason(path) == "audio_too_long"
    stated_frames(path, 0)
    assert reason(path) == "file_odd_format"


@pytest.mark.slow
def test_a_bomb_costs_neither_memory_nor_time(tmp_path: Path) -> None:
    """Half an hour of silence is a tenth of a megabyte of FLAC; decoded at once, 635."""
    path = tmp_path / "bomb.flac"
    with soundfile.SoundFile(path, "w", 44_100, 2, subtype="PCM_16") as file:
        for _ in range(30):
            file.write(np.zeros((44_100 * 60, 2), np.int16))
    assert path.stat().st_size < 500_000
    assert reason(path, longest_s=1500) == "audio_too_long"
    code = (
        "import resource, sys; from pathlib import Path; from earmark.tasks.audio.decode import convert; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "convert(Path(sys.argv[1]), Path(sys.argv[2]), 16000); "
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "out.wav")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 64, "megabytes"


def test_one_bad_file_stops_no_other(tmp_path: Path) -> None:
    good = [write(tmp_path / f"{n}.flac", "flac", seconds=0.1 + n / 100) for n in range(20)]
    (tmp_path / "bad.wav").write_bytes(b"RIFF\xff\xff\xff\x7fWAVEfmt ")
    index = MediaIndex(tmp_path / "media.sqlite")
    found = index.look([*good[:10], tmp_path / "bad.wav", *good[10:], tmp_path / "bad.raw"], threads=3)
    assert [isinstance(one, Probe) for one in found] == [True] * 10 + [False] + [True] * 10 + [False]
    assert [one.duration_s for one in found if isinstance(one, Probe)] == pytest.approx(
        [0.1 + n / 100 for n in range(20)], abs=1e-3
    )


def test_a_limit_holds_for_what_was_measured_under_another(tmp_path: Path) -> None:
    path, index = write(tmp_path / "a.flac", "flac", seconds=3), MediaIndex(tmp_path / "media.sqlite")
    assert isinstance(index.look([path])[0], Probe)
    (refused,) = index.look([path], longest_s=2.0)
    assert isinstance(refused, AudioFault)
    assert refused.reason == "audio_too_long"
    assert isinstance(index.look([path])[0], Probe)


def test_an_index_of_an_older_format_is_made_anew(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "media.sqlite"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE media (path TEXT PRIMARY KEY, size INTEGER)")
    old.close()
    assert isinstance(MediaIndex(path).look([write(tmp_path / "a.wav", "wav")])[0], Probe)
    assert isinstance(MediaIndex(path).look([tmp_path / "a.wav"])[0], Probe)


def test_a_stopped_look_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [write(tmp_path / f"{n}.wav", "wav", seconds=0.1) for n in range(30)]
    index, done = MediaIndex(tmp_path / "media.sqlite"), 0

    def stop(count: int) -> None:
        nonlocal done
        done += count
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.look(files, threads=1, seen=stop)
    seen: list[int] = []
    index.look(files, threads=1, seen=seen.append)
    assert sum(seen) == 30
    assert seen[0] >= 7


@pytest.mark.parametrize("behind", [b"<html><h1>502 Bad Gateway</h1></html>\n", b"<Error><Code>Slow</Code></Error>"])
def test_an_mp3_of_no_stated_length_that_goes_over_into_a_page_is_refused(tmp_path: Path, behind: bytes) -> None:
    content = write(tmp_path / "a.mp3", "mp3", seconds=3).read_bytes()
    header = content[:2]  # each frame's: without the first, which holds the tag, no length is stated
    untagged = content[content.index(header, 4) :]
    assert b"Xing" not in untagged
    (tmp_path / "whole.mp3").write_bytes(untagged)
    assert isinstance(probe(tmp_path / "whole.mp3"), Probe)
    (tmp_path / "half.mp3").write_bytes(untagged[: len(untagged) // 2] + behind)
    assert reason(tmp_path / "half.mp3") == "file_truncated"


def test_an_mp3_that_cannot_be_read_says_what_stands_there_and_its_decoder_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = write(tmp_path / "a.mp3", "mp3", seconds=3).read_bytes()
    noise = np.random.RandomState(3).bytes(4_000)
    found_in = {
        b"\xff\xfb\x90\x00" * 900: "the beginning of an MP3, and no frames that decode",
        whole[:60]: "the beginning of an MP3, and no frames that decode",
        b"ID3\4\0\0\0\0\x02\0" + bytes(9_000): "the beginning of an MP3, and no frames that decode",
        b"\n<!DOCTYPE html><html>404</html>" * 50: "a web page: download it again",
        b"version https://git-lfs.github.com/spec/v1\n": "a pointer of Git LFS: git lfs pull fetches the file",
        "Hörprobe".encode() * 100: "text",
        bytes(9_000): "zeros alone",
        b"\x13\x37" + noise: "bytes in no format that libsndfile or FFmpeg reads",
    }
    for content, words in found_in.items():
        (tmp_path / "b.mp3").write_bytes(content)
        fault = probe(tmp_path / "b.mp3")
        assert fault == AudioFault("file_unreadable", f"expected WAV, FLAC, MP3, OGG or M4A audio, found {words}")
    middle = len(whole) // 2
    (tmp_path / "hole.mp3").write_bytes(whole[:middle] + noise[:3_000] + whole[middle + 3_000 :])
    (tmp_path / "cut.mp3").write_bytes(whole[:middle])
    assert reason(tmp_path / "hole.mp3") in ("file_corrupt", "file_truncated")
    assert reason(tmp_path / "cut.mp3") == "file_truncated"
    assert capfd.readouterr().err == ""
    ctypes.CDLL(None).perror(b"heard")  # other libraries are heard as before
    assert capfd.readouterr().err.startswith("heard")


def test_two_mp3s_of_different_rates_in_one_file_are_refused(tmp_path: Path) -> None:
    first, last = tmp_path / "a.mp3", tmp_path / "b.mp3"
    for path, rate in ((first, 44_100), (last, 22_050)):
        soundfile.write(path, 0.3 * np.sin(np.arange(3 * rate) / 20), rate, format="MP3", subtype="MPEG_LAYER_III")
    (tmp_path / "joined.mp3").write_bytes(first.read_bytes() + last.read_bytes())
    assert reason(tmp_path / "joined.mp3") == "file_odd_format"
