"""Read an audio file of any container as a stream of blocks, detecting the format by content, never by name.

libsndfile reads WAV, FLAC, MP3, Ogg (Vorbis, Opus) and more. FFmpeg reads formats refused by libsndfile (M4A, AAC,
WebM, WMA, WavPack) and, whole, files read by it only in part. Any fault of a file is a `BadAudio` with a fixed reason.
The header's length is checked before decoding, and the actual length during decoding: no file costs more than the
longest allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.schemas.files import NotAFile, open_regular
from earmark.tasks.audio.extent import cut_by_estimate, is_unknown, wav_data_unknown
from earmark.tasks.audio.faults import LONGEST_S, BadAudio, check_finite, check_form, check_length
from earmark.tasks.audio.ffmpeg import FfmpegSound

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
    """Open an audio file as bytes.

    Raises:
        BadAudio: the file is missing, not a file, unreadable, or empty.
    """
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
    """Yield the audio in an open file.

    Raises:
        BadAudio: the file is not audio, or too long.
    """
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


class _Sndfile:
    """Audio read by libsndfile through a handle, so that a name's ending decides nothing."""

    def __init__(self, file: FileIO, longest_s: float) -> None:
        self._file, self._longest_s = file, longest_s
        file.seek(0)
        try:
            self._sound = soundfile.SoundFile(file.fileno(), closefd=False)
        except soundfile.LibsndfileError as error:
            reason = error.error_string.strip().rstrip(".") or "no audio"
            raise BadAudio("file_unreadable", f"expected WAV, FLAC, MP3, OGG or M4A audio: {reason}") from None
        self.sample_rate_hz, self.channels = self._sound.samplerate, self._sound.channels
        subtype = self._sound.subtype
        self.codec = "flac" if self._sound.format == "FLAC" else _CODECS.get(subtype, subtype.lower())
        if self._sound.frames >= _NO_LENGTH:
            raise BadAudio("file_odd_format", "expected a FLAC header with the audio's length; write the file anew")
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
        """Yield samples as specified by `Sound`."""
        # Not by soundfile's own blocks(): after an early end it continues with uninitialised memory.
        buffer = np.empty((BLOCK_VALUES // self.channels, self.channels), np.float32)
        done, claimed = 0, self._sound.frames
        while True:
            try:
                block = self._sound.read(out=buffer)
            except soundfile.LibsndfileError:
                place = f"{done / self.sample_rate_hz:.1f} of {claimed / self.sample_rate_hz:.1f} s"
                raise BadAudio("file_corrupt", f"expected audio that decodes, found damage after {place}") from None
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
        if self._cut_short():
            raise BadAudio("file_truncated", f"expected more, found {done / self.sample_rate_hz:.1f} s and no end")

    def _cut_short(self) -> bool:
        """Return whether a WAV or Ogg file ends before its container does, an error ignored by libsndfile."""
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        head = self._file.read(8)
        if head[:4] == b"RIFF":
            promised = int.from_bytes(head[4:], "little")
            return not is_unknown(promised) and promised + 8 > size + 1
        if head[:4] == b"OggS":
            self._file.seek(max(0, size - (1 << 16)))
            tail = self._file.read()
            last = tail.rfind(b"OggS")
            return last >= 0 and not tail[last + 5 : last + 6][0] & 4  # the flag of a stream's last page
        return False
