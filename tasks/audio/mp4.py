"""M4A and MP4 audio (AAC, ALAC) by way of the `ffmpeg` command, which decodes it to a pipe of floats.

A command and not a library: it needs no torch, a crash of it harms one file only, and audio-separator needs it as well.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from earmark.tasks.audio.faults import BadAudio, check_finite, check_form, check_length

PATIENCE_S = 60.0  # for ffprobe, which reads a header
BLOCK_FRAMES = 1 << 16
# The file alone, as what its first bytes say it is: no playlists, no addresses inside it are followed.
_INPUT = ("-v", "error", "-protocol_whitelist", "file,pipe", "-f", "mov", "-i")


def is_mp4(file: FileIO) -> bool:
    """Whether a file starts as MP4 and M4A do."""
    file.seek(0)
    return file.read(12)[4:8] == b"ftyp"


class Mp4Sound:
    """An open M4A file; see `earmark.tasks.audio.sound.Sound`.

    Raises:
        BadAudio: there is no `ffmpeg`, the file holds no audio, or it is too long.
    """

    def __init__(self, path: Path, longest_s: float) -> None:
        if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
            raise BadAudio("audio_needs_ffmpeg", "M4A is read by the command ffmpeg, which is not installed here")
        self._file, self._longest_s = f"file:{path.absolute()}", longest_s
        stream = _first_stream(self._file)
        self.codec = str(stream.get("codec_name", "unknown"))
        self.sample_rate_hz, self.channels = int(stream.get("sample_rate", 0)), int(stream.get("channels", 0))
        check_form(self.sample_rate_hz, self.channels)
        self._claimed_s = float(stream.get("duration") or 0.0)
        check_length(self._claimed_s, longest_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """See `earmark.tasks.audio.sound.Sound`."""
        command = ["ffmpeg", "-nostdin", *_INPUT, self._file, "-map", "a:0", "-f", "f32le", "-c:a", "pcm_f32le", "-"]
        done, size = 0, 4 * self.channels
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdout is not None
            try:
                while raw := process.stdout.read(BLOCK_FRAMES * size):
                    block = np.frombuffer(raw[: len(raw) // size * size], "<f4").reshape(-1, self.channels)
                    done += len(block)
                    check_length(done / self.sample_rate_hz, self._longest_s)
                    check_finite(block)
                    yield block
                failed = process.wait()
                errors.seek(0)
                fault = errors.read(400).decode(errors="replace").strip()
            finally:
                process.kill()
                process.stdout.close()
                process.wait()
        if failed or fault:
            raise BadAudio("audio_corrupt", f"expected audio that decodes, found damage: {_first_words(fault)}")
        if done / self.sample_rate_hz < 0.98 * self._claimed_s - 0.1:
            decoded_s = done / self.sample_rate_hz
            raise BadAudio(
                "audio_truncated", f"expected {self._claimed_s:.1f} s as the header says, found {decoded_s:.1f} s"
            )


def _first_stream(file: str) -> dict[str, str]:
    entries = "stream=codec_name,sample_rate,channels,duration"
    command = ["ffprobe", *_INPUT, file, "-select_streams", "a:0", "-show_entries", entries, "-of", "json"]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise BadAudio("audio_corrupt", f"expected an M4A header, found none within {PATIENCE_S:g} s") from None
    streams = json.loads(ran.stdout or b"{}").get("streams") or []
    if not streams:
        fault = ran.stderr.decode(errors="replace")
        raise BadAudio("audio_unreadable", f"expected an M4A file with an audio stream: {_first_words(fault)}")
    stream: dict[str, str] = streams[0]
    return stream


def _first_words(fault: str) -> str:
    """The first line of ffmpeg's error, without the path and address before it."""
    line = fault.strip().splitlines()[0] if fault.strip() else "no audio stream"
    return "".join(char for char in line.rpartition("] ")[2].rpartition(": ")[2] if char.isprintable())[:120]
