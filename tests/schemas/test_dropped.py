"""Keys of 1.0.0 that are constants now: each is refused in one line, and stays in recorded configs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from earmark.schemas.dropped import DROPPED, Dropped
from earmark.schemas.errors import ConfigError
from earmark.schemas.instrumentals import Instrumentals
from earmark.schemas.toml import Model, parse_config, read_toml
from earmark.tasks.pipeline.registry import find_corpus
from tests.before.fixture import CORPORA, before, unpack
from tests.conftest import ROOT

KEYS = [(name, key) for name, keys in DROPPED.items() for key in keys]


def model_named(name: str) -> type[Model]:
    module, _, cls = name.rpartition(".")
    return getattr(importlib.import_module(f"earmark.schemas.{module}"), cls)  # type: ignore[no-any-return]


def lost(then: Any, now: Any, key: str = "") -> Iterator[str]:
    """Give the keys of a recorded config that another lacks or holds otherwise; it may have more."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name, value in then.items():
            yield from lost(value, now[name], f"{key}.{name}") if name in now else (f"{key}.{name}",)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for place, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from lost(one, other, f"{key}[{place}]")
    elif then != now:
        yield key


def test_no_key_is_listed_twice() -> None:
    lines = (ROOT / "schemas/dropped.tsv").read_text("utf-8").splitlines()
    assert lines[0].split("\t") == ["model", "key", *Dropped._fields]
    assert len(lines) - 1 == len(KEYS) > 60


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_a_dropped_key_is_refused_with_the_rule_that_holds(name: str, key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model_named(name).model_validate({key: DROPPED[name][key].value})
    assert f"key '{key}' is no option any more: {DROPPED[name][key].instead}" in str(caught.value)
    assert "\n" not in DROPPED[name][key].instead


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_a_dropped_key_stays_in_recorded_configs_alone(name: str, key: str) -> None:
    config = model_named(name).model_construct()
    assert config.model_dump(warnings=False, context={"recorded": True})[key] == DROPPED[name][key].value
    assert key not in config.model_dump(warnings=False)


def test_the_line_names_the_key_where_it_stands(tmp_path: Path) -> None:
    values = {**read_toml(ROOT / "data/demo/instrumentals.toml"), "output": {"codec": "flac", "bits": 24}}
    with pytest.raises(ConfigError) as caught:
        parse_config(Instrumentals, values, tmp_path / "c.toml")
    expected = "output: key 'bits' is no option any more: FLAC and WAV have 16 bits a sample; new spelling of a file: "
    assert str(caught.value) == f"{tmp_path / 'c.toml'}: {expected}earmark doctor --config FILE"


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_config_of_the_release_is_recorded_as_then(corpus: str, tmp_path: Path) -> None:
    """The release's manifest is read by a recount, and its build is the newest of this very config."""
    then = before(unpack(tmp_path / "store", [corpus]), corpus).manifest.config
    model, demo = find_corpus(corpus).config, ROOT / f"data/demo/{corpus}.toml"
    values = read_toml(demo)
    for source in values.get("sources", []):
        source.pop("verify", None)  # the demo says now that its music's changed captions are not heard
    now = parse_config(model, values, demo).recorded()
    assert [key for key in lost(then, now) if key != ".detector.drawings"] == []  # read and ignored
    again = model.model_validate(then, context={"file": "manifest", "recorded": True})
    assert again.recorded() == now


def test_keys_of_a_part_are_dropped_in_it_alone() -> None:
    """An evaluated model's audio keeps the keys that a corpus's roles have no more."""
    from earmark.schemas.evaluations import ClipForm

    values: dict[str, Any] = {"channels": 2, "codec": "flac", "longest_s": 5.0, "sample_rate_hz": 48_000}
    assert ClipForm.model_validate(values).model_dump(context={"recorded": True}) == values
