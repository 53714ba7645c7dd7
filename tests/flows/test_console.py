"""What the command shows of rows that not every corpus has."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command import console
from earmark.flows.command.cli import app
from earmark.schemas.music_prompts import TABLES
from earmark.tasks.store.explain import RowFacts, explain
from earmark.tasks.store.versions import Version
from tests.human_preferences.votes import build_votes, cmi, vote
from tests.human_preferences.votes import config_of as votes_config
from tests.music_prompts.prompt_builds import build_prompts, config_of, made_tracks, write_tracks


@pytest.mark.slow
def test_a_reject_that_no_file_holds_is_told_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tracks(tmp_path / "tracks.tsv", [*made_tracks(40), ["instrument---voice"]])
    version = build_prompts(config_of(tmp_path), tmp_path / "store")
    console.show_accounts(version, explain(version, TABLES, "instrument---voice"))
    told = capsys.readouterr().out
    assert "dropped from tags at step tags: vocal" in told
    assert "read from" not in told


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_ids_that_count_lines_are_noted_where_rows_changed(named: bool, tmp_path: Path) -> None:
    """A list without ids that loses its first line has other votes under the same ids."""
    lines = [vote(number, **{"vote id": f"vote{number}"} if named else {}) for number in range(5)]
    for kept in (lines, lines[1:]):
        build_votes(votes_config(tmp_path, cmi(tmp_path, kept)), tmp_path / "store")
    where = ["--store", str(tmp_path / "store")]
    told = CliRunner().invoke(app, ["inspect", "diff", "human-preferences@v1", "human-preferences@v2", *where])
    assert told.exit_code == 0, told.output
    assert ("ids such as FILE:LINE#1 count lines" in told.output) is not named


@pytest.mark.parametrize(("count", "told"), [(1, "used in 1 row of pairs"), (2, "used in 2 rows of pairs")])
def test_one_row_is_no_rows(count: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console.show_accounts(
        Version("music-prompts", tmp_path), [RowFacts("clips", "c", {}, (), used_in={"pairs": count})]
    )
    assert told in capsys.readouterr().out
