"""Versions and evaluations that a known fault can have touched are named, those that it cannot are not."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import astuple
from datetime import date
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.evaluation import reading
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.release.known_faults import FAULTS, TOUCHES, known_faults, lines_about
from earmark.tasks.store.manifest import MANIFEST, RULES, Manifest, read_manifest
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.versions import Store, Version, verify
from tests.builds import build_version, config_of, rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import SALT, build_votes, cmi, vote
from tests.human_preferences.votes import config_of as votes_of
from tests.mos_preferences.test_mos_pairs import source
from tests.release.withdrawing import withdraw_annotator


def as_before(version: Version, **values: Any) -> Version:
    """The version as if release 1.0.0 had made it, with other accounts."""
    path = version.folder / MANIFEST
    held = {**version.manifest.model_dump(mode="json"), "rules": 1, **values}
    path.write_text(Manifest.model_validate(held).to_json(), encoding="utf-8", newline="\n")
    return Version(version.corpus, version.folder)


def names(version: Version) -> list[str]:
    """The faults that are named."""
    return [fault.name for fault in known_faults(version)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a version of rated clips, some rated twice, one outside of its folder."""
    folder: Path = tmp_path_factory.mktemp("rated")
    (folder / "t.csv").write_text("f,m\na,1\nb,2\na,4\nc,5\n../d,3\n")
    build_version(config_of(folder, source("one")), folder / "store")
    return folder / "store"


@pytest.fixture
def rated(built: Path, tmp_path: Path) -> Version:
    """That version in a store of the test's own."""
    return Store(Path(shutil.copytree(built, tmp_path / "store"))).find("mos-preferences")


def test_the_table_is_whole() -> None:
    assert [fault.name for fault in FAULTS] == [*TOUCHES]
    for fault in FAULTS:
        assert [type(one) for one in astuple(fault)] == [str, str, int, tuple, FunctionType, str]
        assert date(2026, 11, 1) < date.fromisoformat(fault.mended)
        assert fault.says == fault.says.strip()
        assert 0 < fault.rules <= RULES
        assert set(fault.corpora) <= set(corpora())
    assert max(fault.rules for fault in FAULTS) == RULES
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Wrong results" in changelog


def test_what_is_built_now_is_free_of_them(rated: Version) -> None:
    assert rated.manifest.rules == RULES
    assert rated.manifest.rejects == {"path_outside_root": 1}
    assert lines_about(Store(rated.folder.parents[1])) == []


def test_a_manifest_of_before_keeps_its_bytes(rated: Version) -> None:
    before = as_before(rated, rules=0)
    text = (before.folder / MANIFEST).read_text(encoding="utf-8")
    assert "rules" not in json.loads(text)
    assert read_manifest(before.folder / MANIFEST).to_json() == text
    assert verify(before) == []


def test_versions_of_before_are_named_by_what_their_accounts_say(rated: Version) -> None:
    steps = rated.manifest.model_dump(mode="json")["steps"]
    merge = next(step for step in steps if step["name"] == "merge")
    assert names(as_before(rated, rules=0)) == ["before-1.0"]
    assert names(as_before(rated)) == []
    merge["rejected"], merge["kept"] = {"conflicting_facts": 1}, merge["kept"] - 1
    assert names(as_before(rated, steps=steps, rejects={"conflicting_facts": 1})) == ["contested-clip"]
    merge["rejected"] = {"split_conflict": 1}
    assert names(as_before(rated, steps=steps, rejects={"split_conflict": 1})) == []


@pytest.mark.parametrize(
    ("mos", "file", "named"),
    [
        ("ageListener", "t.csv", ["number-as-rating"]),
        ("systemId", "t.csv", ["number-as-rating"]),
        ("Answer.played", "t.csv", ["number-as-rating"]),
        ("mos", "t.tsv", ["quote-between-tabs"]),
        ("score", "t.csv", []),
    ],
)
def test_lists_that_were_misread_are_named(rated: Version, mos: str, file: str, named: list[str]) -> None:
    one = {"name": "one", "format": "table", "files": {"train": file}, "columns": {"file": "f", "mos": mos}}
    assert names(as_before(rated, rejects={}, config={"sources": [one]})) == named


def test_status_and_verify_say_it(rated: Version) -> None:
    as_before(rated, rules=0)
    store = ["--store", str(rated.folder.parents[1])]
    for words in (["status"], ["inspect", "verify", "mos-preferences@v1"]):
        shown = CliRunner().invoke(app, [*words, *store])
        assert shown.exit_code == 0
        assert "known fault: mos-preferences v1: before-1.0 (mended 2026-11-22): made before release" in shown.output
    facts = json.loads(CliRunner().invoke(app, ["inspect", "verify", "mos-preferences", *store, "--json"]).stdout)
    assert facts["faults"] == []
    assert len(facts["known_faults"]) == 1


def test_results_of_a_file_in_a_hidden_order_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,2\nc,5\n")
    version = build_version(config_of(tmp_path, source("one")), tmp_path / "store")
    store = Store(tmp_path / "store")
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "choice"])
        writer.writerows((row["pair_id"], "chosen") for row in rows_of(version, "pairs"))
    corpus, scores = find_corpus(version.corpus), tmp_path / "scores.csv"
    facts, folder = reading.read(version, corpus, store, scores, MeasurementOptions(part=SamplePart("all")), None)
    assert lines_about(store) == []
    record = folder / "evaluation.json"
    before = {name: value for name, value in facts.items() if name != "order"}
    record.write_text(json.dumps(before))
    (line,) = lines_about(store)
    assert line.startswith("evaluations/mos-preferences/v1/quality-scores")
    assert ": score-file-order (mended 2026-11-22): " in line
    assert lines_about(store, version) == [line]
    record.write_text(json.dumps({**before, "scores": None, "annotator": "openai:x"}))  # a model that was asked itself
    assert lines_about(store) == []


def test_the_words_of_a_prompt_are_compared_as_a_build_does(tmp_path: Path) -> None:
    with connect(tmp_path) as connection:
        connection.execute(query("text/plain_words"))
        (row,) = connection.execute("SELECT plain_words(E' Slow\\t BLUES\\n'), plain_words(NULL)").fetchall()
    assert row == ("slow blues", "")


@pytest.mark.slow
def test_a_version_without_what_was_withdrawn_keeps_the_rules_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    rows = [vote(number, who) for number in range(3) for who in ("ann", "bob")]
    version = build_votes(votes_of(tmp_path, cmi(tmp_path, rows)), tmp_path / "store")
    as_before(version, rules=0)
    withdraw_annotator(str(rows_of(version, "votes")[0]["annotator"]), str(tmp_path / "store"))
    base, heir = Store(tmp_path / "store").versions(version.corpus)
    assert base.manifest.rules == heir.manifest.rules == 0
    assert verify(heir) == []


@pytest.mark.slow
def test_votes_that_did_not_meet_and_battles_of_sessions_are_named(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("audio_a,audio_b,annotator,overall,date\nx.wav,y.wav,ann,a,2025-08-31\n")
    table = {"name": "ab", "format": "votes", "files": ["v.csv"]}
    version = build_votes(votes_of(tmp_path, cmi(tmp_path, [vote()]), table), tmp_path / "store")
    assert names(as_before(version)) == ["votes-apart"]
    with_prompts = build_votes(votes_of(tmp_path, cmi(tmp_path, [vote()])), tmp_path / "other")
    assert names(as_before(with_prompts)) == []
    assert names(as_before(version, config={"sources": [{"format": "music-arena-battles"}]}))[1:] == [
        "sessions-as-people"
    ]
