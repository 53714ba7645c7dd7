"""Serve schedules on a real server: lost runs, remains of a killed `earmark serve`, and a person's own settings."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from earmark.flows.command.doctor import examine
from earmark.flows.command.serving import WORKER
from earmark.tasks.store.versions import Store
from tests.conftest import ROOT
from tests.deploy.test_deploy import Prefect, serving, waited

WAITS = "import sys; sys.stdin.read()  # prefect"  # as the command line of today's server or worker has the word
TELL = "import sys; from earmark.flows.command.serving import tell_crashed; tell_crashed(sys.argv[1])"


@contextmanager
def process(**more: str) -> Iterator[int]:
    """The number of a process that lives until the block ends."""
    started = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, env={**os.environ, **more})
    try:
        yield started.pid
    finally:
        started.communicate()


def run_of(prefect: Prefect, deployment: str) -> str:
    """A new run's id."""
    return str(prefect.ask(f"/deployments/{deployment}/create_flow_run", {})["id"])


def patch(url: str, values: dict[str, Any]) -> None:
    """Change what the server keeps; on a busy machine its database is locked for a while, which it says by 503."""
    for _ in range(30):
        answer = httpx.patch(url, json=values, timeout=60)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        time.sleep(1)
    answer.raise_for_status()


def under_way(prefect: Prefect, run: str, worker: str, pid: int | None) -> None:
    """Make a run what its worker has made it when it went on."""
    place = f"{prefect.url}/flow_runs/{run}"
    patch(f"{place}/labels", {"prefect.worker.name": worker})
    patch(place, {"infrastructure_pid": pid and str(pid)})
    prefect.ask(f"/flow_runs/{run}/set_state", {"state": {"type": "RUNNING", "name": "Running"}, "force": True})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_only_its_own_lost_runs_are_told_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "prefect") as prefect:
        monkeypatch.setenv("PREFECT_API_URL", prefect.url)
        (found,) = [one for one in examine(Store(tmp_path)) if one.what == "Prefect"]
        assert (found.state, "needs no password" in found.detail) == ("bad", True)
        flow: dict[str, Any] = prefect.ask("/flows/", {"name": "build"})
        deployment = str(prefect.ask("/deployments/", {"name": "often", "flow_id": flow["id"]})["id"])
        lost, unborn, lives, elsewhere = (run_of(prefect, deployment) for _ in range(4))
        with process() as another, process(PREFECT__FLOW_RUN_ID=lives) as its_own:
            under_way(prefect, lost, WORKER, another)  # its number is somebody else's now
            under_way(prefect, unborn, WORKER, None)
            under_way(prefect, lives, WORKER, its_own)
            under_way(prefect, elsewhere, "ProcessWorker on another machine", 4_000_000)
            subprocess.run([sys.executable, "-c", TELL, prefect.url], cwd=ROOT, check=True, timeout=120)
        found = {run: prefect.ask(f"/flow_runs/{run}")["state_type"] for run in (lost, unborn, lives, elsewhere)}
    assert found == {lost: "CRASHED", unborn: "CRASHED", lives: "RUNNING", elsewhere: "RUNNING"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_paused_pool_stays_so_and_a_schedule_that_never_comes_is_listed(tmp_path: Path) -> None:
    with serving(tmp_path / "prefect") as prefect:

        def earmark(*words: str) -> subprocess.CompletedProcess[str]:
            environment = {**os.environ, "PREFECT_HOME": str(prefect.home), "PREFECT_API_URL": prefect.url}
            command = [sys.executable, "-m", "earmark", *words]
            return subprocess.run(
                command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=120
            )

        assert "paused" not in earmark("serve", "--deploy-only").stderr
        prefect.run("work-pool", "pause", "local")
        prefect.run("work-pool", "set-concurrency-limit", "local", "1")
        flow = prefect.ask("/flows/", {"name": "rebuild"})["id"]
        never = [{"schedule": {"cron": "0 0 30 2 *", "timezone": "UTC"}, "active": True}]
        prefect.ask("/deployments/", {"name": "never", "flow_id": flow, "tags": ["earmark"], "schedules": never})
        assert "prefect work-pool resume local" in earmark("serve", "--deploy-only").stderr
        (listed,) = json.loads(earmark("schedule", "list", "--json").stdout)
        pool = prefect.ask("/work_pools/local")
    assert (pool["is_paused"], pool["concurrency_limit"], pool["type"]) == (True, 1, "process")
    assert (listed["name"], listed["next_run"]) == ("rebuild/never", None)


@pytest.mark.slow
def test_serve_that_is_killed_while_it_deploys_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "prefect"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and answers none
        ours = Prefect(home, f"http://127.0.0.1:{silent.getsockname()[1]}/api")
        environment = {**os.environ, "PREFECT_HOME": str(home), "PREFECT_API_URL": ours.url}
        serve = subprocess.Popen([sys.executable, "-m", "earmark", "serve", "--deploy-only"], cwd=ROOT, env=environment)
        try:
            waited("a command of Prefect's", lambda: _prefects(ours), 60)
            serve.send_signal(signal.SIGKILL)
            serve.wait()
            waited("what it started to end", lambda: not ours.processes(), 30)
        finally:
            for left in ours.processes():
                left.kill()


def _prefects(prefect: Prefect) -> list[psutil.Process]:
    return [one for one in prefect.processes() if "prefect" in one.cmdline()]
