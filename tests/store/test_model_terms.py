"""The terms of models: from the config, from the table, or unknown; and who is told of them."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from earmark.schemas.errors import ConfigError
from earmark.schemas.tables import REJECTS
from earmark.schemas.toml import read_toml
from earmark.tasks.pipeline.progress import shown
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.publishing import gathered
from earmark.tasks.store.card import render_card
from earmark.tasks.store.licences import UNKNOWN, new_terms, terms_of, warnings_of
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.publication import bundled
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT
from tests.store.test_licences import ROWS, TABLES, make_version, reject

TABLE = json.loads((ROOT / "schemas/model_terms.json").read_text("utf-8"))
MUSICGEN, FLAMINGO, OURS = "transformers:facebook/musicgen-medium", "openai:nvidia/music-flamingo-hf", "vllm:lab/own"


def test_the_table_is_dated_and_names_its_pages() -> None:
    assert date.fromisoformat(TABLE["read"])
    assert list(TABLE["models"]) == sorted(TABLE["models"])
    for model, (licence, page) in TABLE["models"].items():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+|[\w.-]+\.pt", model)
        assert licence
        assert re.match(r"https://(huggingface\.co|github\.com)/[\w.-]+/[\w.-]+", page)


def test_what_a_config_states_goes_before_the_table() -> None:
    models = (
        MUSICGEN,
        FLAMINGO,
        OURS,
        "laion/clap-htsat-unfused",
        "voices.ckpt",
        "builtin:music-pair-2",
        "centre-removal",
    )
    stated: dict[str, dict[str, Any]] = {
        "nvidia/music-flamingo-hf": {"licence": "bought"},
        "vllm:lab/own": {"licence": None},
        "voices.ckpt": {"licence": "MIT"},
    }
    assert terms_of(models, stated) == {
        MUSICGEN: "CC-BY-NC-4.0",
        FLAMINGO: "bought",
        OURS: UNKNOWN,
        "laion/clap-htsat-unfused": "Apache-2.0",
        "voices.ckpt": "MIT",
    }


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ("CC-BY-NC-4.0", True), ("NVIDIA OneWay Noncommercial License", True), ("non-commercial research only", True),
        (UNKNOWN, True), ("Apache-2.0", False), ("CC-BY-4.0", False), ("Since 2024: ours", False),
    ],
)  # fmt: skip
def test_who_publishes_is_told_of_what_forbids_or_is_not_known(terms: str, told: bool) -> None:
    assert bool(warnings_of({"m": terms})) == told


def test_publishing_names_the_terms_of_what_a_version_was_made_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, known = Store(tmp_path), find_corpus("mos-preferences")
    parent = make_version(store, ROWS, {"free": "all"}, corpus="origin", models=(FLAMINGO, "builtin:music-pair-2"))
    made_from = Parent(corpus="origin", version="v1", digest=parent.manifest.digest())
    rows = {"rejects": [reject(None)]}
    child = make_version(store, rows, {}, "mos-preferences", (REJECTS,), models=(OURS,), parents=(made_from,))
    with shown(), gathered(child, known, store, audio=True) as bundle:
        assert bundle.model_terms == {FLAMINGO: "non-commercial research only", OURS: UNKNOWN}
    told = capfd.readouterr().err
    assert f"terms of {FLAMINGO}: non-commercial research only; its output may be bound by them" in told
    assert f"terms of {OURS}: {UNKNOWN}" in told


def test_a_build_says_the_terms_of_models_that_the_last_version_does_not_name() -> None:
    made = SimpleNamespace(models=(MUSICGEN, OURS, "builtin:music-pair-2"), config={})
    first = new_terms(made, None)
    assert first[0] == f"terms of {MUSICGEN}: CC-BY-NC-4.0"
    assert first[1].startswith(f"terms of {OURS}: unknown; write them in the config:")
    assert len(first) == 2
    before = SimpleNamespace(manifest=SimpleNamespace(models=(MUSICGEN,)))
    assert new_terms(made, before) == first[1:]


def test_a_models_licence_is_none_of_the_data(tmp_path: Path) -> None:
    """It neither keeps the report's sound back nor becomes the data's own licence, and the card says it."""
    rows = {**ROWS, "clips": ROWS["clips"][:1], "pairs": [], "labels": [], "rejects": []}
    version = make_version(Store(tmp_path), rows, {"free": "all", "lab/own": "rows"}, models=(OURS,))
    (version.folder / "report.html").write_text("<audio src=x>")
    store, corpus = Store(tmp_path), find_corpus("mos-preferences")
    licences = {
        "free": {"licence": "CC0-1.0", "redistribute": "all"},
        "lab/own": {"licence": "MIT | x", "redistribute": "rows"},
    }
    manifest = version.manifest.model_copy(
        update={"config": {"licences": licences}, "model_terms": terms_of((OURS,), licences), "rows": {}}
    )
    assert "- `vllm:lab/own`; terms: MIT \\| x\n" in render_card(manifest, (), corpus.story, None, {})
    with bundled(version, TABLES, store, audio=True, say=print) as bundle:
        assert "report.html" in {entry.path for entry in bundle.entries}


def test_a_config_may_name_the_models_that_it_asks() -> None:
    demo = read_toml(ROOT / "data/demo/mos-preferences.toml")
    critic = {**demo["critiques"], "model": "openai:org/critic"}
    values = {**demo, "critiques": critic}
    model = find_corpus("mos-preferences").config
    for name in ("org/critic", "openai:org/critic"):
        model.model_validate({**values, "licences": {name: {"licence": "MIT"}}})
    with pytest.raises((ConfigError, ValueError), match="no source is named 'org/other'"):
        model.model_validate({**values, "licences": {"org/other": {"licence": "MIT"}}})
