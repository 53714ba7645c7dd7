"""Versions that hold what release 1.0.0 believed are named: half corpora and answers, thoughts, fences, guesses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.tasks.release.known_faults import known_faults
from earmark.tasks.store.manifest import MANIFEST, Manifest
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer
from tests.before.fixture import unpack
from tests.captions.captions import QUICK, build_captions, config_of, direct, write_tracks
from tests.servers.faults import Faults
from tests.servers.openai_server import caption_answer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Captions of a served model that a served judge has read, as if they were made by the rules of the release."""
    folder = tmp_path_factory.mktemp("judged")
    write_tracks(folder, 3)
    with LocalServer(Faults()) as server:
        server.answer = caption_answer
        judge = {"annotator": "openai:judges", "base_url": server.base_url, "action": "flag", **QUICK}
        version = build_captions(config_of(folder, {**direct(server.base_url), "judge": judge}), folder / "store")
    return with_manifest(version, rules=1)


@pytest.fixture
def version(made: Version, tmp_path: Path) -> Version:
    """A copy that a test may spoil."""
    store = made.folder.parents[1]
    for path in [made.folder / MANIFEST, *made.folder.rglob("*.parquet"), store / "ledger.sqlite"]:
        copy = tmp_path / path.relative_to(store)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return Store(tmp_path).find("captions@v1")


def with_manifest(version: Version, **values: Any) -> Version:
    path = version.folder / MANIFEST
    values = {**version.manifest.model_dump(mode="json"), **values}
    path.write_text(Manifest.model_validate(values).to_json(), encoding="utf-8", newline="\n")
    return Version(version.corpus, version.folder)


def spoil_answers(version: Version, change: Callable[[dict[str, Any]], None], model: str) -> None:
    """Change what the ledger received from a model."""
    with closing(sqlite3.connect(version.folder.parents[1] / "ledger.sqlite")) as ledger, ledger:
        query = "SELECT a.rowid, a.raw FROM attempts a JOIN requests r ON r.id = a.request_id WHERE r.model = ?"
        for row, raw in ledger.execute(query, (model,)).fetchall():
            body = json.loads(raw)
            change(body["choices"][0])
            ledger.execute("UPDATE attempts SET raw = ? WHERE rowid = ?", (json.dumps(body), row))


def spoil_text(version: Version, text: str) -> None:
    """Put a text in the place of the first caption."""
    path = version.files_there("captions")[0]
    table = pq.read_table(path)
    texts = [text, *table["text"].to_pylist()[1:]]
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", pa.array(texts)), path)


def names(version: Version) -> list[str]:
    """The faults that are named."""
    return [fault.name for fault in known_faults(version) if fault.name != "sound-cut"]


def test_what_the_release_made_well_is_not_named(version: Version) -> None:
    assert names(version) == []


def test_a_version_of_today_s_rules_is_not_named(version: Version) -> None:
    spoil_text(version, "<think>hm</think> A piano.")
    assert names(with_manifest(version, rules=2)) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("◁think▷A piano, or a harp?", "thought-as-answer"),
        ("[THINK]I am not sure.[/THINK] A piano.", "thought-as-answer"),
        ("<|channel|>analysis<|message|>A piano.", "thought-as-answer"),
        ("A piano.<|im_end|>", "thought-as-answer"),
        ("<caption-8e12f0a9b3>\nA piano.", "fence-in-text"),
        ("A piano with <b>bold</b> strokes.", None),
        ("Op. 12-8e12f0a9b3 is for the piano.", None),
    ],
)
def test_marks_in_texts_are_named(version: Version, text: str, named: str | None) -> None:
    spoil_text(version, text)
    assert names(version) == ([named] if named else [])


@pytest.mark.parametrize("ended", ["abort", "error", None, {"type": "abort"}, "OTHER"])
def test_half_answers_are_named(version: Version, ended: Any) -> None:
    spoil_answers(version, lambda choice: choice.update(finish_reason=ended), "openai:hears")
    assert names(version) == ["half-answer"]


def test_a_probability_of_one_listed_token_is_named(version: Version) -> None:
    def only_no(choice: dict[str, Any]) -> None:
        token = {"token": "No", "logprob": -0.0001}
        choice["logprobs"] = {"content": [{**token, "top_logprobs": []}]}

    spoil_answers(version, only_no, "openai:judges")
    assert names(version) == ["guessed-probability"]


def test_a_probability_of_a_small_share_is_named(version: Version) -> None:
    def thinks(choice: dict[str, Any]) -> None:
        listed = [{"token": "<think>", "logprob": -1e-6}, *({"token": one, "logprob": -20} for one in ("Yes", "No"))]
        choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}]}

    spoil_answers(version, thinks, "openai:judges")
    assert names(version) == ["guessed-probability"]


def test_without_the_ledger_answers_may_be_half(version: Version) -> None:
    (version.folder.parents[1] / "ledger.sqlite").unlink()
    assert names(version) == ["half-answer", "guessed-probability"]


def test_refused_requests_are_named(version: Version) -> None:
    steps = version.manifest.model_dump(mode="json")["steps"]
    (last,) = [step for step in steps if step["name"] == "captions"]
    last["rejected"], last["entered"] = {"bad_request": 2}, last["entered"] + 2
    assert names(with_manifest(version, rejects={"bad_request": 2}, steps=steps)) == ["half-corpus"]
    alone = with_manifest(version, rejects={"bad_request": 2}, steps=steps, models=["builtin:music-caption-1"])
    assert "half-corpus" not in names(alone)


def test_answers_of_a_forum_s_votes_are_named(tmp_path: Path) -> None:
    demo = unpack(tmp_path, ("score-questions",)).find("score-questions@v1")
    assert names(demo) == ["notice-as-answer", "deleted-later"]
    for path in (path for split in demo.manifest.rows["questions"] for path in demo.files("questions", split)):
        table = pq.read_table(path)
        judged = pa.array(["language_model"] * len(table))
        place = table.schema.get_field_index("preference")
        path.unlink()  # the files may be links
        pq.write_table(table.set_column(place, "preference", judged), path)
    assert names(demo) == ["deleted-later"]
