"""The judge without a model: it prefers the clean clip, and the clip that fits the words."""

from __future__ import annotations

import numpy as np
import pytest

from earmark.tasks.audio.measure import measure
from earmark.tasks.audio.text_match import alignment
from earmark.tasks.pseudo_preferences.builtin import music_pair, quality
from tests.audio.signals import RATE, music, worse


@pytest.mark.parametrize("kind", ["clipping", "noise", "lowpass", "dropouts", "quiet"])
def test_the_judge_prefers_the_clean_clip_in_both_orders(kind: str) -> None:
    clean, bad = measure(music(), RATE).as_dict(), measure(worse(kind, music()), RATE).as_dict()
    assert music_pair({"text": "piano"}, [clean, bad])["musicality"] == "A"
    assert music_pair({"text": "piano"}, [bad, clean])["musicality"] == "B"
    assert music_pair({"text": "piano"}, [clean, clean])["musicality"] == "tie"
    assert quality(clean)[0] > quality(bad)[0]


def test_alignment_follows_tag_words() -> None:
    fast, slow = measure(music(10, 140), RATE).as_dict(), measure(music(10, 70), RATE).as_dict()
    answer = music_pair({"text": "a fast song, 140 bpm", "dimensions": ["alignment"]}, [slow, fast])
    assert "musicality" not in answer
    assert answer["alignment"] == "B"
    assert "bpm" in answer["reason"]
    assert alignment("no measurable word", fast).points == 0


def test_silence_between_notes_costs_no_quality() -> None:
    notes = np.concatenate([np.r_[music(0.6), np.zeros(RATE // 2)] for _ in range(6)])
    hissing = notes + 10 ** (-70 / 20) * np.random.default_rng(1).standard_normal(len(notes))
    assert quality(measure(notes, RATE).as_dict())[0] >= quality(measure(hissing, RATE).as_dict())[0]
