"""Decode by FFmpeg's libraries (PyAV) formats refused, or read only in part, by libsndfile.

Chosen over torchcodec, which brings torch and needs a system FFmpeg, and over miniaudio, without Opus and AAC. Its
samples are the `ffmpeg` command's (`tests/audio/test_whole_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from earmark.tasks.audio.faults import BadAudio, check_finite, check_form, check_length

# Containers with their own audio, without references to other files or addresses.
CONTAINERS = "aac,ac3,aiff,amr,ape,asf,caf,eac3,flac,matroska,webm,mov,mp3,mpegts,ogg,tta,w64,wav,wv"
# Containers with the length in the header; FFmpeg estimates it for others.
_LENGTH_KNOWN = {"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "wv", "flac"}
BLOCK_VALUES = 1 << 17


class FfmpegSound:
    """An open audio file; see `earmark.tasks.audio.sound.Sound`.

    Raises:
        BadAudio: FFmpeg finds no audio to decode, or the file is too long.
    """

    def __init__(self, file: FileIO, longest_s: float) -> None:
        import av  # imported here, as it takes 40 ms and few files need it

        file.seek(0)
        self._errors, self._longest_s = av.error.FFmpegError, longest_s
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
            self._claimed_s = self._container.duration / av.time_base
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


def _is_mpeg_frame(content: bytes) -> bool:
    return content[:1] == b"\xff" and content[1:2] >= b"\xe0"
