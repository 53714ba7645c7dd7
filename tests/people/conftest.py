"""The demo's study, started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.study import StudyPlan
from earmark.tasks.people.answers import read_plan

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "data/demo/study.toml"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "study"
    run = CliRunner().invoke(app, ["people", "study", "start", "--config", str(CONFIG), "--out", str(folder)])
    assert run.exit_code == 0, run.output
    return folder


@pytest.fixture(scope="module")
def plan(study: Path) -> StudyPlan:
    return read_plan(study)
