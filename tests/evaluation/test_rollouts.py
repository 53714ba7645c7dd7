"""`earmark eval rollouts`: a policy whose every answer is known draws on a version; rewards, the record and what a
trainer gets are held against the count of these answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.evaluations import Policy
from earmark.schemas.instruction_rubrics import CORPUS
from earmark.schemas.mos_preferences import CORPUS as MOS
from earmark.tasks.evaluation.judging import asked_of
from earmark.tasks.evaluation.rollouts import RolloutOptions, _name, find_view, forecast, roll
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.exports.rows import select_view
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer
from tests.builds import build_version
from tests.instruction_rubrics.rubrics import (
    build_rubrics,
    caption,
    config_of,
    rubric_answer,
    said_to,
    write_captions,
)
from tests.mos_preferences.critiques import config_of as mos_config
from tests.mos_preferences.critiques import make_study
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer, critic_answer

SEED = 100


def rows_in(version: Version, corpus: Any, view: str, spill: Path) -> dict[str, dict[str, Any]]:
    """The view's rows by their ids."""
    spill.mkdir()
    with select_view(version, corpus, find_view(corpus, view), spill, None, None) as selection:
        batches = [batch for split in selection.counts for batch in selection.rows(split)]
        return {row["id"]: row for batch in batches for row in batch.to_pylist()}


def willing(words: str) -> int:
    """In how many of its first draws the policy of these tests says yes to all items of an instruction."""
    return len(words) % 5


def times_right(row: dict[str, Any]) -> int:
    """How often it is right about a row."""
    return willing(row["prompt"][1].strip()) if row["follows"] else 0


def first_alone(answers: list[bool]) -> float:
    """Return the reward of a yes to the first item and no other answer: a part of the items' balanced share."""
    kinds = [kind for kind in (True, False) if kind in answers]
    return 0.7 * answers[0] / answers.count(True) / len(kinds) if answers[0] else 0.0


def answer_of(words: str, draw: int) -> str:
    """What it says: yes to all; or what cannot be read, or one item of them."""
    if draw >= willing(words):
        return "I hear nothing" if draw % 2 else json.dumps([{"id": 1, "answer": "yes", "evidence": ""}])
    items = len(re.findall(r"^\d+: ", words, re.MULTILINE))
    return json.dumps([{"id": at, "answer": "yes", "evidence": "Heard."} for at in range(1, items + 1)])


@pytest.fixture
def built(tmp_path: Path) -> Any:
    """A version of rubrics, and a server that answers as the policy once it is built."""
    with LocalServer(Faults()) as server:
        server.answer = rubric_answer
        source = write_captions(tmp_path, "captions", map(caption, range(8)))
        version = build_rubrics(config_of(tmp_path, source, base_url=server.base_url), tmp_path / "store")
        rows = rows_in(version, CORPUS, "judge-grpo", tmp_path / "spill")
        known = {row["prompt"][1].strip() for row in rows.values()}

        def policy(body: dict[str, Any], content: str) -> str:
            words = max((words for words in known if words in said_to(body)), key=len)
            return answer_of(words, body["seed"] - SEED)

        server.answer = policy
        server.keep_bodies = True
        yield version, Store(tmp_path / "store"), server, rows


def policy_at(server: OpenAIServer, **options: Any) -> Policy:
    """The policy, whose seed tells its draws apart."""
    return Policy(annotator="openai:policy", base_url=server.base_url, seed=SEED, retry_base_s=0.01, **options)


@pytest.mark.slow
def test_rows_that_are_right_in_every_draw_are_left_out(built: Any, tmp_path: Path) -> None:
    version, store, server, rows = built
    expected = Counter(times_right(row) for row in rows.values())
    assert expected[4] > 0 < len(rows) - expected[4], "the policy must have easy rows and hard ones"
    asked = sum(server.faults.asked.values())
    assert forecast(version, CORPUS, store, policy_at(server), RolloutOptions())["to_ask"] == 4 * len(rows)
    facts, folder = roll(version, CORPUS, store, policy_at(server), RolloutOptions(), None)
    assert folder.is_relative_to(store.root / "rollouts")
    assert facts["manifest_sha256"] == version.manifest.digest()
    assert facts["right_in"] == {str(number): expected[number] for number in range(5)}
    drawn = pq.read_table(folder / "rollouts.parquet").to_pylist()
    assert [(row["id"], row["draw"]) for row in drawn] == [(name, draw) for name in rows for draw in range(4)]
    for row in drawn:
        of = rows[row["id"]]
        readable = row["draw"] < willing(of["prompt"][1].strip())
        yes_alone = 0.1 + 0.7 * (0.5 if any(of["answers"]) else 0.0)  # form, and half of the items' balanced share
        whole = 1.0 if of["follows"] else yes_alone
        reward = whole if readable else 0.0 if row["draw"] % 2 else first_alone(of["answers"])
        assert (row["right"], row["reward"]) == (readable and of["follows"], pytest.approx(reward))
    assert len({body["temperature"] for body in server.bodies[-4:]}) == 1, "all draws at one temperature"
    again, _ = roll(version, CORPUS, store, policy_at(server), RolloutOptions(), tmp_path / "again")
    assert again["right_in"] == facts["right_in"]
    assert sum(server.faults.asked.values()) == asked + 4 * len(rows), "no draw is paid for twice"

    wish = ExportOptions("ms-swift-grpo", "judge-grpo", rollouts=folder)
    record = export(version, CORPUS, store, tmp_path / "out", wish)
    assert sum(record["rows"].values()) == len(rows) - expected[4] == record["rollouts"]["kept"]
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    hard = Counter(json.dumps(row["answers"]) for row in rows.values() if times_right(row) < 4)
    assert Counter(json.dumps(line["answers"]) for line in lines) == hard


def test_each_policy_has_a_record_of_its_own() -> None:
    facts = {"view": "judge-grpo", "annotator": "openai:p", "splits": ["train"],
             "draws": 4, "limit": None}  # fmt: skip
    ways: list[dict[str, Any]] = [{}, {"temperature": 0.7}, {"temperature": 1.2}, {"top_p": 0.9}, {"max_tokens": 9}]
    names = [_name(facts, Policy(annotator="openai:p", **way)) for way in ways]
    assert names[0] == "judge-grpo-openai-p-train-4-draws"
    assert len(set(names)) == len(names)
    elsewhere = Policy(annotator="openai:p", base_url="http://other/v1", max_concurrency=2)
    assert _name(facts, elsewhere) == names[0], "where it is served and how fast changes no draw"


@pytest.mark.slow
def test_a_record_of_another_view_or_of_nothing_is_refused(built: Any, tmp_path: Path) -> None:
    version, store, server, _ = built
    _, folder = roll(version, CORPUS, store, policy_at(server), RolloutOptions(limit=1), tmp_path / "one")
    for where, view, fault in (
        (folder, "judge-sft", "view 'judge-grpo', and not"),
        (tmp_path, "judge-grpo", "expected a folder"),
    ):
        with pytest.raises(StoreError, match=fault):
            export(version, CORPUS, store, tmp_path / "out", ExportOptions("jsonl", view, rollouts=where))
    with pytest.raises(StoreError, match="such views: judge-grpo"):
        find_view(CORPUS, "judge-sft")
    with pytest.raises(ConfigError, match="temperature"):
        asked_of(Policy, "openai:policy", None, _toml(tmp_path, "temperature = 0"), "earmark eval rollouts")


def _toml(folder: Path, text: str) -> Path:
    (folder / "settings.toml").write_text(text)
    return folder / "settings.toml"


@pytest.mark.slow
def test_a_policy_of_critiques_is_drawn_by_the_listeners_order(tmp_path: Path) -> None:
    make_study(tmp_path)
    with LocalServer(Faults()) as server:
        server.answer = critic_answer
        version = build_version(mos_config(tmp_path, server.base_url, audio="index"), tmp_path / "store")
        server.answer = lambda body, content: "Noise: none.\nFinal Scores: [[7, 5]]"
        facts, folder = roll(version, MOS, Store(tmp_path / "store"), policy_at(server), RolloutOptions(draws=2), None)
    rows = rows_in(version, MOS, "critique-grpo", tmp_path / "spill")
    first = sum(row["better"] == "first" for row in rows.values())
    assert 0 < first < len(rows)
    assert facts["right_in"] == {"0": len(rows) - first, "1": 0, "2": first}
    drawn = pq.read_table(folder / "rollouts.parquet").to_pylist()
    assert all(row["right"] == (rows[row["id"]]["better"] == "first") for row in drawn)


@pytest.mark.slow
def test_the_command_says_what_is_kept(built: Any, tmp_path: Path) -> None:
    _, store, server, rows = built
    settings = _toml(tmp_path, f"seed = {SEED}")
    words = [
        "eval",
        "rollouts",
        CORPUS.name,
        "-a",
        "openai:policy",
        "--base-url",
        server.base_url,
        "--settings",
        str(settings),
    ]
    words += ["--store", str(store.root)]
    printed = CliRunner().invoke(app, [*words, "--dry-run"]).output
    assert f"to send: {4 * len(rows):,} requests" in printed
    printed = CliRunner().invoke(app, words).output
    kept = sum(times_right(row) < 4 for row in rows.values())
    assert f"{kept:,} of {len(rows):,} rows are not right in every draw" in printed
    assert re.search(r"earmark export instruction-rubrics@v1 --rollouts \S+", printed)
