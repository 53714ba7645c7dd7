"""`earmark status --watch` says what changes, each thing once, until it is interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.store.runs import save_run, start_run
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT
from tests.flows.test_cli import environment


def test_lines_for_people_are_not_given_as_json(tmp_path: Path) -> None:
    words = ["status", "--watch", "--json", "--store", str(tmp_path)]
    assert "--json: expected without --watch" in str(CliRunner().invoke(app, words).exception)


@pytest.mark.slow
def test_changes_are_told_until_an_interrupt(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run = start_run(store, "captions", tmp_path / "c.toml")
    command = [sys.executable, "-m", "earmark", "status", "--watch"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(store.root), stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout
        assert watching.stdout.readline().split() == [run.run, "captions", "running"]
        save_run(store, run.model_copy(update={"state": "failed", "error": "no such file"}))
        assert watching.stdout.readline().strip() == f"{run.run} captions failed no such file"
        watching.send_signal(2)
        assert watching.stdout.read() == ""
        assert watching.wait(30) == 0
