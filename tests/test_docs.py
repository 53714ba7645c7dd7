"""README, Makefile and CI say what is so."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from earmark.flows.command.cli import app
from earmark.flows.command.guides import generated, options_table
from earmark.flows.command.old_names import MOVED
from earmark.schemas.annotation import Asked, Declarations
from earmark.schemas.config import BuildConfig, ClipsConfig, Decontaminate
from earmark.schemas.evaluations import Examinee, Scorer
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.rebuild import Rebuild
from earmark.schemas.study import Study
from earmark.schemas.toml import parse_config
from earmark.tasks.annotation.keys import PROVIDERS
from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.commands import COMMANDS
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")
COMMAND = (ROOT / "flows/command/README.md").read_text("utf-8")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "flows").rglob("*.md")),
    *sorted((ROOT / "deploy").glob("*.md")),
    *(ROOT / f"{room}/README.md" for room in ("data/demo", "deploy/label-studio", "prompts", "tests")),
    *(ROOT / name for name in ("CONTRIBUTING.md", ".github/SECURITY.md")),
]
DOCS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PAGES}
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def section(title: str) -> str:
    """The text below a heading of README or of the page of commands."""
    found = re.search(rf"^##? {re.escape(title)}\n(.*?)(?=^##? |\Z)", f"{README}\n{COMMAND}", re.DOTALL | re.MULTILINE)
    assert found, f"there is no section '{title}'"
    return found[1]


def table(title: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def targets() -> set[str]:
    """The Makefile's targets for people."""
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def paths_in_map() -> list[str]:
    """Paths of README's map; a name without a folder lies beside the first of its row."""
    paths = []
    for room, _ in table("The map"):
        first, *others = re.findall(r"`([^`]+)`", room)
        paths += [first, *(str(Path(first).parent / other) for other in others)]
    return paths


def test_commands_are_in_the_table_and_no_others() -> None:
    shown = set()
    for cell, _ in table("Commands"):
        first, *others = re.findall(r"`(?:earmark )?([a-z].*?)`", cell)
        command = max((one for one in COMMANDS if f"{first} ".startswith(f"{one} ")), key=len)
        shown |= {command, *(f"{command.rpartition(' ')[0]} {other.split()[0]}" for other in others)}
    assert shown == set(COMMANDS)


@pytest.mark.slow
def test_examples_are_commands_with_options_that_they_have() -> None:
    seen = 0
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", "\n".join(DOCS.values()), re.DOTALL | re.MULTILINE)
    for example in (text for language, text in blocks if language in ("", "bash")):
        for line in re.findall(r"^earmark (.*)", example.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(line, comments=True)
            command: Any = get_command(app)
            while hasattr(command, "resolve_command") and not words[0].startswith("-"):
                _, command, words = command.resolve_command(typer.Context(command), words)
            known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
            assert {word for word in words if word.startswith("-")} <= known, line
            seen += 1
    assert seen > 50


def test_few_commands_and_groups_stand_at_the_top() -> None:
    assert len({command.split()[0] for command in COMMANDS}) <= 20


def test_guides_and_messages_name_no_old_command() -> None:
    rooms = [path for room in ("flows", "tasks", "schemas", "prompts", "deploy") for path in (ROOT / room).rglob("*.*")]
    texts = [path.read_text("utf-8") for path in rooms if path.suffix in {".py", ".md", ".toml", ".j2", ".yaml"}]
    named = set(re.findall(r"earmark ([a-z-]+)", "\n".join([*texts, *DOCS.values()])))
    assert named & (MOVED.keys() - {"view"}) == set()


def test_the_page_of_variables_names_those_that_the_code_reads_and_no_others() -> None:
    page = (ROOT / "deploy/ENVIRONMENT.md").read_text("utf-8")
    code = "\n".join(
        path.read_text("utf-8") for room in ("flows", "tasks", "schemas") for path in (ROOT / room).rglob("*.py")
    )
    read = re.findall(r"os\.environ(?:\.get\(|\[)\"(\w+)\"", code)
    ours = set(re.findall(r"\bEARMARK_[A-Z_]*[A-Z]\b", code))
    assert ours == set(re.findall(r"\bEARMARK_[A-Z_]*[A-Z]\b", page))
    assert {*read, *PROVIDERS} <= set(re.findall(r"`(\w+)`", page))


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("page", [one for one in DOCS if one != "README.md" and "/reference/" not in one])
def test_pages_have_one_subject(page: str) -> None:
    """At most 800 words, without code and generated tables; README is held by its lines."""
    written = re.sub(r"^```.*?^```$|^<!-- .*?^<!-- .*?end.*?-->$", "", DOCS[page], flags=re.DOTALL | re.MULTILINE)
    assert len(written.split()) <= 800


def test_guides_say_what_the_declarations_say() -> None:
    files = generated()
    stale = [path.name for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    stale += [path.name for path in (ROOT / "flows/reference").iterdir() if path not in files]
    assert stale == [], "run: python -m earmark.flows.command.guides"


@pytest.mark.parametrize("there", [True, False])
def test_guides_do_not_depend_on_the_machine(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("earmark.schemas.instruction_rubrics.has_chromaprint", lambda: there)
    test_guides_say_what_the_declarations_say()


@pytest.mark.parametrize("page", DOCS)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", DOCS[page]):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize("path", paths_in_map())
def test_path_of_the_map_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(r"`((?:data/demo|deploy|flows|tasks|tests)/[\w./-]+\.\w+)`", "\n".join(DOCS.values())))),
)
def test_file_that_the_text_names_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_make_targets_exist() -> None:
    commands = re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", "\n".join(DOCS.values()), re.MULTILINE)
    named = {one or other for one, other in commands}
    assert {"demo", "test"} <= named
    assert named <= targets()


def test_targets_are_phony_and_explained() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == targets()
    assert set(re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)) == targets()


def test_ci_calls_the_same_tests() -> None:
    called = re.findall(r"\bmake ([a-z-]+)", (ROOT / ".ci/run").read_text("utf-8"))
    assert {"test", "demo"} <= set(called) <= targets()


def test_config_examples_parse() -> None:
    shown = set()
    for example in re.findall(r"```toml\n(.*?)```", "\n".join(DOCS.values()), re.DOTALL):
        values = tomllib.loads(example)
        if values.keys() == {"decontaminate"}:  # a part of any corpus's config
            assert Decontaminate.model_validate(values["decontaminate"]).versions
            continue
        if values.keys() == {"keep"}:  # too
            assert parse_config(ClipsConfig, {"corpus": "c", **values}, ROOT / "my.toml").clip_rule == (
                "dnsmos.toml", "ovrl_mos", ">=", 3,
            )  # fmt: skip
            continue
        if values.keys() == {"licences"}:  # too
            assert parse_config(BuildConfig, {"corpus": "c", **values}, ROOT / "my.toml").licences
            continue
        if values.keys() <= {"models", "judge"}:  # too
            (declared,) = Declarations.model_validate({"models": values["models"]}).models.values()
            paths = {"prompts": "prompts.jsonl", "generations": "generations.jsonl"}
            role = {"model": next(iter(values["models"]))}
            config = parse_config(PseudoPreferences, {"judge": role, **values, **paths}, ROOT / "my.toml")
            judge = config.judge.model_dump(exclude_none=True)
            assert {name: judge[name] for name in declared.flat()} == declared.flat()
            continue
        if values.keys() == {"asks"}:  # too; tests/captions builds with one
            assert values["asks"].keys() - {"prompts"} <= {path.stem for path in (ROOT / "prompts").rglob("*.md")}
            continue
        if "builds" in values:
            assert Rebuild.model_validate(values).builds[0].publish
            continue
        if "scores" in values:
            assert Scorer.model_validate(values).form == "callable"
            continue
        if "annotators" in values:
            assert parse_config(Study, values, ROOT / "my.toml").kind == "ratings"
            continue
        shown.add(parse_config(find_corpus(values["corpus"]).config, values, ROOT / "my.toml").corpus)
    assert shown == set(corpora())


def declared_names() -> tuple[set[str], set[str]]:
    """Options of all configs and columns of all tables, by `table.name`; and the tables whose keys are free."""
    tables = [table for corpus in corpora() for table in find_corpus(corpus).tables]
    names = {f"{table.name}.{column}" for table in tables for column in table.schema.names}
    texts = [text for page, text in DOCS.items() if "/reference/" in page]
    texts += [options_table(model) for model in (Study, Scorer, Examinee, Rebuild)]
    free = set()
    for key, kind, what in re.findall(r"^\| `([^`]+)` \| ([^|]*) \|[^|]*\| (.*) \|$", "\n".join(texts), re.MULTILINE):
        name = re.sub(r"\[\]|\.NAME|\.…", "", key)
        names.add(name)
        if kind.startswith("table of"):
            free.add(name.rpartition(".")[2])
        if key.endswith(".…"):  # a role, or a part with the options of another
            like = re.search(r"The options of `([^`]+)`", what)
            start = f"{like[1]}." if like else ""
            others = {one.removeprefix(start) for one in names if start and one.startswith(start)}
            names |= {f"{name}.{one}" for one in others or Asked.spelling().values()}
    return names, free


def named_options(text: str, tables: set[str]) -> set[str]:
    """The options in a page's inline code: `[table]`, `key = value`, and `table.key` of a known table."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    inline = "\n".join(re.findall(r"`([^`\n]+)`", prose))
    heads = re.findall(r"^\[+([a-z_.]+?)(?:\.[A-Z]+)?\]+$", inline, re.MULTILINE)
    values = re.findall(r"^([a-z_.]+) = [\"'\[{\dtf]", inline, re.MULTILINE)
    dotted = re.findall(r"^([a-z_]+(?:\.[a-z_]+)+)$", inline, re.MULTILINE)
    files = {"csv", "json", "jsonl", "md", "onnx", "parquet", "toml"}
    return {
        *heads,
        *values,
        *(one for one in dotted if one.split(".")[0] in tables and Path(one).suffix[1:] not in files),
    }


def test_guides_name_options_that_are_declared() -> None:
    names, free = declared_names()
    ends = {name.split(".", start)[-1] for name in names for start in range(name.count(".") + 1)}
    tables = {part for name in names for part in name.split(".")[:-1]}
    guides = {page: text for page, text in DOCS.items() if page.startswith("flows/") and "/reference/" not in page}
    named = {(page, option) for page, text in guides.items() for option in named_options(text, tables)}
    assert len(named) > 100
    assert {(page, one) for page, one in named if one not in ends and not free & {*one.split(".")[:-1]}} == set()


def test_the_page_on_a_corpus_of_ones_own_shows_the_corpus_that_a_test_builds() -> None:
    shown = re.findall(r"```python\n(.*?)```", DOCS["flows/command/own-corpus.md"], re.DOTALL)
    package = ROOT / "tests/pipeline/plugin/earmark_tempos"
    sources = [(package / name).read_text("utf-8") for name in ("flow.py", "steps.py")]
    assert len(shown) == 2
    assert all(code in source for code, source in zip(shown, sources, strict=True))


def test_the_notice_names_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    notice = (ROOT / "NOTICE").read_text("utf-8")
    named = {re.split(r"[^\w-]", one, maxsplit=1)[0] for one in asked}
    assert {name for name in named if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", notice)} == set()
