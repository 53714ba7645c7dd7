"""vLLM on CPU with the tiny random model of `tiny_model.py`, beside transformers in process. The server is the one that
`vllm:` starts; `openai:` asks it too. Random weights test plumbing and numbers, never what is said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Ask, Audio, Choice, Json, Message, ScaleRating, YesNo
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.request import Answer, Unanswered
from earmark.tasks.annotation.session import Session
from earmark.tasks.annotation.vllm_serve import VARIABLE, VllmServe
from earmark.tasks.audio.encode import Encoder
from tests.annotation.conftest import ask_all
from tests.annotation.test_children import lives
from tests.annotation.test_models import noise
from tests.annotation.tiny_model import make_tiny_model, token_ids
from tests.builds import rows_of
from tests.captions.captions import build_captions, direct, refined, write_tracks
from tests.captions.captions import config_of as captions_of
from tests.conftest import ROOT

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


pytestmark = pytest.mark.models
PYTHON = ROOT / ".venv-vllm/bin/python"
# Without TORCHDYNAMO_DISABLE the first log-probabilities take 25 s.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
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


def offline(model: Path, **changes: Any) -> AnnotatorConfig:
    """The annotator that starts the server."""
    engine = {"dtype": "float32", "enforce_eager": True, "max_logprobs": 50}
    usual = {"annotator": f"vllm:{model}", "max_tokens": 120, "temperature": 1.0, "seed": 3, "repairs": 0}
    usual |= {"extra_body": {"engine": engine}, "serve": {"max_model_len": 1024}, "least_share": 0.0}
    usual |= {"yes_no_token_ids": token_ids(model, *WORDS)}
    return AnnotatorConfig.model_validate(usual | changes)


@pytest.fixture(scope="module")
def session(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Give a session that asks a server by `vllm:`, after its first answer."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (ENVIRONMENT | {VARIABLE: str(PYTHON)}).items():
            patch.setenv(name, value)
        config, folder = offline(model), tmp_path_factory.mktemp("server")
        with Session(config, ledger=folder / "l.sqlite", media=Media(load_audio=Encoder())) as session:
            session.ask([question(config, [Message.of("user", noise(folder, 9), "Is there a drum?")], YesNo(*WORDS))])
            below = psutil.Process().children(recursive=True)
            assert len(below) >= 3  # a guard, the server, its engine
            yield session
        assert not [one for one in below if lives(one)]


@pytest.fixture(scope="module")
def config_of(session: Session, model: Path) -> Iterator[ConfigOf]:
    """Configs by which `openai:` asks the server."""
    backend = session._annotator.backend
    assert isinstance(backend, VllmServe)
    chat = backend._chat
    assert chat is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", chat.http._key.value)
        patch.setenv("EARMARK_KEY_HOSTS", f"OPENAI_API_KEY={chat.base_url.removesuffix('/v1')}")
        usual = {"annotator": f"openai:{model}", "base_url": chat.base_url, "max_concurrency": 8}
        usual |= {"max_tokens": 120, "repairs": 6, "least_share": 0.0}
        yield lambda **changes: AnnotatorConfig.model_validate(usual | changes)


def test_vllm_asks_every_form_and_has_the_probabilities_of_transformers(
    tmp_path: Path, session: Session, model: Path
) -> None:
    clips = [noise(tmp_path, seed) for seed in range(3)]
    config = offline(model)
    requests = [question(config, [Message.of("user", clip, "Is there a drum?")], YesNo(*WORDS)) for clip in clips]
    report = session.ask(requests)
    values = [outcome.value for outcome in report.outcomes if isinstance(outcome, Answer)]
    assert len(values) == 3, report.outcomes
    assert not any(value["bounded"] for value in values)
    assert_parity({name: [value[name] for value in values] for name in ("p_yes", "share")}, model, clips, tmp_path)
    rated = session.ask([question(config, [Message.of("user", clip, "How good?")], ScaleRating()) for clip in clips])
    assert all(isinstance(one, Answer) and 1 < one.value["score"] < 5 for one in rated.outcomes), rated.outcomes
    schema = {"type": "object", "properties": {"choice": {"enum": ["A", "B"]}}, "required": ["choice"]}
    asks: list[Ask] = [Choice(("A", "B", "tie")), Json.of(schema | {"additionalProperties": False})]
    requests = [question(config, [Message.of("user", clip, "Which?")], ask) for ask in asks for clip in clips]
    wrong = Audio("0" * 64, clips[0].path, duration_s=2.0)
    requests.append(question(config, [Message.of("user", wrong)], YesNo(*WORDS)))
    report = session.ask(requests)
    chosen = [outcome.value for outcome in report.outcomes[:3] if isinstance(outcome, Answer)]
    assert len(chosen) == 3, report.outcomes
    assert all(value in ("A", "B", "tie") for value in chosen)
    assert set(report.reasons()) <= {"bad_media", "truncated"}
    assert report.reasons()["bad_media"] == 1


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
    assert isinstance(outcome, Unanswered)
    assert outcome.reason == "bad_request"


def test_pipelines_of_captions_hear_refine_and_judge(tmp_path: Path, config_of: ConfigOf, model: Path) -> None:
    write_tracks(tmp_path, 6)
    url = config_of().base_url
    says = {"annotator": f"openai:{model}", "temperature": 1.0, "max_tokens": 120}
    says["extra_body"] = {"structured_outputs": {"regex": CAPTION}}
    hears = {**says, "read_timeout_s": 120.0, "total_timeout_s": 300.0}
    two = refined(url, **hears)
    two["refine"] |= {**says, "total_timeout_s": 300.0}
    two["judge"] = {"annotator": f"openai:{model}", "base_url": url, "yes_no_token_ids": token_ids(model, *WORDS)}
    two["judge"] |= {"action": "flag", "least_share": 0.0}
    version = build_captions(captions_of(tmp_path, direct(url, **hears), two, repeats=None), tmp_path / "store")
    rows = rows_of(version, "captions")
    assert Counter(row["pipeline"] for row in rows) == {"direct": 6, "refined": 6}, rows_of(version, "rejects")
    assert all(re.fullmatch(CAPTION, row["text"]) for row in rows)
    judged = [float(row["text"]) for row in rows_of(version, "raw") if row["stage"] == "judge"]
    assert len(judged) == 6
    assert sum(p_yes >= 0.5 for p_yes in judged) == sum(row["flags"] == ["implies_vocals"] for row in rows)
