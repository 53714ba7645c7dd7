"""Measurements on signals whose truth is known, encoding, and the backend that is made of measurements."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import InputError
from earmark.schemas.questions import Audio, AudioForm, Json, Message
from earmark.schemas.registry import load
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.builtin import functions
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.request import Answer, Unanswered
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.audio.measure import Samples, filtered_loudness_lufs, loudness_lufs, measure
from tests.annotation.conftest import ask_all
from tests.audio.signals import RATE, music, worse


def test_levels_and_loudness_of_a_full_scale_sine() -> None:
    t = np.arange(48_000 * 3) / 48_000
    sine = np.sin(2 * np.pi * 997 * t)
    held = measure(sine, 48_000)
    assert held.peak_db == pytest.approx(0, abs=0.01)
    assert held.level_db == pytest.approx(-3.01, abs=0.01)
    assert held.loudness_lufs == pytest.approx(-3.01, abs=0.1)  # BS.1770: 997 Hz at 0 dBFS on one channel
    assert loudness_lufs(sine * 0.1, 48_000) == pytest.approx(-23.01, abs=0.1)
    assert held.centroid_hz == pytest.approx(997, abs=40)
    assert held.bandwidth_hz == pytest.approx(997, abs=50)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000, 96_000])
def test_loudness_by_filters_is_that_of_the_standard(rate: int) -> None:
    """EBU Tech 3341: a 997 Hz sine at -23 dBFS is at -26.01 LUFS on one channel, at any rate and level."""
    sine = np.sin(2 * np.pi * 997 * np.arange(5 * rate) / rate)
    for level_db in (0, -23, -40):
        measured = filtered_loudness_lufs(10 ** (level_db / 20) * sine, rate)
        assert measured == pytest.approx(level_db - 3.01, abs=0.1)
    assert filtered_loudness_lufs(np.zeros(100), rate) == -120
    noise = np.random.default_rng(17).uniform(-0.5, 0.5, 5 * rate) * np.linspace(0.01, 1, 5 * rate)
    apart = abs(filtered_loudness_lufs(noise, rate) - loudness_lufs(noise, rate))
    assert apart < (0.03 if rate >= 44_100 else 0.4)


def test_silence_and_short_clips_are_measured_and_nonsense_is_refused() -> None:
    held = measure(np.zeros((RATE, 2)), RATE)
    assert (held.level_db, held.loudness_lufs, held.tempo_bpm, held.bandwidth_hz) == (-120, -120, 0, 0)
    assert held.silent_share == 1
    assert measure(np.ones(3) * 0.1, RATE).duration_s == pytest.approx(3 / RATE)
    with pytest.raises(ValueError, match="found none"):
        measure(np.zeros(0), RATE)
    with pytest.raises(ValueError, match="NaN"):
        measure(np.array([0.0, np.nan]), RATE)


def test_each_measurement_sees_its_degradation() -> None:
    clean = measure(music(), RATE)
    assert measure(worse("clipping", music()), RATE).clipped_share > 0.01 > clean.clipped_share
    assert measure(worse("noise", music()), RATE).noise_floor_db > clean.noise_floor_db + 10
    assert measure(worse("lowpass", music()), RATE).bandwidth_hz < 1600 < clean.bandwidth_hz
    assert measure(worse("dropouts", music()), RATE).dropouts_per_min > 60
    assert clean.dropouts_per_min == 0
    assert measure(worse("quiet", music()), RATE).loudness_lufs < clean.loudness_lufs - 35


def test_silence_between_notes_is_no_noise_and_that_of_dropouts_says_nothing() -> None:
    notes = np.concatenate([np.r_[music(0.6), np.zeros(RATE // 2)] for _ in range(6)])  # a digital pause after each
    hissing = notes + 10 ** (-70 / 20) * np.random.default_rng(1).standard_normal(len(notes))
    assert measure(notes, RATE).noise_floor_db == -120
    assert measure(hissing, RATE).noise_floor_db == pytest.approx(-70, abs=2)
    noise = 0.1 * np.random.default_rng(2).standard_normal(6 * RATE)
    holed = noise.copy()
    for start in range(RATE // 2, len(holed), RATE // 2):
        holed[start : start + RATE // 5] = 0
    floor = measure(noise, RATE).noise_floor_db
    assert measure(holed, RATE).noise_floor_db == pytest.approx(floor, abs=1)


@pytest.mark.parametrize("bpm", [75.0, 100.0, 128.0, 150.0])
def test_tempo_up_to_its_octave(bpm: float) -> None:
    found = measure(music(10, bpm), RATE).tempo_bpm
    assert min(abs(found * factor / bpm - 1) for factor in (0.5, 1, 2)) < 0.03


def test_functions_lie_in_the_rooms_of_their_corpora() -> None:
    """Names with their versions are part of request keys; each rule is reachable by its name."""
    rooms = {name: entry.declared.partition(":")[0] for name, entry in functions().entries.items()}
    assert rooms == {
        "caption-refine-1": "earmark.tasks.captions.builtin",
        "music-caption-1": "earmark.tasks.captions.builtin",
        "music-clip-1": "earmark.tasks.pseudo_preferences.builtin",
        "music-pair-2": "earmark.tasks.pseudo_preferences.builtin",
        "music-prompt-1": "earmark.tasks.music_prompts.builtin",
        "rubric-judge-1": "earmark.tasks.instruction_rubrics.builtin",
        "rubric-writer-1": "earmark.tasks.instruction_rubrics.builtin",
        "score-judge-1": "earmark.tasks.score_questions.builtin",
        "score-labeller-1": "earmark.tasks.score_questions.builtin",
        "score-reader-1": "earmark.tasks.score_questions.builtin",
        "score-writer-1": "earmark.tasks.score_questions.builtin",
        "speech-critique-1": "earmark.tasks.mos_preferences.builtin",
        "speech-pair-1": "earmark.tasks.mos_preferences.builtin",
    }
    assert all(functions().find(name) is load(entry.declared) for name, entry in functions().entries.items())


def clip(path: Path, samples: Samples) -> Audio:
    """A written clip as a part."""
    soundfile.write(path, samples, RATE)
    return Audio(hashlib.sha256(path.read_bytes()).hexdigest(), str(path), duration_s=len(samples) / RATE)


def test_the_builtin_judge_through_the_engine(tmp_path: Path) -> None:
    good, bad = clip(tmp_path / "a.wav", music()), clip(tmp_path / "b.wav", worse("noise", music()))
    encoder = Encoder()
    config = AnnotatorConfig(annotator="builtin:music-pair-2")
    schema = Json.of({"type": "object", "required": ["musicality", "alignment", "reason"]})
    pairs = [(good, bad), (bad, good)]
    requests = [
        question(config, [Message.of("user", "A:", a, "B:", b)], schema, facts={"text": "calm"}) for a, b in pairs
    ]
    media = Media(measure=lambda part: measure(*encoder.span(part)).as_dict())
    report = ask_all(config, requests, ledger=tmp_path / "l.sqlite", media=media)
    forward, reverse = report.outcomes
    assert isinstance(forward, Answer)
    assert isinstance(reverse, Answer)
    assert (forward.value["musicality"], reverse.value["musicality"]) == ("A", "B")
    other = [question(config, requests[0].messages, schema, facts={"text": "loud"})]
    assert other[0].key != requests[0].key
    Path(bad.path).write_bytes(b"no longer audio")
    again = ask_all(
        config,
        requests + other,
        ledger=tmp_path / "l.sqlite",
        media=Media(measure=lambda part: measure(*Encoder().span(part)).as_dict()),
    )
    assert again.from_ledger == 2
    lost = again.outcomes[2]
    assert isinstance(lost, Unanswered)
    assert lost.reason == "bad_media"
    assert "index the audio again" in lost.detail


def test_encoding_gives_the_asked_form_and_the_same_bytes(tmp_path: Path) -> None:
    stereo = np.stack([music(4), 0.5 * music(4)], axis=1)
    part = clip(tmp_path / "a.wav", stereo)
    form = AudioForm(sample_rate_hz=16_000, channels=1, codec="flac", longest_s=1.5)
    cut = Audio(part.sha256, part.path, 0.5, 3.5, part.duration_s, form)
    one, two = Encoder()(cut), Encoder(cached_bytes=1)(cut)
    assert one == two
    samples, rate = soundfile.read(io.BytesIO(one))
    assert (rate, samples.shape) == (16_000, (24_000,))
    with pytest.raises(InputError, match="found 4 s in all"):
        Encoder()(Audio(part.sha256, part.path, 9.0, 10.0))
    with pytest.raises(InputError, match="expected SHA-256"):
        Encoder()(Audio("0" * 64, part.path))


def test_a_measure_function_is_needed(tmp_path: Path) -> None:
    config = AnnotatorConfig(annotator="builtin:music-pair-2")
    part = Audio("a" * 64, "a.wav")

    async def story() -> Any:
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            return await annotator.ask([question(config, [Message.of("user", part, part)])])

    with pytest.raises(Exception, match="needs measurements"):
        asyncio.run(story())
