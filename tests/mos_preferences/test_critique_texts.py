"""Texts of critiques: which are valid, and what the builtin critic writes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.tasks.mos_preferences.builtin import describe, points, scores, speech_critique
from earmark.tasks.mos_preferences.critiquing import description_fault, pair_fault
from tests.servers.openai_server import ASPECTS, comparison

CLEAN = {
    "level_db": -20.0, "noise_floor_db": -70.0, "clipped_share": 0.0, "bandwidth_hz": 7000.0, "dropouts_per_min": 0.0,
    "silent_share": 0.1, "flatness": 0.0001,
}  # fmt: skip


ROW = {"better": "first", "first_mos": 4.0, "second_mos": 2.0}


@given(st.integers(1, 10), st.integers(1, 10), st.sampled_from(["first", "second"]))
def test_a_comparison_is_valid_only_if_the_better_clip_scores_higher(one: int, two: int, better: str) -> None:
    fault = pair_fault(comparison(one, two), {**ROW, "better": better})
    agrees = one > two if better == "first" else two > one
    assert (fault is None) == agrees
    if fault:
        assert fault.reason == "scores_disagree"
        assert f"found {one} and {two}" in fault.detail


@given(st.text())
def test_whatever_a_model_writes_is_judged_and_a_fault_is_one_line(text: str) -> None:
    fault = pair_fault(text, ROW)
    assert fault is not None
    assert fault.reason in ("bad_answer", "scores_disagree")
    assert "\n" not in fault.detail


@pytest.mark.parametrize("aspect", ASPECTS)
def test_every_part_must_be_there(aspect: str) -> None:
    text = comparison(9, 2).replace(aspect.capitalize(), "Other")
    fault = pair_fault(text, ROW)
    assert fault
    assert fault.reason == "bad_answer"
    assert aspect in fault.detail


@pytest.mark.parametrize("part", ["", " N/A", " …", " None.", " -", " TODO"])
def test_a_heading_with_nothing_below_is_no_part(part: str) -> None:
    text = "\n".join([*(f"{aspect.capitalize()}:{part}" for aspect in ASPECTS), "Final Scores: [[8, 3]]"])
    fault = pair_fault(text, ROW)
    found = f", at least 2 words, found '{part.strip().lower()}'" if part else ""
    assert fault == ("bad_answer", f"expected a part on noise{found}; scores 8 and 3")


def test_a_comparison_by_a_critic_that_hears_nothing_is_refused() -> None:
    told = "I cannot listen to audio files."
    text = "\n".join([*(f"{aspect.capitalize()}: {told}" for aspect in ASPECTS), "Final Scores: [[8, 3]]"])
    fault = pair_fault(text, ROW)
    assert fault is not None
    assert fault.reason == "refused"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot listen to audio files.", "refused"),
        ("I'm sorry, but as an AI language model I cannot hear the clip.", "refused"),
        ("The audio was not provided.", "refused"),
        ("Unable to assess.", "refused"),
        ("N/A", "empty"),
        ("...", "empty"),
        ("-", "empty"),
        ("null", "empty"),
        ("TODO", "empty"),
        ("I cannot hear any distortion.", None),
        ("No clipping.", None),
        ("没有噪音。", None),
    ],
)
@pytest.mark.parametrize("aspect", ASPECTS)
def test_a_description_says_what_is_heard_in_every_part(aspect: str, text: str, reason: str | None) -> None:
    fault = description_fault(dict.fromkeys(ASPECTS, "Both voices are clear.") | {aspect: text})
    assert (fault and fault.reason) == reason
    assert fault is None or "\n" not in fault.detail


@pytest.mark.parametrize(
    "fault", [{"flatness": 0.1}, {"clipped_share": 0.02}, {"bandwidth_hz": 1500.0}, {"dropouts_per_min": 60.0}]
)
def test_the_builtin_critic_scores_a_faulty_clip_lower(fault: dict[str, float]) -> None:
    worse = {**CLEAN, **fault}
    assert points(worse) < points(CLEAN)
    assert describe(worse) != describe(CLEAN)
    text = speech_critique({}, [CLEAN, worse])
    assert isinstance(text, str)
    assert pair_fault(text, ROW) is None
    assert pair_fault(str(speech_critique({}, [worse, CLEAN])), {**ROW, "better": "second"}) is None


def test_the_builtin_critic_describes_one_clip_and_refuses_three() -> None:
    said = speech_critique({}, [CLEAN])
    assert isinstance(said, dict)
    assert tuple(said) == ASPECTS
    assert "not measured" in said["naturalness"]
    free = speech_critique({"free_text": True}, [CLEAN])
    assert isinstance(free, dict)
    assert (set(free) - set(said), free | said) == ({"free_text"}, free)
    assert json.dumps(said)
    with pytest.raises(InputError):
        speech_critique({}, [CLEAN] * 3)


@given(st.floats(0, 100), st.floats(0, 100))
def test_builtin_scores_are_in_range_and_follow_the_points(first: float, second: float) -> None:
    one, two = scores(first, second)
    assert 1 <= min(one, two) <= max(one, two) <= 10
    if abs(first - second) >= 2:
        assert (one > two) == (first > second)
        assert one != two
