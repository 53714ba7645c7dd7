"""What is said of a version: which one a config means where two share a store, and that it has no test rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.console import notes_of, up_to_date_lines
from earmark.flows.command.running import find_version
from earmark.schemas.errors import StoreError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.tasks.store.runs import save_run, start_run
from earmark.tasks.store.versions import Store
from tests.before.fixture import release, unpack
from tests.builds import build_version, read_config
from tests.mos_preferences.critiques import make_study

CONFIG = """corpus = "mos-preferences"
triplets = { count = 0 }
[[sources]]
name = "study"
format = "table"
files = { train = "ratings.csv" }
columns = { file = "wav_path", mos = "score" }
"""
PAIR = ("a.toml", "b.toml")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """v1 of a.toml, v2 of b.toml, as their builds left them; the tests work beside the configs."""
    make_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "store"))
    place = Store(tmp_path / "store")
    for number, name in enumerate(PAIR):
        (tmp_path / name).write_text(CONFIG + f"[pairs]\nmin_gap = {number / 2}\n")
        build(place, name)
    return place


def build(store: Store, name: str) -> str:
    """Build a config with a record, as the command does, but without Prefect."""
    run = start_run(store, "mos-preferences", Path(name))
    version = build_version(read_config(Path(name).absolute()), store.root)
    save_run(store, run.model_copy(update={"state": "completed", "version": version.name}))
    return version.name


def command(*words: str, code: int = 0) -> str:
    """What `earmark` prints."""
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == code, ended.output
    return ended.stdout


@pytest.mark.slow
def test_an_older_version_that_is_up_to_date_is_told_from_the_newest(store: Store) -> None:
    words = ("build", "mos-preferences", "--config")
    lines = command(*words, "a.toml").splitlines()
    assert lines[0] == "mos-preferences: already up to date: v1"
    assert "v2, the newest, is of another config" in " ".join(lines)
    assert command(*words, "b.toml") == "mos-preferences: already up to date: v2\n"
    assert [*up_to_date_lines("x", "v2", "v2")] == ["x: already up to date: v2"]
    assert "v2, the newest" in " ".join(command(*words, "a.toml", "--dry-run").split())


@pytest.mark.slow
@pytest.mark.parametrize(("config", "version"), [("a.toml", "v1"), ("b.toml", "v2"), (None, "v2")])
def test_an_export_and_a_judge_take_the_version_of_a_config(store: Store, config: str | None, version: str) -> None:
    named = ("--config", config) if config else ()
    command("export", "mos-preferences", *named, "--for", "jsonl", "--table", "pairs", "--out", "out")
    assert json.loads(Path("out/export.json").read_text())["version"] == version
    judged = ("eval", "template", "mos-preferences", *named, "--split", "train", "-e", "quality", "--out", "scores.csv")
    command(*judged)
    rows = Path("scores.csv").read_text().splitlines()[1:]
    assert len(rows) == sum(store.find(f"mos-preferences@{version}").manifest.rows["pairs"].values())


@pytest.mark.slow
def test_the_list_says_whose_each_version_is(store: Store) -> None:
    build(store, "a.toml")
    assert "mos-preferences: v1 of a.toml; v2 of b.toml" in command("list")
    (facts,) = (one for one in json.loads(command("list", "--json")) if one["corpus"] == "mos-preferences")
    assert facts["configs"] == {"a.toml": ["v1"], "b.toml": ["v2"]}
    shutil.rmtree(store.root / "runs")
    assert " of " not in command("list").splitlines()[-1]


@pytest.mark.slow
def test_a_config_that_changed_since_means_its_newest_version_and_it_is_said(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.toml").write_text(CONFIG + "[pairs]\nmin_gap = 0.25\n")
    assert find_version(store, "mos-preferences", Path("a.toml")).name == "v1"
    assert "mos-preferences v1 was made from a.toml before it" in capsys.readouterr().err


@pytest.mark.slow
def test_a_config_that_made_nothing_is_one_line(store: Store) -> None:
    Path("c.toml").write_text(CONFIG + "[pairs]\nmin_gap = 0.75\n")
    with pytest.raises(StoreError, match=r"^no version of mos-preferences in .* was made from c.toml; build it: "):
        find_version(store, "mos-preferences", Path("c.toml"))
    with pytest.raises(StoreError, match="expected a version or --config, found both"):
        find_version(store, "mos-preferences@v1", Path("a.toml"))


@pytest.mark.slow
def test_a_copy_of_a_config_means_the_same_version(store: Store) -> None:
    shutil.copy("a.toml", "copy.toml")
    assert find_version(store, "mos-preferences", Path("copy.toml")).name == "v1"
    assert isinstance(read_config(Path("copy.toml").absolute()), MosPreferences)


def test_a_build_without_test_rows_says_so(tmp_path: Path) -> None:
    made = release(tmp_path / "release", "takes")
    version = made.store("takes").find("mos-preferences@v1")
    *_, note = notes_of(version)
    assert note.startswith("no test rows: pairs holds train 15.")
    demo = unpack(tmp_path / "demo", ("mos-preferences", "captions"))
    for name in ("mos-preferences", "captions"):  # one has test rows, one is no benchmark
        assert notes_of(demo.find(name)) == demo.find(name).manifest.notes()
