"""A real inference server: vLLM on CPU with the tiny random model of `tiny_model.py`. Random weights test plumbing and
numbers, never what is said.

Start one in an environment that has vLLM, and name it:

    python -m tests.annotation.tiny_model MODEL_FOLDER --for-vllm
    TORCHDYNAMO_DISABLE=1 VLLM_CPU_KVCACHE_SPACE=1 python -m vllm.entrypoints.openai.api_server --model MODEL_FOLDER \\
        --served-model-name tiny --port 8765 --dtype float32 --max-model-len 1024 --enforce-eager --max-logprobs 50
    EARMARK_TEST_VLLM=http://127.0.0.1:8765/v1 pytest -m slow tests/annotation/test_real_server.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.annotation import AnnotatorConfig
from tasks.annotation.backend import Media, question
from tasks.annotation.outcome import Answer, Reject
from tasks.annotation.request import Choice, Json, Message, YesNo
from tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all
from tests.annotation.test_models import noise

URL = os.environ.get("EARMARK_TEST_VLLM")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(URL is None, reason="EARMARK_TEST_VLLM names no vLLM server"),
]
SCHEMA = {
    "type": "object",
    "properties": {"musicality": {"enum": ["A", "B", "tie"]}, "reason": {"type": "string", "maxLength": 20}},
    "required": ["musicality", "reason"],
    "additionalProperties": False,
}


def config_of(**options: object) -> AnnotatorConfig:
    """The server's config."""
    return AnnotatorConfig.model_validate(
        {"annotator": "openai:tiny", "base_url": URL, "max_concurrency": 8, "max_tokens": 120, "repairs": 6} | options
    )


@pytest.mark.parametrize("structured", ["response_format", "vllm"])
def test_two_clips_and_a_schema(tmp_path: Path, structured: str) -> None:
    config = config_of(structured=structured, temperature=1.0)
    clips = [noise(tmp_path, seed) for seed in range(4)]
    requests = [
        question(config, [Message.of("user", "A:", a, "B:", b, "Which?")], Json.of(SCHEMA))
        for a in clips
        for b in clips
    ]
    report = ask_all(config, requests, ledger=tmp_path / "l.sqlite", media=Media(load_audio=Encoder()))
    assert report.answered + report.rejected == 16
    assert report.answered >= 8, report.outcomes
    assert set(report.reasons()) <= {"truncated", "schema_mismatch"}
    assert report.input_tokens > 0


def test_choices_are_held_by_structured_outputs(tmp_path: Path) -> None:
    config = config_of(structured="vllm")
    requests = [question(config, [Message.of("user", f"{n}?")], Choice(("A", "B", "tie"))) for n in range(8)]
    assert ask_all(config, requests, ledger=tmp_path / "l.sqlite").answered == 8


def test_yes_no_over_exactly_two_tokens_agrees_between_orders_of_asking(tmp_path: Path) -> None:
    ids = tuple(int(part) for part in os.environ.get("EARMARK_TEST_VLLM_YES_NO", "").split(",") if part)
    if len(ids) != 2:
        pytest.skip("EARMARK_TEST_VLLM_YES_NO names no token ids, such as 312,340")
    config = config_of(yes_no_token_ids=ids)
    clips = [noise(tmp_path, seed) for seed in range(4)]
    requests = [question(config, [Message.of("user", clip, "Is there a drum?")], YesNo()) for clip in clips]
    media = Media(load_audio=Encoder())
    first = ask_all(config, requests, ledger=tmp_path / "a.sqlite", media=media)
    second = ask_all(config, requests[::-1], ledger=tmp_path / "b.sqlite", media=media)
    values = [outcome.value for outcome in first.outcomes if isinstance(outcome, Answer)]
    assert len(values) == 4, first.outcomes
    assert len({value["p_yes"] for value in values}) == 4
    assert not any(value["bounded"] for value in values)
    again = [outcome.value["p_yes"] for outcome in second.outcomes[::-1] if isinstance(outcome, Answer)]
    assert again == pytest.approx([value["p_yes"] for value in values], abs=1e-4)


def test_a_prompt_beyond_the_context_is_a_bad_request(tmp_path: Path) -> None:
    config = config_of()
    (outcome,) = ask_all(
        config, [question(config, [Message.of("user", "drum " * 5000)])], ledger=tmp_path / "l.sqlite"
    ).outcomes
    assert isinstance(outcome, Reject)
    assert outcome.reason == "bad_request"
