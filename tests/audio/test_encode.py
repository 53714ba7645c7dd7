"""Parts of clips as models get them: the same bytes however they are asked for, and no more memory than they need."""

from __future__ import annotations

import hashlib
import io
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.questions import Audio, AudioForm
from earmark.tasks.audio.encode import Encoder, encode, encode_parts

RATE_HZ, SECONDS = 11_025, 20.0  # several blocks of the decoder
FORMS = (AudioForm(), AudioForm(8_000, None, "flac"), AudioForm(None, 1, "wav", 1.5))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Audio:
    """Stereo noise."""
    return make_clip(tmp_path_factory.mktemp("clips") / "noise.flac", SECONDS)


def make_clip(path: Path, seconds: float, seed: int = 0) -> Audio:
    """Stereo noise of a length, as a file."""
    noise = 0.3 * np.random.default_rng(seed).standard_normal((round(RATE_HZ * seconds), 2), dtype=np.float32)
    soundfile.write(path, noise, RATE_HZ)
    return Audio(hashlib.sha256(path.read_bytes()).hexdigest(), str(path), duration_s=seconds)


def part_of(clip: Audio, start_s: float | None, end_s: float | None, form: AudioForm) -> Audio:
    return Audio(clip.sha256, clip.path, start_s, end_s, clip.duration_s, form)


ends = st.one_of(st.none(), st.floats(0, SECONDS + 1))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(spans=st.lists(st.tuples(ends, ends, st.sampled_from(FORMS)), max_size=6))
def test_parts_of_one_reading_are_those_of_many(
    clip: Audio, spans: list[tuple[float | None, float | None, AudioForm]]
) -> None:
    parts = [part_of(clip, *span) for span in spans]
    found = encode_parts(clip.path, clip.sha256, parts)
    alone = Encoder()
    for part in parts:
        if part in found:
            assert found[part] == alone(part)
        else:
            with pytest.raises(InputError, match="expected sound from"):
                alone(part)
    assert len(found) <= len(set(parts))


@settings(max_examples=40, deadline=None)
@given(
    frames=st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=40),
    channels=st.integers(1, 3),
    rate=st.sampled_from([8_000, 16_000, 44_100]),
)
def test_wav_is_what_soundfile_writes(frames: list[float], channels: int, rate: int) -> None:
    samples = np.array([[frame / (1 + at) for at in range(channels)] for frame in frames], np.float32)
    samples = np.vstack([samples, samples * np.float32(1e-9)])
    written = io.BytesIO()
    soundfile.write(written, np.clip(samples, -1.0, 1.0), rate, format="WAV", subtype="PCM_16")
    assert encode(samples, rate, AudioForm(None, None)) == written.getvalue()


def test_many_threads_get_what_they_asked_for_whatever_is_kept(tmp_path: Path) -> None:
    clips = [make_clip(tmp_path / f"{seed}.wav", 1.0, seed) for seed in range(4)]
    parts = [part_of(clip, start, start + 0.25, FORMS[0]) for clip in clips for start in (0.0, 0.5, 0.75)]
    expected = [Encoder()(part) for part in parts]
    for kept_bytes in (1, 1 << 20):
        shared = Encoder(kept_bytes=kept_bytes)
        with shared.expecting(parts), ThreadPoolExecutor(8) as pool:
            assert list(pool.map(shared, parts * 3)) == expected * 3
        assert not shared._encoded
        assert shared(parts[0]) == expected[0]  # nobody expects it any more


def test_a_clip_of_many_pairs_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clips = [make_clip(tmp_path / f"{seed}.wav", 0.5, seed) for seed in range(12)]
    pairs = [part_of(clip, None, None, FORMS[0]) for one in clips for other in clips for clip in (one, other)]
    encoder = Encoder()
    with ThreadPoolExecutor(8) as pool:
        sounds = dict(zip(pairs, pool.map(encoder, pairs), strict=True))
    assert (encoder.given, encoder.decoded_clips) == (288, 12)
    monkeypatch.setattr("earmark.tasks.audio.encode.KEPT_BYTES", 3 * len(sounds[pairs[0]]))
    small = Encoder(cached_bytes=1)
    assert [small(part) for part in pairs] == [sounds[part] for part in pairs], "whatever has left the cache"
    kept = sum(len(small.at_hand(clip) or b"") for clip in {*pairs})
    assert kept == 3 * len(sounds[pairs[0]])


def test_forgotten_clips_hold_no_memory_and_are_made_again(clip: Audio) -> None:
    encoder = Encoder()
    first = encoder(clip)
    with encoder.expecting([clip]):
        assert encoder(clip) == first
        encoder.forget()
        assert [len(kept) for kept in (encoder._clips, encoder._parts, encoder._encoded)] == [0, 0, 0]
        assert encoder(clip) == first
    assert encoder.decoded_clips == 2


def test_a_part_beyond_the_end_fails_alone(clip: Audio) -> None:
    shared = Encoder()
    good, bad = part_of(clip, 0.0, 1.0, FORMS[0]), part_of(clip, SECONDS + 5, None, FORMS[0])
    with shared.expecting([good, bad]):
        assert shared(good) == Encoder()(good)
        with pytest.raises(InputError, match=r"clip noise\.flac: expected sound from 25 s on, found none"):
            shared(bad)


def test_a_clip_that_changed_is_told_by_its_name_alone(clip: Audio) -> None:
    with pytest.raises(InputError, match=r"^clip noise\.flac: expected SHA-256 000000000000…, found ") as raised:
        encode_parts(clip.path, "0" * 64, [clip])
    assert str(Path(clip.path).parent) not in str(raised.value)


@pytest.mark.slow
def test_a_long_clip_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    minutes = 15
    long = make_clip(tmp_path / "long.wav", 60.0 * minutes)
    decoded = RATE_HZ * 60 * minutes * 2 * 4
    parts = [part_of(long, 60.0 * n, 60.0 * (n + 1), AudioForm(8_000)) for n in range(minutes)]
    tracemalloc.start()
    try:
        found = encode_parts(long.path, long.sha256, parts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    kept = sum(map(len, found.values()))
    assert len(found) == minutes
    assert peak < kept + decoded / 3


def test_what_is_encoded_waits_for_no_other_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is at hand comes while another clip, which has the same turn, is decoded."""
    encoder, one = Encoder(), Audio("a" * 64, "a.wav")
    begun, go_on = threading.Event(), threading.Event()

    def encoded(path: str, sha256: str, parts: list[Audio]) -> dict[Audio, bytes]:
        if path != one.path:
            begun.set()
            assert go_on.wait(60)
        return {part: path.encode() for part in parts}

    monkeypatch.setattr("earmark.tasks.audio.encode.encode_parts", encoded)
    turn = hash(one.sha256) % len(encoder._turns)
    other = next(f"{n:064x}" for n in range(100_000) if hash(f"{n:064x}") % len(encoder._turns) == turn)
    slow = Audio(other, "slow.wav")
    with encoder.expecting([one, slow]), ThreadPoolExecutor(1) as threads:
        assert encoder(one) == b"a.wav"
        waiting = threads.submit(encoder, slow)
        assert begun.wait(60)
        assert encoder.at_hand(one) == b"a.wav"
        assert encoder(one) == b"a.wav"
        go_on.set()
        assert waiting.result() == b"slow.wav"
