"""The digest of what a corpus runs: words do not change it, rules do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from earmark.schemas.registry import named_in
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline.code import DATA, _closure, code_digest, parse, plain_sql
from earmark.tasks.pipeline.plan import _references
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.text.tag_words import list_files
from tests.conftest import ROOT

RULE = '''
"""What it is for."""
from pydantic import Field
from earmark.tasks.pipeline.progress import say, working

LIMIT = 3
"""Why three."""
STORY = Story("Clips", "What they are for.")


class Part:
    """A part."""

    count: int = Field(default=1, ge=0, description="How many.")


def keep(value: int) -> bool:
    """Whether it is kept."""
    with working("keep values", 3) as work:  # a comment
        work.advance(1)
    say("done")
    return value > LIMIT
'''


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("What it is for.", "What it was for."),
        ("Whether it is kept.", "Whether it stays."),
        ("Why three.", "Why not four."),
        ("What they are for.", "What they serve."),
        ("# a comment", "# another"),
        ("value > LIMIT", "(\n        value\n        > LIMIT\n    )"),
        ('"keep values"', '"keep what counts"'),
        ('say("done")', 'say(f"done with {value}")'),
        ('description="How many."', 'description="How many there are."'),
    ],
)
def test_words_change_nothing(before: str, after: str) -> None:
    assert before in RULE
    assert parse(RULE.replace(before, after)) == parse(RULE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("value > LIMIT", "value >= LIMIT"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("default=1", "default=2"),
        ('"keep values", 3', '"keep values", 4'),
        ("def keep", "def hold"),
        ("value: int", "value: float"),
        ("Field(default=1, ge=0", "Field(default=1, ge=False"),
    ],
)
def test_rules_change_it(before: str, after: str) -> None:
    assert before in RULE
    assert parse(RULE.replace(before, after)) != parse(RULE)


def test_comments_of_queries_change_nothing() -> None:
    query = "-- Grain: a row a clip.\nSELECT a,\n       b\nFROM c\n"
    assert plain_sql(query.replace("a row a clip", "one row a clip").replace("       b", " b")) == plain_sql(query)
    assert plain_sql(query.replace("FROM c", "FROM d")) != plain_sql(query)


def test_a_modules_data_count_and_their_comments_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lab_of_data"
    package.mkdir()
    data = {"__init__.py": "", "flow.py": "from lab_of_data import rules", "rules.py": "",
            "rules.toml": "least = 3  # why three", "rules.tsv": "a\tb\n", "other.toml": "least = 3"}  # fmt: skip
    for name, text in data.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    before = code_digest("lab_of_data.flow")
    for name, text in (("rules.toml", "# because\nleast=3"), ("other.toml", "least = 4")):
        (package / name).write_text(text)
        assert code_digest("lab_of_data.flow") == before, name
    for name, text in (("rules.toml", "least = 4"), ("rules.tsv", "a\tc\n")):
        (package / name).write_text(text)
        assert code_digest("lab_of_data.flow") != before, name
        (package / name).write_text(data[name])


def test_all_data_are_a_modules_or_inputs() -> None:
    """Word lists are inputs of the builds that read them; a paper's tables and the words of cards decide no row."""
    found = {path for room in ("tasks", "schemas") for end in DATA for path in (ROOT / room).rglob(f"*{end}")}
    assert ROOT / "tasks/instruction_rubrics/builtin_words.tsv" in found
    alone = {path for path in found if not path.with_suffix(".py").is_file()}
    lists = {path.resolve() for _, path in list_files()}
    tables, stories = ((ROOT / folder).glob("*.toml") for folder in ("tasks/evaluation/tables", "schemas/stories"))
    assert alone == lists | {*tables, *stories}


@pytest.mark.slow
def test_a_cache_that_cannot_be_used_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = code_digest("earmark.flows.captions")
    for content in (None, "[]", '{"a": 1}', "no JSON"):
        monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))
        if content is not None:
            (tmp_path / "cache/code.json").write_text(content)
        assert code_digest("earmark.flows.captions") == usual
    (tmp_path / "file").touch()
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "file/no-folder"))
    assert code_digest("earmark.flows.captions") == usual


CONFIG = """
corpus = "mos-preferences"
[[sources]]
name = "a"
format = "table"
files = { train = "a.csv" }
columns = { file = "file", mos = "mos" }
"""


@pytest.mark.slow
def test_a_build_is_stale_after_a_rule_and_not_after_words(tmp_path: Path) -> None:
    """In a copy of the code: a docstring, a progress message and a report's template are edited, then a rule."""
    house = tmp_path / "house"
    for room in ("flows", "tasks", "schemas", "prompts"):
        shutil.copytree(ROOT / room, house / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "deploy/import/earmark" / name, house)
    shutil.copy(ROOT / "CITATION.cff", house)
    (house / "import").mkdir()
    (house / "import" / "earmark").symlink_to(house)
    environment = {**os.environ, "PYTHONPATH": str(house / "import")}  # before the code that is being tested
    (house / "a.csv").write_text("file,mos\n" + "".join(f"c{i}.wav,{1 + i % 5}\n" for i in range(20)))
    (house / "c.toml").write_text(CONFIG)

    def build() -> str:
        words = ["build", "mos-preferences", "--config", "c.toml", "--store", "store"]
        command = [sys.executable, "-m", "earmark", *words]
        ended = subprocess.run(command, cwd=house, capture_output=True, text=True, timeout=300, env=environment)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    def edit(path: str, before: str, after: str) -> None:
        text = (house / path).read_text("utf-8")
        assert before in text, path
        (house / path).write_text(text.replace(before, after), "utf-8")

    assert "v1" in build()
    edit("flows/mos_preferences.py", "Rated clips of published", "Clips of published")
    edit("tasks/mos_preferences/pairs.py", 'working("draw pairs")', 'working("draw the pairs")')
    edit("tasks/store/report.html.j2", "Skip to the report", "Go to the report")
    edit("tasks/pipeline/report.py", "HEARD_S = 8.0", "HEARD_S = 9.0")
    edit("tasks/store/report.py", "FILTER_VALUES = 40", "FILTER_VALUES = 41")
    assert "up to date" in build()
    edit("schemas/reasons.toml", "# reading lists", "# of lists")
    assert "merge ratings" not in build()
    edit("schemas/reasons.toml", "where = 'not_selected'", "where = 'not_selected not_wanted'")
    assert "merge ratings" in build()  # it is built again, and finds the rows of before
    edit("tasks/mos_preferences/ratings.sql", "ORDER BY", "ORDER BY 1,")
    assert "up to date" not in build()


def covered(corpus: str) -> set[str]:
    """The modules whose code the key of a demo's build covers."""
    demo = ROOT / f"data/demo/{corpus}.toml"
    config = parse_config(find_corpus(corpus).config, read_toml(demo), demo)
    modules = (reference.partition(":")[0] for reference in _references(named_in(config)))
    return {
        name.removeprefix("earmark.tasks.") for name in _closure(find_corpus(corpus).flow.partition(":")[0], *modules)
    }


def test_layouts_backends_and_functions_that_a_config_names_are_covered_and_no_others() -> None:
    ratings, captions = covered("mos-preferences"), covered("captions")
    assert ratings >= {"importers.bvcc", "importers.vmc23", "importers.table", "annotation.builtin"}
    assert captions >= {"importers.tracks", "annotation.builtin", "captions.builtin"}
    others = {"captions.exports", "importers.nisqa", "annotation.gemini", "score_questions.builtin"}
    assert not (ratings | captions) & others
    assert "mos_preferences.builtin" in ratings - captions
