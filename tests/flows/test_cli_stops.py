"""The real `earmark build`, killed or stopped: it says how to go on, and what is kept is the start of the next run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from earmark.flows.command.ending import stop_behind
from tests.builds import build_version, contents_of, read_config
from tests.conftest import ROOT
from tests.flows.test_cli import CORPUS, DEMO, as_json, earmark, environment, nothing_left, running

__all__ = ["nothing_left"]  # fixtures


@pytest.mark.slow
def test_killed_build_is_told_and_resumed(tmp_path: Path, nothing_left: None) -> None:
    store = tmp_path / "store"
    build = subprocess.Popen(
        [sys.executable, "-m", "earmark", "build", CORPUS, "--config", str(DEMO)],
        cwd=ROOT,
        env=environment(store),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(store.glob(f"{CORPUS}/.staging/*/steps/*.json")):  # in mid-flow, with Prefect's server up
        assert build.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(running(tmp_path)) >= 2, "expected the build and Prefect's server"
    build.send_signal(signal.SIGKILL)
    build.wait()
    deadline = time.monotonic() + 30
    while left := running(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)

    (run,) = as_json(store, "status")
    assert run["state"] == "interrupted"
    assert as_json(store, "list", CORPUS) == []
    assert f"earmark resume {run['run']}" in earmark(store, "status").stdout

    assert f"{CORPUS} v1 in " in earmark(store, "resume").stdout
    assert as_json(store, "inspect", "verify", CORPUS)["faults"] == []
    assert [run["state"] for run in as_json(store, "status")] == ["completed", "completed"]
    assert "nothing to resume" in earmark(store, "resume", code=1).stderr
    assert contents_of(build_version(read_config(DEMO), tmp_path / "direct").folder) == contents_of(
        store / CORPUS / "v1"
    )


def test_a_stop_that_prefect_fell_over_is_a_stop() -> None:
    def falls_over() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise ValueError("Task run is not set")  # noqa: B904 - as Prefect's engine does

    with pytest.raises(ValueError, match="not set") as raised:
        falls_over()
    assert isinstance(stop_behind(raised.value), KeyboardInterrupt)
    assert stop_behind(ValueError("of its own")) is None


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM"])
def test_a_signal_while_prefect_begins_a_task_is_a_stop(sent: str, tmp_path: Path) -> None:
    """The signal comes while Prefect looks through a task's parameters, when it has no task run to give a state."""
    script = f"""
import os, signal
from pydantic import BaseModel
from earmark.flows.command.ending import end_in_order, how, stop_behind
from earmark.flows.command.running import start_prefect
signal.signal(signal.SIGINT, signal.default_int_handler)
end_in_order()
start_prefect()
from prefect import flow, task

class Looked(BaseModel):
    value: int = 0

    def __iter__(self):
        os.kill(os.getpid(), signal.{sent})
        return super().__iter__()

@task
def work(looked):
    print("not stopped")

@flow
def build():
    work(Looked())

try:
    build()
except BaseException as error:
    print(how(stop_behind(error)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment(tmp_path / "store"), capture_output=True, text=True, timeout=120
    )
    expected = {"SIGINT": "stopped from the keyboard", "SIGTERM": "ended by SIGTERM"}[sent]
    assert ran.stdout.splitlines() == [expected], ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "why"),
    [(signal.SIGINT, 130, "stopped from the keyboard"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_build_that_is_stopped_says_how_to_go_on(
    sent: signal.Signals, code: int, why: str, tmp_path: Path, nothing_left: None
) -> None:
    store = tmp_path / "store"
    build = subprocess.Popen(
        [sys.executable, "-m", "earmark", "build", CORPUS, "--config", str(DEMO)],
        cwd=ROOT,
        env=environment(store),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests that run in the background ignore it
    )
    deadline = time.monotonic() + 120
    while not list(store.glob(f"{CORPUS}/.staging/*/steps/*.json")):  # in mid-flow
        assert build.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    build.send_signal(sent)
    _, said = build.communicate(timeout=120)
    assert build.returncode == code, said
    (run,) = as_json(store, "status")
    assert (run["state"], run["error"]) == ("interrupted", why)
    assert said.splitlines()[-1] == (
        f"interrupted; finished steps and answers are kept; go on with: earmark resume {run['run']}"
    )
    assert "Traceback" not in said
