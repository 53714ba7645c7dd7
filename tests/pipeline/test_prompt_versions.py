"""Versions of the package's prompts: what a config asks by, what reaches a server, what dry runs say of newer ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from earmark.flows import score_questions
from earmark.schemas.errors import EarmarkError
from earmark.schemas.questions import Message
from earmark.schemas.score_questions import CORPUS
from earmark.schemas.toml import parse_config
from earmark.tasks.annotation.prompts import packaged
from earmark.tasks.annotation.request import Request
from earmark.tasks.pipeline.plan import plan_build, staying
from earmark.tasks.score_questions.requests import DISTRACTORS, REWRITING
from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import model_server
from tests.builds import forecast
from tests.score_questions.questions import BODIES, asked_by, build_questions, config_of, exam_answer, forum_is, thread
from tests.servers.openai_server import OpenAIServer

OLD = dict.fromkeys((REWRITING, DISTRACTORS), 1)
THREADS = [thread(number) for number in range(4)]


server = model_server(exam_answer, keep_bodies=True)


def schemas_sent(server: OpenAIServer, name: str) -> list[dict[str, Any]]:
    """The schemas by which a server was asked a prompt's question."""
    forms = [(body.get("response_format") or {}).get("json_schema") or {} for body in server.bodies]
    return [form["schema"] for form in forms if form.get("name") == name]


@pytest.mark.slow
def test_a_first_build_sends_the_newest_prompts_schema_as_declared_and_bound_to_the_row(
    tmp_path: Path, server: OpenAIServer
) -> None:
    version = build_questions(config_of(tmp_path, **asked_by(server.base_url)), tmp_path / "store", THREADS)
    assert {f"{REWRITING}@2", f"{DISTRACTORS}@2"} <= version.manifest.prompts.keys()
    declared = list(packaged(REWRITING).schema["properties"])  # type: ignore[index]
    assert declared != sorted(declared)
    for schema in schemas_sent(server, REWRITING):
        assert list(schema["properties"]) == declared
        options = schema["properties"]["options"]
        assert options["items"]["properties"]["comment"]["maximum"] == options["maxItems"] == len(BODIES)
    assert len({json.dumps(one) for one in schemas_sent(server, REWRITING)}) == 1
    for schema in schemas_sent(server, DISTRACTORS):
        assert schema["required"] == list(schema["properties"])


def test_a_config_that_names_version_1_asks_as_release_1_0_0_did(tmp_path: Path, server: OpenAIServer) -> None:
    config = config_of(tmp_path, **asked_by(server.base_url), asks=OLD)
    version = build_questions(config, tmp_path / "store", THREADS)
    assert f"{REWRITING}@1" in version.manifest.prompts
    assert {tuple(one["properties"]) for one in schemas_sent(server, REWRITING)} == {
        ("options", "question", "usable", "why")
    }
    asked = Request("openai:m", (Message.of("user", "?"),), packaged(REWRITING, 1).ask())
    assert asked.key == "ad8442fb41edf9ca7df31590c38c2ddcadd2b01fa41b8e6b75db05788df18a6e"  # as release 1.0.0 has it


def test_the_order_of_a_schema_is_part_of_the_key_of_a_prompt_that_declares_it() -> None:
    prompt = packaged(REWRITING)
    schema: Any = prompt.schema
    turned = {**schema, "properties": dict(reversed(schema["properties"].items()))}
    keys = [
        Request("openai:m", (Message.of("user", "?"),), type(ask).of(one, ask.name, ordered=ordered)).key
        for ask in [prompt.ask(most=4, comments=[1, 2])]
        for ordered in (True, False)
        for one in (schema, turned)
    ]
    assert len({*keys[:2]}) == 2
    assert keys[2] == keys[3]


@pytest.mark.slow
def test_a_config_that_names_no_version_stays_on_that_of_its_newest_build(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plain = config_of(tmp_path)
    first = build_questions(config_of(tmp_path, asks=OLD), store.root, THREADS)
    assert staying(plain, store, CORPUS.name).stays == {REWRITING: 1, DISTRACTORS: 1}
    again = build_questions(plain, store.root, THREADS)
    assert again == first
    other = config_of(tmp_path, seed=3)  # whose builds are others: OLD was named, so it says nothing of this one
    assert staying(other, store, CORPUS.name).stays == {}
    newest = build_questions(config_of(tmp_path, asks=dict.fromkeys(OLD, 2)), store.root, THREADS)
    assert newest != first
    assert staying(plain, store, CORPUS.name).stays == {}


def test_a_build_that_was_interrupted_decides_where_there_is_no_version(tmp_path: Path) -> None:
    store, plain = Store(tmp_path / "store"), config_of(tmp_path)
    plan = plan_build(CORPUS, config_of(tmp_path, asks={REWRITING: 1}), store)
    with plan.stage() as stage:
        (stage.folder / "steps" / "begun").touch()
    assert staying(plain, store, CORPUS.name).stays == {REWRITING: 1}
    shutil.rmtree(store.folder(CORPUS.name) / STAGING)
    assert staying(plain, store, CORPUS.name).stays == {}
    steps = store.folder(CORPUS.name) / STAGING / "0/steps"
    steps.mkdir(parents=True)
    assert staying(plain, store, CORPUS.name).stays == {}, "it was killed before its first step"
    (steps / "import.json").touch()  # as release 1.0.0 left it
    assert staying(plain, store, CORPUS.name).stays.items() >= {REWRITING: 1, DISTRACTORS: 1}.items()


def test_a_dry_run_counts_what_a_newer_prompt_would_ask_anew(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plain = config_of(tmp_path)
    build_questions(config_of(tmp_path, asks=OLD), store.root, THREADS)
    with forum_is(THREADS):
        asks = forecast(CORPUS, score_questions.build.story, plain, store)
    assert asks is not None
    assert asks["newer"] == {f"{REWRITING}@2": len(THREADS)}


def test_a_version_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EarmarkError, match=rf"asks\.{REWRITING}: expected one of the versions 1, 2, found 7"):
        plan_build(CORPUS, config_of(tmp_path, asks={REWRITING: 7}), Store(tmp_path / "store"))
    source = {"submissions": ["dump.ndjson"], "comments": ["dump.ndjson"]}
    old = {"corpus": CORPUS.name, "source": source, "asks": {REWRITING: {"version": 2}}}
    with pytest.raises(EarmarkError, match=rf"asks: .*expected \[asks\] with {REWRITING} = 2"):
        parse_config(CORPUS.config, old, tmp_path / "my.toml")


def test_a_bound_that_names_no_value_is_refused(tmp_path: Path) -> None:
    text = packaged(REWRITING).text.replace("maximum: $comments", "maximum: $coments")
    (tmp_path / "mine.md").write_text(text)
    with pytest.raises(EarmarkError, match=r"schema: '\$coments' is no variable of .*; did you mean 'comments'\?"):
        plan_build(CORPUS, config_of(tmp_path, asks={REWRITING: "mine.md"}), Store(tmp_path / "store"))
