"""Find the end of a file's audio by its structure, to check a decoder's count."""

import mmap
import os
import struct
from collections.abc import Iterator
from io import FileIO
from typing import NamedTuple

HEAD_BYTES = 1 << 16
WAV_UNKNOWN = ((0x7FFF_F000, 0x8000_0024), (0xFFFF_FF00, 0xFFFF_FFFF))
"""Sizes in WAV headers written before the length was known (by espeak-ng, SoX, arecord, ffmpeg)."""

_BITRATES_KBPS = {  # by (MPEG-1 or not, layer): index 1 to 14
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES_HZ = (44100, 48000, 32000)


class MpegFrame(NamedTuple):
    """Header of an MPEG audio frame (ISO 11172-3, 13818-3)."""

    form: tuple[int, int, int]  # version, layer and rate: equal in all frames of a stream
    size: int  # bytes to the next frame
    samples: int  # samples a channel
    side: int  # bytes between the header and an Xing tag


class MpegLength(NamedTuple):
    """Length of an MPEG audio file in samples a channel."""

    samples: int  # by counting frames; -1 if a tag covers the whole file, without counting
    tagged: bool  # an Xing or VBRI tag has the number of frames
    frame: int  # samples a channel in each frame


def cut_by_estimate(file: FileIO, claimed: int) -> bool:
    """Return whether a decoder expecting `claimed` samples a channel misreads the end of an MP3 or Ogg file.

    It stops before the end, or takes an estimate for a truncation.

    Args:
        claimed: libsndfile's count: the tag's or, without a tag, file size over the first frame's bit rate.
    """
    file.seek(0)
    if file.read(4) == b"OggS":
        return has_later_link(file)
    length = mpeg_length(file)
    if length is None or length.samples < 0:
        return False
    if length.tagged:  # encoders count the tag's own frame or not; delay and padding are at most 4095 samples each
        return length.samples > claimed + 2 * length.frame + 8190
    return abs(length.samples - claimed) > 2 * length.frame


def mpeg_length(file: FileIO) -> MpegLength | None:
    """Count the frames of an MPEG audio file; return None for other files. A tag with a byte count up to the end of the
    file is believed without counting."""
    size = os.fstat(file.fileno()).st_size
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = _after_id3(data, 0)
        first = _frame(data, start)
        while first is None and start < min(size, HEAD_BYTES + _after_id3(data, 0)):
            start = data.find(b"\xff", start + 1)
            if start < 0:
                return None
            first = _frame(data, start)
            if first and not _follows(data, start + first.size, first):
                first = None
        if first is None:
            return None
        tagged, covered = _tag(data, start, first)
        if tagged and covered and start + covered >= _end_of_audio(data) - first.size:
            return MpegLength(-1, True, first.samples)
        samples = sum(frame.samples for frame in _frames(data, start, first.form))
        return MpegLength(samples - (first.samples if tagged else 0), tagged, first.samples)


def has_later_link(file: FileIO) -> bool:
    """Return whether an Ogg file is chained: another stream begins after the first (RFC 3533, section 4)."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at, begun = 0, False
        while at >= 0 and data[at : at + 4] == b"OggS" and at + 27 <= len(data):
            first = bool(data[at + 5] & 2)
            if first and begun:
                return True
            begun = begun or not first
            segments = data[at + 26]
            at += 27 + segments + sum(data[at + 27 : at + 27 + segments])
            if data[at : at + 4] != b"OggS":
                at = data.find(b"OggS", at)
    return False


def wav_data_unknown(file: FileIO) -> bool:
    """Return whether a WAV header has data of size 0 although bytes follow, as libsndfile writes to a pipe."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    head = file.read(HEAD_BYTES)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return False
    at, promised = 12, int.from_bytes(head[4:8], "little") + 8
    while at + 8 <= len(head):
        length = int.from_bytes(head[at + 4 : at + 8], "little")
        if head[at : at + 4] == b"data":
            inside = at + 8 < promised <= size and not is_unknown(promised - 8)  # a chunk after empty data
            return length == 0 and size > at + 8 and not inside
        at += 8 + length + length % 2
    return False


def is_unknown(length: int) -> bool:
    """Return whether a length in a WAV header means "not known"."""
    return any(low <= length <= high for low, high in WAV_UNKNOWN)


def _frames(data: mmap.mmap, at: int, form: tuple[int, int, int]) -> Iterator[MpegFrame]:
    """Yield frames of a form from a position on, skipping tags and damage between them."""
    while 0 <= at <= len(data) - 4:
        frame = _frame(data, at)
        if frame and frame.form == form and at + frame.size <= len(data):
            yield frame
            at += frame.size
            continue
        at = _after_id3(data, at)
        if (frame := _frame(data, at)) and frame.form == form:
            continue
        while (at := data.find(b"\xff", at + 1)) >= 0:
            frame = _frame(data, at)
            if frame and frame.form == form and _follows(data, at + frame.size, frame):
                break


def _frame(data: mmap.mmap, at: int) -> MpegFrame | None:
    if at + 4 > len(data):
        return None
    (head,) = struct.unpack_from(">I", data, at)
    version, layer = (head >> 19) & 3, 4 - ((head >> 17) & 3)
    index, rate_index = (head >> 12) & 15, (head >> 10) & 3
    if head >> 21 != 0x7FF or version == 1 or layer == 4 or index in (0, 15) or rate_index == 3:
        return None
    first = version == 3
    rate = _RATES_HZ[rate_index] >> (0 if first else 1 if version == 2 else 2)
    bits = 1000 * _BITRATES_KBPS[first, layer][index - 1]
    padding = (head >> 9) & 1
    samples = 384 if layer == 1 else 1152 if layer == 2 or first else 576
    size = 4 * (12 * bits // rate + padding) if layer == 1 else samples // 8 * bits // rate + padding
    mono = (head >> 6) & 3 == 3
    side = (17 if mono else 32) if first else (9 if mono else 17)
    return MpegFrame((version, layer, rate), size, samples, side)


def _follows(data: mmap.mmap, at: int, frame: MpegFrame) -> bool:
    """Return whether a frame of the same form, or the end of the file, is at a position."""
    after = _frame(data, at)
    return at >= len(data) or (after is not None and after.form == frame.form)


def _tag(data: mmap.mmap, start: int, first: MpegFrame) -> tuple[bool, int]:
    """Return whether the first frame is an Xing, Info or VBRI tag with a count of frames, and the bytes it covers."""
    at = start + 4 + first.side
    if data[at : at + 4] in (b"Xing", b"Info"):
        flags = int.from_bytes(data[at + 4 : at + 8], "big")
        place = at + 8 + 4 * (flags & 1)
        covered = int.from_bytes(data[place : place + 4], "big") if flags & 2 else 0
        return bool(flags & 1), covered
    at = start + 36
    if data[at : at + 4] == b"VBRI":
        return True, int.from_bytes(data[at + 10 : at + 14], "big")
    return False, 0


def _after_id3(data: mmap.mmap, at: int) -> int:
    """Return the position after ID3v2 tags."""
    while data[at : at + 3] == b"ID3" and at + 10 <= len(data):
        size = 0
        for byte in data[at + 6 : at + 10]:
            size = size << 7 | (byte & 0x7F)
        at += 10 + size + (10 if data[at + 5] & 0x10 else 0)
    return at


def _end_of_audio(data: mmap.mmap) -> int:
    """Return the position of ID3v1, APE and Lyrics3 tags at the end."""
    end = len(data)
    if data[end - 128 : end - 125] == b"TAG":
        end -= 128
    if data[end - 9 : end] == b"LYRICS200" and data[end - 15 : end - 9].isdigit():
        end -= 15 + int(data[end - 15 : end - 9])
    if data[end - 32 : end - 24] == b"APETAGEX":
        end -= int.from_bytes(data[end - 20 : end - 16], "little") + (32 if data[end - 9] & 0x80 else 0)
    return end
