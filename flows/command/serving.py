"""`earmark serve`: a server, the deployments, a worker and the metrics, from one command on one machine."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from earmark.flows.command.access import own_access
from earmark.flows.command.supervisor import SERVE_MARK, end_family, start_supervisor
from earmark.schemas.errors import ConfigError, EarmarkError

if TYPE_CHECKING:
    from prefect.events.schemas.automations import AutomationCore

ROOT = Path(__file__).resolve().parents[2]
POOL = "local"
WORKER = "earmark-serve"  # its runs are recognised by this name among those of the pool's other workers
HEARTBEAT_S = 30  # the least that Prefect allows; deploy/automations.yaml waits for three
START_S = 120


@dataclass
class Processes:
    """Prefect's commands, run from the root of the clone, where the deployments' entrypoints are."""

    api: str  # the server's API
    more: dict[str, str] = field(default_factory=dict)  # further variables of their environment
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)  # those that run until `end`, by name
    # what their environment and that of the runs holds, by which the supervisor finds them
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    supervisor: subprocess.Popen[bytes] | None = None  # ends them if this process is killed

    def start(self, name: str, *arguments: str, defaults: Mapping[str, str] | None = None) -> None:
        """Start a command that runs until `end`. A terminal's interrupt does not reach it: `end` decides the order.
        `defaults` are variables of its environment; where the caller has one too, the caller's value counts."""
        self._watch()
        environment = {**(defaults or {}), **self._environment()}
        self.started[name] = subprocess.Popen(
            self._command(arguments), cwd=ROOT, env=environment, start_new_session=True
        )

    def call(self, what: str, *arguments: str) -> None:
        """Run a command to its end.

        Raises:
            EarmarkError: it failed; its last lines.
        """
        self._watch()
        ended = subprocess.run(
            self._command(arguments), cwd=ROOT, env=self._environment(), capture_output=True, text=True
        )
        if ended.returncode:
            lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
            raise EarmarkError(f"{what} failed: {' '.join(lines[-3:])}")

    def ended(self) -> str | None:
        """The name of a process that should run and does not."""
        return next((name for name, process in self.started.items() if process.poll() is not None), None)

    def end(self) -> None:
        """End all: the runs, which the worker tells the server, then the worker, then the server."""
        if self.supervisor is None:
            return
        end_family(self.mark)
        for process in self.started.values():
            process.wait()
        self.started.clear()
        self.supervisor.communicate()
        self.supervisor = None

    def _watch(self) -> None:
        """Start the supervisor before anything that it shall end."""
        self.supervisor = self.supervisor or start_supervisor(self.mark)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "prefect", *arguments]

    def _environment(self) -> dict[str, str]:
        ours = {
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # SQLite under several runs: wait for the lock, do not fail
        }
        return {**ours, **os.environ, **self.more, "PREFECT_API_URL": self.api, SERVE_MARK: self.mark}


def serve(
    file: Path,
    automations: Path,
    *,
    host: str,
    port: int,
    at_once: int,
    metrics_port: int,
    store: str | None,
    deploy_only: bool = False,
) -> None:
    """Serve until interrupted (Ctrl-C, or SIGTERM as `ending.end_in_order` has it).

    Raises:
        EarmarkError: a part did not start, or ended by itself.
    """
    from earmark.flows.command.metrics import serve_metrics

    if not file.is_file():
        raise ConfigError(f"deployments: file not found: {file}; name one with --file")
    known = os.environ.get("PREFECT_API_URL")
    if deploy_only and not known:
        raise ConfigError("--deploy-only needs a server; set PREFECT_API_URL, such as http://127.0.0.1:4200/api")
    processes = Processes(known or f"http://{host}:{port}/api", _places(store))
    access = None if known else own_access(host, port)
    if access:
        os.environ.update(access.client)  # of this process too, before Prefect is imported
    try:
        if access:
            _check_free(host, port)
            processes.start("server", "server", "start", "--host", host, "--port", str(port), defaults=access.server)
        _say("waiting for Prefect's server")
        deploy(processes, file, automations)
        if deploy_only:
            return
        named: list[str] = []
        if not known:
            tell_crashed(processes.api)
            named = ["--name", WORKER]
        processes.start("worker", "worker", "start", "--pool", POOL, "--limit", str(at_once), *named)
        if metrics_port:
            serve_metrics(store, host, metrics_port)
            _say(f"metrics: http://{host}:{metrics_port}/metrics")
        if access:
            _say(f"the web page and Prefect's commands (PREFECT_API_AUTH_STRING) need the password in {access.where}")
        _say(f"schedules are running; see {processes.api.removesuffix('/api')}; Ctrl-C ends")
        while (name := processes.ended()) is None:
            time.sleep(1)
        raise EarmarkError(f"Prefect's {name} ended unexpectedly; see its output above")
    except KeyboardInterrupt:
        _say("stopping; interrupted runs continue when earmark serve is started again")
    finally:
        processes.end()


def deploy(processes: Processes, file: Path, automations: Path) -> None:
    """Wait for the server, and make the work pool, the deployments and the automations known to it.

    Raises:
        EarmarkError: the server does not answer, or refused something.
    """
    processes.call("the server", "server", "status", "--wait", "--timeout", str(START_S))
    processes.call("the work pool", "work-pool", "create", POOL, "--type", "process", "--overwrite")
    _say(f"deploying {file}")
    processes.call("deploying", "--no-prompt", "deploy", "--all", "--prefect-file", str(file.absolute()))
    install(automations, processes.api)


def install(file: Path, api: str) -> None:
    """Make the automations of a file known to the server; those of the same name are replaced if they differ.

    One that is replaced forgets the runs that it waits for.

    Raises:
        ConfigError: the file is not there.
    """
    import yaml

    os.environ["PREFECT_API_URL"] = api
    from prefect.client.orchestration import get_client
    from prefect.events.schemas.automations import AutomationCore

    if not file.is_file():
        raise ConfigError(f"automations: file not found: {file}")
    with get_client(sync_client=True) as client:
        for values in yaml.safe_load(file.read_text("utf-8"))["automations"]:
            wanted = AutomationCore.model_validate(values)
            known = client.read_automations_by_name(wanted.name)
            if [_definition(old) for old in known] == [_definition(wanted)]:
                continue
            for old in known:
                client.delete_automation(old.id)
            client.create_automation(wanted)


def tell_crashed(api: str) -> None:
    """Set runs to `Crashed` whose process ended with an earlier `earmark serve`, as when the machine failed.

    Nobody else does: their worker is gone too, and the automation misses only runs that have sent a heartbeat.
    Runs of other workers, which may be on other machines, are left to these.
    """
    os.environ["PREFECT_API_URL"] = api
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    under_way = FlowRunFilter.model_validate({"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}})
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=under_way):
            # a worker leaves its name before it starts the process
            ours = run.labels.get("prefect.worker.name", WORKER) == WORKER
            if run.deployment_id and ours and not _lives(run.infrastructure_pid, str(run.id)):
                message = "earmark serve ended before this run; a new run goes on where it stopped."
                client.set_flow_run_state(run.id, Crashed(message=message))
                _say(f"run {run.name} ended with an earlier server; its state is now Crashed")


def _lives(pid: str | None, run: str) -> bool:
    """Whether a process is a run's; in a container, where numbers start again, it may be anybody's."""
    try:
        return pid is not None and psutil.Process(int(pid)).environ().get("PREFECT__FLOW_RUN_ID") == run
    except (ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _definition(automation: AutomationCore) -> dict[str, Any]:
    """An automation as a file can define it; the server adds ids."""
    from prefect.events.schemas.automations import AutomationCore

    core = AutomationCore.model_validate(automation.model_dump(include=set(AutomationCore.model_fields)))
    values: dict[str, Any] = core.model_dump(mode="json", exclude={"trigger": {"id"}})
    return values


def _places(store: str | None) -> dict[str, str]:
    """Where runs may read and write: below `EARMARK_ROOTS`, by default this folder and the clone's data; the store."""
    roots = os.environ.get("EARMARK_ROOTS") or os.pathsep.join([str(Path.cwd()), str(ROOT / "data")])
    named = store or os.environ.get("EARMARK_STORE")
    if not named:
        return {"EARMARK_ROOTS": roots}
    named = named if "://" in named else str(Path(named).expanduser().absolute())  # runs start in another folder
    return {"EARMARK_ROOTS": roots, "EARMARK_STORE": named}


def _check_free(host: str, port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((host, port)) == 0:
            raise EarmarkError(
                f"{host}:{port} is in use; if that is a Prefect server, set PREFECT_API_URL=http://{host}:{port}/api "
                "to use it, else choose another --port"
            )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
