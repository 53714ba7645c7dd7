"""Schedules on a real Prefect server, on PostgreSQL: what a killed worker leaves, the next one ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server
from tests.annotation.test_ledger import postgres  # noqa: F401  (a fixture)
from tests.conftest import ROOT
from tests.integration.test_deploy import Prefect, serving, waited
from tests.music import make_pool, values_of

CORPUS = "pseudo-preferences"
PROMPTS, CONCURRENCY = 20, 4
REQUESTS = PROMPTS * 3 * 2
EVERY_S = 20
QUICK = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}


def deployments(folder: Path, base_url: str, store: Path) -> Path:
    """A deployment that asks a local server, every few seconds."""
    values = values_of(base_url, judge={"max_concurrency": CONCURRENCY})
    deployment: dict[str, Any] = {
        "name": "often",
        "entrypoint": "flows/pseudo_preferences.py:build",
        "tags": ["earmark"],
        "parameters": {"config": {"corpus": CORPUS, "base": str(folder), **values}, "store": str(store)},
        "schedules": [{"interval": EVERY_S, "active": True}],
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
    """Runs in one of the states."""
    found: list[dict[str, Any]] = prefect.ask(
        "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": list(states)}}}}
    )
    return found


@pytest.fixture
def judge() -> Iterator[Server]:
    """A judge that takes its time."""
    started = Server("--listen", "--latency-ms", "200")
    yield started
    started.process.kill()
    started.process.communicate()


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
def test_a_worker_is_killed_in_mid_batch(tmp_path: Path, judge: Server, databases: dict[str, str]) -> None:
    make_pool(tmp_path / "pool", PROMPTS)
    store = tmp_path / "store"
    with serving(tmp_path / "prefect", **databases, **QUICK) as prefect:
        prefect.run("work-pool", "create", "local", "--type", "process")
        prefect.run("automation", "create", "--from-file", str(automations(tmp_path)))
        file = deployments(tmp_path / "pool", judge.base_url, store)
        prefect.run("--no-prompt", "deploy", "--all", "--prefect-file", str(file), seconds=180)

        worker = prefect.start("worker", "start", "--pool", "local", folder=tmp_path)
        waited("the schedule's run to ask", lambda: judge.counts()["asked"] >= REQUESTS // 5, 120)
        kill_with_children(worker)
        assert judge.settled()["asked"] < REQUESTS
        assert not Store(store).versions(CORPUS)
        (lost,) = runs(prefect, "RUNNING")

        prefect.start("worker", "start", "--pool", "local", folder=tmp_path)
        waited("the lost run to be found out", lambda: runs(prefect, "CRASHED"), 180)
        assert [run["id"] for run in runs(prefect, "CRASHED")] == [lost["id"]]
        waited("the version", lambda: Store(store).versions(CORPUS), 240)
        asked = judge.settled()["asked"]
        assert REQUESTS <= asked <= REQUESTS + CONCURRENCY
        (version,) = Store(store).versions(CORPUS)
        assert verify(version) == []

        retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}, "force": True}
        prefect.ask(f"/flow_runs/{lost['id']}/set_state", retry)  # what the page's button does
        again = waited("the retry", lambda: [r for r in runs(prefect, "COMPLETED") if r["id"] == lost["id"]], 120)
        assert again[0]["run_count"] == 2
        assert judge.counts()["asked"] == asked
        assert [version.name for version in Store(store).versions(CORPUS)] == ["v1"]
