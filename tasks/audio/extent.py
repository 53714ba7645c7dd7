"""Find the end of a file's audio by its structure, to check a decoder's count."""

import math
import mmap
import os
import re
import struct
import zlib
from collections.abc import Iterator
from io import FileIO
from typing import Literal, NamedTuple

HEAD_BYTES = 1 << 16
MOST_BOXES = 100_000  # of an MP4 file that are looked at; a stream of hours in fragments has some thousands
FILLED = 4096  # bytes of a block that may follow a file's audio
UNKNOWN = ((0x7EFF_FF00, 0x7F00_1000), (0x7FFF_F000, 0x8000_0024), (0xFFFF_FF00, 0xFFFF_FFFF))
"""Sizes in headers written before the length was known: of AIFF by SoX (the first); of WAV by espeak-ng, SoX, arecord
and ffmpeg."""

_ORDERS: dict[bytes, Literal["little", "big"]] = {b"RIFF": "little", b"RIFX": "big", b"FORM": "big"}
_NIST_COUNTS = (b"sample_count", b"channel_count", b"sample_n_bytes")

_BITRATES_KBPS = {  # by (MPEG-1 or not, layer): index 1 to 14
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES_HZ = (44100, 48000, 32000)
_CLOSED = re.compile(rb"</(html|body|error)>\s*\Z", re.IGNORECASE)
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


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
        samples, behind = 0, start
        for frame in _frames(data, start, first.form):
            samples, behind = samples + frame.samples, behind + frame.size
        behind = _after_id3(data, behind)  # there decoders stop, where another rate begins
        if (other := _frame(data, behind)) and other.form != first.form and _follows(data, behind + other.size, other):
            samples += sum(frame.samples for frame in _frames(data, behind, other.form))
        return MpegLength(samples - (first.samples if tagged else 0), tagged, first.samples)


def ends_in_page(file: FileIO) -> bool:
    """Return whether an MPEG file whose length no tag tells ends in a web page or an error's XML: a broken download."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not _CLOSED.search(data[-256:]):
            return False
    length = mpeg_length(file)
    return length is not None and not length.tagged


def has_later_link(file: FileIO) -> bool:
    """Return whether an Ogg file is chained: another stream begins after the first (RFC 3533, section 4)."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begun = False
        for at, _ in _ogg_pages(data):
            first = bool(data[at + 5] & 2)
            if first and begun:
                return True
            begun = begun or not first
    return False


def damaged_page(file: FileIO) -> bool:
    """Return whether an Ogg file lacks a page, or one fails its checksum (RFC 3533, section 6): decoders skip it."""
    if _head(file)[1][:4] != b"OggS":
        return False
    following: dict[bytes, int] = {}  # number of the next page, by stream
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for at, end in _ogg_pages(data):
            stream, number = data[at + 14 : at + 18], int.from_bytes(data[at + 18 : at + 22], "little")
            first = data[at + 5] & 2
            if not first and following.get(stream, number) != number:
                return True
            if _checksum(data[at : at + 22] + bytes(4) + data[at + 26 : end]) != data[at + 22 : at + 26]:
                return True
            following[stream] = number + 1
    return False


def is_tagged_behind(file: FileIO) -> bool:
    """Return whether a tag of MP3 files (ID3v1, APE, Lyrics3) stands at a file's end."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _end_of_audio(data) < len(data)


def _ogg_pages(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield begin and end of an Ogg file's pages by their headers, skipping other bytes between them."""
    at = 0
    while at >= 0 and data[at : at + 4] == b"OggS" and at + 27 <= len(data):
        begin, segments = at, data[at + 26]
        at += 27 + segments + sum(data[at + 27 : at + 27 + segments])
        yield begin, at
        if data[at : at + 4] != b"OggS":
            at = data.find(b"OggS", at)


def _checksum(page: bytes) -> bytes:
    """Return an Ogg page's CRC-32: zlib's polynomial, but bits from the highest on and no inversion."""
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return mirrored.to_bytes(4, "big").translate(_MIRRORED)


def wav_data_unknown(file: FileIO) -> bool:
    """Return whether a WAV header has data of size 0 although bytes follow, as libsndfile writes to a pipe."""
    size, head = _head(file)
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE" or (data := _data(head, "little")) is None:
        return False
    promised = int.from_bytes(head[4:8], "little") + 8
    inside = data.begin < promised <= size and not _is_unknown(promised - 8)  # a chunk after empty data
    return data.length == 0 and size > data.begin and not inside


def length_lost(file: FileIO) -> bool:
    """Return whether a WAV or AIFF file goes on after the length that its 32-bit header can state."""
    size, head = _head(file)
    if (order := _ORDERS.get(head[:4])) is None:
        return False
    data, whole = _data(head, order) or _Data(0, 0), int.from_bytes(head[4:8], order)
    stops = max(data.begin + data.length, 8 + whole) < size
    return stops and (size > 1 << 32 or _is_unknown(data.length))


def cut_short(file: FileIO) -> bool:
    """Return whether a file ends before its header says, or an Ogg stream without its last page: decoders ignore it."""
    size, head = _head(file)
    if head[:4] == b"OggS":
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            ends = [end if data[at + 5] & 4 else size + 1 for at, end in _ogg_pages(data)]  # the flag of a last page
        return bool(ends) and ends[-1] > size
    return size + 1 < _promised(head) < 1 << 63  # -1 in 64 bits: not known


def begins_again(file: FileIO) -> bool:
    """Return whether another file of the same form stands behind a file's end: decoders read the first alone."""
    size, head = _head(file)
    if head[4:8] == b"ftyp":
        return _types_of_boxes(file, size).count(b"ftyp") > 1
    order = _ORDERS.get(head[:4])
    at = 8 + int.from_bytes(head[4:8], order) if order else _promised(head)
    if not 0 < at < size:
        return False
    file.seek(at)
    after = file.read(28)
    place = after.find(head[:4])  # not at once where chunks are padded
    return place >= 0 and (not order or after[place + 8 : place + 12] == head[8:12])


def goes_on(file: FileIO) -> bool:
    """Return whether a WAV or AIFF header counts bytes behind its chunk of samples that are no chunk: its two lengths
    disagree. Bytes of 0, and up to `FILLED`, may fill a block."""
    size, head = _head(file)
    if (order := _ORDERS.get(head[:4])) is None or not (data := _data(head, order)) or not data.length:
        return False
    end, whole = data.begin + data.length, 8 + int.from_bytes(head[4:8], order)
    if not end + FILLED < whole <= size + 1:
        return False
    file.seek(end)
    after = file.read(FILLED)
    named = any(after[at : at + 4].isascii() and after[at : at + 4].decode().isprintable() for at in (0, 1))
    return any(after) and not named


def _types_of_boxes(file: FileIO, size: int) -> list[bytes]:
    """Return the types of the outermost boxes of an MP4 file (ISO 14496-12, section 4.2)."""
    at, types = 0, list[bytes]()
    while at + 8 <= size and len(types) < MOST_BOXES:
        file.seek(at)
        box = file.read(16)
        length = int.from_bytes(box[8:16] if box[:4] == b"\0\0\0\1" else box[:4], "big")
        types.append(box[4:8])
        if length < 8:  # 0: to the end of the file
            break
        at += length
    return types


def _promised(head: bytes) -> int:
    """Return where a header says that the audio ends; 0 if it does not say.

    Of two lengths the smaller counts, as writers err in one: some count the 8 bytes of the outer header, others do not.
    """
    kind = head[:4]
    if order := _ORDERS.get(kind):
        whole, data = int.from_bytes(head[4:8], order), _data(head, order)
        ends = [8 + whole] if whole and not _is_unknown(whole) else []
        ends += [data.begin + data.length] if data and not _is_unknown(data.length) else []
        return min(ends, default=0)
    if kind in (b"RF64", b"BW64"):  # EBU 3306, ITU-R BS.2088
        return 8 + int.from_bytes(head[20:28], "little") if head[12:16] == b"ds64" else 0
    if kind == b"riff":  # Wave64: padded to 8 bytes
        return int.from_bytes(head[16:24], "little") - 7
    if kind in (b".snd", b"dns."):  # Sun AU
        order = "big" if kind == b".snd" else "little"
        begin, length = (int.from_bytes(head[at : at + 4], order) for at in (4, 8))
        return 0 if _is_unknown(length) else begin + length
    if kind == b"caff":
        data = _data(head, "big", at=8, width=8)
        return data.begin + data.length if data else 0
    if kind == b"NIST":
        counts = (re.search(rb"\n%s -i (\d+)" % name, head) for name in _NIST_COUNTS)
        return 1024 + math.prod(int(found[1]) if found else 1 for found in counts)
    return 0


class _Data(NamedTuple):
    """The chunk of a file's samples."""

    begin: int  # place of its first sample
    length: int  # bytes, by the header


def _data(head: bytes, order: Literal["little", "big"], at: int = 12, width: int = 4) -> _Data | None:
    """Return the chunk of samples in a WAV, AIFF or CAF header: chunks from `at` on, lengths of `width` bytes."""
    while (begin := at + 4 + width) <= len(head):
        length = int.from_bytes(head[at + 4 : begin], order)
        if head[at : at + 4] in (b"data", b"SSND", b"BODY"):
            return _Data(begin, length)
        at = begin + length + (length % 2 if width == 4 else 0)
    return None


def _head(file: FileIO) -> tuple[int, bytes]:
    """Return a file's size and first bytes."""
    file.seek(0)
    return os.fstat(file.fileno()).st_size, file.read(HEAD_BYTES)


def _is_unknown(length: int) -> bool:
    """Return whether a length of 32 bits in a header means "not known"."""
    return any(low <= length <= high for low, high in UNKNOWN)


def _frames(data: mmap.mmap, at: int, form: tuple[int, int, int]) -> Iterator[MpegFrame]:
    """Yield frames of a form from a position on, skipping tags and damage between them."""
    while 0 <= at <= len(data) - 4:
        frame = _frame(data, at)
        if frame and frame.form == form and at + frame.size <= len(data):
            yield frame
            at += frame.size
            continue
        at = _after_id3(data, at)
        if (frame := _frame(data, at)) and frame.form == form and at + frame.size <= len(data):
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
