"""What the command shows of rows that not every corpus has."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.flows.command import console
from earmark.schemas.music_prompts import TABLES
from earmark.tasks.store.explain import explain
from tests.music_prompts.prompt_builds import build_prompts, config_of, made_tracks, write_tracks


@pytest.mark.slow
def test_a_reject_that_no_file_holds_is_told_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tracks(tmp_path / "tracks.tsv", [*made_tracks(40), ["instrument---voice"]])
    version = build_prompts(config_of(tmp_path), tmp_path / "store")
    console.show_accounts(version, explain(version, TABLES, "instrument---voice"))
    told = capsys.readouterr().out
    assert "dropped from tags at step tags: vocal" in told
    assert "read from" not in told
