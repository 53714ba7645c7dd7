"""Encode clips and spans for models, always as the same bytes for the same clip and form."""

import hashlib
import io
import struct
import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from earmark.schemas.errors import InputError
from earmark.schemas.machine import memory_bytes
from earmark.schemas.questions import Audio, AudioForm
from earmark.tasks.audio.decode import average, joined
from earmark.tasks.audio.decode import decode as decode_file
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.sound import open_file, open_sound

Samples = npt.NDArray[np.float32]
CACHED_BYTES = 128 << 20  # decoded audio kept for other spans and measurements of a clip
KEPT_BYTES = min(1 << 30, memory_bytes() // 16)
"""Bytes of encoded parts kept for several annotators of a clip, and again for several pairs of it, in both orders.
1 GiB holds nine hours at 16 kHz, mono, 16 bits; decoding a clip again takes longer than its request."""

Key = TypeVar("Key")
Value = TypeVar("Value")

LARGEST = np.float32(2**31 - 128)  # the largest single-precision number within 32 bits


class _Recent(Generic[Key, Value]):
    """Cache of recently used values, up to `most_bytes` in all, but at least one value."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._size = most_bytes, 0
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def keep(self, key: Key, value: Value, size: int) -> None:
        self.drop(key)
        self._entries[key] = value, size
        self._size += size
        while self._size > self._most and len(self) > 1:
            self.drop(next(iter(self._entries)))

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0

    def drop(self, key: Key) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._size -= size


class Encoder:
    """Encoder of parts, with caches of encoded parts and decoded clips. Safe for threads.

    Pickled to another process, it becomes a single encoder there too, with a cache of its own.

    Args:
        cached_bytes: most bytes of decoded audio to keep.
        kept_bytes: most encoded bytes of expected parts to keep, besides the current clip's; a clip dropped from the
            cache is decoded again.
    """

    def __init__(self, cached_bytes: int = CACHED_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
        self.name = uuid.uuid4().hex
        self.given = self.decoded_clips = 0  # numbers of calls, and of decoded clips
        self._most = cached_bytes, kept_bytes
        self._clips = _Recent[str, tuple[Samples, int]](cached_bytes)
        self._parts = _Recent[Audio, bytes](KEPT_BYTES)
        self._encoded = _Recent[str, dict[Audio, bytes]](kept_bytes)
        self._expected: dict[str, list[Audio]] = {}
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(64)]  # by clip: two threads do not decode it both

    def __reduce__(self) -> tuple[Any, ...]:
        return encoder_here, (self.name, *self._most)

    def __call__(self, part: Audio) -> bytes:
        """Return the part's bytes in its form. The first call for an expected part encodes all those of its clip.

        Raises:
            InputError: the file cannot be read, differs from the indexed file, or the span holds no sound.
        """
        with self._lock:
            self.given += 1
        sound = self.at_hand(part)
        if sound is not None:
            return sound
        with self._turns[hash(part.sha256) % len(self._turns)]:
            expected = self._expected.get(part.sha256, [])
            if part in expected:
                return self._of_expected(part, expected)
            sound = self.at_hand(part)
            if sound is None:
                samples, rate = self.decoded(part.path, part.sha256)
                sound = encode(span(samples, rate, part), rate, part.form)
                with self._lock:
                    self._parts.keep(part, sound, len(sound))
        return sound

    def at_hand(self, part: Audio) -> bytes | None:
        """Return the part's bytes if cached."""
        with self._lock:
            encoded = self._encoded.get(part.sha256) or {}
            return encoded.get(part) or self._parts.get(part)

    @contextmanager
    def expecting(self, parts: Iterable[Audio]) -> Iterator[None]:
        """Decode each clip of `parts` only once, and keep all its parts' bytes until the block ends. Two blocks must
        not expect the same clips at a time."""
        expected: dict[str, list[Audio]] = {}
        for part in dict.fromkeys(parts):
            expected.setdefault(part.sha256, []).append(part)
        with self._lock:
            self._expected |= expected
        try:
            yield
        finally:
            with self._lock:
                for sha256 in expected:
                    self._expected.pop(sha256, None)
                    self._encoded.drop(sha256)

    def forget(self) -> None:
        """Free the memory of all caches; later calls decode and encode again."""
        with self._lock:
            for kept in (self._clips, self._parts, self._encoded):
                kept.clear()

    def _of_expected(self, part: Audio, expected: list[Audio]) -> bytes:
        with self._lock:
            encoded = self._encoded.get(part.sha256)
        if encoded is None:
            encoded = encode_parts(part.path, part.sha256, expected)
            with self._lock:
                self.decoded_clips += 1
                self._encoded.keep(part.sha256, encoded, sum(map(len, encoded.values())))
        if part not in encoded:
            raise InputError(f"clip {Path(part.path).name}: expected sound from {part.start_s or 0:g} s on, found none")
        return encoded[part]

    def span(self, part: Audio) -> tuple[Samples, int]:
        """Return samples (frames, channels) and rate of the part's span, in the file's own rate and channels."""
        samples, rate = self.decoded(part.path, part.sha256)
        return levelled(span(samples, rate, part), part.form), rate

    def decoded(self, path: str, sha256: str) -> tuple[Samples, int]:
        """Return samples (frames, channels), full scale ±1, and rate of a whole clip."""
        with self._lock:
            clip = self._clips.get(sha256)
        if clip is None:
            clip = decode(path, sha256)
            with self._lock:
                self.decoded_clips += 1
                self._clips.keep(sha256, clip, clip[0].nbytes)
        return clip


_HERE: WeakValueDictionary[str, Encoder] = WeakValueDictionary()
_MEETING = threading.Lock()


def encoder_here(name: str, cached_bytes: int, kept_bytes: int) -> Encoder:
    """Return this process's encoder of a name."""
    with _MEETING:
        encoder = _HERE.get(name)
        if encoder is None:
            encoder = _HERE[name] = Encoder(cached_bytes, kept_bytes)
        return encoder


def encode_parts(path: str, sha256: str, parts: Iterable[Audio]) -> dict[Audio, bytes]:
    """Encode several parts of a clip, decoding it once, block by block.

    Even a film needs only the memory of its overlapping parts.

    Returns:
        Bytes by part, as from `Encoder`; parts without a frame are left out.
    """
    done: dict[Audio, bytes] = {}
    with _readable(path, sha256), open_sound(Path(path)) as sound:
        rate, at = sound.sample_rate_hz, 0
        bounds = {part: frames_of(part, rate) for part in parts}
        pieces_of: dict[Audio, list[Samples]] = {part: [] for part in bounds}

        def finish(part: Audio, pieces: list[Samples]) -> None:
            if pieces:
                done[part] = encode(joined(pieces), rate, part.form)

        for block in sound.blocks():
            for part in list(pieces_of):
                start, end = bounds[part]
                piece = block[max(0, start - at) : None if end is None else max(0, end - at)]
                if len(piece):
                    pieces_of[part].append(piece.copy())
                if end is not None and end <= at + len(block):
                    finish(part, pieces_of.pop(part))
            at += len(block)
            if not pieces_of:
                break
        for part, pieces in pieces_of.items():
            finish(part, pieces)
    return done


def decode(path: str, sha256: str) -> tuple[Samples, int]:
    """Return samples (frames, channels), full scale ±1, and rate of the file with this hash.

    Raises:
        InputError: the file cannot be read or decoded, or has another hash.
    """
    with _readable(path, sha256):
        return decode_file(Path(path))


@contextmanager
def _readable(path: str, sha256: str) -> Iterator[None]:
    """Check the file's hash; turn faults of its audio within the block into an `InputError` with its name."""
    name = Path(path).name  # without its folder, since rejects publish the message
    try:
        with open_file(Path(path)) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise InputError(
                f"clip {name}: expected SHA-256 {sha256[:12]}…, found {digest[:12]}…; index the audio again"
            )
        yield
    except BadAudio as bad:
        raise InputError(f"clip {name}: {bad.detail}") from None


def frames_of(part: Audio, rate: int) -> tuple[int, int | None]:
    """Return the first frame of the part's span and the one after its last (None: the file's end), within its limit."""
    start = round((part.start_s or 0.0) * rate)
    end = None if part.end_s is None else round(part.end_s * rate)
    if part.form.longest_s is not None:
        longest = start + round(part.form.longest_s * rate)
        end = longest if end is None else min(end, longest)
    return start, end


def span(samples: Samples, rate: int, part: Audio) -> Samples:
    """Return the frames of the part's span, within its form's limit.

    Raises:
        InputError: the span holds no frame.
    """
    start, end = frames_of(part, rate)
    held = samples[start:end]
    if not len(held):
        upto = len(samples) if end is None else end
        raise InputError(
            f"clip {Path(part.path).name}: expected sound from {start / rate:g} s to {upto / rate:g} s, "
            f"found {len(samples) / rate:g} s in all"
        )
    return held


def levelled(samples: Samples, form: AudioForm) -> Samples:
    """Return samples with the form's gain applied."""
    return samples if form.gain_db is None else samples * np.float32(10 ** (form.gain_db / 20))


def encode(samples: Samples, rate: int, form: AudioForm) -> bytes:
    """Encode samples (frames, channels) as 16-bit WAV or FLAC bytes in the form's rate, channels and level."""
    samples = levelled(samples, form)
    if form.channels == 1 and samples.shape[1] > 1:
        samples = average(samples)[:, None]
    elif form.channels is not None and samples.shape[1] != form.channels:
        samples = np.repeat(average(samples)[:, None], form.channels, axis=1)
    target = form.sample_rate_hz or rate
    if target != rate:
        samples = soxr.resample(samples, rate, target, quality="HQ")
    clipped = np.clip(samples, -1.0, 1.0)
    if form.codec == "wav":
        return _wav(clipped, target)
    out = io.BytesIO()
    soundfile.write(out, clipped, target, format=form.codec.upper(), subtype="PCM_16")
    return out.getvalue()


def _wav(samples: Samples, rate: int) -> bytes:
    """Return the bytes that soundfile would write, in less than half the time. soundfile calls back into Python for
    every few samples, with threads waiting for each other."""
    frames, channels = samples.shape
    size = 2 * frames * channels
    about = (16, 1, channels, rate, 2 * rate * channels, 2 * channels, 16)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", *about, b"data", size)
    wide = np.rint(np.minimum(samples * np.float32(2**31), LARGEST)).astype(np.int32)
    pcm: bytes = (wide >> 16).astype("<i2").tobytes()
    return head + pcm
