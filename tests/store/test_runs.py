"""Runs of other machines and containers: their processes cannot be looked up, and their lock can."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import StoreError
from earmark.tasks.store.runs import Run, State, find_run, list_runs, open_runs, save_run, start_run
from earmark.tasks.store.staging import LOCK, staging
from earmark.tasks.store.versions import Store

CORPUS = "mos-preferences"


def run_elsewhere(store: Store) -> Run:
    """A run that was under way on another host when its record was last written."""
    run = start_run(store, CORPUS, store.root / "build.toml").model_copy(update={"host": "3f2a", "pid": 1})
    save_run(store, run)
    return run


def test_a_run_of_another_host_is_interrupted_once_nobody_holds_its_lock(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = run_elsewhere(store)
    assert find_run(store, None).run == run.run  # killed before its build began
    with staging(store, CORPUS, "1" * 64, say=print):
        assert [one.current_state() for one in open_runs(store)] == ["running"]
        with pytest.raises(StoreError, match="nothing to resume"):
            find_run(store, None)
    assert [one.current_state() for one in list_runs(store)] == ["interrupted"]
    assert find_run(store, run.run).current_state() == "interrupted"
    with (tmp_path / CORPUS / LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the look has let go of it
    with (tmp_path / CORPUS / LOCK).open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)  # two looks at once are no build
        assert [one.current_state() for one in list_runs(store)] == ["interrupted"]
    assert "running" in (tmp_path / "runs" / f"{run.run}.json").read_text("utf-8")


def test_a_run_of_another_host_is_running_where_locks_tell_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_elsewhere(store)
    (tmp_path / CORPUS / LOCK).mkdir(parents=True)  # not to be opened, whatever the rights
    assert [one.current_state() for one in list_runs(store)] == ["running"]


def test_a_run_of_this_host_is_known_by_its_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = start_run(store, CORPUS, tmp_path / "build.toml")
    assert [one.current_state() for one in list_runs(store)] == ["running"]
    save_run(store, run.model_copy(update={"process_started": 0.0}))
    with staging(store, CORPUS, "1" * 64, say=print):
        assert [one.current_state() for one in list_runs(store)] == ["interrupted"]


def ended(store: Store, name: str, state: State, limit: int | None = None) -> Run:
    """A run of one config that has ended; names sort by time."""
    run = start_run(store, CORPUS, store.root / "build.toml", limit)
    (store.root / "runs" / f"{run.run}.json").unlink()
    run = run.model_copy(update={"run": name, "state": state})
    save_run(store, run)
    return run


def test_a_trial_with_a_limit_does_not_settle_the_failed_build(tmp_path: Path) -> None:
    store = Store(tmp_path)
    whole = ended(store, "20260101-000000-aaaa", "failed")
    ended(store, "20260102-000000-bbbb", "completed", 20)
    assert find_run(store, None).run == whole.run
    words = ["ledger", "prune", "--before", "2027-01-01", "--out", str(tmp_path / "old.jsonl")]
    pruned = CliRunner().invoke(app, [*words, "--store", str(tmp_path)])
    assert f"run {whole.run} of {CORPUS} is failed and may need its answers" in str(pruned.exception)
    assert f"earmark resume {whole.run}" in CliRunner().invoke(app, ["status", "--store", str(tmp_path)]).stdout


def test_a_later_build_without_a_limit_settles_a_failed_trial(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ended(store, "20260101-000000-aaaa", "failed", 20)
    assert [run.limit for run in open_runs(store)] == [20]
    ended(store, "20260102-000000-bbbb", "completed")
    assert open_runs(store) == []
    trial = ended(store, "20260103-000000-cccc", "interrupted", 20)
    assert open_runs(store) == [trial]
