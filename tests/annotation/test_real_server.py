"""A real inference server: vLLM on CPU with the tiny random model of `tiny_model.py`, beside transformers in process.
Random weights test plumbing and numbers, never what is said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.outcome import Reject
from earmark.tasks.annotation.request import Choice, Json, Message
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all
from tests.annotation.parity import WORDS, assert_parity, yes_no_numbers
from tests.annotation.test_models import noise
from tests.annotation.tiny_model import make_tiny_model, token_ids
from tests.builds import rows_of
from tests.captions.captions import build_captions, direct, refined, write_tracks
from tests.captions.captions import config_of as captions_of
from tests.servers.vllm_server import vllm_server

pytestmark = pytest.mark.models
SCHEMA = {
    "type": "object",
    "properties": {"musicality": {"enum": ["A", "B", "tie"]}, "reason": {"type": "string", "maxLength": 20}},
    "required": ["musicality", "reason"],
    "additionalProperties": False,
}
CAPTION = r"This is a (calm|dark|happy) tune with (drums|a piano|strings) and a (warm|cold|wide) sound, [a-z ]{4,24}\."
ConfigOf = Callable[..., AnnotatorConfig]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def config_of(model: Path) -> Iterator[ConfigOf]:
    """Configs that ask the server."""
    options = ("--dtype", "float32", "--max-model-len", "1024", "--enforce-eager", "--max-logprobs", "50")
    with vllm_server(model, *options) as url:
        usual = {"annotator": "openai:tiny", "base_url": url, "max_concurrency": 8, "max_tokens": 120, "repairs": 6}
        yield lambda **changes: AnnotatorConfig.model_validate(usual | changes)


@pytest.mark.parametrize("structured", ["response_format", "vllm"])
def test_two_clips_and_a_schema(tmp_path: Path, config_of: ConfigOf, structured: str) -> None:
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


def test_choices_are_held_by_structured_outputs(tmp_path: Path, config_of: ConfigOf) -> None:
    config = config_of(structured="vllm")
    requests = [question(config, [Message.of("user", f"{n}?")], Choice(("A", "B", "tie"))) for n in range(8)]
    assert ask_all(config, requests, ledger=tmp_path / "l.sqlite").answered == 8


def test_yes_no_over_exactly_two_tokens_is_that_of_transformers_in_any_order(
    tmp_path: Path, config_of: ConfigOf, model: Path
) -> None:
    config = config_of(yes_no_token_ids=token_ids(model, *WORDS))
    clips = [noise(tmp_path, seed) for seed in range(4)]
    forward = yes_no_numbers(config, clips, tmp_path)
    assert_parity(forward, model, clips, tmp_path)
    (tmp_path / "again").mkdir()
    backward = yes_no_numbers(config, clips[::-1], tmp_path / "again")
    assert backward["p_yes"][::-1] == pytest.approx(forward["p_yes"], abs=1e-4)
    assert len(set(forward["p_yes"])) == 4


def test_a_prompt_beyond_the_context_is_a_bad_request(tmp_path: Path, config_of: ConfigOf) -> None:
    config = config_of()
    (outcome,) = ask_all(
        config, [question(config, [Message.of("user", "drum " * 5000)])], ledger=tmp_path / "l.sqlite"
    ).outcomes
    assert isinstance(outcome, Reject)
    assert outcome.reason == "bad_request"


def test_pipelines_of_captions_hear_refine_and_judge(tmp_path: Path, config_of: ConfigOf, model: Path) -> None:
    write_tracks(tmp_path, 6)
    url = config_of().base_url
    says = {"annotator": "openai:tiny", "temperature": 1.0, "max_tokens": 120}
    says["extra_body"] = {"structured_outputs": {"regex": CAPTION}}
    hears = {**says, "hearing": {"sample_rate_hz": 16_000}, "read_timeout_s": 120.0, "total_timeout_s": 300.0}
    two = refined(url, **hears)
    two["refine"] |= {**says, "total_timeout_s": 300.0}
    two["judge"] = {"annotator": "openai:tiny", "base_url": url, "yes_no_token_ids": token_ids(model, *WORDS)}
    two["judge"]["action"] = "flag"
    version = build_captions(captions_of(tmp_path, direct(url, **hears), two, repeats=None), tmp_path / "store")
    rows = rows_of(version, "captions")
    assert Counter(row["pipeline"] for row in rows) == {"direct": 6, "refined": 6}, rows_of(version, "rejects")
    assert all(re.fullmatch(CAPTION, row["text"]) for row in rows)
    judged = [float(row["text"]) for row in rows_of(version, "raw") if row["stage"] == "judge"]
    assert len(judged) == 6
    assert sum(p_yes >= 0.5 for p_yes in judged) == sum(row["flags"] == ["implies_vocals"] for row in rows)
