"""Files are read to their end: 102 as the `ffmpeg` command reads them, whole ones as libsndfile did before."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from earmark.schemas.questions import Audio, AudioForm, Message
from earmark.schemas.reasons import AudioFault
from earmark.tasks.annotation.request import Request
from earmark.tasks.audio.decode import decode
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.index import MediaIndex
from earmark.tasks.audio.probe import Probe, probe
from earmark.tasks.audio.sound import Samples, open_sound, was_cut

RATES, SECONDS = (16_000, 22_050, 44_100), 1.5
needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")


def tune(rate: int, seconds: float, channels: int) -> Samples:
    """Music that begins quietly and grows loud and noisy, so that a variable bit rate varies."""
    t = np.arange(round(rate * seconds)) / rate
    noise = np.random.default_rng(7).standard_normal((len(t), channels)) * (t / seconds)[:, None] ** 2
    tones = np.stack([np.sin(2 * np.pi * 220 * (c + 1) * t) for c in range(channels)], 1)
    return (0.2 * tones + 0.15 * noise).astype(np.float32)


def encoded(samples: Samples, rate: int, container: str, codec: str, *, bps: int = 96_000, seek: bool = False) -> bytes:
    """A file of FFmpeg's encoders, written to a stream without a way back: no count of frames, no sizes."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return seek

    out, channels = Pipe(), samples.shape[1]
    with av.open(out, "w", format=container) as target:
        stream = target.add_stream(codec, rate=rate, layout="mono" if channels == 1 else "stereo")
        stream.bit_rate = bps
        frame = av.AudioFrame.from_ndarray(samples.T.copy(), format="fltp", layout=stream.layout.name)
        frame.sample_rate = rate
        form = stream.codec_context.format or av.AudioFormat("fltp")
        size = stream.codec_context.frame_size or 1024
        resampler = av.AudioResampler(format=form, layout=stream.layout, rate=rate, frame_size=size)
        for part in (*resampler.resample(frame), *resampler.resample(None), None):
            target.mux([packet for packet in stream.encode(part) if packet.size])
    return out.getvalue()


def sndfile(samples: Samples, rate: int, container: str, subtype: str) -> bytes:
    """A file of libsndfile's encoders."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=container, subtype=subtype)
    return out.getvalue()


def files() -> Iterator[tuple[str, bytes]]:
    """102 files: each codec and container at each rate in mono and stereo, joined, chained and bare ones among them."""
    for rate in RATES:
        for channels in (1, 2):
            name, first, second = f"{rate}-{channels}", tune(rate, SECONDS, channels), tune(rate, 1.0, channels)
            mp3 = sndfile(first, rate, "MP3", "MPEG_LAYER_III")
            constant = encoded(first, rate, "mp3", "mp3")
            halves = first[: rate * 3 // 4], first[rate * 3 // 4 :]
            loud, quiet = (
                encoded(half, rate, "mp3", "mp3", bps=bps) for half, bps in zip(halves, (128_000, 32_000), strict=True)
            )
            bare = loud + quiet  # a first frame of a high rate: by it the file would be half as long
            yield f"{name}-sndfile.mp3", mp3
            yield f"{name}-bare.mp3", bare
            yield f"{name}-constant.mp3", constant
            yield f"{name}-joined.mp3", mp3 + sndfile(second, rate, "MP3", "MPEG_LAYER_III")
            yield f"{name}-joined-bare.mp3", bare + bare
            yield f"{name}-id3.mp3", b"ID3\4\0\0\0\0\x02\0" + bytes(256) + bare
            vorbis = sndfile(first, rate, "OGG", "VORBIS")
            yield f"{name}.ogg", vorbis
            yield f"{name}.flac", sndfile(first, rate, "FLAC", "PCM_16")
            yield f"{name}-24.flac", sndfile(first, rate, "FLAC", "PCM_24")
            yield f"{name}.wav", sndfile(first, rate, "WAV", "PCM_16")
            yield f"{name}-float.wav", sndfile(first, rate, "WAV", "FLOAT")
            yield f"{name}.aiff", sndfile(first, rate, "AIFF", "PCM_16")
            yield f"{name}.aac", encoded(first, rate, "adts", "aac")
            yield f"{name}.wv", encoded(first, rate, "wv", "wavpack")
            yield f"{name}.wma", encoded(first, rate, "asf", "wmav2")
            yield f"{name}.oga", encoded(first, rate, "ogg", "flac", seek=True)
            yield f"{name}.m4a", encoded(first, rate, "ipod", "aac", seek=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, written once."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in files():
        (folder / name).write_bytes(content)
    return folder


def by_command(path: Path, channels: int) -> Samples:
    """The samples that the `ffmpeg` command gives."""
    command = ["ffmpeg", "-v", "quiet", "-i", path, "-map", "a:0", "-f", "f32le", "-c:a", "pcm_f32le", "-"]
    ran = subprocess.run(command, capture_output=True, check=True)
    return np.frombuffer(ran.stdout, "<f4").reshape(-1, channels)


@pytest.mark.slow
@pytest.mark.system
@needs_ffmpeg
def test_102_files_equal_the_ffmpeg_command_in_length_samples_and_mean(folder: Path) -> None:
    wrong, count = [], 0
    for path in sorted(folder.iterdir()):
        name, (samples, rate) = path.name, decode(path)
        reference = by_command(path, samples.shape[1])
        measured = probe(path)
        assert isinstance(measured, Probe), (name, measured)
        assert measured.duration_s == len(samples) / rate
        # libsndfile trims an MP3's or Vorbis stream's ends as its tag says, older ffmpegs by up to two frames less
        near = abs(len(samples) - len(reference)) <= 2 * 1152
        mean = abs(float(np.abs(samples).mean()) - float(np.abs(reference).mean())) < 0.002
        whole = len(samples) / rate >= (2.45 if "joined.mp3" in name else 2.95 if "joined" in name else 1.45)
        wrong += [] if near and mean and whole else [(name, len(samples), len(reference))]
        count += 1
    assert not wrong
    assert count == 102


@pytest.mark.slow
def test_files_that_libsndfile_reads_to_the_end_keep_their_samples(folder: Path) -> None:
    cut = 0
    for path in sorted(folder.iterdir()):
        name = path.name
        try:
            before, _ = soundfile.read(path, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError:
            continue
        samples, _ = decode(path)
        if was_cut(path, probe(path).codec):  # type: ignore[union-attr]
            assert {"bare", "joined", "id3"} & set(name.replace(".", "-").split("-")), name
            assert len(samples) > 1.2 * len(before), name
            cut += 1
        else:
            np.testing.assert_allclose(samples, before, atol=1e-7, err_msg=name)  # mpg123 rounds by blocks
    assert cut >= 18


def test_chained_ogg_is_read_to_the_last_link(tmp_path: Path) -> None:
    for subtype, rate in (("VORBIS", 44_100), ("OPUS", 48_000)):
        links = [sndfile(tune(rate, seconds, 2), rate, "OGG", subtype) for seconds in (2.0, 1.5, 1.0)]
        (tmp_path / "a.ogg").write_bytes(b"".join(links))
        found = probe(tmp_path / "a.ogg")
        assert isinstance(found, Probe)
        assert found.duration_s == pytest.approx(4.5, abs=0.02)
        assert soundfile.info(tmp_path / "a.ogg").duration == pytest.approx(2.0, abs=0.02)  # so this test can fail


def test_a_joined_stream_of_another_rate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ogg").write_bytes(
        sndfile(tune(44_100, 1, 2), 44_100, "OGG", "VORBIS") + sndfile(tune(22_050, 1, 1), 22_050, "OGG", "VORBIS")
    )
    found = probe(tmp_path / "a.ogg")
    assert isinstance(found, AudioFault)
    assert found.reason in ("file_odd_format", "file_corrupt")


@pytest.mark.parametrize("size", [0, 0x7FFF_F000, 0x7FFF_FFFF, 0x7FFF_F024, 0x8000_0000, 0xFFFF_FFFF])
@pytest.mark.parametrize("riff", ["same", "right"])
def test_placeholder_sizes_of_wavs_are_read_to_the_end(tmp_path: Path, size: int, riff: str) -> None:
    samples = tune(16_000, 1.5, 1)
    content = bytearray(sndfile(samples, 16_000, "WAV", "PCM_16"))
    at = content.index(b"data")
    content[at + 4 : at + 8] = struct.pack("<I", size)
    if riff == "same" or size == 0:
        content[4:8] = struct.pack("<I", size)
    (tmp_path / "a.wav").write_bytes(content)
    found, _ = decode(tmp_path / "a.wav")
    reference, _ = soundfile.read(io.BytesIO(sndfile(samples, 16_000, "WAV", "PCM_16")), dtype="float32")
    assert np.array_equal(found[:, 0], reference)


def test_a_wav_without_data_is_empty_and_a_cut_one_truncated(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "empty.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(b"")
    content = bytearray((tmp_path / "empty.wav").read_bytes()) + b"LIST\x04\0\0\0INFO"
    content[4:8] = struct.pack("<I", len(content) - 8)
    (tmp_path / "listed.wav").write_bytes(content)
    (tmp_path / "cut.wav").write_bytes(sndfile(tune(16_000, 2, 1), 16_000, "WAV", "PCM_16")[:30_000])
    reasons = [probe(tmp_path / f"{name}.wav") for name in ("empty", "listed", "cut")]
    assert [one.reason for one in reasons if isinstance(one, AudioFault)] == ["file_empty"] * 2 + ["file_truncated"]


@pytest.mark.parametrize(
    "form",
    ["AIFF", "RF64", "W64", "AU", "NIST", "NIST ULAW", "CAF", "SVX", "WAVEX", "WAV PCM_16 BIG", "AU PCM_16 LITTLE"],
)
def test_a_cut_file_of_any_common_form_is_refused(tmp_path: Path, form: str) -> None:
    container, subtype, order = (*form.split(), *("PCM_16", "FILE")[form.count(" ") :])
    samples = tune(16_000, 3, 1)
    soundfile.write(tmp_path / "a", samples, 16_000, format=container, subtype=subtype, endian=order)
    whole = probe(tmp_path / "a")
    assert isinstance(whole, Probe)
    assert whole.duration_s == 3.0
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[: len(content) // 3])
    cut = probe(tmp_path / "a")
    assert isinstance(cut, AudioFault)
    assert cut.reason == "file_truncated"


@pytest.mark.parametrize("form", ["WAV", "AIFF", "RF64", "W64", "AU", "NIST", "CAF", "WAV PCM_U8", "M4A"])
def test_files_joined_end_to_end_are_refused_whatever_follows_one_is_not(tmp_path: Path, form: str) -> None:
    first, last = (
        encoded(samples, 16_000, "mp4", "aac", seek=True)
        if form == "M4A"
        else sndfile(samples, 16_000, *(*form.split(), "PCM_16")[:2])
        for samples in (tune(16_000, seconds, 1)[1:] for seconds in (1.0, 2.0))  # odd, so that a byte is padded
    )
    for content, is_joined in [
        (first, False),
        (first + last, True),
        (last + first, True),
        (first + bytes(4096), False),
        (first + b"TAG" + bytes(125), False),
    ]:
        (tmp_path / "a").write_bytes(content)
        found = probe(tmp_path / "a")
        assert (
            isinstance(found, AudioFault) and found.detail.startswith("expected one file, found another")
        ) == is_joined


@pytest.mark.parametrize("codec", ["vorbis", "opus"])
def test_an_ogg_with_a_damaged_or_cut_page_is_refused(tmp_path: Path, codec: str) -> None:
    """Its last page's header, with the flag of the end, stays in a file cut within that page."""
    samples = tune(48_000, 3, 1)
    vorbis = codec == "vorbis"
    whole = sndfile(samples, 48_000, "OGG", "VORBIS") if vorbis else encoded(samples, 48_000, "ogg", "libopus")
    last = whole.rindex(b"OggS")
    middle = whole.rindex(b"OggS", 0, last) + 500
    cuts = [whole[: last + 200], whole[: last + 27], whole[: last + 5], whole[:last]]
    damaged = [whole[:at] + bytes(20) + whole[at + 20 :] for at in (middle, last + 200)]
    damaged.append(whole[: middle - 500] + whole[last:])
    for content in (whole, *cuts, *damaged):
        (tmp_path / "a.ogg").write_bytes(content)
        found = probe(tmp_path / "a.ogg")
        if content == whole:
            assert isinstance(found, Probe)
        else:
            assert isinstance(found, AudioFault)
            assert found.reason in ("file_truncated", "file_corrupt")


def test_a_flac_with_an_mp3_tag_at_its_end_is_read(tmp_path: Path) -> None:
    """Rippers write such tags; another FLAC behind the end is refused still."""
    whole = sndfile(tune(44_100, 5, 2), 44_100, "FLAC", "PCM_16")
    (tmp_path / "a.flac").write_bytes(whole + b"TAG" + b" " * 125)
    found = probe(tmp_path / "a.flac")
    assert isinstance(found, Probe)
    assert found.duration_s == 5.0
    (tmp_path / "a.flac").write_bytes(whole + whole)
    assert isinstance(probe(tmp_path / "a.flac"), AudioFault)


@pytest.mark.timeout(60)
def test_an_mp3_without_a_tag_that_ends_within_a_frame_is_read_to_there(tmp_path: Path) -> None:
    whole = encoded(tune(44_100, 2, 2), 44_100, "mp3", "libmp3lame", bps=192_000)
    assert b"Xing" not in whole[:200]
    (tmp_path / "a.mp3").write_bytes(whole[: len(whole) * 2 // 3 + 100])
    found = probe(tmp_path / "a.mp3")
    assert isinstance(found, Probe)
    assert found.duration_s == pytest.approx(4 / 3, abs=0.06)


def test_a_wav_whose_two_lengths_disagree_is_refused(tmp_path: Path) -> None:
    content = bytearray(sndfile(tune(16_000, 2, 1), 16_000, "WAV", "PCM_16"))
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", 32_000)
    (tmp_path / "a.wav").write_bytes(content)
    found = probe(tmp_path / "a.wav")
    assert isinstance(found, AudioFault)
    assert found.reason == "file_odd_format"
    assert "the 1.0 s that the header names" in found.detail


def test_a_chained_ogg_cut_in_its_last_link_is_refused(tmp_path: Path) -> None:
    first, last = (sndfile(tune(44_100, seconds, 2), 44_100, "OGG", "VORBIS") for seconds in (1.0, 3.0))
    (tmp_path / "a.ogg").write_bytes(first + last[: len(last) // 2])
    cut = probe(tmp_path / "a.ogg")
    assert isinstance(cut, AudioFault)
    assert cut.reason in ("file_truncated", "file_corrupt")


@pytest.mark.parametrize("data", [None, 0x7F00_0008])
def test_a_length_that_was_not_known_or_counts_its_own_header_cuts_nothing(tmp_path: Path, data: int | None) -> None:
    """The size of a WAV's whole file in place of its chunk's; what SoX writes for an AIFF into a pipe."""
    content = bytearray(sndfile(tune(16_000, 3, 1), 16_000, "AIFF" if data else "WAV", "PCM_16"))
    content[4:8] = struct.pack("<I", len(content))
    if data:
        at = content.index(b"SSND")
        content[4:8], content[at + 4 : at + 8] = struct.pack(">I", 0x7F00_002E), struct.pack(">I", data)
    (tmp_path / "a").write_bytes(content)
    found = probe(tmp_path / "a")
    assert isinstance(found, Probe)
    assert found.duration_s == 3.0
    (tmp_path / "a").write_bytes(content[: len(content) // 3])
    assert isinstance(probe(tmp_path / "a"), AudioFault) == (data is None)


@pytest.mark.parametrize(
    ("size", "stated"),
    [((1 << 32) + 2_880_000, 2_880_000), ((1 << 32) + 2_880_000, 0xFFFF_FFFF), (3 << 30, 0x7FFF_FFFF)],
)
def test_a_wav_longer_than_its_header_can_say_is_refused(tmp_path: Path, size: int, stated: int) -> None:
    """Sizes of 32 bits wrap at 4 GiB: libsndfile reads 10 s of four hours."""
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", min(stated + 36, 0xFFFF_FFFF), b"WAVE", b"fmt ", 16, 1, 2, 48_000,
                       288_000, 6, 24, b"data", stated)  # fmt: skip
    with (tmp_path / "a.wav").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)  # sparse
    with pytest.raises(BadAudio, match="expected RF64 or FLAC"), open_sound(tmp_path / "a.wav", 1e6):
        pass


def film(path: Path, container: str, *, late_s: float = 0) -> Path:
    """Eight seconds of picture with six of sound, which may begin late."""
    with av.open(path, "w", format=container, options={"movflags": "faststart"} if container == "mp4" else {}) as out:
        sound, picture = out.add_stream("aac", rate=48_000, layout="mono"), out.add_stream("mpeg4", rate=5)
        picture.width, picture.height, picture.pix_fmt = 64, 64, "yuv420p"
        for part in (*np.split(tune(48_000, 6, 1).T, 288_000 // 1000, axis=1), None):
            frame = None
            if part is not None:
                frame = av.AudioFrame.from_ndarray(part.copy(), format="fltp", layout="mono")
                frame.sample_rate, frame.pts = 48_000, round(late_s * 48_000)
                late_s += part.shape[1] / 48_000
            out.mux(sound.encode(frame))
        for number in (*range(40), None):
            still = None if number is None else av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), "u1"), format="rgb24")
            if still:
                still.pts = number
            out.mux(picture.encode(still))
    return path


@pytest.mark.parametrize("container", ["mp4", "mov", "matroska"])
@pytest.mark.parametrize("late_s", [0, 2])
def test_a_picture_longer_than_its_sound_cuts_nothing(tmp_path: Path, container: str, late_s: float) -> None:
    found = probe(film(tmp_path / "a", container, late_s=late_s), longest_s=7)
    assert isinstance(found, Probe), found
    assert found.duration_s == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_a_cut_film_is_refused(tmp_path: Path, container: str) -> None:
    path = film(tmp_path / "a", container)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = probe(path)
    assert isinstance(found, AudioFault)
    assert found.reason in ("file_truncated", "file_corrupt")


def unheard(path: Path, samples: Samples) -> str:
    """Why a clip of floats is refused; nothing where it is fit."""
    soundfile.write(path, samples, 16_000, subtype="FLOAT")
    found = probe(path)
    return f"{found.reason}: {found.detail}" if isinstance(found, AudioFault) else ""


def test_clips_that_a_model_would_not_hear_are_refused(tmp_path: Path) -> None:
    mono, path = tune(16_000, 1, 1), tmp_path / "a.wav"
    assert not unheard(path, mono)
    assert "32768" in unheard(path, mono * 32768)
    assert "32768" in unheard(path, np.vstack([mono[-800:] * 32768, np.zeros((16_000, 1), np.float32)]))  # long pauses
    assert "cancel" in unheard(path, np.hstack([mono, -mono]))
    assert "0.01 s" in unheard(path, mono[:1])
    # near what is refused, and fit: loud masters, wide stereo, one silent channel, silence
    assert not unheard(path, np.clip(mono * 4, -1.05, 1.05))
    assert not unheard(path, np.vstack([15 * mono[:50] / mono[:50].max(), mono]))  # a click
    assert not unheard(path, np.hstack([mono, -0.9 * mono]))
    assert not unheard(path, np.hstack([mono, np.zeros_like(mono)]))
    assert not unheard(path, np.zeros((16_000, 2), np.float32))


def test_only_clips_that_were_cut_have_another_key(tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut.mp3", tmp_path / "whole.mp3"
    mp3 = sndfile(tune(44_100, 2, 1), 44_100, "MP3", "MPEG_LAYER_III")
    whole.write_bytes(mp3)
    cut.write_bytes(mp3 + mp3)
    index = MediaIndex(tmp_path / "media.sqlite")
    clips = [one.clip_sha256 for one in index.look([cut, whole]) if isinstance(one, Probe)]
    assert index.redecoded() == {clips[0]}
    form = AudioForm(longest_s=10.0)
    for clip, same in zip(clips, (False, True), strict=True):
        request = Request("openai:m", (Message.of("user", "what?", Audio(clip, "x", form=form)),))
        marked = request.redecoding(index.redecoded())
        assert (marked.key == request.key) is same
        assert (marked is request) is same
