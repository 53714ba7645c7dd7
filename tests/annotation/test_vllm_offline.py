"""vLLM's offline engine on CPU with a tiny random model, in the environment that has vLLM."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.outcome import Answer
from earmark.tasks.annotation.request import Ask, Audio, Choice, Json, Message, YesNo
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all
from tests.annotation.parity import WORDS, assert_parity, yes_no_numbers
from tests.annotation.test_models import noise
from tests.annotation.tiny_model import make_tiny_model, token_ids
from tests.servers.vllm_server import environment

pytestmark = pytest.mark.models


def test_json_choices_and_the_probabilities_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (environment(tmp_path) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)  # so that TMPDIR is read again
    model = make_tiny_model(tmp_path / "model")
    engine = {"dtype": "float32", "max_model_len": 1024, "enforce_eager": True, "max_logprobs": 50}
    config = AnnotatorConfig.model_validate(
        {"annotator": f"vllm:{model}", "max_tokens": 120, "temperature": 1.0, "seed": 3, "repairs": 0}
        | {"extra_body": {"engine": engine}, "yes_no_token_ids": token_ids(model, *WORDS)}
    )
    clips = [noise(tmp_path, seed) for seed in range(3)]
    assert_parity(yes_no_numbers(config, clips, tmp_path), model, clips, tmp_path)
    schema = {"type": "object", "properties": {"choice": {"enum": ["A", "B"]}}, "required": ["choice"]}
    asks: list[Ask] = [Choice(("A", "B", "tie")), Json.of(schema | {"additionalProperties": False})]
    requests = [question(config, [Message.of("user", clip, "Which?")], ask) for ask in asks for clip in clips]
    wrong = Audio("0" * 64, clips[0].path, duration_s=2.0)
    requests.append(question(config, [Message.of("user", wrong)], YesNo()))
    report = ask_all(config, requests, ledger=tmp_path / "l.sqlite", media=Media(load_audio=Encoder()))
    chosen = [outcome.value for outcome in report.outcomes[:3] if isinstance(outcome, Answer)]
    assert len(chosen) == 3, report.outcomes
    assert all(value in ("A", "B", "tie") for value in chosen)
    assert set(report.reasons()) <= {"bad_media", "truncated"}
    assert report.reasons()["bad_media"] == 1
