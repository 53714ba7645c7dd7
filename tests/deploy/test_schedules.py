"""Schedules on a real Prefect server: runs go on after their worker, their process or `earmark serve` was killed."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from earmark.flows.command.respelling import new_values
from earmark.flows.command.serving import IDLE_S, RUNS_S
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.tasks.store.staging import STAGING
from earmark.tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server, slow_server
from tests.annotation.test_ledger import postgres  # noqa: F401  (a fixture)
from tests.conftest import ROOT
from tests.deploy.test_deploy import Prefect, serving, waited
from tests.flows.day import served
from tests.pseudo_preferences.music import make_pool, values_of, write_config

CORPUS = "pseudo-preferences"
PROMPTS, CONCURRENCY = 20, 4
REQUESTS = PROMPTS * 3 * 2
EVERY_S = 10
WAIT_S = 240.0
SLACK_S = 20.0  # of a busy machine
# A killed run is told crashed twice: by who waits for its process, and seconds later by the worker, which would undo a
# retry that came in between. Then the worker says what may be wrong.
DONE_WITH = "prefect.flow_runs.worker - Check whether the flow run exceeded its memory allocation"
# What the page's button "retry" does.
RETRY = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}, "force": True}


def deployments(folder: Path, base_url: str, store: Path, every_s: float | None = EVERY_S) -> Path:
    """A deployment that asks a local server, every few seconds or only when told to."""
    values = values_of(base_url, judge={"max_concurrency": CONCURRENCY, "read_timeout_s": 10, "total_timeout_s": 60})
    config = new_values(PseudoPreferences, {"corpus": CORPUS, "base": str(folder), **values})
    deployment: dict[str, Any] = {
        "name": "often",
        "entrypoint": "flows/pseudo_preferences.py:build",
        "tags": ["earmark"],
        "parameters": {"config": config, "store": str(store)},
        "schedules": [{"interval": every_s, "active": True}] if every_s else [],
        "concurrency_limit": {"limit": 1, "collision_strategy": "CANCEL_NEW"},
        "work_pool": {"name": "local"},
    }
    path = folder / "prefect.yaml"
    path.write_text(yaml.safe_dump({"name": "test", "deployments": [deployment]}), "utf-8")
    return path


def automations(folder: Path) -> Path:
    """The shipped automation, with less patience."""
    text = (ROOT / "deploy/automations.yaml").read_text("utf-8")
    assert "within: 90" in text
    path = folder / "automations.yaml"
    path.write_text(text.replace("within: 90", "within: 45"), "utf-8")
    return path


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for a worker and the runs that it carries out, as when its machine fails."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=30)


def runs(prefect: Prefect, *states: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prefect.ask(
        "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": list(states)}}}}
    )
    return found


judge = slow_server("--listen", "--latency-ms", "200")  # a run takes some seconds
late_judge = slow_server("--listen", "--latency-ms", "1000")  # longer than processes are given to end in order


@pytest.fixture
def databases(postgres: str) -> dict[str, str]:  # noqa: F811
    """One database for Prefect, one for the ledger."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        for name in ("prefect", "answers"):
            connection.execute(f"CREATE DATABASE {name}".encode())
    place = postgres.rpartition("/")[0]
    return {
        "PREFECT_API_DATABASE_CONNECTION_URL": f"{place.replace('://', '+asyncpg://')}/prefect",
        "EARMARK_LEDGER": f"{place}/answers",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_goes_on_after_its_worker_and_its_process_were_killed(
    tmp_path: Path, judge: Server, databases: dict[str, str]
) -> None:
    make_pool(tmp_path / "pool", PROMPTS)
    store = tmp_path / "store"
    with serving(tmp_path / "prefect", **databases) as prefect:
        prefect.run("work-pool", "create", "local", "--type", "process")
        prefect.run("automation", "create", "--from-file", str(automations(tmp_path)))
        file = deployments(tmp_path / "pool", judge.base_url, store, every_s=None)
        prefect.run("--no-prompt", "deploy", "--all", "--prefect-file", str(file), seconds=180)
        prefect.run("deployment", "run", f"{CORPUS}/often")

        def asks(count: int) -> None:
            waited("the run to ask", lambda: judge.counts()["asked"] >= count, WAIT_S)

        def crashed(times: int) -> str:
            (found,) = waited("the run to be told crashed", lambda: runs(prefect, "CRASHED"), WAIT_S)
            assert found["run_count"] == times
            assert judge.settled()["asked"] < REQUESTS
            assert not Store(store).versions(CORPUS)
            return str(found["id"])

        worker = prefect.start("worker", "start", "--pool", "local", folder=tmp_path)
        asks(REQUESTS // 5)
        kill_with_children(worker)
        worker = prefect.start("worker", "start", "--pool", "local", folder=tmp_path)
        run = crashed(1)  # by the automation

        prefect.ask(f"/flow_runs/{run}/set_state", RETRY)
        asks(3 * REQUESTS // 5)
        for process in psutil.Process(worker.pid).children():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        assert crashed(2) == run
        log = prefect.home / "worker.log"
        waited("the worker to be done with it", lambda: DONE_WITH in log.read_text("utf-8"), WAIT_S)

        prefect.run("flow-run", "retry", run)
        (ended,) = waited("the second retry", lambda: runs(prefect, "COMPLETED"), WAIT_S)
        assert (ended["id"], ended["run_count"]) == (run, 3)
        assert REQUESTS <= judge.settled()["asked"] <= REQUESTS + 2 * CONCURRENCY
        (version,) = Store(store).versions(CORPUS)
        assert verify(version) == []
        assert not list((store / CORPUS).glob(f"{STAGING}/*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_serve_killed_or_ended_in_mid_run_leaves_no_process(tmp_path: Path, late_judge: Server) -> None:
    make_pool(tmp_path / "pool", PROMPTS)
    machine, store = tmp_path / "machine", tmp_path / "store"
    file = deployments(tmp_path / "pool", late_judge.base_url, store)

    def stopped(number: signal.Signals, asked: int) -> int:
        with served(machine, file, store) as day:
            waited("a run to ask", lambda: late_judge.counts()["asked"] >= asked, WAIT_S)
            assert len(day.prefect.processes()) >= 4, "expected the command, the server, the worker and a run"
            day.process.send_signal(number)
            at = time.monotonic()
            code = day.process.wait(90)
            time.sleep(max(0.0, at + 2 - time.monotonic()))
            counted = late_judge.counts()["asked"]
            waited("what it started to end", lambda: not day.prefect.processes(), 10)
            assert time.monotonic() - at < RUNS_S + IDLE_S + SLACK_S
            if number == signal.SIGKILL:
                assert late_judge.settled()["asked"] == counted, "a killed command asks, and pays, after 2 seconds"
        assert not Store(store).versions(CORPUS)
        assert late_judge.settled()["asked"] < REQUESTS
        return code

    assert stopped(signal.SIGKILL, REQUESTS // 5) == -signal.SIGKILL
    assert stopped(signal.SIGTERM, REQUESTS // 2) == 0
    with served(machine, file, store) as day:
        waited("the version", lambda: Store(store).versions(CORPUS), WAIT_S)
        waited("the last run's end", lambda: day.count("COMPLETED"), WAIT_S)
        assert day.count("CRASHED") == 2, f"expected both lost runs to be told crashed, found {day.states()}"
    assert REQUESTS <= late_judge.settled()["asked"] <= REQUESTS + 2 * CONCURRENCY


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rebuild_that_is_ended_asks_no_more(tmp_path: Path, late_judge: Server) -> None:
    pool, store = tmp_path / "pool", tmp_path / "store"
    make_pool(pool, PROMPTS)
    write_config(pool, late_judge.base_url, judge={"max_concurrency": CONCURRENCY})
    file = deployments(pool, late_judge.base_url, store)
    plan = yaml.safe_load(file.read_text("utf-8"))
    config = {"base": str(pool), "builds": [{"corpus": CORPUS, "config": "build.toml"}]}
    plan["deployments"][0] |= {
        "entrypoint": "flows/rebuild.py:rebuild",
        "parameters": {"config": config, "store": str(store)},
    }
    file.write_text(yaml.safe_dump(plan), "utf-8")
    with served(tmp_path / "machine", file, store) as day:
        waited("a run to ask", lambda: late_judge.counts()["asked"] >= REQUESTS // 10, WAIT_S)
        (run,) = [one for one in day.prefect.processes() if one.cmdline()[1:] == ["-m", "prefect.engine"]]
        run.send_signal(signal.SIGTERM)
        run.wait(SLACK_S)
        assert late_judge.settled()["asked"] < REQUESTS, "an ended rebuild asks, and pays, to its end"
