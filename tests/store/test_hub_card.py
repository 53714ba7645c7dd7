"""The YAML at a card's head, held to what the Hub publishes about it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest

from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.card import SIZES, licence_facts
from earmark.tasks.store.manifest import Manifest
from tests.conftest import ROOT

WORDS = json.loads((ROOT / "schemas/hub_vocabulary.json").read_text("utf-8"))


def resource(name: str) -> list[str]:
    """A list that `datasets` ships."""
    words: list[str] = json.loads(resources.files("datasets.utils.resources").joinpath(f"{name}.json").read_text())
    return words


def test_sizes_are_those_of_the_hub() -> None:
    assert ["unknown", *(name for _, name in SIZES), "n>1T"] == resource("size_categories")


@pytest.mark.parametrize("name", corpora())
def test_tasks_and_languages_are_those_of_the_hub(name: str) -> None:
    story = find_corpus(name).story
    assert story.tasks
    assert set(story.tasks) <= set(WORDS["task_categories"])
    assert set(story.languages) <= set(resource("languages"))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, {}),
        ({"a": None}, {}),
        ({"a": "CC-BY-4.0"}, {"license": "cc-by-4.0"}),
        ({"a": "CC-BY-4.0", "b": "CC-BY-4.0"}, {"license": "cc-by-4.0"}),
        ({"a": "CC-BY-4.0", "b": "Apache-2.0"}, {"license": ["apache-2.0", "cc-by-4.0"]}),
        ({"a": "by track"}, {"license": "other", "license_name": "by-track"}),
        ({"a": "CC-BY-4.0", "b": "VCC: ask\n---\nus"}, {"license": "other", "license_name": "cc-by-4.0-vcc-ask-us"}),
        ({"a": "CC-BY-4.0", "b": None}, {"license": "other", "license_name": "cc-by-4.0-not-stated"}),
        ({"a": "MIT", "org/model": "CC-BY-NC-4.0"}, {"license": "mit"}),  # a model's terms are none of a source
    ],
)
def test_licences_in_the_words_of_the_hub(stated: dict[str, str | None], expected: dict[str, Any]) -> None:
    licences = {name: {"licence": licence, "redistribute": "rows"} for name, licence in stated.items()}
    manifest = Manifest.model_construct(config={"licences": licences}, models=("openai:org/model",))
    assert licence_facts(manifest) == expected
