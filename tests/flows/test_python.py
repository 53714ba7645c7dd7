"""`import earmark`: what a notebook does, against what lies in the files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import earmark
from earmark.schemas.errors import ConfigError, InputError, StoreError
from tests.builds import build_version, config_of
from tests.conftest import ROOT
from tests.flows.notebook import LISTED, rate


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two versions: of ten clips, then of fifteen."""
    folder = tmp_path_factory.mktemp("python")
    for rows in (10, 15):
        rate(folder, rows)
        build_version(config_of(folder, LISTED), folder / "store")
    return str(folder / "store")


@pytest.mark.slow
def test_every_form_holds_the_files_rows(store: str) -> None:
    version = earmark.open("mos-preferences@v1", store=store)
    files = sorted(Path(store, "mos-preferences/v1/pairs").glob("train-*.parquet"))
    rows = pq.read_table(files).to_pylist()
    assert str(version) == "mos-preferences@v1"
    assert version.rows["pairs"] == {"train": len(rows)}
    assert version.arrow("pairs", "train").to_pylist() == rows
    assert version.pandas("pairs")["pair_id"].tolist() == [row["pair_id"] for row in rows]
    assert version.duckdb("pairs").aggregate("count(*)").fetchall() == [(len(rows),)]
    assert version.arrow("pairs", columns=["pair_id"]).column_names == ["pair_id"]
    assert list(version.datasets("pairs", "train")["pair_id"]) == [row["pair_id"] for row in rows]


@pytest.mark.slow
def test_versions_are_compared_asked_and_explained(store: str) -> None:
    new, old = earmark.open("mos-preferences", store=store), earmark.open("mos-preferences@v1", store=store)
    assert str(new) == "mos-preferences@v2"
    (ratings,) = [one for one in earmark.diff(old, new) if one.table == "ratings"]
    assert (ratings.added, ratings.removed, ratings.same) == (5, 0, 10)
    assert earmark.sql("SELECT count(*) AS n FROM 'mos-preferences'.ratings", store=store).to_pylist() == [{"n": 15}]
    pair = new.arrow("pairs")["pair_id"][0].as_py()
    assert pair in {account.name.split(",")[0] for account in new.explain(pair)}
    assert earmark.rewards.accuracy_reward("Final Scores: [[7, 5]]", "first") == 1.0


def test_faults_are_those_of_the_commands(store: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no v9"):
        earmark.open("mos-preferences@v9", store=store)
    with pytest.raises(StoreError, match="has no table 'pears'"):
        earmark.open("mos-preferences", store=store).datasets("pears", "train")
    with pytest.raises(InputError, match="expected one SELECT"):
        earmark.sql("DROP TABLE x", store=store)
    with pytest.raises(ConfigError, match="unknown key 'sorces'"):
        earmark.build("mos-preferences", {"sorces": []}, store=str(tmp_path / "new"))
    values = {"sources": [], "models": {"openai:m": {"annotator": "openai:m"}}}
    with pytest.raises(ConfigError, match=r"models\.openai:m: expected a name of at most 64 lower-case letters"):
        earmark.build("mos-preferences", values, store=str(tmp_path / "new"))
    assert not (tmp_path / "new/configs").exists()
    with pytest.raises(AttributeError, match="no attribute 'bild'"):
        earmark.bild  # noqa: B018


def test_the_import_costs_nothing_and_leaves_a_users_own_names_alone(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("MINE = 1\n")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/__init__.py").write_text("MINE = 2\n")
    code = (
        "import earmark, sys, tasks, schemas; assert not {'prefect', 'pyarrow', 'pydantic', 'duckdb'} & {*sys.modules}"
    )
    code += "; assert (tasks.MINE, schemas.MINE) == (1, 2); assert callable(earmark.build); print(earmark.__version__)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert (ROOT / "deploy/import/earmark/py.typed").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["builds", "cells"])
def test_a_notebook_builds_and_prints_what_it_shows(part: str, tmp_path: Path) -> None:
    """In a process of its own: in that of the tests Prefect may report to the server of an earlier one, which ended."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    home = {"PREFECT_HOME": str(tmp_path / "prefect"), "EARMARK_KEEP_S": "0"}
    command = [sys.executable, "-m", "tests.flows.notebook", part, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=kept | home, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
