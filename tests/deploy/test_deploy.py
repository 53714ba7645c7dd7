"""The deployment: the commands of deploy/SERVER.md on a real Prefect server, and a run that a worker carries out."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import validate
from pydantic import SecretStr

from earmark.flows.command import running
from earmark.flows.command.prefect_server import DATABASE, prepare_database
from earmark.flows.command.rebuild_plan import read_rebuild
from earmark.flows.command.running import demo_config
from earmark.flows.command.serving import PASSWORD_FILE
from earmark.schemas.rebuild import Rebuild
from earmark.schemas.registry import load
from earmark.tasks.pipeline.registry import corpora, find_corpus
from tests.builds import build_version, contents_of, read_config
from tests.conftest import ROOT

FILE = ROOT / "deploy/prefect.yaml"
DEPLOYMENTS = yaml.safe_load(FILE.read_text("utf-8"))["deployments"]
QUICK = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}


def waited(for_what: str, found: Callable[[], Any], seconds: float) -> Any:
    """What `found` answers as soon as that is not empty."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {for_what}"
        time.sleep(0.2)
    return answer


@dataclass
class Prefect:
    """Prefect with a home and a server of its own.

    Attributes:
        home: the folder of its database, settings and logs.
        url: the server's API.
        started: the processes that run beside the test.
        more: further variables of their environment.
    """

    home: Path
    url: str
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
        ours = {"PREFECT_HOME": str(self.home), "PREFECT_API_URL": self.url, "DO_NOT_TRACK": "1"}
        return {**kept, **ours, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", **self.more}

    def start(self, *arguments: str, folder: Path = ROOT) -> subprocess.Popen[bytes]:
        """Start a command that runs until `end`; its output goes to a file in the home."""
        with (self.home / f"{arguments[0]}.log").open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "prefect", *arguments],
                    cwd=folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return self.started[-1]

    def run(self, *arguments: str, seconds: float = 60) -> str:
        """Run a command to its end, which must be a good one."""
        ended = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        logs = "\n".join(path.read_text("utf-8", "replace")[-3000:] for path in self.home.glob("*.log"))
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}\n{ended.stderr}\n{logs}"
        return ended.stdout

    def ask(self, path: str, body: Any = None) -> Any:
        """What the server's API answers."""
        said = self._answer(path, None if body is None else json.dumps(body).encode())
        return json.loads(said)

    def tell(self, path: str) -> None:
        """Post what needs no body and gets no answer."""
        self._answer(path, b"")

    def _answer(self, path: str, data: bytes | None) -> bytes:
        """An answer. A server whose SQLite is locked says 503 or nothing, and is asked again."""
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json", **self.access()})
        deadline = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(request, timeout=90) as answer:
                    said: bytes = answer.read()
                    return said
            except (urllib.error.HTTPError, TimeoutError) as error:
                if getattr(error, "code", 503) != 503 or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def access(self) -> dict[str, str]:
        """The header that a server of `earmark serve` asks for; none where it is another's."""
        file = self.home / PASSWORD_FILE
        if not file.is_file():
            return {}
        return {"Authorization": f"Basic {base64.b64encode(file.read_bytes().strip()).decode()}"}

    def end(self) -> None:
        """End everything, newest first: as an interrupt from the terminal does, and by force what stays."""
        for process in reversed(self.started):
            process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in self.processes():
            with suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
                left.kill()

    def processes(self) -> list[psutil.Process]:
        """All processes that live in this home, whoever started them."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("PREFECT_HOME") == str(self.home):
                    found.append(process)
            except psutil.Error:
                continue  # it has ended, or it is somebody else's
        return found


@contextmanager
def serving(home: Path, **more: str) -> Iterator[Prefect]:
    """A server that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home.mkdir()
    roots = os.pathsep.join([str(ROOT), str(home.parent)])
    ours = Prefect(home, f"http://127.0.0.1:{port}/api", more={"EARMARK_ROOTS": roots, **QUICK, **more})
    prepare_database(SecretStr(f"sqlite+aiosqlite:///{home / DATABASE}"))
    try:
        ours.start("server", "start", "--port", str(port))
        ours.run("server", "status", "--wait", "--timeout", "90", seconds=120)
        yield ours
    finally:
        ours.end()
    assert ours.processes() == []


@pytest.fixture
def prefect(tmp_path: Path) -> Iterator[Prefect]:
    """A server that answers."""
    with serving(tmp_path / "prefect") as ours:
        yield ours


def without_description(schema: dict[str, Any]) -> list[str]:
    """Fields of a parameter form that tell nobody what they are for."""
    models = {"parameters": schema, **schema.get("definitions", {})}
    return [
        f"{model}.{name}"
        for model, part in models.items()
        for name, entry in part.get("properties", {}).items()
        if not entry.get("description")
    ]


def test_deployed_rebuild_is_the_demos() -> None:
    (deployment,) = (one for one in DEPLOYMENTS if "rebuild" in one["tags"])
    config = Rebuild.model_validate(deployment["parameters"]["config"])
    assert config.builds == read_rebuild(ROOT / "data/demo/rebuild.toml").builds


OF_CORPORA = [one for one in DEPLOYMENTS if set(one["tags"]) & set(corpora())]


@pytest.mark.parametrize("deployment", OF_CORPORA, ids=lambda deployment: deployment["entrypoint"])
def test_deployed_config_is_the_demo(deployment: dict[str, Any]) -> None:
    (name,) = set(deployment["tags"]) & set(corpora())
    corpus = find_corpus(name)
    config = corpus.config.model_validate(deployment["parameters"]["config"])
    assert config.recorded() == running.read_config(corpus, demo_config(name)).recorded()
    assert (ROOT / config.base) == demo_config(name).parent


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["entrypoint"])
def test_prefect_takes_the_parameters_of_a_deployment(deployment: dict[str, Any]) -> None:
    path, _, name = deployment["entrypoint"].partition(":")
    flow = load(f"earmark.{path.removesuffix('.py').replace('/', '.')}:{name}")
    schema = parameter_schema(flow).model_dump_for_openapi()
    validate(deployment.get("parameters", {}), schema, raise_on_error=True, ignore_required=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deployed_run_builds_what_the_command_builds(prefect: Prefect, tmp_path: Path) -> None:
    prefect.run("work-pool", "create", "local", "--type", "process")
    prefect.run("--no-prompt", "deploy", "--all", "--prefect-file", str(FILE.relative_to(ROOT)))
    for named in ("mos-preferences/nightly", "rebuild/weekly", "publish/by-hand"):
        deployment = prefect.ask(f"/deployments/name/{named}")
        assert without_description(deployment["parameter_openapi_schema"]) == []
    scheduled = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    assert waited("the schedule's runs", lambda: prefect.ask("/flow_runs/filter", scheduled), 60)

    prefect.start("worker", "start", "--pool", "local", folder=tmp_path)
    store = tmp_path / "store"
    start = ("deployment", "run", "mos-preferences/nightly", "--param", f"store={json.dumps(str(store))}", "--watch")
    prefect.run(*start, seconds=300)

    config = read_config(demo_config("mos-preferences"))
    deployed = build_version(config, store)
    assert deployed.name == "v1", "a direct build of the same config is not up to date"
    assert [path.name for path in deployed.folder.parent.glob("v*")] == ["v1"]
    assert contents_of(deployed.folder) == contents_of(build_version(config, tmp_path / "direct").folder)

    left = {held["key"] for held in prefect.ask("/artifacts/filter", {})}
    assert left >= {f"mos-preferences-{what}" for what in ("rows", "funnel", "version")}
    asset = {"resource": {"id": ["earmark://mos-preferences"]}}
    made = waited("the asset's event", lambda: prefect.ask("/events/filter", {"filter": asset})["events"], 60)
    assert {event["event"] for event in made} == {"prefect.asset.materialization.succeeded"}
    announced = {"resource": {"id": ["earmark.corpus.mos-preferences"]}}
    (event,) = waited("our event", lambda: prefect.ask("/events/filter", {"filter": announced})["events"], 60)
    assert (event["event"], event["payload"]["version"]) == ("earmark.committed", "v1")

    prefect.run(*start, seconds=300)
    assert [path.name for path in deployed.folder.parent.glob("v*")] == ["v1"]
    states = [run["state_type"] for run in prefect.ask("/flow_runs/filter", {}) if run["state_type"] != "SCHEDULED"]
    assert states == ["COMPLETED", "COMPLETED"]
