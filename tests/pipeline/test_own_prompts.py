"""Prompts of the user's own: what is sent, what is kept of them, when a build is stale, what cannot stand for ours."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.config import ChosenPrompts
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.tasks.annotation.prompts import (
    overriding,
    own_prompt,
    own_words,
    packaged,
    paper_structured,
    prompt_named,
    prompt_names,
    versions_of,
)
from earmark.tasks.pipeline.plan import plan_build
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, verify
from tests.annotation.conftest import model_server
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.pseudo_preferences.music import build_judged, config_of, make_pool, write_config
from tests.servers.openai_server import OpenAIServer, listening_answer

OURS = packaged("music-pair").text
ASKED = "Which clip is better in musicality, and which in alignment?"
OWN = {"music-pair": "mine/pair.md"}


server = model_server(listening_answer, keep_bodies=True)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A pool, and a prompt that asks in other words."""
    make_pool(tmp_path / "pool", 2)
    write(tmp_path / "pool", OURS.replace(ASKED, "Listen, then judge."))
    return tmp_path / "pool"


def write(pool: Path, text: str) -> None:
    (pool / "mine").mkdir(exist_ok=True)
    (pool / "mine" / "pair.md").write_text(text, encoding="utf-8")


def last_words(server: OpenAIServer) -> set[str]:
    """What the questions ended with."""
    ends = {body["messages"][-1]["content"][-1]["text"] for body in server.bodies}
    server.bodies.clear()
    return ends


@pytest.mark.slow
def test_own_words_are_sent_and_kept_and_decide_the_version(server: OpenAIServer, pool: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    usual = build_judged(config_of(pool, server.base_url), store)
    assert last_words(server) == {ASKED}
    own = build_judged(config_of(pool, server.base_url, asks=OWN), store)
    assert last_words(server) == {"Listen, then judge."}
    (prompt,) = {row["prompt"] for row in rows_of(own, "judgments")}
    assert prompt.startswith("music-pair@own-")
    assert {row["prompt"] for row in rows_of(usual, "judgments")} == {"music-pair@1"}
    assert (own.folder / "prompts" / f"{prompt}.md").read_text() == (pool / "mine" / "pair.md").read_text()
    assert not (usual.folder / "prompts").exists()
    assert not verify(own)

    shutil.move(pool / "mine", pool / "elsewhere")  # where it lies decides nothing
    moved = config_of(pool, server.base_url, asks={"music-pair": "elsewhere/pair.md"})
    assert build_judged(moved, store).name == own.name
    assert last_words(server) == set()
    write(pool, OURS.replace(ASKED, "Listen twice, then judge."))
    assert build_judged(config_of(pool, server.base_url, asks=OWN), store).name == "v3"
    assert last_words(server) == {"Listen twice, then judge."}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{{ audio(b) }}", ""), "expected {{ audio(b) }} somewhere: music-pair shows it to the model"),
        (("{{ audio(b) }}", "{{ audio(b) }} {{ title }}"), "line 43: 'title' is no variable of music-pair"),
        (("    alignment: {type: string, enum: [A, B, tie]}\n", ""), "schema.alignment: is missing"),
        (("musicality: {type: string, enum: [A, B, tie]}", "musicality: {type: string, enum: [A, B]}"), "enum"),
        (
            ("required: [musicality, alignment, reason]", "required: [musicality, alignment]"),
            "schema: expected required",
        ),
        (("version: 1\n", "version: 1\ntrusted: [text]\n"), "trusted: 'text' is text from outside"),
        (("{% endif %}\nClip A", "Clip A"), "# user"),
        (("version: 1\n", ""), "expected version of type int"),
        (("---\nname", "name"), "expected front matter"),
    ],
)
def test_a_prompt_that_cannot_stand_for_ours(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    write(tmp_path, OURS.replace(*change, 1))
    with pytest.raises(EarmarkError) as fault:
        own_prompt("music-pair", tmp_path / "mine" / "pair.md")
    assert message in str(fault.value)
    assert str(tmp_path / "mine" / "pair.md") in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("page", ["topics/instruction_rubrics/paper", "topics/score_questions/paper", "captions"])
def test_a_guide_s_files_precede_the_set_that_it_shows(page: str, tmp_path: Path) -> None:
    """The files are the set's own prompts in other words: what has its form can stand for it."""
    guide = (ROOT / f"flows/{page}.md").read_text("utf-8")
    shown = [tomllib.loads(text)["asks"] for text in re.findall(r"```toml\n(\[asks\]\n.*?)```", guide, re.DOTALL)]
    asks = {name: one for asks in shown for name, one in asks.items()}
    assert asks.pop("prompts") == "paper-structure"
    set_, files = paper_structured(), {name: tmp_path / path for name, path in asks.items()}
    (tmp_path / "printed").mkdir()
    for name, path in files.items():
        path.write_text(packaged(set_[name]).text.replace("# user\n", "# user\nTHE PRINTED WORDS\n"), "utf-8")
    with own_words({"prompts": "paper-structure", **files}) as chosen:
        assert {name for name in files if chosen[name].own and "THE PRINTED WORDS" in chosen[name].text} == {*files}
        assert {name: prompt_named(name).name for name in set_ if name not in files} == {
            name: paper for name, paper in set_.items() if name not in files
        }
        assert prompt_named("rubric-labels").name == "rubric-labels", "no table of the paper shows it"


def test_a_set_that_no_question_is_of_is_named(pool: Path, tmp_path: Path) -> None:
    for beside in ({}, {"music-pair": 1}):  # a prompt named beside the set is none of it
        asked = config_of(pool, "http://x/v1", asks={"prompts": "paper-structure", **beside})
        with pytest.raises(ConfigError, match=r"asks\.prompts: this build asks nothing by this set; it asks by music-"):
            plan_build(find_corpus("pseudo-preferences"), asked, Store(tmp_path / "store"))
    with pytest.raises(ConfigError, match="expected prompts = 'paper-structure', found 'paper'"):
        config_of(pool, "http://x/v1", asks={"prompts": "paper"})


def test_a_set_chosen_later_replaces_what_it_has_prompts_for() -> None:
    built: ChosenPrompts = {"score-question-tie": 1, "music-pair": 1}
    assert overriding(built, {"prompts": "paper-structure"}) == {"music-pair": 1, "prompts": "paper-structure"}
    assert overriding(built, {"score-question-tie": 1}) == built


def test_bounds_descriptions_and_a_schema_that_is_left_out_may_differ(tmp_path: Path) -> None:
    write(tmp_path, OURS.replace("maxLength: 600", "maxLength: 200, description: what was heard"))
    shorter = own_prompt("music-pair", tmp_path / "mine" / "pair.md")
    assert shorter.schema
    assert shorter.schema["properties"]["reason"]["maxLength"] == 200
    front, body = OURS.split("schema:")[0], OURS.split("---\n", 2)[2]
    write(tmp_path, f"{front}---\n{body}")
    assert own_prompt("music-pair", tmp_path / "mine" / "pair.md").schema == packaged("music-pair").schema


@pytest.mark.parametrize("name", prompt_names())
def test_every_prompt_can_stand_for_itself(name: str, tmp_path: Path) -> None:
    write(tmp_path, packaged(name).text)
    assert own_prompt(name, tmp_path / "mine" / "pair.md").schema == packaged(name).schema


@pytest.mark.parametrize("name", [name for name, files in prompt_names().items() if len(files) > 1])
def test_files_written_for_an_older_version_ask_what_they_asked(name: str, tmp_path: Path) -> None:
    older = packaged(name, versions_of(name)[0])
    write(tmp_path, older.text)
    assert own_prompt(name, tmp_path / "mine" / "pair.md").schema == older.schema
    front, body = older.text.split("schema:")[0], older.text.split("---\n", 2)[2]
    trusted = next((f"{line}\n" for line in older.text.splitlines() if line.startswith("trusted:")), "")
    head = front if "trusted:" in front else front + trusted
    write(tmp_path, f"{head}---\n{body}")
    own = own_prompt(name, tmp_path / "mine" / "pair.md")
    assert (own.schema, own.ordered) == (older.schema, False)
    write(tmp_path, f"{head}order: declared\n---\n{body}")
    own = own_prompt(name, tmp_path / "mine" / "pair.md")
    assert (own.schema, own.ordered) == (packaged(name).schema, True)


def test_names_that_are_none_and_prompts_that_are_not_used(pool: Path, tmp_path: Path) -> None:
    def plan(asks: dict[str, Any]) -> None:
        config = config_of(pool, "http://127.0.0.1:9/v1", asks=asks)
        plan_build(find_corpus("pseudo-preferences"), config, Store(tmp_path / "store"))

    with pytest.raises(EarmarkError, match=r"asks\.music-pear: no prompt has this name; did you mean 'music-pair'\?"):
        plan({"music-pear": "mine/pair.md"})
    with pytest.raises(EarmarkError, match=r"nowhere\.md: cannot be read"):
        plan({"music-pair": "mine/nowhere.md"})
    (pool / "mine" / "other.md").write_text(packaged("caption-mix").text)
    with pytest.raises(ConfigError, match=r"this build asks nothing by this prompt; it asks by music-pair$"):
        plan({"caption-mix": "mine/other.md"})


@pytest.mark.slow
def test_the_command_shows_renders_and_tries(server: OpenAIServer, pool: Path, tmp_path: Path) -> None:
    def earmark(*words: str) -> str:
        ended = CliRunner().invoke(app, ["prompts", *words])
        assert ended.exit_code == 0, ended.output
        return str(ended.stdout)

    assert earmark("show", "music-pair") == OURS
    assert {row["prompt"] for row in json.loads(earmark("list", "pseudo-preferences", "--json"))} >= {"music-pair"}
    config = str(write_config(pool, server.base_url, asks=OWN))
    of = ["pseudo-preferences", "--config", config, "--store", str(tmp_path / "store")]
    (shown,) = json.loads(earmark("render", *of, "--json"))
    assert not server.bodies  # nothing is asked
    content = [part for message in shown["messages"] for part in message["content"]]
    assert content[-1] == "Listen, then judge."
    assert sum(part.startswith("[audio: ") for part in content) == 2
    assert "Listen, then judge." in earmark("render", *of, "--row", "3")
    assert earmark("render", *of, "--row", "999") == "no question has number 999\n"

    tried = json.loads(earmark("try", *of, "--limit", "3", "--json"))["questions"]
    assert len(tried) == len(server.bodies) == 3
    assert all(one["answer"]["musicality"] in ("A", "B", "tie") and one["fault"] is None for one in tried)
    assert earmark("try", *of, "--limit", "3").endswith(
        "3 questions, 0 without an answer that can be used; 0.0000 USD\n"
    )
    assert len(server.bodies) == 3  # the answers stand in the ledger
    build_judged(config_of(pool, server.base_url, asks=OWN), tmp_path / "store")
    assert len({json.dumps(body, sort_keys=True) for body in server.bodies}) == len(server.bodies)  # none asked twice


def test_a_prompt_that_shows_text_from_outside_without_a_fence_is_refused(
    server: OpenAIServer, pool: Path, tmp_path: Path
) -> None:
    write(pool, OURS.replace('{{ text | fence("request") }}', "{{ text }}"))
    with pytest.raises(EarmarkError, match="without a fence"):
        build_judged(config_of(pool, server.base_url, asks=OWN), tmp_path / "store")
    assert not server.bodies
