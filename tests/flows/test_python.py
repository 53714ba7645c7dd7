"""`import earmark`: what a notebook does, against what lies in the files."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import earmark
from earmark.schemas.errors import ConfigError, InputError, StoreError
from tests.builds import build_version, config_of, contents_of
from tests.conftest import ROOT
from tests.flows.notebook import NOTEBOOK, demo_folder, run

SOURCE = {"name": "one", "format": "table", "columns": {"file": "f", "mos": "m", "content": "c"}}
LISTED = {**SOURCE, "files": {"train": "ratings.csv"}}


def rate(folder: Path, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    listed = [f"{n}.wav,{1 + n % 5},c{n // 5}" for n in range(rows)]
    (folder / "ratings.csv").write_text("\n".join(["f,m,c", *listed]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two versions: of ten clips, then of fifteen."""
    folder = tmp_path_factory.mktemp("python")
    for rows in (10, 15):
        rate(folder, rows)
        build_version(config_of(folder, LISTED), folder / "store")
    return str(folder / "store")


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
def test_a_file_its_values_and_its_model_build_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("EARMARK_KEEP_S", "0")
    rate(tmp_path / "in", 15)
    values = {"sources": [LISTED], "triplets": {"count": 0}}
    toml = '[[sources]]\nname = "one"\nformat = "table"\nfiles = { train = "ratings.csv" }\n'
    toml += 'columns = { file = "f", mos = "m", content = "c" }\n[triplets]\ncount = 0\n'
    (tmp_path / "in/my.toml").write_text(toml)
    store = str(tmp_path / "store")
    first = earmark.build("mos-preferences", values, base=tmp_path / "in", store=store)
    assert str(first) == "mos-preferences@v1"
    for config in (tmp_path / "in/my.toml", config_of(tmp_path / "in", LISTED, triplets={"count": 0})):
        assert str(earmark.build("mos-preferences", config, store=store)) == "mos-preferences@v1"
    monkeypatch.chdir(tmp_path / "in")
    assert str(earmark.build("mos-preferences", values, store=store)) == "mos-preferences@v1"
    assert capfd.readouterr() == ("", ""), "quiet unless progress is wanted"

    async def notebook() -> earmark.Opened:
        return earmark.build("mos-preferences", values, store=store, force=True, progress=True)

    forced = asyncio.run(notebook())
    assert contents_of(forced.version.folder) == contents_of(first.version.folder)
    assert "pairs" in capfd.readouterr().err

    exported = forced.export("jsonl", tmp_path / "out", table="pairs")
    assert (tmp_path / "out/export.json").is_file()
    assert exported["rows"]


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.setenv("EARMARK_KEEP_S", "0")
    cells = json.loads(NOTEBOOK.read_bytes())["cells"]
    with demo_folder():
        assert list(run(cells)) == [
            {**one, "source": "".join(one["source"]).splitlines(keepends=True)} for one in cells
        ]
