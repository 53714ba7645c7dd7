"""Run a server, the deployments, a worker and the metrics from one command, for `earmark serve`."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import SecretStr

from earmark.flows.command.ending import take
from earmark.flows.command.prefect_server import DATABASE, home, pass_proxies_by, prepare_database
from earmark.flows.command.reports import PREFIX
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.files import keep_private, read_regular
from earmark.schemas.places import without_secrets, without_user
from earmark.tasks.annotation.children import KILL_S, Child

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import AutomationCore

PASSWORD_FILE = "earmark-serve.auth"


@dataclass(frozen=True)
class Access:
    """The server's access settings, and the place of its password."""

    server: dict[str, str]  # environment variables of the server alone
    client: dict[str, str]  # environment variables of the server's users: this process, the worker, its runs
    where: str  # the place of the password


def own_access(host: str, port: int) -> Access:
    """Return the password in `PREFECT_SERVER_API_AUTH_STRING`, else in a file of Prefect's home created once for its
    owner alone; and the origins of the server's own page.

    Without a password, any page in a browser on this machine could start runs: Prefect's API ignores Host and Origin.
    """
    password, where = os.environ.get("PREFECT_SERVER_API_AUTH_STRING"), "PREFECT_SERVER_API_AUTH_STRING"
    if not password:
        file = home() / PASSWORD_FILE
        password, where = _kept(file), str(file)
    origins = {f"http://{name}:{port}" for name in (host, "127.0.0.1", "localhost")}
    cors = {"PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(sorted(origins))}
    return Access({"PREFECT_SERVER_API_AUTH_STRING": password, **cors}, {"PREFECT_API_AUTH_STRING": password}, where)


def _kept(file: Path) -> str:
    try:
        keep_private(file, f"earmark:{secrets.token_urlsafe(32)}\n")
        password = read_regular(file).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{file}: cannot keep the server's password: {error.strerror}") from None
    if not re.fullmatch(r"[!-9;-~]+:[!-~]{12,}", password):
        raise ConfigError(
            f"{file}: expected USER:PASSWORD of 12 characters or more in one line; delete it for a new one"
        )
    return password


ROOT = Path(__file__).resolve().parents[2]
CLONED = (ROOT / "pyproject.toml").is_file()
AUTOMATIONS = ROOT / "deploy/automations.yaml"
POOL = "local"
WORKER = "earmark-serve"  # identifies its runs among those of the pool's other workers
HEARTBEAT_S = 30  # the least allowed by Prefect; deploy/automations.yaml waits for three
START_S = 120
RUNS_S = 8.0  # time for runs to keep work in flight and to end, and for the worker to report it
IDLE_S = 2.0  # time for a process with nothing to keep
FREE_S = 3.0  # wait for a port possibly held by a killed `earmark serve`


@dataclass
class Processes:
    """Prefect's commands, run from the root of the clone or package, the base of the deployments' entrypoints."""

    api: str  # the server's API
    more: dict[str, str] = field(default_factory=dict)  # further variables of their environment
    started: dict[str, Child] = field(default_factory=dict)  # processes running until `end`, by name

    def start(self, name: str, *arguments: str, defaults: Mapping[str, str] | None = None) -> None:
        """Start a command that runs until `end`, or until this process is gone. `defaults` are variables of its
        environment; the caller's own values take precedence."""
        environment = {**(defaults or {}), **self._environment()}
        worker = name == "worker"  # it would wait for its runs, so they must get the signal too
        self.started[name] = Child(
            self._command(arguments),
            cwd=ROOT,
            env=environment,
            and_its_own=worker,
            grace_s=RUNS_S if worker else IDLE_S,
        )

    def call(self, what: str, *arguments: str) -> None:
        """Run a command to its end.

        Raises:
            EarmarkError: it failed; with its last lines.
        """
        with tempfile.TemporaryFile() as said:
            with Child(
                self._command(arguments), cwd=ROOT, env=self._environment(), stdout=said, stderr=said, grace_s=IDLE_S
            ) as child:
                code = child.wait()
            said.seek(0)
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        if code:
            raise EarmarkError(f"{what} failed: {without_secrets(' '.join(lines[-3:]))}")

    def ended(self) -> str | None:
        """Return the name of an unexpectedly ended process, or None."""
        return next((name for name, child in self.started.items() if child.poll() is not None), None)

    def end(self) -> None:
        """End all, newest first: the worker with its runs, reporting them to the server; then the server."""
        while self.started:
            self.started.popitem()[1].end()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "prefect", "--no-prompt", *arguments]  # in a terminal it would prompt unseen

    def _environment(self) -> dict[str, str]:
        ours = {
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
            "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # SQLite under several runs: wait for the lock, do not fail
        }
        return {**ours, **os.environ, **self.more, "PREFECT_API_URL": self.api}


def serve(
    file: Path | None,
    automations: Path,
    *,
    host: str,
    port: int,
    at_once: int,
    metrics_port: int,
    store: str | None,
    deploy_only: bool = False,
) -> None:
    """Serve until interrupted (Ctrl-C, or SIGTERM by `ending.end_in_order`).

    Raises:
        EarmarkError: a part did not start, or ended by itself.
    """
    from earmark.flows.command.metrics import serve_metrics

    if file and not file.is_file():
        raise ConfigError(f"--file: file not found: {file}")
    known = os.environ.get("PREFECT_API_URL")
    if deploy_only and not known:
        raise ConfigError("--deploy-only needs a server; set PREFECT_API_URL, such as http://127.0.0.1:4200/api")
    processes = Processes(known or f"http://{host}:{port}/api", _places(store))
    page = without_user("PREFECT_API_URL", processes.api).removesuffix("/api")
    access = None if known else own_access(host, port)
    pass_proxies_by()
    if access:
        os.environ.update(access.client, PREFECT_HOME=str(home()))  # of this process too, before Prefect is imported
        if not {"PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL"} & os.environ.keys():
            prepare_database(SecretStr(f"sqlite+aiosqlite:///{home() / DATABASE}"))
    if access and metrics_port:
        processes.more["EARMARK_REPORTS"] = f"http://{host}:{metrics_port}{PREFIX}"
    take(RUNS_S + IDLE_S + 2 * KILL_S)
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
            serve_metrics(store, host, metrics_port, access.client["PREFECT_API_AUTH_STRING"] if access else None)
            _say(f"metrics: http://{host}:{metrics_port}/metrics")
        if access:
            _say(f"pages, reports and Prefect's commands (PREFECT_API_AUTH_STRING) need the password in {access.where}")
        _say(f"schedules are running; see {page}; Ctrl-C ends")
        while (name := processes.ended()) is None:
            time.sleep(1)
        raise EarmarkError(f"Prefect's {name} ended unexpectedly; see its output above")
    except KeyboardInterrupt:
        _say("stopping; interrupted runs continue when earmark serve is started again")
    finally:
        processes.end()


def deploy(processes: Processes, file: Path | None, automations: Path) -> None:
    """Wait for the server, and register the work pool, a file's deployments and the automations on it.

    Raises:
        EarmarkError: the server does not answer, or refused something.
    """
    processes.call("the server", "server", "status", "--wait", "--timeout", str(START_S))
    os.environ["PREFECT_API_URL"] = processes.api
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        make_pool(client)
        if client.read_work_pool(POOL).is_paused:
            _say(f"the work pool is paused, and starts no run; to go on: prefect work-pool resume {POOL}")
        if file:
            _say(f"deploying {file}")
            processes.call("deploying", "deploy", "--all", "--prefect-file", str(file.absolute()))
        install(client, automations)


def make_pool(client: SyncPrefectClient) -> None:
    """Create the work pool if there is none; what a person has set on it, such as a pause or a limit, stays."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    with suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))


def install(client: SyncPrefectClient, file: Path) -> None:
    """Register the automations of a file on the server; replace automations of the same name if they differ.

    A replaced automation forgets the runs it waits for.

    Raises:
        ConfigError: the file does not exist.
    """
    import yaml
    from prefect.events.schemas.automations import AutomationCore

    if not file.is_file():
        raise ConfigError(f"automations: file not found: {file}")
    for values in yaml.safe_load(file.read_text("utf-8"))["automations"]:
        wanted = AutomationCore.model_validate(values)
        known = client.read_automations_by_name(wanted.name)
        if [_definition(old) for old in known] == [_definition(wanted)]:
            continue
        for old in known:
            client.delete_automation(old.id)
        client.create_automation(wanted)


def tell_crashed(api: str) -> None:
    """Set runs to `Crashed` if their process ended with an earlier `earmark serve`, as after a machine failure.

    Nothing else does: their worker is gone too, and the automation detects only runs with a past heartbeat.
    Runs of other workers, possibly on other machines, are left alone.
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
    """Return whether a process is a run's; in a container numbers start again, so it may be any process."""
    try:
        return pid is not None and psutil.Process(int(pid)).environ().get("PREFECT__FLOW_RUN_ID") == run
    except (ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _definition(automation: AutomationCore) -> dict[str, Any]:
    """Return an automation in the form of a file; the server adds ids."""
    from prefect.events.schemas.automations import AutomationCore

    core = AutomationCore.model_validate(automation.model_dump(include=set(AutomationCore.model_fields)))
    values: dict[str, Any] = core.model_dump(mode="json", exclude={"trigger": {"id"}})
    return values


def _places(store: str | None) -> dict[str, str]:
    """Return the folders of runs: below `EARMARK_ROOTS`, by default this folder and the clone's data; and the store."""
    own = ROOT / ("data" if CLONED else "data/demo")  # nothing is written into an installation
    roots = os.environ.get("EARMARK_ROOTS") or os.pathsep.join([str(Path.cwd()), str(own)])
    named = store or os.environ.get("EARMARK_STORE")
    if not named:
        return {"EARMARK_ROOTS": roots}
    named = named if "://" in named else str(Path(named).expanduser().absolute())  # runs start in another folder
    return {"EARMARK_ROOTS": roots, "EARMARK_STORE": named}


def _check_free(host: str, port: int) -> None:
    deadline = time.monotonic() + FREE_S
    while _listens(host, port):
        if time.monotonic() > deadline:
            raise EarmarkError(
                f"{host}:{port} is in use; if that is a Prefect server, set PREFECT_API_URL=http://{host}:{port}/api "
                "to use it, else choose another --port"
            )
        time.sleep(0.1)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
