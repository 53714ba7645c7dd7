"""An audio file as a stream of blocks, whatever it is packed in: told by its content, never by its name.

libsndfile reads WAV, FLAC, MP3, Ogg (Vorbis, Opus) and more, the `ffmpeg` command M4A. Whatever is wrong with a file is
a `BadAudio` with a fixed reason. How long a file says it is, is looked at before a sample is decoded, and how long it
proves to be, while it is decoded: no file costs more than the longest one that is allowed.
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
from earmark.tasks.audio.faults import LONGEST_S, BadAudio, check_finite, check_form, check_length
from earmark.tasks.audio.mp4 import Mp4Sound, is_mp4

Samples = npt.NDArray[np.float32]

BLOCK_VALUES = 1 << 17  # samples over all channels that are decoded at once: half a megabyte
SLACK_FRAMES = 4608  # an MP3 may end up to four of its own frames before its header says so

_NO_LENGTH = 1 << 60  # at least this, libsndfile says where a FLAC stream leaves its length open
_CODECS = {"MPEG_LAYER_III": "mp3", "MPEG_LAYER_II": "mp2", "MPEG_LAYER_I": "mp1"}


class Sound(Protocol):
    """An open audio file."""

    sample_rate_hz: int
    channels: int
    codec: str  # `flac`, `mp3`, `vorbis`, `opus`, `aac`; for plain samples their form: `pcm_16`, `float`

    def blocks(self) -> Iterator[Samples]:
        """Samples (frames, channels), full scale ±1, in order. A block's memory may be used again for the next.

        Raises:
            BadAudio: the file ends too soon, cannot be decoded, holds NaN, or goes on for longer than is allowed.
        """
        ...


@contextmanager
def open_sound(path: Path, longest_s: float = LONGEST_S) -> Iterator[Sound]:
    """Open an audio file.

    Args:
        longest_s: a file that says it is longer is refused before it is decoded; one that proves longer, then.

    Raises:
        BadAudio: it is not there, no audio, empty, or too long.
    """
    with open_file(path) as file, sound_of(file, path, longest_s) as sound:
        yield sound


@contextmanager
def open_file(path: Path) -> Iterator[FileIO]:
    """Open an audio file as bytes.

    Raises:
        BadAudio: it is not there, no file, cannot be read, or is empty.
    """
    try:
        file = open_regular(path)  # libsndfile moves the handle, which a buffer would not see
    except FileNotFoundError:
        raise BadAudio("audio_missing", f"expected an audio file, found nothing at {path.name}") from None
    except IsADirectoryError:
        raise BadAudio("audio_not_a_file", "expected an audio file, found a folder") from None
    except NotAFile as error:
        raise BadAudio("audio_not_a_file", str(error.strerror)) from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        what = getattr(error, "strerror", None) or str(error)
        raise BadAudio("audio_unreadable", f"expected an audio file: {what}") from None
    with file:
        if os.fstat(file.fileno()).st_size == 0:
            raise BadAudio("audio_empty", "expected audio, found a file without a byte")
        yield file


@contextmanager
def sound_of(file: FileIO, path: Path, longest_s: float) -> Iterator[Sound]:
    """The audio in an open file.

    Raises:
        BadAudio: it is no audio, or too long.
    """
    with Mp4Sound(path, longest_s) if is_mp4(file) else _Sndfile(file, longest_s) as sound:
        yield sound


class _Sndfile:
    """Audio that libsndfile reads. It gets a handle, so that a name's ending decides nothing."""

    def __init__(self, file: FileIO, longest_s: float) -> None:
        self._file, self._longest_s = file, longest_s
        file.seek(0)
        try:
            self._sound = soundfile.SoundFile(file.fileno(), closefd=False)
        except soundfile.LibsndfileError as error:
            reason = error.error_string.strip().rstrip(".") or "no audio"
            raise BadAudio("audio_unreadable", f"expected WAV, FLAC, MP3, OGG or M4A audio: {reason}") from None
        self.sample_rate_hz, self.channels = self._sound.samplerate, self._sound.channels
        subtype = self._sound.subtype
        self.codec = "flac" if self._sound.format == "FLAC" else _CODECS.get(subtype, subtype.lower())
        if self._sound.frames >= _NO_LENGTH:
            raise BadAudio("audio_no_length", "expected a FLAC header with the audio's length; write the file anew")
        check_form(self.sample_rate_hz, self.channels)
        check_length(self._sound.frames / self.sample_rate_hz, longest_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sound.close()

    def blocks(self) -> Iterator[Samples]:
        """See `Sound`."""
        # Not by soundfile's own blocks(): where a file ends early, those go on with whatever the memory held.
        buffer = np.empty((BLOCK_VALUES // self.channels, self.channels), np.float32)
        done, claimed = 0, self._sound.frames
        while True:
            try:
                block = self._sound.read(out=buffer)
            except soundfile.LibsndfileError:
                place = f"{done / self.sample_rate_hz:.1f} of {claimed / self.sample_rate_hz:.1f} s"
                raise BadAudio("audio_corrupt", f"expected audio that decodes, found damage after {place}") from None
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
            raise BadAudio("audio_truncated", f"expected {lengths}")
        if self._cut_short():
            raise BadAudio("audio_truncated", f"expected more, found {done / self.sample_rate_hz:.1f} s and no end")

    def _cut_short(self) -> bool:
        """Whether a WAV or Ogg file stops before its container ends, which libsndfile passes over in silence."""
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(0)
        head = self._file.read(8)
        if head[:4] == b"RIFF":
            promised = int.from_bytes(head[4:], "little")  # the largest numbers stand for "not known" in streams
            return promised < 0xFFFF_FF00 and promised + 8 > size + 1
        if head[:4] == b"OggS":
            self._file.seek(max(0, size - (1 << 16)))
            tail = self._file.read()
            last = tail.rfind(b"OggS")
            return last >= 0 and not tail[last + 5 : last + 6][0] & 4  # the flag of a stream's last page
        return False
