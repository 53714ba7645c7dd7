"""Where the shards of a build are worked on: threads of this process, or a cluster, as `[engine]` in the config says.

A flow names `Shards` as its task runner: what it maps goes there, and what it calls plainly stays in its own process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from prefect.context import FlowRunContext, SettingsContext
from prefect.futures import PrefectFuture, PrefectFutureList
from prefect.settings import get_current_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.tasks import Task

from earmark.schemas.config import BuildConfig, Engine, Share
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.tasks.annotation.ledger_rows import shown, this_host
from earmark.tasks.build.clusters import RayCluster
from earmark.tasks.build.code import code_digest
from earmark.tasks.build.fingerprint import library_versions
from earmark.tasks.build.ledger import ledger_address
from earmark.tasks.build.media import INDEX
from earmark.tasks.build.progress import Work
from earmark.tasks.build.remote_sessions import SharedSession
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage

API = "PREFECT_API_URL"
OURS = "EARMARK_PREFECT"
"""Names the command's own server in its environment, which answers this machine alone."""
Given = TypeVar("Given")
_REPORTING: list[Engine] = []
"""Builds of this process whose clusters report to its temporary server."""
_MEETING = threading.Lock()


class Machine(NamedTuple):
    """What a process that works on shards finds around it."""

    host: str  # name of its machine
    system: str  # tells machines, and containers on one of them, apart
    sees: bool  # whether the build's staging folder is there
    lacks: str  # an input of the build that is not there, as the config writes it; else nothing
    release: str  # digest of the code and of the libraries that decide a version's bytes
    ledger: str  # where it would keep answers, without passwords
    own_index: bool  # whether its environment names a file for what is measured of audio


class Shards(TaskRunner[PrefectFuture[Any]]):
    """Works on mapped tasks where the config of the flow run says.

    Args:
        threads: shards that are worked on at once by threads; a cluster takes as many as it has room for.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._threads = threads
        self._stack = ExitStack()
        self._place: TaskRunner[Any] | None = None

    def duplicate(self) -> Self:
        """Another one with the same settings; Prefect enters a duplicate for each run."""
        return type(self)(self._threads)

    def __exit__(self, *ended: Any) -> None:
        self._place = None
        self._stack.__exit__(*ended)
        super().__exit__(*ended)

    def submit(self, *given: Any, **named: Any) -> PrefectFuture[Any]:
        """Have one shard worked on; takes what Prefect's task runners take.

        Raises:
            ConfigError: the cluster cannot be reached, or has less than a shard takes.
            MissingExtraError: the cluster's extra is not installed.
            EarmarkError: the cluster's machines cannot work on this build.
        """
        future: PrefectFuture[Any] = self._started_place().submit(*given, **named)
        return future

    def map(
        self,
        task: Task[Any, Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
    ) -> PrefectFutureList[PrefectFuture[Any]]:
        """Have all shards worked on; of those on a cluster, tells how many are done. Raises as `submit`."""
        place = self._started_place()
        if not isinstance(place, OnCluster):
            return super().map(task, parameters, wait_for)
        place.examined = False
        place.shards = max((len(value) for value in parameters.values() if isinstance(value, list | tuple)), default=1)
        futures = Awaited(super().map(task, parameters, wait_for))  # type: ignore[abstract]  # of Prefect's own list
        if futures:
            work = Work(f"{task.name}: shards on {place.engine.runner}", len(futures))
            for future in futures:
                future.add_done_callback(lambda _: work.advance())
        return futures

    def _started_place(self) -> TaskRunner[Any]:
        if self._place is None:
            engine = _engine_of_run()
            threads = engine.runner == "threads"
            place: TaskRunner[Any] = ThreadPoolTaskRunner(self._threads) if threads else OnCluster(engine)
            self._stack.enter_context(place)
            self._place = place
        return self._place


class Awaited(PrefectFutureList[PrefectFuture[Any]]):
    """Shards on a cluster; a fault of the cluster itself is told in one line."""

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> list[Any]:
        """As `PrefectFutureList.result`.

        Raises:
            EarmarkError: processes died again and again, or the cluster is gone.
        """
        with _cluster_faults("the cluster lost a shard", "what is finished is kept, go on with: earmark resume"):
            return super().result(timeout, raise_on_failure)


class OnCluster(TaskRunner[PrefectFuture[Any]]):
    """Works on shards in the processes of a cluster.

    Args:
        engine: which cluster, and what a shard takes.

    Attributes:
        engine: as given.
        shards: how many are being handed in.
        examined: whether the machines were looked at; machines may join between steps.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.engine = engine
        self.shards = 1
        self._stack = ExitStack()
        self._cluster: RayCluster
        self.examined = False

    def duplicate(self) -> Self:
        """Another one with the same settings."""
        return type(self)(self.engine)

    def __enter__(self) -> Self:
        super().__enter__()
        with ExitStack() as stack:
            stack.enter_context(_reachable_prefect(self.engine))
            self._cluster = RayCluster(stack, self.engine)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *ended: Any) -> None:
        self._stack.__exit__(*ended)
        super().__exit__(*ended)

    def submit(self, task: Task[Any, Any], parameters: dict[str, Any], *given: Any, **named: Any) -> PrefectFuture[Any]:
        """Have one shard worked on; see `Shards.submit`."""
        parameters = {name: travelling(value) for name, value in parameters.items()}
        if not self.examined:
            self._examine(parameters)
        share = self._share(parameters)
        for session in _given(parameters, SharedSession):
            session.shared_by = min(self.shards, self._cluster.at_once(share))
        with AddressAlone.of_run():
            return self._cluster.submit(share, task, parameters, *given, **named)

    def _share(self, parameters: Mapping[str, Any]) -> Share:
        """What a shard takes, by what it is given.

        Raises:
            ConfigError: no machine has so much.
        """
        kinds, offers = self.engine.resources, self._cluster.offers
        asks = bool(_given(parameters, SharedSession))
        runs_model = any(getattr(value, "in_process", False) for value in _given(parameters, object))
        if runs_model:
            name, share = ("gpu", kinds.gpu) if any(gpus for _, gpus in offers) else ("audio", kinds.audio)
        else:
            name, share = ("annotate", kinds.annotate) if asks else ("audio", kinds.audio)
        if not any(share.cpus <= cpus and share.gpus <= gpus for cpus, gpus in offers):
            most = "; ".join(sorted({f"{cpus:g} and {gpus:g}" for cpus, gpus in offers})) or "none"
            raise ConfigError(
                f"engine.resources.{name}: a shard takes {share.cpus:g} processors and {share.gpus:g} GPUs, and no "
                f"machine of the cluster of {self.engine.runner} offers as much: {most}"
            )
        return share

    def _examine(self, parameters: Mapping[str, Any]) -> None:
        """Make sure that a cluster that runs elsewhere can work on this build."""
        self.examined = True
        stages, configs = _given(parameters, Stage), _given(parameters, BuildConfig)
        if self.engine.address is None or not stages or not configs:
            return
        question = partial(look_around, stages[0], configs[0], configs[0].inputs())
        with _cluster_faults("a machine of the cluster cannot run Earmark", "install the same as here"):
            there = self._cluster.ask_each(question)
        check_machines(stages[0], question(), there)


class AddressAlone(SettingsContext):
    """Of Prefect's settings, hands the server's address to other processes: Prefect hands on all, with keys and
    passwords, and each process has an environment of its own."""

    @classmethod
    def of_run(cls) -> AddressAlone:
        """The settings in force."""
        now = SettingsContext.get()
        assert now is not None
        return cls(profile=now.profile, settings=now.settings)

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:
        """What a process is handed that works on a shard."""
        url = self.settings.api.url
        return {
            "profile": {"name": self.profile.name, "settings": {}},
            "settings": {"api": {"url": url}} if url else {},
        }


def travelling(value: Any) -> Any:
    """A parameter as processes elsewhere need it: paths absolute, and no progress, which nobody there sees."""
    if isinstance(value, Stage):
        return replace(value, store=value.store.absolute(), folder=value.folder.absolute())
    if isinstance(value, Path):
        return value.absolute()
    if isinstance(value, dict):
        return {name: travelling(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(travelling, value))
    return None if isinstance(value, Work) else value


def look_around(stage: Stage, config: BuildConfig, inputs: Sequence[str]) -> Machine:
    """What this process finds around it, for a build whose inputs, as the config writes them, it should see."""
    flow = f"earmark.flows.{stage.corpus.replace('-', '_')}"  # a deployment loads it under another name
    return Machine(
        host=socket.gethostname(),
        system=this_host(),
        sees=stage.folder.is_dir(),
        lacks=next((written for written in inputs if not config.finds(written)), ""),
        release=digest_of([code_digest(flow), library_versions()]),
        ledger=shown(ledger_address(stage.store)),
        own_index=bool(os.environ.get(INDEX)),
    )


def check_machines(stage: Stage, here: Machine, there: Iterable[Machine]) -> None:
    """Refuse a cluster that would build something else, or damage what machines share.

    Raises:
        EarmarkError: which machine lacks what.
    """
    for one in sorted(set(there)):
        if not one.sees:
            raise EarmarkError(f"engine: {one.host} has no folder {stage.folder}; {SHARED}")
        if one.lacks:
            raise EarmarkError(
                f"engine: {one.host} does not find the input '{one.lacks}', which is here; {SHARED}, and EARMARK_CACHE "
                "where inputs are behind URLs"
            )
        if one.release != here.release:
            raise EarmarkError(f"engine: {one.host} runs other code or libraries than this machine; install the same")
        if one.ledger != here.ledger:
            raise EarmarkError(
                f"engine: {one.host} would keep answers in {one.ledger}, this machine in {here.ledger}; "
                "set EARMARK_LEDGER alike where the cluster's processes start"
            )
        if one.system == here.system:
            continue
        if "://" not in one.ledger:
            raise EarmarkError(
                f"engine: {one.host} is another machine, and the ledger {one.ledger} is SQLite, which machines cannot "
                "share; set EARMARK_LEDGER=postgresql://… on all of them"
            )
        if not one.own_index:
            raise EarmarkError(
                f"engine: {one.host} is another machine, and machines cannot share {stage.store.root / 'media.sqlite'};"
                f" set {INDEX} there to a file on its own disk"
            )


SHARED = "a cluster of several machines needs store and inputs on a disk that all have under the same path"


def _engine_of_run() -> Engine:
    context = FlowRunContext.get()
    config = (context.parameters or {}).get("config") if context else None
    return config.engine if isinstance(config, BuildConfig) else Engine()


def _given(parameters: Mapping[str, Any], kind: type[Given]) -> list[Given]:
    """Parameters of a kind, by themselves or in mappings."""
    values: list[Given] = []
    for value in parameters.values():
        if isinstance(value, Mapping):
            values += _given(value, kind)
        elif isinstance(value, kind):
            values.append(value)
    return values


@contextmanager
def _cluster_faults(what: str, then: str) -> Iterator[None]:
    """Have a fault of the cluster itself told in one line."""
    try:
        yield
    except Exception as error:
        theirs = type(error).__module__.partition(".")[0] in ("ray", "distributed")
        if not theirs and not isinstance(error, ModuleNotFoundError):
            raise
        line = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise EarmarkError(f"engine: {what}: {line}; {then}") from error


@contextmanager
def _reachable_prefect(engine: Engine) -> Iterator[None]:
    """Have the processes of a cluster report to the server that this run reports to.

    Raises:
        ConfigError: that server is a temporary one, which only this machine reaches.
    """
    with _MEETING:
        url = get_current_settings().api.url
        named = not _REPORTING and bool(url)
    if named and (engine.address is None or url != os.environ.get(OURS)):
        yield
        return
    if engine.address is not None:
        raise ConfigError(
            f"engine.address: a cluster that runs elsewhere reports to a Prefect server, and {API} names none; "
            "start one with: prefect server start"
        )
    from prefect.server.api.server import SubprocessASGIServer

    with _MEETING:
        _REPORTING.append(engine)
        os.environ[API] = SubprocessASGIServer().api_url  # inherited by what this process starts now
    try:
        yield
    finally:
        with _MEETING:
            _REPORTING.remove(engine)
            if not _REPORTING:
                del os.environ[API]
