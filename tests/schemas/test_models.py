"""Declared models join the roles that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.config import MODELS, checked, parse_config
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.evaluation.judging import examinee

INPUTS = {"prompts": "p.csv", "generations": "g.csv"}
OMNI: dict[str, Any] = {
    "annotator": "openai:omni",
    "base_url": "http://127.0.0.1:8000/v1",
    "sampling": {"temperature": 0.2, "max_tokens": 7},
    "pace": {"max_concurrency": 4},
    "patience": {"retries": 1},
    "money": {"budget_usd": 3.0, "prices": {"input_per_million": 1.0, "output_per_million": 2.0}},
    "limits": {"clips": 2},
}
FLAT: dict[str, Any] = {
    "annotator": "openai:omni",
    "base_url": "http://127.0.0.1:8000/v1",
    "temperature": 0.2,
    "max_tokens": 7,
    "max_concurrency": 4,
    "retries": 1,
    "budget_usd": 3.0,
    "prices": {"input_per_million": 1.0, "output_per_million": 2.0},
    "limits": {"clips": 2},
}


def read(tmp_path: Path, **values: Any) -> PseudoPreferences:
    return parse_config(PseudoPreferences, {**INPUTS, **values}, tmp_path / "c.toml")


def test_a_role_has_what_its_model_declares_and_its_own_options_first(tmp_path: Path) -> None:
    judge = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni", "max_tokens": 9}).judge
    assert judge == read(tmp_path, judge={**FLAT, "max_tokens": 9}).judge


def test_what_judges_share_comes_before_their_models(tmp_path: Path) -> None:
    judges = [{"model": "omni"}, {"model": "gemini:g", "temperature": 0.1}]
    found = read(tmp_path, models={"omni": OMNI}, judge={"temperature": 0.3}, judges=judges).judges
    assert [(one.annotator, one.temperature, one.max_tokens) for one in found] == [
        ("openai:omni", 0.3, 7),
        ("gemini:g", 0.1, 1024),
    ]


def test_a_recorded_config_holds_roles_without_declarations(tmp_path: Path) -> None:
    config = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni"})
    assert config.recorded() == read(tmp_path, judge=FLAT).recorded()
    assert "models" not in config.recorded()


def test_the_nearest_declaration_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared/all.toml"
    shared.parent.mkdir()
    shared.write_text('[models.a]\nannotator = "openai:far"\n[models.b]\nannotator = "openai:far"\n')
    (tmp_path / "models.toml").write_text('[models.a]\nannotator = "openai:beside"\n')
    monkeypatch.setenv(MODELS, str(shared))
    assert read(tmp_path, models={"a": OMNI}, judge={"model": "a"}).judge.annotator == "openai:omni"
    assert read(tmp_path, judge={"model": "a"}).judge.annotator == "openai:beside"
    assert read(tmp_path, judge={"model": "b"}).judge.annotator == "openai:far"
    assert checked(Examinee, {"model": "b"}, tmp_path / "e.toml").annotator == "openai:far"
    with pytest.raises(ConfigError, match="found 'c'; declared: a, b, omni"):
        read(tmp_path, models={"omni": OMNI}, judge={"model": "c"})


@pytest.mark.parametrize(
    ("models", "judge", "line"),
    [
        ({}, {"model": "omni"}, "judge: model: expected a declared model or backend:model, found 'omni'; none is"),
        ({}, {"model": "nobody:m"}, "judge.model: expected backend:model with a backend of builtin"),
        ({}, {}, "missing key 'judge.model'"),
        ({}, {"model": 1}, "judge: model: expected a text, found 1"),
        ({}, {"model": "openai:m", "temprature": 1}, "unknown key 'judge.temprature'; did you mean 'temperature'?"),
        (
            {},
            {"model": "openai:m", "quota": "x"},
            "judge: key 'quota' belongs to a model: write pace.quota",
        ),
        (
            {"pace": {"max_concurrency": 0}},
            {"model": "omni"},
            "models.omni.pace.max_concurrency: input",
        ),
        (
            {"pace": {"max_concurency": 1}},
            {"model": "omni"},
            "unknown key 'models.omni.pace.max_concurency'",
        ),
        (
            {"max_concurrency": 1},
            {"model": "omni"},
            "models.omni: key 'max_concurrency' stands in a group: write pace.max_concurrency",
        ),
    ],
)
def test_faults_name_the_place_where_the_key_stands(
    models: dict[str, Any], judge: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, models={"omni": {**OMNI, **models}} if models else {}, judge=judge)
    assert str(caught.value).startswith(f"{tmp_path / 'c.toml'}: {line}")


def test_an_address_of_the_command_line_holds_for_a_declared_model(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('model = "m"\nrepairs = 1\n[models.m]\nannotator = "openai:big"\npace.max_concurrency = 3\n')
    for name in (None, "m", "openai:other"):
        config = examinee(name, "http://127.0.0.1:1/v1", file)
        assert (config.base_url, config.repairs) == ("http://127.0.0.1:1/v1", 1)
        assert config.annotator == ("openai:other" if name == "openai:other" else "openai:big")
        assert config.max_concurrency == (32 if name == "openai:other" else 3)
