"""Yes/no of one model through two backends, to be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Audio, Message, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.outcome import Answer
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all

WORDS = ("Yes", "drum")
"""Each has one spelling, with or without a space before it, that is a token of the tiny model: both backends then count
the same tokens."""


def yes_no_numbers(config: AnnotatorConfig, clips: list[Audio], folder: Path) -> dict[str, list[float]]:
    """`p_yes` and `share` of each clip."""
    requests = [question(config, [Message.of("user", clip, "Is there a drum?")], YesNo(*WORDS)) for clip in clips]
    ledger = folder / f"{config.annotator.partition(':')[0]}.sqlite"
    outcomes = ask_all(config, requests, ledger=ledger, media=Media(load_audio=Encoder())).outcomes
    values = [outcome.value for outcome in outcomes if isinstance(outcome, Answer)]
    assert len(values) == len(clips), outcomes
    assert not any(value["bounded"] for value in values)
    return {name: [value[name] for value in values] for name in ("p_yes", "share")}


def assert_parity(numbers: dict[str, list[float]], model: Path, clips: list[Audio], folder: Path) -> None:
    """The numbers are those of transformers, P(yes) to four decimals, and clips differ by far more than that."""
    expected = yes_no_numbers(AnnotatorConfig(annotator=f"transformers:{model}", least_share=0.0), clips, folder)
    for name, held in expected.items():
        assert max(held) > 1.01 * min(held), name
    assert numbers["p_yes"] == pytest.approx(expected["p_yes"], abs=1e-4)
    assert numbers["share"] == pytest.approx(expected["share"], rel=1e-3)  # a hundred-thousandth of all tokens
