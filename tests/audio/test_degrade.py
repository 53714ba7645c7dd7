"""What a degraded clip is worse by, measured on its spectrum and samples."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.tasks.audio.degrade import degrade

RATE = 16_000
T = np.arange(2 * RATE) / RATE
LOW, HIGH = 0.3 * np.sin(2 * np.pi * 300 * T), 0.3 * np.sin(2 * np.pi * 5000 * T)
CLIP = np.stack([LOW + HIGH, LOW - HIGH], axis=1).astype(np.float32)


def level_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples.astype(float) ** 2)))


@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_noise_lies_so_far_below_the_clip(snr_db: float) -> None:
    worse = degrade(CLIP / 4, RATE, "noise", snr_db, seed=3)
    assert level_db(CLIP / 4) - level_db(worse - CLIP / 4) == pytest.approx(snr_db, abs=0.2)
    assert np.array_equal(worse, degrade(CLIP / 4, RATE, "noise", snr_db, seed=3))
    assert not np.array_equal(worse, degrade(CLIP / 4, RATE, "noise", snr_db, seed=4))


def test_clipping_cuts_what_the_gain_lifts_above_full_scale() -> None:
    sine = (0.5 * np.sin(2 * np.pi * 440 * T)[:, None]).astype(np.float32)
    worse = degrade(sine, RATE, "clipping", 20.0)
    flat = np.mean(np.abs(worse) > 0.4999)  # |sin| > 1 / 10 in 1 - 2 asin(0.1) / pi of the time
    assert flat == pytest.approx(1 - 2 * np.arcsin(0.1) / np.pi, abs=0.01)
    assert np.abs(worse).max() == pytest.approx(0.5)


def test_a_lowpass_leaves_the_lows_and_takes_the_highs() -> None:
    worse = degrade(CLIP, RATE, "lowpass", 1000.0)[RATE // 2 : -RATE // 2]
    spectrum = np.abs(np.fft.rfft(worse[:, 0])) / len(worse) * 2
    assert spectrum[round(300 * len(worse) / RATE)] == pytest.approx(0.3, rel=0.01)
    assert spectrum[round(5000 * len(worse) / RATE)] < 1e-4


def test_silence_takes_the_beginning() -> None:
    worse = degrade(CLIP, RATE, "silence", 0.25)
    assert not worse[: RATE // 2].any()
    assert np.array_equal(worse[RATE // 2 :], CLIP[RATE // 2 :])


def test_short_and_silent_clips_are_no_fault() -> None:
    for fault, amount in (("noise", 0.0), ("clipping", 24.0), ("lowpass", 1000.0), ("silence", 1.0)):
        for clip in (CLIP[:1], CLIP[:5], 0 * CLIP):
            assert np.isfinite(degrade(clip, RATE, fault, amount)).all()  # type: ignore[arg-type]
