"""The house: who may import whom, and how queries introduce themselves."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from earmark.tasks.pipeline.registry import corpora

ROOT = Path(__file__).resolve().parents[1]
OURS = "earmark."
CORPORA = tuple(name.replace("-", "_") for name, one in corpora().items() if one.package is None)
# Each floor of the house may import those below it. Within a floor a room knows no other, but for what WITHIN names.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("schemas",),
    ("annotation", "audio", "importers", "store"),
    ("text",),
    ("pipeline",),
    ("evaluation", "exports", "release"),
    ("people",),
    CORPORA,
    ("flows",),
)
WITHIN = {("evaluation", "exports")}  # models are asked about what exports write
FORMER = "build.py"  # tells plug-ins of 1.0 where their names are now
NO_PREFECT = {"schemas", "annotation", "audio", "importers", "people", "store", "text"}
MOST_ROOMS, MOST_ARROWS = 19, 85
MODULES = sorted(
    path.relative_to(ROOT) for room in ("flows", "tasks", "schemas") for path in (ROOT / room).rglob("*.py")
)
QUERIES = sorted(path.relative_to(ROOT) for path in (ROOT / "tasks").rglob("*.sql") if "migrations" not in path.parts)


TOP = {
    *("pyproject.toml", "README.md", "flows", "tasks", "prompts", "schemas", "data", "tests", "deploy"),
    # housekeeping, as people and programs look for it
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "constraints.txt"),
}


def test_the_top_level_stays_small() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    assert {path.split("/")[0] for path in listed.stdout.splitlines() if not path.startswith(".")} == TOP


def room_of(name: str) -> str:
    """The room that a dotted name or a path's parts joined by dots lie in: `tasks.store.card` lies in `store`."""
    parts = name.split(".")
    return parts[1] if parts[0] == "tasks" and len(parts) > 1 else parts[0]


def arrows() -> dict[tuple[str, str], list[Path]]:
    """Which room imports which, with the modules that do."""
    drawn: dict[tuple[str, str], list[Path]] = {}
    for path in MODULES:
        here = room_of(".".join(path.parts))
        for name in imports(path):
            name = name.removeprefix(OURS) if name.startswith(OURS) else ""
            if name and name != "tasks" and room_of(name) not in (here, "prompts"):
                drawn.setdefault((here, room_of(name)), []).append(path)
    return drawn


@cache
def imports(path: Path, *, typed: bool = True) -> tuple[str, ...]:
    """Dotted names that a module imports, wherever in it; relative imports are made absolute.

    Args:
        typed: with the imports for type checkers alone.
    """
    found: list[str] = []
    source = (ROOT / path).read_bytes()
    tree = ast.parse(source)
    if not typed and b"TYPE_CHECKING" in source:
        tree = Running().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ("earmark", *path.parts[: len(path.parts) - node.level]) if node.level else ()
            module = ".".join([*package, *([node.module] if node.module else [])])
            found += (module, *(f"{module}.{alias.name}" for alias in node.names))
    return tuple(found)


class Running(ast.NodeTransformer):
    """Drops what stands below `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def within(name: str, room: str) -> bool:
    """Whether a dotted name is a room or lies in it."""
    return name == room or name.startswith(f"{room}.")


@pytest.mark.slow
def test_imports_go_down() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    stray = {
        arrow: sorted(set(map(str, paths)))
        for arrow, paths in arrows().items()
        if not floor[arrow[1]] < floor[arrow[0]] and arrow not in WITHIN
    }
    assert stray == {}


@pytest.mark.slow
def test_few_arrows(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = arrows()
    with capsys.disabled():
        print(f"\n{len(drawn)} arrows between rooms")
    assert len(drawn) <= MOST_ARROWS


@pytest.mark.parametrize("room", sorted({room_of(".".join(path.parts)) for path in MODULES}))
def test_no_circle_inside_a_room(room: str) -> None:
    """Imports inside functions count, those for type checkers alone do not: they run in no order."""
    own = {f"{OURS}{'.'.join(path.with_suffix('').parts)}": path for path in MODULES}
    own = {name: path for name, path in own.items() if room_of(name.removeprefix(OURS)) == room}
    graph = {name: own.keys() & {*imports(path, typed=False)} - {name} for name, path in own.items()}
    TopologicalSorter(graph).prepare()


def test_no_module_lies_loose() -> None:
    assert {path.name for path in (ROOT / "tasks").glob("*.py")} == {"__init__.py", FORMER}
    rooms = {path.parts[1] for path in MODULES if path.parts[0] == "tasks" and len(path.parts) > 2}
    assert len(rooms) <= MOST_ROOMS
    assert rooms == {room for floor in FLOORS for room in floor} - {"schemas", "flows"}


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_has_one_name(corpus: str) -> None:
    for place in (f"flows/{corpus}.py", f"schemas/{corpus}.py", f"tasks/{corpus}", f"tests/{corpus}"):
        assert (ROOT / place).exists(), place


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_engine_rooms_know_no_prefect(path: Path) -> None:
    if room_of(".".join(path.parts)) in NO_PREFECT:
        assert not [name for name in imports(path) if within(name, "prefect")]


@pytest.mark.parametrize("path", QUERIES, ids=str)
def test_query_states_its_grain(path: Path) -> None:
    text = (ROOT / path).read_text("utf-8")
    assert text.startswith("-- Grain: ")


def test_there_are_queries_and_modules() -> None:
    assert len(QUERIES) > 10
    assert {path.parts[0] for path in MODULES} == {"flows", "tasks", "schemas"}


@pytest.mark.slow
def test_class_names_are_unique() -> None:
    paths = [*MODULES, *(path.relative_to(ROOT) for room in ("data", "deploy") for path in (ROOT / room).glob("**/*.py")
                         if "import" not in path.parts)]  # fmt: skip
    trees = (ast.parse((ROOT / path).read_bytes()) for path in paths)
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_without_a_noun() -> None:
    assert not [path for path in MODULES if {"utils", "common", "helpers"} & {*path.parts[:-1], path.stem}]


def test_imports_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/m.py").write_text(
        "from . import tables\ndef f():\n    from earmark.tasks.audio import probe\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = list(imports(Path("schemas/m.py")))
    assert found == ["earmark.schemas", "earmark.schemas.tables", "earmark.tasks.audio", "earmark.tasks.audio.probe"]


def test_no_folder_of_tests_is_left_out(request: pytest.FixtureRequest) -> None:
    """Pytest skips folders named `build`, `dist`, `venv`, …: 440 tests were green because none of them ran."""
    left_out = request.config.getini("norecursedirs")
    folders = {part for path in (ROOT / "tests").rglob("test_*.py") for part in path.relative_to(ROOT).parts[:-1]}
    assert "pipeline" in folders
    assert not [one for one in folders if any(fnmatch(one, pattern) for pattern in left_out)]
