"""A build of `human-preferences` that is killed at any moment goes on, to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.store.versions import open_store, verify
from tests.builds import Builds, contents_of
from tests.human_preferences.votes import SALT, build_votes, cmi, vote

pytestmark = pytest.mark.slow


def test_killed_builds_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    cmi(tmp_path, [vote(n % 400, who=f"w{n % 9}") for n in range(1600)])
    config = tmp_path / "build.toml"
    config.write_text('[[sources]]\nname = "cmi"\nformat = "cmi-pref"\nfiles = ["cmi.jsonl"]\n[split]\ntest = 40\n')
    whole = build_votes(parse_config(HumanPreferences, read_toml(config), config), tmp_path / "whole")
    killed, store = 0, tmp_path / "killed"
    with Builds("tests.human_preferences.votes") as builds:
        for moment in range(1, 16):
            child = builds.start(config, store)
            if not builds.ended(0.07 * moment):
                builds.kill(child)
            killed += builds.said() != 0
        builds.start(config, store)
        assert builds.said() == 0
    version = open_store(str(store)).find("human-preferences")
    assert verify(version) == []
    assert contents_of(version.folder) == contents_of(whole.folder)
    assert killed
