"""A withdrawal that is killed at any moment leaves nothing half done, and the same command goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from earmark.tasks.store.versions import Store, verify
from earmark.tasks.store.withdrawals import withdrawal_against, withdrawals
from tests.builds import Builds, contents_of, rows_of, traces
from tests.human_preferences.votes import SALT, build_votes, cmi, config_of, vote
from tests.release.withdrawing import withdraw_annotator

pytestmark = pytest.mark.slow
NAME = "human-preferences"


def test_killed_withdrawals_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    rows = [vote(n % 300, who=f"w{n % 7}") for n in range(1200)]
    whole = Store(tmp_path / "whole")
    old = build_votes(config_of(tmp_path, cmi(tmp_path, rows), split={"test": 40}), whole.root)
    who = rows_of(old, "votes")[0]["annotator"]
    shutil.copytree(whole.root, tmp_path / "killed")
    withdraw_annotator(who, str(whole.root))
    store, killed = Store(tmp_path / "killed"), 0
    with Builds("tests.release.withdrawing") as builds:
        for moment in range(1, 16):
            child = builds.start(Path(who), store.root)
            if not builds.ended(0.1 * moment):
                builds.kill(child)
            killed += builds.said() != 0
            newest = store.find(NAME)
            assert verify(newest) == []
            if traces(newest, [who]):  # not made yet: untouched, and not to be published once the act is recorded
                assert newest.name == "v1"
                assert not withdrawals(store.root) or withdrawal_against(store.root, newest.manifest)
        builds.start(Path(who), store.root)
        assert builds.said() == 0
    assert killed
    assert [version.name for version in store.versions(NAME)] == ["v1", "v2"]
    assert contents_of(store.find(NAME).folder) == contents_of(whole.find(NAME).folder)
    assert [one.version for one in withdrawals(store.root)[0].made] == ["v2"]
