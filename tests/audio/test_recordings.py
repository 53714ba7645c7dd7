"""Acoustic fingerprints: other encodings and excerpts of a recording are found, other recordings are not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import ConfigError
from earmark.schemas.instruction_rubrics import has_chromaprint
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.recordings import Print, alike, fingerprint, recordings

RATE = 22_050

needs_chromaprint = pytest.mark.skipif(not has_chromaprint(), reason="Chromaprint is not installed")


def melody(seed: int, seconds: int = 20) -> np.ndarray:
    """Plucked notes at random, with a little noise."""
    random, notes, length = np.random.default_rng(seed), [], 0
    while length < seconds * RATE:
        times = np.arange(int(RATE * random.uniform(0.15, 0.5))) / RATE
        tone = 220 * 2 ** (random.integers(0, 24) / 12)
        notes.append(sum(np.sin(2 * np.pi * tone * k * times) / k for k in (1, 2, 3)) * np.exp(-3 * times) * 0.3)
        length += len(times)
    return np.concatenate(notes)[: seconds * RATE] + random.normal(0, 0.003, seconds * RATE)


def written(folder: Path, **clips: np.ndarray) -> dict[str, Print]:
    """Clips as files, `name_ending`, and their fingerprints."""
    found = {}
    for name, samples in clips.items():
        path = folder / name.replace("_", ".")
        soundfile.write(path, samples, RATE)
        found[name] = fingerprint(path)
    return found


@pytest.mark.system
@needs_chromaprint
def test_copies_encodings_and_excerpts_are_one_recording(tmp_path: Path) -> None:
    song, other = melody(1), melody(2)
    excerpt = song[6 * RATE + 777 : 14 * RATE]
    found = written(
        tmp_path, a_wav=song, b_ogg=song, c_mp3=song * 0.4, d_flac=excerpt, e_wav=other, f_ogg=other, g_wav=melody(3)
    )
    assert recordings(list(found.values()), 0.85) == [0, 0, 0, 0, 4, 4, 6]
    assert all(pair.likeness > 0.9 for pair in alike(list(found.values()), 0.5))


@pytest.mark.system
@needs_chromaprint
def test_silence_tones_and_short_clips_are_like_nothing(tmp_path: Path) -> None:
    times = np.arange(9 * RATE) / RATE
    found = written(
        tmp_path, a_wav=np.zeros(9 * RATE), b_wav=np.sin(2 * np.pi * 440 * times), c_wav=melody(1)[: 3 * RATE]
    )
    assert [len(held) for held in found.values()] == [0, 0, 0]
    assert recordings([*found.values(), *found.values()], 0.85) == [0, 1, 2, 3, 4, 5]


@pytest.mark.system
@needs_chromaprint
def test_silence_around_clips_makes_them_no_recording(tmp_path: Path) -> None:
    """Chromaprint writes one number for digital silence; laid on each other, paddings are equal."""
    padded = []
    for seed in range(8):
        clip, begin = np.zeros(10 * RATE), seed % 4 * RATE
        clip[begin : begin + (2 + seed // 2) * RATE] = melody(seed, 2 + seed // 2)
        padded.append(clip)
    clips = {f"{'abcdefgh'[at]}_wav": clip for at, clip in enumerate(padded)}
    copy = np.roll(padded[7], -RATE) * 0.5
    found = list(written(tmp_path, **clips, i_ogg=copy).values())
    assert all(map(len, found))
    assert recordings(found, 0.85) == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert [pair.likeness > 0.95 for pair in alike(found, 0.85)] == [True]


def test_equal_silence_is_not_counted() -> None:
    random = np.random.default_rng(4)
    first, second = random.integers(0, 2**32, (2, 64), dtype=np.uint32)
    silence = np.full(24, 627_964_279, np.uint32)
    assert alike([np.r_[first, silence], np.r_[silence, second]], 0.55) == []
    copies = [np.r_[silence, first, silence], np.r_[first[:40], silence, silence]]
    assert [pair.likeness > 0.99 for pair in alike([np.r_[first, silence], copies[0]], 0.85)] == [True]
    assert [pair.likeness < 0.85 for pair in alike(copies, 0.5)] == [True]  # silence against sound counts


@pytest.mark.system
@needs_chromaprint
def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"RIFF nothing")
    with pytest.raises(BadAudio):
        fingerprint(tmp_path / "x.wav")


def test_without_chromaprint_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "a.wav", melody(1, 5), RATE)
    monkeypatch.setitem(sys.modules, "chromaprint", None)
    with pytest.raises(ConfigError, match="libchromaprint1"):
        fingerprint(tmp_path / "a.wav")


@given(st.lists(st.integers(0, 4), max_size=25), st.integers(0, 2**32 - 1))
def test_copies_hang_together_and_nothing_else(songs: list[int], seed: int) -> None:
    """Random fingerprints with some bits wrong and the start cut off; songs are told apart whatever the order."""
    random = np.random.default_rng(seed)
    pool = random.integers(0, 2**32, (5, 60), dtype=np.uint32)
    prints = []
    for song in songs:
        held = pool[song][random.integers(0, 10) :].copy()
        held[random.integers(0, len(held), 5)] ^= np.uint32(1) << np.uint32(random.integers(0, 32))
        prints.append(held)
    assert recordings(prints, 0.85) == [songs.index(song) for song in songs]


@pytest.mark.slow
def test_many_copies_hang_together() -> None:
    held = np.random.default_rng(3).integers(0, 2**32, 40, dtype=np.uint32)
    assert set(recordings([held] * 500, 0.85)) == {0}


def test_nothing_is_like_nothing() -> None:
    empty = np.zeros(0, np.uint32)
    assert alike([], 0.85) == []
    assert recordings([empty, empty], 0.85) == [0, 1]
