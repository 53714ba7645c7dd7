"""What is registered stands wherever it is listed, and nothing else does."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.registry import Registry, registered
from earmark.tasks.annotation.backend import BACKENDS
from earmark.tasks.evaluation.kinds import KINDS
from earmark.tasks.exports.formats import FORMATS
from earmark.tasks.importers.caption_sets import CAPTION_LAYOUTS
from earmark.tasks.importers.lists import RATING_LAYOUTS
from earmark.tasks.importers.tracks import TRACK_LAYOUTS
from earmark.tasks.importers.votes import VOTE_LAYOUTS
from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.conftest import ROOT

OURS = {name for name, one in corpora().items() if one.package is None}


def text(path: str) -> str:
    """A file of the repository."""
    return (ROOT / path).read_text("utf-8")


def configs(folder: str) -> Iterable[str]:
    values = (tomllib.loads(path.read_text("utf-8")) for path in (ROOT / folder).glob("*.toml"))
    return (str(one["corpus"]) for one in values if "corpus" in one)


CORPORA: dict[str, Callable[[], Iterable[str]]] = {
    "the guides": lambda: (p.stem.replace("_", "-") for p in (ROOT / "flows").glob("*.md") if p.stem != "README"),
    "the demo's configs": lambda: configs("data/demo"),
    "configs of the papers' sizes": lambda: configs("deploy/configs"),
    "the plan of scale": lambda: (name for name in OURS if find_corpus(name).scale),
    "earmark list": lambda: (one["corpus"] for one in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)),
}


@pytest.mark.parametrize("place", CORPORA)
def test_every_corpus_is_in(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path))
    assert set(CORPORA[place]()) == OURS


def test_every_export_format_is_in_the_guide() -> None:
    table = text("flows/command/export.md").partition("| format | what it writes |\n")[2].partition("\n\n")[0]
    assert re.findall(r"`([a-z-]+)`", "\n".join(row.split("|")[1] for row in table.splitlines())) == [*FORMATS.own]


@pytest.mark.slow
def test_every_registration_is_read_from_the_text() -> None:
    """As the modules say when they are parsed, each name once in its room."""
    for files, mark in (
        ("importers/*", "register"),
        ("*/builtin", "register"),
        ("annotation/*", "backend"),
        ("exports/*", "Format"),
        ("evaluation/*", "register"),
    ):
        trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "tasks").glob(f"{files}.py")]
        calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == mark]
        called = [name.value for name in names if isinstance(name, ast.Constant)]
        found = [one.name for one in registered("earmark.tasks", f"{files}.py", mark)]
        assert sorted(found) == sorted(called) == sorted({*found}) != []


REGISTRIES = (RATING_LAYOUTS, TRACK_LAYOUTS, VOTE_LAYOUTS, CAPTION_LAYOUTS, BACKENDS, FORMATS, KINDS)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.what)
def test_every_entry_point_is_in_the_guide(registry: Registry[object]) -> None:
    part = text("flows/command/plugins.md")
    assert f'[project.entry-points."{registry.group}"]' in part
    assert f"`{registry.kind.__name__}`" in part
    assert not registry.prefix or f"| `{registry.prefix}NAME` |" in part
