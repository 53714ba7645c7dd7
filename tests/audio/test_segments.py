"""Where long recordings are cut: properties of the rule, and recordings whose silences and fades are known."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.audio.segments import (
    FRAME_S,
    SILENT_BELOW_DBFS,
    CutRule,
    Piece,
    levels_of,
    pieces_of,
    write_segments,
)

RATE = 8_000
MINUTE = CutRule(least_s=45, most_s=75, longest_silence_s=3)
RULES = st.builds(
    lambda shortest, more, silence: CutRule(shortest, shortest + more, silence),
    st.floats(0.5, 5), st.floats(0, 8), st.floats(0.1, 3),
)  # fmt: skip
LEVELS = st.lists(
    st.tuples(st.sampled_from([-120.0, -70.0, -50.0, -30.0, -20.0, -10.0]), st.integers(1, 60)), max_size=30
).map(lambda runs: np.array([level for level, count in runs for _ in range(count)], float))


def noise(seconds: float, level: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, round(seconds * RATE)).astype(np.float32)


def written(path: Path, *parts: np.ndarray) -> Path:
    """A recording of several parts."""
    soundfile.write(path, np.concatenate(parts), RATE, subtype="PCM_16")
    return path


def cut(path: Path, rule: CutRule = MINUTE) -> list[tuple[float, float, str | None]]:
    """The pieces of a file in seconds."""
    levels, frame_s = levels_of(path)
    assert frame_s == FRAME_S
    return [(piece.start * frame_s, piece.end * frame_s, piece.lost) for piece in pieces_of(levels, rule)]


@given(LEVELS, RULES)
def test_every_frame_is_in_one_piece_and_segments_have_the_lengths_wanted(levels: np.ndarray, rule: CutRule) -> None:
    pieces = pieces_of(levels, rule)
    assert [frame for piece in pieces for frame in range(piece.start, piece.end)] == list(range(len(levels)))
    shortest, longest = round(rule.least_s / FRAME_S), round(rule.most_s / FRAME_S)
    for piece in pieces:
        silent = "".join("s" if level < SILENT_BELOW_DBFS else "." for level in levels[piece.start : piece.end])
        black = "s" * max(1, round(rule.longest_silence_s / FRAME_S))
        if piece.lost == "segment_silent":
            assert set(silent) == {"s"}
            assert len(silent) >= len(black)
        else:
            assert black not in silent, "long silence is in nothing else"
        if piece.lost is None:
            assert shortest <= piece.end - piece.start <= longest
        if piece.lost == "segment_too_short":
            assert piece.end - piece.start < shortest
        if piece.lost == "segment_fades":
            near = levels[max(0, piece.start - 5) : piece.end + 5]  # to where the fade has come, or comes from
            assert near.max() - levels[piece.start : piece.end].min() >= 10


@given(st.integers(450, 3_000), st.integers(0, 2**32 - 1))
def test_sound_without_long_silence_is_lost_only_where_no_number_of_segments_fills_it(frames: int, seed: int) -> None:
    levels = np.random.default_rng(seed).uniform(-40, -39.9, frames)
    lost = sum(piece.end - piece.start for piece in pieces_of(levels, MINUTE) if piece.lost)
    if any(450 * number <= frames <= 750 * number for number in range(1, 8)):  # 45 s to 75 s each
        assert lost == 0
    else:
        assert 0 < lost < 450


def test_a_cut_lies_in_the_middle_of_the_longest_pause_that_the_lengths_allow(tmp_path: Path) -> None:
    def pause(seconds: float) -> np.ndarray:
        return np.zeros(round(seconds * RATE), np.float32)

    film = written(
        tmp_path / "film.wav",
        noise(20), pause(2), noise(28), pause(1), noise(4), pause(2), noise(3), pause(1), noise(59),
    )  # fmt: skip
    assert cut(film) == [(0, 56, None), (56, 120, None)]  # 20..22 s is too early; 55..57 s is longer than 50 and 60 s


def test_without_a_pause_the_quietest_half_second_is_cut(tmp_path: Path) -> None:
    film = written(tmp_path / "film.wav", noise(48), noise(1, 0.05), noise(9), noise(1, 0.01), noise(61))
    (first, second) = cut(film)
    assert (first[0], second[1], first[2], second[2]) == (0, 120, None, None)
    assert 58 <= first[1] <= 59


def test_fades_and_black_are_in_no_segment(tmp_path: Path) -> None:
    def faded(seconds: float, seed: int) -> np.ndarray:
        return noise(seconds, seed=seed) * np.linspace(0, 1, round(seconds * RATE), dtype=np.float32)

    black = np.zeros(5 * RATE, np.float32)
    film = written(
        tmp_path / "film.wav", black, faded(4, 1), noise(50), faded(6, 2)[::-1], black, noise(60, seed=3), black
    )
    (dark, rise, scene, fall, night, hard, end) = cut(film)
    assert [one[2] for one in (dark, rise, scene, fall, night, hard, end)] == [
        "segment_silent", "segment_fades", None, "segment_fades", "segment_silent", None, "segment_silent"
    ]  # fmt: skip
    assert (*dark[:2], *rise[:2]) == pytest.approx((0, 5, 5, 9), abs=1.5)
    assert fall[:2] == pytest.approx((59, 65), abs=1.5)
    assert hard[:2] == pytest.approx((70, 130)), "a hard cut is no fade"
    assert end[:2] == pytest.approx((130, 135))


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="the ffmpeg command is not installed")
def test_long_silence_is_what_ffmpeg_finds(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    parts = []
    for seed in range(12):
        parts += [noise(random.uniform(5, 20), seed=seed), np.zeros(int(random.uniform(1, 6) * RATE), np.float32)]
    film = written(tmp_path / "film.wav", *parts, noise(5))
    command = ["ffmpeg", "-i", str(film), "-af", "silencedetect=noise=-60dB:d=3", "-f", "null", "-"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    expected = list(
        zip(
            map(float, re.findall(r"silence_start: ([\d.]+)", said)),
            map(float, re.findall(r"silence_end: ([\d.]+)", said)),
            strict=True,
        )
    )
    dark = [piece[:2] for piece in cut(film) if piece[2] == "segment_silent"]
    assert len(expected) >= 3
    # A silence that is a frame longer than three seconds may be cut to less by the frames' grid.
    assert len(dark) <= len(expected) <= len(dark) + 1
    for start, end in dark:
        assert any(abs(start - a) <= FRAME_S and abs(end - b) <= FRAME_S for a, b in expected)


@pytest.mark.parametrize(("channels", "rate"), [(1, 8_000), (2, 11_025), (6, 8_000)])
def test_segments_are_the_samples_of_their_piece(tmp_path: Path, channels: int, rate: int) -> None:
    samples = np.random.default_rng(1).uniform(-0.4, 0.4, (4 * rate + 123, channels)).astype(np.float32)
    soundfile.write(tmp_path / "film.wav", samples, rate, subtype="FLOAT")
    levels, frame_s = levels_of(tmp_path / "film.wav")
    frame = round(frame_s * rate)
    pieces = [Piece(0, 7), Piece(7, 11, "segment_silent"), Piece(11, len(levels))]
    targets = [tmp_path / "a.flac", None, tmp_path / "b.flac"]
    write_segments(tmp_path / "film.wav", [piece.end for piece in pieces], targets, 60)
    expected = samples if channels <= 2 else samples.mean(axis=1, keepdims=True)
    for piece, target in zip(pieces, targets, strict=True):
        if target is None:
            continue
        read, read_rate = soundfile.read(target, always_2d=True)
        own = expected[piece.start * frame : piece.end * frame]
        assert (read_rate, read.shape) == (rate, own.shape)
        assert np.abs(read - own).max() < 1e-4  # 16 bits
