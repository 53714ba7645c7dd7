"""The YAML at a card's head, held to what the Hub publishes about it."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from earmark.schemas.config import Licence
from earmark.schemas.corpus import Story
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.card import SIZES, citations, licence_facts, render_card
from earmark.tasks.store.manifest import Manifest
from tests.conftest import ROOT
from tests.test_citation import CITATION

WORDS = json.loads((ROOT / "schemas/hub_vocabulary.json").read_text("utf-8"))


CREATORS = resources.files("datasets.utils.resources").joinpath("creators.json")


def resource(name: str) -> list[str]:
    """A list that `datasets` ships."""
    words: list[str] = json.loads(resources.files("datasets.utils.resources").joinpath(f"{name}.json").read_text())
    return words


def test_each_corpus_cites_the_papers_whose_method_it_follows() -> None:
    """Fields are read by a pattern of their own, from CITATION.cff's facts."""
    for name in corpora():
        entries = citations(find_corpus(name).story.references)
        assert len(entries) == len(set(find_corpus(name).paper.replace("CMI-Pref, CMI-RewardBench", "one").split(", ")))
        for entry in entries:
            found = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
            (paper,) = [one for one in CITATION["references"] if one["url"] == found["url"]]
            assert found["title"] == f"{{{paper['title']}}}"
            assert found["author"].count(" and ") == len(paper["authors"]) - 1
            assert re.fullmatch(r"\d{4}\.\d{5}", found["eprint"])
            assert entry.count("{") == entry.count("}")
    assert citations(("A paper: of ours.",)) == []


def test_a_story_is_of_a_corpus_and_of_the_declared_types() -> None:
    for path in (ROOT / "schemas/stories").iterdir():
        story = find_corpus(path.stem.replace("_", "-")).story
        assert story == TypeAdapter(Story).validate_python(vars(story))
        texts = [line for value in vars(story).values() for line in ([value] if isinstance(value, str) else value)]
        assert not [line for line in texts if " ".join(line.split()) != line], path


def test_sizes_are_those_of_the_hub() -> None:
    assert ["unknown", *(name for _, name in SIZES), "n>1T"] == resource("size_categories")


@pytest.mark.parametrize("name", corpora())
def test_tasks_and_languages_are_those_of_the_hub(name: str) -> None:
    story = find_corpus(name).story
    assert story.tasks
    assert set(story.tasks) <= set(WORDS["task_categories"])
    assert set(story.annotations) <= set(json.loads(CREATORS.read_text("utf-8"))["annotations"])
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
    licences = {name: Licence(licence=licence) for name, licence in stated.items()}
    assert licence_facts(licences, set(), ("openai:org/model",)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"sources": [{"name": "a"}, {"name": "b"}]}, {"license": "other", "license_name": "cc-by-4.0-not-stated"}),
        ({"sources": [{"name": "a"}]}, {"license": "cc-by-4.0"}),
        ({"source": {"name": "b"}}, {"license": "other", "license_name": "cc-by-4.0-not-stated"}),
        ({"source": {"name": "a"}}, {"license": "cc-by-4.0"}),
        ({"source": "filenames.csv", "sources": {"name": "of a plug-in"}}, {"license": "cc-by-4.0"}),
    ],
)
def test_a_card_states_no_licence_of_a_source_that_has_none(config: dict[str, Any], expected: dict[str, Any]) -> None:
    config = {**config, "licences": {"a": {"licence": "CC-BY-4.0", "redistribute": "rows"}}}
    manifest = Manifest(
        corpus="captions", version="v1", build_key="", inputs={}, config=config, code="", libraries={}, steps=(),
        rejects={}, rows={}, files=(),
    )  # fmt: skip
    head = yaml.safe_load(render_card(manifest, (), find_corpus("captions").story, None, {}).split("---\n")[1])
    assert {name: value for name, value in head.items() if name.startswith("license")} == expected
