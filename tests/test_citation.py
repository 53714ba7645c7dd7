"""CITATION.cff: what the Citation File Format 1.2.0 requires, and what else states the same."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml

from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.conftest import ROOT

CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
# Of the format's schema: https://github.com/citation-file-format/citation-file-format/blob/1.2.0/schema-guide.md
REQUIRED = {"authors", "cff-version", "message", "title"}
ALLOWED = REQUIRED | {
    *("abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url"),
    *("preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url"),
    "version",
}
OF_REFERENCE = {"authors", "title", "type", "abbreviation", "doi", "url", "year"}
PERSON = {"family-names", "given-names"}


def test_what_the_format_requires() -> None:
    assert REQUIRED <= CITATION.keys() <= ALLOWED
    assert (CITATION["cff-version"], CITATION["type"]) == ("1.2.0", "software")
    assert all(isinstance(CITATION[name], str) for name in ("message", "title", "version", "license"))
    assert CITATION["authors"] == [{"name": "Earmark maintainers"}]


@pytest.mark.parametrize("paper", CITATION["references"], ids=lambda paper: paper["abbreviation"])
def test_a_paper_is_a_reference(paper: dict[str, Any]) -> None:
    assert paper.keys() <= OF_REFERENCE
    assert paper["type"] == "article"
    assert paper["title"]
    assert paper["url"].startswith("https://arxiv.org/abs/")
    assert isinstance(paper["year"], int)
    assert paper["authors"]
    for person in paper["authors"]:
        assert person.keys() == PERSON
        assert all(isinstance(name, str) and name.strip() for name in person.values())


def test_it_says_what_the_package_and_the_corpora_say() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (CITATION["version"], CITATION["license"]) == (project["version"], project["license"])
    assert CITATION["title"].lower() == project["name"]
    known = " ".join(paper["abbreviation"] for paper in CITATION["references"])
    named = {word for name in corpora() for word in find_corpus(name).paper.split(", ")}
    pseudo = {"CMI-Pref", "CMI-Pref-Pseudo"}  # parts of CMI-RewardBench
    assert named - pseudo == set(known.split())
