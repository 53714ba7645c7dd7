"""Versions and evaluations that a known fault can have touched are named, those that it cannot are not."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.build.registry import corpora, find_corpus
from earmark.tasks.evaluation import reading
from earmark.tasks.evaluation.samples import Part, Wish
from earmark.tasks.release.known_faults import FAULTS, known_faults, lines_about
from earmark.tasks.store.manifest import MANIFEST, RULES, Manifest, read_manifest
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import LocalServer
from tests.builds import build_version, config_of, rows_of
from tests.conftest import ROOT
from tests.human_preferences.votes import SALT, build_votes, cmi, vote
from tests.human_preferences.votes import config_of as votes_of
from tests.mos_preferences.test_mos_pairs import source
from tests.pseudo_preferences.music import build_judged, make_pool, write_rows
from tests.pseudo_preferences.music import config_of as judged_of
from tests.release.withdrawing import withdraw_annotator
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer


def as_before(version: Version, **values: Any) -> Version:
    """The version as if it were made before rules were counted, with other accounts."""
    path = version.folder / MANIFEST
    held = {**version.manifest.model_dump(mode="json"), "rules": 0, **values}
    path.write_text(Manifest.model_validate(held).to_json(), encoding="utf-8", newline="\n")
    return Version(version.corpus, version.folder)


def names(version: Version) -> list[str]:
    """The faults that are named."""
    return [fault.name for fault in known_faults(version)]


@pytest.fixture
def rated(tmp_path: Path) -> Version:
    """A version of rated clips, some rated twice, one outside of its folder."""
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,2\na,4\nc,5\n../d,3\n")
    return build_version(config_of(tmp_path, source("one")), tmp_path / "store")


def test_the_table_is_whole() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
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
    before = as_before(rated)
    text = (before.folder / MANIFEST).read_text(encoding="utf-8")
    assert "rules" not in json.loads(text)
    assert read_manifest(before.folder / MANIFEST).to_json() == text
    assert verify(before) == []


def test_versions_of_before_are_named_by_what_their_accounts_say(rated: Version) -> None:
    steps = rated.manifest.model_dump(mode="json")["steps"]
    merge = next(step for step in steps if step["name"] == "merge")
    assert names(as_before(rated)) == ["root-not-in-key"]
    assert names(as_before(rated, rejects={})) == []
    merge["rejected"], merge["kept"] = {"conflicting_score": 1}, merge["kept"] - 1
    touched = as_before(rated, steps=steps, rejects={"conflicting_score": 1})
    assert names(touched) == ["first-row-wins"]
    merge["rejected"] = {"split_conflict": 1}
    assert names(as_before(rated, steps=steps, rejects={"split_conflict": 1})) == []


def test_status_and_verify_say_it(rated: Version) -> None:
    as_before(rated)
    store = ["--store", str(rated.folder.parents[1])]
    for words in (["status"], ["verify", "mos-preferences@v1"]):
        shown = CliRunner().invoke(app, [*words, *store])
        assert shown.exit_code == 0
        assert "known fault: mos-preferences v1: root-not-in-key (mended 2026-11-22): rows lie outside" in shown.output
    facts = json.loads(CliRunner().invoke(app, ["verify", "mos-preferences", *store, "--json"]).stdout)
    assert facts["faults"] == []
    assert len(facts["known_faults"]) == 1


def test_a_text_in_two_splits_is_found_in_the_tables(tmp_path: Path) -> None:
    asked, _ = make_pool(tmp_path / "pool", 8)
    for number, row in enumerate(asked):
        row["text"] = f"Slow blues {number}"
        row.pop("lyrics", None)
    write_rows(tmp_path / "pool/prompts.jsonl", asked)
    shares = {"train": 0.5, "test": 0.5}
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        version = build_judged(judged_of(tmp_path / "pool", server.base_url, shares=shares), tmp_path / "store")
    assert set(version.manifest.rows["pairs"]) == {"train", "test"}
    version = as_before(version)
    assert names(version) == []
    by_split = {split: version.files("pairs", split)[0] for split in ("train", "test")}
    other = tmp_path / "other.parquet"
    with connect(tmp_path) as connection:
        connection.execute(
            f"""COPY (SELECT * REPLACE (concat(' ', upper(text)) AS text, 'test' AS split) FROM '{by_split["train"]}'
                UNION ALL FROM '{by_split["test"]}') TO '{other}' (FORMAT parquet)"""
        )
    shutil.copy(other, by_split["test"])
    assert names(version) == ["text-in-two-splits"]
    by_split["test"].unlink()
    assert names(version) == ["text-in-two-splits"]  # a copy without its tables cannot be cleared


def test_results_of_a_file_in_a_hidden_order_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,2\nc,5\n")
    version = build_version(config_of(tmp_path, source("one")), tmp_path / "store")
    store = Store(tmp_path / "store")
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "choice"])
        writer.writerows((row["pair_id"], "chosen") for row in rows_of(version, "pairs"))
    corpus, scores = find_corpus(version.corpus), tmp_path / "scores.csv"
    facts, folder = reading.read(version, corpus, store, scores, Wish(part=Part("all")), None)
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
    as_before(version)
    withdraw_annotator(str(rows_of(version, "votes")[0]["annotator"]), str(tmp_path / "store"))
    base, heir = Store(tmp_path / "store").versions(version.corpus)
    assert base.manifest.rules == heir.manifest.rules == 0
    assert verify(heir) == []
