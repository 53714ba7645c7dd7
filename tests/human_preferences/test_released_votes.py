"""Votes go out in CMI-Pref's released layout, and come in again as the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.importers.cmi_pref import read
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.votes import Vote
from earmark.tasks.store.versions import Version
from tests.conftest import real_path
from tests.human_preferences.test_human_preferences import turned
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote


@pytest.fixture(autouse=True)
def _salted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)


def exported(version: Version, out: Path, corpus: str = "human-preferences", view: str = "votes") -> list[Path]:
    words = ["export", corpus, "--for", "cmi-pref", "--view", view, "--out", str(out)]
    ended = CliRunner().invoke(app, [*words, "--store", str(version.folder.parent.parent)])
    assert ended.exit_code == 0, ended.output
    return sorted(out.glob("*.jsonl"))


def votes_in(path: Path) -> list[Vote]:
    """The votes of a file, without what the release and its hashing change: who, in which words, and where it stood."""
    file = ListFile(path, path.name, "", "jsonl")
    found = [row for row in read(file, str(path.parent)) if isinstance(row, Vote)]
    assert len(found) == len(path.read_text("utf-8").splitlines())
    other = {"vote_id": None, "annotator": None, "feedback": None, "split": None, "line": 0, "source_file": ""}
    return sorted((one._replace(**other) for one in found), key=repr)


@pytest.mark.slow
def test_the_real_file_in_and_the_released_layout_out(tmp_path: Path) -> None:
    path = real_path("cmi-pref/test_500_votes_with_model_scores.jsonl")
    source = {"name": "cmi", "format": "cmi-pref", "files": [str(path)], "split": "native"}
    version = build_votes(config_of(tmp_path, source), tmp_path / "store")
    (out,) = exported(version, tmp_path / "out")
    assert out.name == "test.jsonl"
    assert votes_in(out) == votes_in(path)
    raw, back = (
        sorted(
            map(json.loads, file.read_text("utf-8").splitlines()), key=lambda row: (row["audio-path"], row["audio2"])
        )
        for file in (path, out)
    )
    assert len(raw) == len(back) == 500
    people = {(theirs["user id"], ours["user id"]) for theirs, ours in zip(raw, back, strict=True)}
    assert len(people) == len({one for one, _ in people}) == len({one for _, one in people}) == 27
    same = back[0].keys() - {"user id", "feedback", "date"}
    assert same >= {"audio-path", "audio2", "prompt", "lyrics", "prompt id", "ref-audio-path", "source", "model_a"}
    for theirs, ours in zip(raw, back, strict=True):
        assert {name: ours[name] for name in same - {"split", "prompt", "lyrics"}} == {
            name: theirs[name] for name in same - {"split", "prompt", "lyrics"}
        }
        assert (ours["prompt"], ours["lyrics"]) == (theirs["prompt"].strip(), theirs["lyrics"].strip())


@pytest.mark.slow
def test_what_was_shown_first_comes_back_so(tmp_path: Path) -> None:
    rows = [vote(who="ann"), turned(vote(who="bob")), vote(1, **{"preference-alignment": "both"})]
    version = build_votes(config_of(tmp_path, cmi(tmp_path, rows, split="train")), tmp_path / "store")
    (out,) = exported(version, tmp_path / "out")
    assert votes_in(out) == votes_in(tmp_path / "cmi.jsonl")
    again = {"name": "cmi", "format": "cmi-pref", "root": str(out.parent), "files": [out.name], "split": "train"}
    second = build_votes(config_of(tmp_path, again), tmp_path / "second")
    (more,) = exported(second, tmp_path / "more")
    assert votes_in(more) == votes_in(out)
