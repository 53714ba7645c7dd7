"""Declared models join the roles that name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from earmark.flows.command.running import read_config
from earmark.flows.pseudo_preferences import build
from earmark.schemas.config import MODELS
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Examinee, Scorer
from earmark.schemas.pseudo_preferences import CORPUS, PseudoPreferences
from earmark.schemas.toml import checked, parse_config
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


MOVED = (
    'belongs to a model: write {} in [models.NAME], and here model = "NAME"; new spelling of a file: earmark doctor '
    "--config FILE"
)


def read(tmp_path: Path, **values: Any) -> PseudoPreferences:
    return parse_config(PseudoPreferences, {**INPUTS, **values}, tmp_path / "c.toml")


def whole(tmp_path: Path, judge: dict[str, Any]) -> PseudoPreferences:
    """A config whose judge holds all options of its model."""
    return PseudoPreferences.model_validate({**INPUTS, "judge": judge, "base": tmp_path})


def test_a_role_has_what_its_model_declares_and_its_own_options_first(tmp_path: Path) -> None:
    judge = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni", "max_tokens": 9}).judge
    assert judge == whole(tmp_path, {**FLAT, "max_tokens": 9}).judge


def test_what_judges_share_comes_before_their_models(tmp_path: Path) -> None:
    judges = [{"model": "omni"}, {"model": "gemini:g", "temperature": 0.1}]
    found = read(tmp_path, models={"omni": OMNI}, judge={"temperature": 0.3}, judges=judges).judges
    assert [(one.annotator, one.temperature, one.max_tokens) for one in found] == [
        ("openai:omni", 0.3, 7),
        ("gemini:g", 0.1, 1024),
    ]


def test_a_recorded_config_holds_roles_without_declarations(tmp_path: Path) -> None:
    config = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni"})
    assert config.recorded() == whole(tmp_path, FLAT).recorded()
    assert "models" not in config.recorded()


def test_a_record_that_lists_each_option_of_a_server_is_read_and_kept(tmp_path: Path) -> None:
    """As versions record them: without a server, each option is null."""
    recorded = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni"}).recorded()
    assert {*recorded["judge"]["serve"].values()} == {None}
    assert len(recorded["judge"]["serve"]) == 5
    again = PseudoPreferences.model_validate(recorded, context={"recorded": True})
    assert again.judge.serve == {}
    assert again.recorded() == recorded


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
            {"model": "openai:m", "batch": True},
            "judge: key 'batch' belongs to a model: write money.batch",
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
        ({}, {"annotator": "openai:m"}, f"judge: key 'annotator' {MOVED.format('annotator')}"),
        ({}, {"batch": True}, f"judge: key 'batch' {MOVED.format('money.batch')}"),
        (
            {"base_url": "https://host/v1?key=secret"},
            {"model": "omni"},
            "models.omni.base_url: expected no user, password or query in the address; keys come from the environment, "
            "found 'https://host/v1?…'",
        ),
        ({"base_url": "http://host:99999/v1"}, {"model": "omni"}, "models.omni.base_url: port out of range"),
        ({"base_url": "http://host/v1#x"}, {"model": "omni"}, "models.omni.base_url: expected http://host/path"),
    ],
)
def test_faults_name_the_place_where_the_key_stands(
    models: dict[str, Any], judge: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, models={"omni": {**OMNI, **models}} if models else {}, judge=judge)
    assert str(caught.value).startswith(f"{tmp_path / 'c.toml'}: {line}")


def test_a_misspelt_table_of_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[model.a]\nannotator = "openai:a"\n')
    with pytest.raises(ConfigError, match="unknown key 'model'; did you mean 'models'"):
        read(tmp_path, judge={"model": "a"})


def test_an_onnx_file_lies_beside_the_file_that_declares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared/all.toml"
    shared.parent.mkdir()
    shared.write_text('[models.loud]\nannotator = "scorer:m.onnx"\n')
    monkeypatch.setenv(MODELS, str(shared))
    scorer = checked(Scorer, {"model": "loud", "scores": ["level"]}, tmp_path / "s.toml")
    assert scorer.model == str(shared.with_name("m.onnx"))


def test_a_model_without_a_role_is_checked(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'prompts = "p"\ngenerations = "g"\njudge.model = "openai:m"\n[models.a]\nanotator = "openai:a"\n'
    )
    with pytest.raises(ConfigError, match=r"unknown key 'models\.a\.anotator'; did you mean 'annotator'"):
        read_config(CORPUS, tmp_path / "c.toml")


def test_a_model_called_by_its_address_is_told_what_a_name_is(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        'prompts = "p"\ngenerations = "g"\njudge.model = "openai:m"\n[models."openai:m"]\nannotator = "openai:m"\n'
    )
    with pytest.raises(
        ConfigError, match=r"models\.openai:m: expected a name of .* letters, digits, \. _ -, found 'openai:m'"
    ):
        read_config(CORPUS, tmp_path / "c.toml")


def test_a_deployment_of_before_runs_as_it_did(tmp_path: Path) -> None:
    """Prefect's server checks its parameters by the flow's schema, and the flow reads them."""
    now = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni"})
    flat = {**INPUTS, "judge": FLAT, "base": str(tmp_path)}
    validate({"config": flat}, dict(parameter_schema(build)), raise_on_error=True)
    assert PseudoPreferences.model_validate(flat).identity() == now.identity()
    assert PseudoPreferences.model_validate(flat).asked() == now.asked()


def test_a_resumed_run_of_before_goes_on(tmp_path: Path) -> None:
    """From Python or a file; with an option that is a constant now, the build would be another."""
    now = read(tmp_path, models={"omni": OMNI}, judge={"model": "omni"})
    (tmp_path / "c.json").write_text(json.dumps({"base": str(tmp_path), "config": {**INPUTS, "judge": FLAT}}))
    assert read_config(CORPUS, tmp_path / "c.json").asked() == now.asked()
    file, judge = tmp_path / "c.toml", 'generations = "g.csv"\n[judge]\nannotator = "openai:m"\nretries = 1\n'
    file.write_text(f'prompts = "p.csv"\n{judge}separate = false\n')
    assert read_config(CORPUS, file, resumed=True).asked()["judge"].retries == 1
    file.write_text(f'prompts = "p.csv"\n{judge}separate = true\n')
    with pytest.raises(ConfigError, match="separate = true is left out: one request asks all dimensions"):
        read_config(CORPUS, file, resumed=True)


def test_a_misspelt_role_of_a_deployment_is_refused() -> None:
    judge = {"model": "openai:m", "temprature": 1}
    with pytest.raises(ValidationError, match=r"config\.judge"):
        validate({"config": {**INPUTS, "judge": judge}}, dict(parameter_schema(build)), raise_on_error=True)


def test_an_address_of_the_command_line_holds_for_a_declared_model(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('model = "m"\nrepairs = 1\n[models.m]\nannotator = "openai:big"\npace.max_concurrency = 3\n')
    for name in (None, "m", "openai:other"):
        config = examinee(name, "http://127.0.0.1:1/v1", file)
        assert (config.base_url, config.repairs) == ("http://127.0.0.1:1/v1", 1)
        assert config.annotator == ("openai:other" if name == "openai:other" else "openai:big")
        assert config.max_concurrency == (32 if name == "openai:other" else 3)
