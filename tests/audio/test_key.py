"""Keys of made music."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.tasks.audio.measure import key_of

RATE_HZ = 16_000
STEPS = {"major": (0, 4, 7, 5, 9, 0, 7, 11, 2, 0), "minor": (0, 3, 7, 5, 8, 0, 7, 10, 2, 0)}


@pytest.mark.parametrize("tonic", range(12))
@pytest.mark.parametrize("mode", ["major", "minor"])
def test_a_scale_has_its_key(tonic: int, mode: str) -> None:
    seconds = np.arange(RATE_HZ // 2) / RATE_HZ
    notes = [
        np.sin(2 * np.pi * 261.626 * 2 ** ((tonic + step) / 12) * seconds) * np.exp(-2 * seconds)
        for step in STEPS[mode]
    ]
    assert key_of(np.concatenate(notes), RATE_HZ) == tonic + 12 * (mode == "minor")


def test_silence_has_no_key() -> None:
    assert key_of(np.zeros(RATE_HZ), RATE_HZ) == -1


def test_a_clip_of_a_few_samples_is_no_fault() -> None:
    assert key_of(np.zeros((3, 2)), RATE_HZ) == -1
