"""What editors check a config by: it accepts every config that is shipped, and marks what a build would refuse."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError
from earmark.schemas.toml import read_toml
from earmark.tasks.pipeline.registry import corpora
from tests.conftest import ROOT

SHIPPED = [
    path
    for folder in ("data/demo", "deploy/configs")
    for path in sorted((ROOT / folder).glob("*.toml"))
    if read_toml(path).get("corpus") in corpora()
]


def checker(corpus: str) -> Draft202012Validator:
    schema = json.loads(CliRunner().invoke(app, ["init", corpus, "--schema"]).stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_configs_are_as_the_schema_says(path: Path) -> None:
    values = read_toml(path)
    check = checker(values["corpus"])
    assert [error.message for error in check.iter_errors(values)] == []
    for spoil in ({"sed": 1}, {"seed": "seventeen"}, {"audoi": "none"}, {"limit": 5}):
        assert not check.is_valid({**copy.deepcopy(values), **spoil})


@pytest.mark.parametrize(
    ("corpus", "part"),
    [
        ("mos-preferences", {"sources": [{"name": "a", "format": "bvc", "root": "x"}]}),
        ("pseudo-preferences", {"judge": {"annotator": "opnai:m"}}),
        ("instrumentals", {"source": {"name": "a", "format": "table"}}),
    ],
)
def test_names_of_layouts_and_backends_are_checked(corpus: str, part: dict[str, Any]) -> None:
    values = {**read_toml(ROOT / f"data/demo/{corpus}.toml"), **part}
    assert not checker(corpus).is_valid(values)


def test_another_corpus_is_one_line() -> None:
    with pytest.raises(ConfigError, match="unknown corpus 'nothing'"):
        CliRunner().invoke(app, ["init", "nothing", "--schema"], catch_exceptions=False)
