"""The house: who may import whom, and how queries introduce themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("flows", "tasks", "schemas", "prompts", "tests")
ENGINE_ROOMS = ("annotation", "audio", "store", "importers", "text")
SHARED_ROOMS = ("evaluation", "exports", "forum", "sql", "words")  # with the engine rooms; all others are one corpus's
MODULES = sorted(
    path.relative_to(ROOT) for room in ("flows", "tasks", "schemas") for path in (ROOT / room).rglob("*.py")
)
QUERIES = sorted(path.relative_to(ROOT) for path in (ROOT / "tasks/sql").rglob("*.sql"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it; relative imports are made absolute."""
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = ".".join([*package, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def allowed(path: Path) -> tuple[str, ...]:
    """The rooms of ours that a module may import."""
    match path.parts:
        case ("schemas", *_):
            return ("schemas",)
        case ("tasks", room, _, *_) if room in ENGINE_ROOMS:
            return ("schemas", f"tasks.{room}")
        case ("tasks", *_):
            return ("schemas", "tasks", "prompts")
        case _:
            return ("schemas", "tasks", "flows", "prompts")


def within(name: str, room: str) -> bool:
    """Whether a dotted name is a room or lies in it."""
    return name == room or name.startswith(f"{room}.")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way(path: Path) -> None:
    ours = [name for name in imports(path) if name.partition(".")[0] in OURS]
    rooms = allowed(path)
    stray = [
        name
        for name in ours
        if not any(within(name, room) for room in rooms) and not any(within(room, name) for room in rooms)
    ]
    assert stray == [], f"{path} may import {', '.join(rooms)}"


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "tasks"], ids=str)
def test_a_corpus_knows_no_other(path: Path) -> None:
    rooms = {path.parts[1] for path in MODULES if path.parts[0] == "tasks" and len(path.parts) > 2}
    corpora = rooms - {*ENGINE_ROOMS, *SHARED_ROOMS, path.parts[1]}
    assert not [name for name in imports(path) for room in corpora if within(name, f"tasks.{room}")]


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[1] in ENGINE_ROOMS], ids=str)
def test_engine_rooms_know_no_prefect(path: Path) -> None:
    assert not [name for name in imports(path) if within(name, "prefect")]


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "schemas"], ids=str)
def test_schemas_know_no_prefect(path: Path) -> None:
    assert not [name for name in imports(path) if within(name, "prefect")]


@pytest.mark.parametrize("path", QUERIES, ids=str)
def test_query_states_its_grain(path: Path) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert text.startswith("-- Grain: ")


def test_there_are_queries_and_modules() -> None:
    assert len(QUERIES) > 10
    assert {path.parts[0] for path in MODULES} == {"flows", "tasks", "schemas"}


def test_no_module_without_a_noun() -> None:
    assert not [path for path in MODULES if {"utils", "common", "helpers"} & {*path.parts[:-1], path.stem}]


def test_imports_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/m.py").write_text("from . import tables\ndef f():\n    from tasks.audio import probe\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = list(imports(Path("schemas/m.py")))
    assert found == ["schemas", "schemas.tables", "tasks.audio", "tasks.audio.probe"]
