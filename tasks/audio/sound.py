"""Read an audio file of any container as a stream of blocks, detecting the format by content, never by name.

libsndfile reads WAV, FLAC, MP3, Ogg (Vorbis, Opus) and more. FFmpeg reads formats refused by libsndfile (M4A, AAC,
WebM, WMA, WavPack) and, whole, files read by it only in part. Any fault of a file is a `BadAudio` with a fixed reason.
The header's length is checked before decoding, and the actual length during decoding: no file costs more than the
longest allowed.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.schemas.files import NotAFile, open_regular
from earmark.tasks.audio.extent import (
    begins_again,
    cut_by_estimate,
    cut_short,
    damaged_page,
    ends_in_page,
    goes_on,
    is_tagged_behind,
    length_lost,
    wav_data_unknown,
)
from earmark.tasks.audio.faults import LONGEST_S, BadAudio, check_finite, check_form, check_length

# Containers with their own audio, without references to other files or addresses.
CONTAINERS = "aac,ac3,aiff,amr,ape,asf,caf,eac3,flac,matroska,webm,mov,mp3,mpegts,ogg,tta,w64,wav,wv"
# Containers with the length in the header; FFmpeg estimates it for others.
_LENGTH_KNOWN = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "wv", "flac"}


class FfmpegSound:
    """An open audio file; see `earmark.tasks.audio.sound.Sound`.

    Chosen over torchcodec, which brings torch and needs a system FFmpeg, and over miniaudio, without Opus and AAC. Its
    samples are the `ffmpeg` command's (`tests/audio/test_whole_files.py`).

    Raises:
        BadAudio: FFmpeg finds no audio to decode, or the file is too long.
    """

    def __init__(self, file: FileIO, longest_s: float) -> None:
        import av  # imported here, as it takes 40 ms and few files need it

        file.seek(0)
        self._file, self._errors, self._longest_s = file, av.error.FFmpegError, longest_s
        try:
            self._container: Any = av.open(
                file, "r", options={"format_whitelist": CONTAINERS}, metadata_errors="replace"
            )
        except av.error.FFmpegError as error:
            raise BadAudio("file_unreadable", f"expected audio: {error.strerror}") from None
        streams = self._container.streams.audio
        if not streams or streams[0].codec_context is None:
            self._container.close()
            raise BadAudio("file_unreadable", "expected an audio stream that FFmpeg decodes, found none")
        context = streams[0].codec_context
        self.codec: str = context.name.removesuffix("float").removesuffix("_fixed")
        self.sample_rate_hz, self.channels = int(context.sample_rate or 0), int(context.channels or 0)
        self._claimed_s = 0.0
        if self._container.format.name in _LENGTH_KNOWN and self._container.duration:
            # of all streams the longest: a picture may outlast the sound
            self._claimed_s = min(self._container.duration / av.time_base, _stated_s(streams[0]))
        try:
            check_form(self.sample_rate_hz, self.channels)
            check_length(self._claimed_s, longest_s)
        except BadAudio:
            self._container.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()

    def blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield samples as specified by `earmark.tasks.audio.sound.Sound`."""
        done, parts, held = 0, [], 0
        for part in self._decoded():
            done += len(part)
            check_length(done / self.sample_rate_hz, self._longest_s)
            check_finite(part)
            parts.append(part)
            held += part.size
            if held >= BLOCK_VALUES:
                yield np.concatenate(parts)
                parts, held = [], 0
        if parts:
            yield np.concatenate(parts)
        seconds = done / self.sample_rate_hz
        if seconds < 0.98 * self._claimed_s - 0.1:
            raise BadAudio(
                "file_truncated", f"expected {self._claimed_s:.1f} s as the header says, found {seconds:.1f} s"
            )
        _check_end(self._file, seconds)

    def _decoded(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield samples (frames, channels) of the codec's frames in order."""
        from av import AudioResampler

        to_float, at_s = AudioResampler(format="flt"), 0.0
        for frame in self._frames():
            if frame is None or frame.is_corrupt:
                raise BadAudio("file_corrupt", f"expected audio that decodes, found damage after {at_s:.1f} s")
            if (frame.sample_rate, frame.layout.nb_channels) != (self.sample_rate_hz, self.channels):
                raise BadAudio(
                    "file_odd_format",
                    f"expected {self.sample_rate_hz} Hz and {self.channels} channels to the end, found "
                    f"{frame.sample_rate} Hz and {frame.layout.nb_channels} after {at_s:.1f} s",
                )
            at_s += frame.samples / self.sample_rate_hz
            for floats in to_float.resample(frame):
                yield floats.to_ndarray().astype(np.float32, copy=False).reshape(-1, self.channels)

    def _frames(self) -> Iterator[Any]:
        """Yield the codec's frames; at damage yield None and stop. Tags between joined MP3s are skipped."""
        stream = self._container.streams.audio[0]
        packets = self._container.demux(stream)
        while True:
            try:
                packet = next(packets, None)
                if packet is None:
                    return
                frames = packet.decode()
            except self._errors:
                if packet is not None and self.codec == "mp3" and not _is_mpeg_frame(bytes(packet)):
                    continue
                yield None
                return
            yield from frames


def _stated_s(stream: Any) -> float:
    """Return a stream's own length in seconds; infinity if its container states none."""
    if stream.duration:
        return float(stream.duration * stream.time_base)
    tag = re.fullmatch(r"(\d+):(\d\d):(\d\d\.\d+)", stream.metadata.get("DURATION", ""))  # Matroska's: of its end
    begin = float((stream.start_time or 0) * stream.time_base)
    return 3600 * int(tag[1]) + 60 * int(tag[2]) + float(tag[3]) - begin if tag else math.inf


def _is_mpeg_frame(content: bytes) -> bool:
    return content[:1] == b"\xff" and content[1:2] >= b"\xe0"


Samples = npt.NDArray[np.float32]

BLOCK_VALUES = 1 << 17  # samples over all channels decoded at once: half a megabyte
SLACK_FRAMES = 4608  # an MP3 may end up to four of its own frames before its header's length

_NO_LENGTH = 1 << 60  # libsndfile's count, or more, for FLAC streams without a length
LOSSY_STREAMS = {"mp3", "mp2", "mp1", "vorbis", "opus"}
_CODECS = {"MPEG_LAYER_III": "mp3", "MPEG_LAYER_II": "mp2", "MPEG_LAYER_I": "mp1"}


class Sound(Protocol):
    """An open audio file."""

    sample_rate_hz: int
    channels: int
    codec: str  # `flac`, `mp3`, `vorbis`, `opus`, `aac`, …; for plain samples their form: `pcm_16`, `float`

    def blocks(self) -> Iterator[Samples]:
        """Yield samples (frames, channels), full scale ±1, in order. A block's memory may be reused for the next.

        Raises:
            BadAudio: the file ends too soon, cannot be decoded, holds NaN, or is longer than the limit.
        """
        ...


@contextmanager
def open_sound(path: Path, longest_s: float = LONGEST_S) -> Iterator[Sound]:
    """Open an audio file.

    Args:
        longest_s: limit of the length in the header, checked before decoding, and of the decoded length.

    Raises:
        BadAudio: the file is missing, not audio, empty, or too long.
    """
    with open_file(path) as file, sound_of(file, longest_s) as sound:
        yield sound


@contextmanager
def open_file(path: Path) -> Iterator[FileIO]:
    """Open an audio file as bytes."""
    try:
        file = open_regular(path)  # unbuffered: libsndfile moves the handle
    except FileNotFoundError:
        raise BadAudio("file_missing", f"expected an audio file, found nothing at {path.name}") from None
    except IsADirectoryError:
        raise BadAudio("file_unreadable", "expected an audio file, found a folder") from None
    except NotAFile as error:
        raise BadAudio("file_unreadable", str(error.strerror)) from None
    except (OSError, ValueError) as error:  # ValueError: an impossible path
        what = getattr(error, "strerror", None) or str(error)
        raise BadAudio("file_unreadable", f"expected an audio file: {what}") from None
    with file:
        if os.fstat(file.fileno()).st_size == 0:
            raise BadAudio("file_empty", "expected audio, found a file without a byte")
        yield file


@contextmanager
def sound_of(file: FileIO, longest_s: float) -> Iterator[Sound]:
    """Yield the audio in an open file."""
    with _open(file, longest_s) as sound:
        yield sound


def was_cut(path: Path, codec: str) -> bool:
    """Return whether Earmark 1.0.0, with libsndfile alone, silently read only a part of this file."""
    if codec not in LOSSY_STREAMS:
        return False
    try:
        with open_file(path) as file, _Sndfile(file, LONGEST_S) as sound:
            return sound.stops_early()
    except BadAudio:  # libsndfile refuses it: nothing was read at all
        return False


def _open(file: FileIO, longest_s: float) -> _Sndfile | FfmpegSound:
    if wav_data_unknown(file):
        return FfmpegSound(file, longest_s)
    if length_lost(file):
        raise BadAudio(
            "file_odd_format", "expected RF64 or FLAC for so long a file, found a WAV or AIFF header without its length"
        )
    try:
        sound = _Sndfile(file, longest_s)
    except BadAudio as refused:
        if refused.reason != "file_unreadable":
            raise
        try:
            return FfmpegSound(file, longest_s)
        except BadAudio as bad:
            raise (refused if bad.reason == "file_unreadable" else bad) from None
    if not sound.stops_early():
        return sound
    sound.close()
    return FfmpegSound(file, longest_s)


@cache
def _c_stderr() -> tuple[ctypes.c_void_p, int | None, int | None] | None:
    """Return the C library's variable `stderr`, its stream, and one that goes nowhere; None if it has no variable."""
    name = "__stderrp" if sys.platform == "darwin" else "stderr" if platform.libc_ver()[0] == "glibc" else None
    if name is None:
        return None
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    variable = ctypes.c_void_p.in_dll(library, name)
    return variable, variable.value, library.fopen(b"/dev/null", b"we")


_silencing, _silenced = threading.Lock(), [0]


@contextmanager
def without_remarks() -> Iterator[None]:
    """Keep remarks of libmpg123 within libsndfile off standard error: they name no file, and faults are raised.

    Threads share the variable: the last that leaves puts it back. Python writes to standard error by another way.
    """

    def change(by: int) -> None:
        with _silencing:
            _silenced[0] += by
            if (found := _c_stderr()) and found[1] and found[2]:
                found[0].value = found[2] if _silenced[0] else found[1]

    change(1)
    try:
        yield
    finally:
        change(-1)


_UNTRUE = re.compile(
    "(?:unknown|unimplemented) format|not recogni|does not exist|unspecified|internal|system", re.IGNORECASE
)


def _found_in(file: FileIO) -> str:
    """Return in words what stands in a file that no reader takes for audio."""
    file.seek(0)
    start = file.read(4096)
    if start.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS: git lfs pull fetches the file"
    if start.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "a web page: download it again"
    if not start.strip(b"\0"):
        return "zeros alone"
    if start.startswith(b"ID3") or _is_mpeg_frame(start):
        return "the beginning of an MP3, and no frames that decode"
    # a letter may be cut at the end
    is_text = b"\0" not in start and len(start) - len(start.decode("utf-8", "ignore").encode()) < 4
    return "text" if is_text else "bytes in no format that libsndfile or FFmpeg reads"


class _Sndfile:
    """Audio read by libsndfile through a handle, so that a name's ending decides nothing."""

    def __init__(self, file: FileIO, longest_s: float) -> None:
        self._file, self._longest_s = file, longest_s
        file.seek(0)
        try:
            with without_remarks():
                self._sound = soundfile.SoundFile(file.fileno(), closefd=False)
        except soundfile.LibsndfileError as error:
            said = error.error_string.strip().rstrip(".")
            reason = f"found {_found_in(file)}" if not said or _UNTRUE.search(said) else said
            raise BadAudio("file_unreadable", f"expected WAV, FLAC, MP3, OGG or M4A audio, {reason}") from None
        self.sample_rate_hz, self.channels = self._sound.samplerate, self._sound.channels
        subtype = self._sound.subtype
        self.codec = "flac" if self._sound.format == "FLAC" else _CODECS.get(subtype, subtype.lower())
        if self._sound.frames >= _NO_LENGTH:
            raise BadAudio(
                "file_odd_format",
                "expected a FLAC header with the audio's length, found 0: ffmpeg -i IN OUT.flac writes it",
            )
        check_form(self.sample_rate_hz, self.channels)
        check_length(self._sound.frames / self.sample_rate_hz, longest_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free libsndfile's resources; the file stays open."""
        self._sound.close()

    def stops_early(self) -> bool:
        """Return whether libsndfile stops before the end: at its estimate, a tag's count or the first Ogg link."""
        at = self._file.tell()
        try:
            return (self.codec in LOSSY_STREAMS) and cut_by_estimate(self._file, self._sound.frames)
        finally:
            self._file.seek(at)  # libsndfile continues from its old position

    def blocks(self) -> Iterator[Samples]:
        # Not by soundfile's own blocks(): after an early end it continues with uninitialised memory.
        buffer = np.empty((BLOCK_VALUES // self.channels, self.channels), np.float32)
        done, claimed = 0, self._sound.frames
        exact = self.codec == "flac" and is_tagged_behind(self._file)  # a read up to the tag would fail
        while True:
            try:
                with without_remarks():
                    block = self._sound.read(min(len(buffer), claimed - done) if exact else -1, out=buffer)
            except soundfile.LibsndfileError:
                ends = min(done + len(buffer), claimed)
                place = f"{done / self.sample_rate_hz:.1f} and {ends / self.sample_rate_hz:.1f} s"
                raise BadAudio("file_corrupt", f"expected audio that decodes, found damage between {place}") from None
            if not len(block):
                break
            done += len(block)
            check_length(done / self.sample_rate_hz, self._longest_s)
            check_finite(block)
            yield block
        if done < claimed - SLACK_FRAMES:
            lengths = (
                f"{claimed / self.sample_rate_hz:.1f} s as the header says, found {done / self.sample_rate_hz:.1f} s"
            )
            raise BadAudio("file_truncated", f"expected {lengths}")
        _check_end(self._file, done / self.sample_rate_hz)


def _check_end(file: FileIO, seconds: float) -> None:
    if cut_short(file):
        raise BadAudio("file_truncated", f"expected more, found {seconds:.1f} s and no end")
    if ends_in_page(file):
        raise BadAudio(
            "file_truncated",
            f"expected MPEG frames to the end, found a web page behind {seconds:.1f} s: download it again",
        )
    if damaged_page(file):
        raise BadAudio("file_corrupt", "expected a whole Ogg stream, found a page missing or damaged")
    if goes_on(file):
        raise BadAudio(
            "file_odd_format",
            f"expected a chunk or nothing behind the {seconds:.1f} s that the header names, found further bytes: "
            "a writer that was stopped? Write the header anew",
        )
    if begins_again(file):
        raise BadAudio(
            "file_odd_format",
            "expected one file, found another behind its end: join the samples, not the files",
        )
