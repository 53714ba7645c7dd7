"""Run the shards of a build in threads of this process, or on a cluster, by `[engine]` of the config.

A flow names `Shards` as its task runner: its mapped tasks run there, its plain calls in its own process.
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

from earmark.schemas.config import BuildConfig, Engine
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.tasks.annotation.ledger_rows import shown, this_host
from earmark.tasks.pipeline.clusters import RayCluster, Share
from earmark.tasks.pipeline.code import code_digest
from earmark.tasks.pipeline.fingerprint import library_versions
from earmark.tasks.pipeline.ledger import ledger_address
from earmark.tasks.pipeline.progress import Work
from earmark.tasks.pipeline.remote_sessions import SharedSession
from earmark.tasks.pipeline.scratch import INDEX
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage

API = "PREFECT_API_URL"
OURS = "EARMARK_PREFECT"
"""Environment variable with the command's own server, which serves this machine alone."""
Given = TypeVar("Given")
ANNOTATE = Share(cpus=0.5)  # asks a model behind a server: it mostly waits
AUDIO = Share(cpus=1)  # reads lists, decodes, measures, separates on a processor
GPU = Share(cpus=1, gpus=1)  # holds a model: a separator, vllm:, transformers:
_REPORTING: list[Engine] = []
"""Builds of this process whose clusters report to its temporary server."""
_MEETING = threading.Lock()


class Machine(NamedTuple):
    """Environment of a process that runs shards."""

    host: str  # name of its machine
    system: str  # distinguishes machines, and containers on one machine
    sees: bool  # whether the build's staging folder exists there
    lacks: str  # a missing input of the build, as the config writes it; else empty
    release: str  # digest of the code and the libraries that decide a version's bytes
    ledger: str  # its ledger's address, without passwords
    own_index: bool  # whether its environment names a file for the media index


class Shards(TaskRunner[PrefectFuture[Any]]):
    """Runner of mapped tasks on the engine of the flow run's config.

    Args:
        threads: shards at once in threads; a cluster runs as many as fit.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._threads = threads
        self._stack = ExitStack()
        self._place: TaskRunner[Any] | None = None

    def duplicate(self) -> Self:
        """Return a runner with the same settings; Prefect enters a duplicate for each run."""
        return type(self)(self._threads)

    def __exit__(self, *ended: Any) -> None:
        self._place = None
        self._stack.__exit__(*ended)
        super().__exit__(*ended)

    def submit(self, *given: Any, **named: Any) -> PrefectFuture[Any]:
        """Submit one shard; the arguments are those of Prefect's task runners.

        Raises:
            ConfigError: the cluster cannot be reached, or offers less than a shard takes.
            MissingExtraError: the cluster's extra is not installed.
            EarmarkError: the cluster's machines cannot run this build.
        """
        future: PrefectFuture[Any] = self._started_place().submit(*given, **named)
        return future

    def map(
        self,
        task: Task[Any, Any],
        parameters: dict[str, Any],
        wait_for: Iterable[PrefectFuture[Any]] | None = None,
    ) -> PrefectFutureList[PrefectFuture[Any]]:
        """Submit all shards; report the number of finished ones on a cluster. Raises as `submit`."""
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
    """Shards on a cluster, with its own faults as one-line errors."""

    def result(self, timeout: float | None = None, raise_on_failure: bool = True) -> list[Any]:
        """Return results as `PrefectFutureList.result`.

        Raises:
            EarmarkError: processes died repeatedly, or the cluster is gone.
        """
        with _cluster_faults("the cluster lost a shard", "what is finished is kept, go on with: earmark resume"):
            return super().result(timeout, raise_on_failure)


class OnCluster(TaskRunner[PrefectFuture[Any]]):
    """Runner of shards in the processes of a cluster.

    Args:
        engine: the cluster, and a shard's resources.

    Attributes:
        engine: as given.
        shards: number of shards being submitted.
        examined: whether the machines were checked; machines may join between steps.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.engine = engine
        self.shards = 1
        self._stack = ExitStack()
        self._cluster: RayCluster
        self.examined = False

    def duplicate(self) -> Self:
        """Return a runner with the same settings."""
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
        """Submit one shard; see `Shards.submit`."""
        parameters = {name: travelling(value) for name, value in parameters.items()}
        if not self.examined:
            self._examine(parameters)
        share = self._share(parameters)
        for session in _given(parameters, SharedSession):
            session.shared_by = min(self.shards, self._cluster.at_once(share))
        with AddressAlone.of_run():
            return self._cluster.submit(share, task, parameters, *given, **named)

    def _share(self, parameters: Mapping[str, Any]) -> Share:
        """Return a shard's resources, by its parameters.

        Raises:
            ConfigError: no machine has enough.
        """
        offers = self._cluster.offers
        asks = bool(_given(parameters, SharedSession))
        runs_model = any(getattr(value, "in_process", False) for value in _given(parameters, object))
        model = GPU if any(gpus for _, gpus in offers) else AUDIO
        share = model if runs_model else ANNOTATE if asks else AUDIO
        if not any(share.cpus <= cpus and share.gpus <= gpus for cpus, gpus in offers):
            most = "; ".join(sorted({f"{cpus:g} and {gpus:g}" for cpus, gpus in offers})) or "none"
            raise ConfigError(
                f"engine: a shard takes {share.cpus:g} processors and {share.gpus:g} GPUs, and no machine of the "
                f"cluster of {self.engine.runner} offers as much: {most}"
            )
        return share

    def _examine(self, parameters: Mapping[str, Any]) -> None:
        """Check that a remote cluster can run this build."""
        self.examined = True
        stages, configs = _given(parameters, Stage), _given(parameters, BuildConfig)
        if self.engine.address is None or not stages or not configs:
            return
        question = partial(look_around, stages[0], configs[0], configs[0].inputs())
        with _cluster_faults("a machine of the cluster cannot run Earmark", "install the same as here"):
            there = self._cluster.ask_each(question)
        check_machines(stages[0], question(), there)


class AddressAlone(SettingsContext):
    """Prefect settings that send other processes only the server's address, and none of the keys and passwords."""

    @classmethod
    def of_run(cls) -> AddressAlone:
        """Return the settings in force."""
        now = SettingsContext.get()
        assert now is not None
        return cls(profile=now.profile, settings=now.settings)

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:
        """Return the settings to send to a process that runs a shard."""
        url = self.settings.api.url
        return {
            "profile": {"name": self.profile.name, "settings": {}},
            "settings": {"api": {"url": url}} if url else {},
        }


def travelling(value: Any) -> Any:
    """Return a parameter for remote processes: absolute paths, and no progress, which is invisible there."""
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
    """Describe this process's environment, with the first of a build's inputs missing here."""
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
    """Refuse a cluster that would build something else, or damage shared files.

    Raises:
        EarmarkError: with the machine and its fault.
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
    return Engine.named(config.engine) if isinstance(config, BuildConfig) else Engine()


def _given(parameters: Mapping[str, Any], kind: type[Given]) -> list[Given]:
    """Return the parameters of a type, including those in mappings."""
    values: list[Given] = []
    for value in parameters.values():
        if isinstance(value, Mapping):
            values += _given(value, kind)
        elif isinstance(value, kind):
            values.append(value)
    return values


@contextmanager
def _cluster_faults(what: str, then: str) -> Iterator[None]:
    """Turn the cluster's own faults into one-line errors."""
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
    """Let the processes of a cluster report to this run's Prefect server.

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
            f"engine: a cluster that runs elsewhere reports to a Prefect server, and {API} names none; "
            "start one with: prefect server start"
        )
    from prefect.server.api.server import SubprocessASGIServer

    with _MEETING:
        _REPORTING.append(engine)
        os.environ[API] = SubprocessASGIServer().api_url  # inherited by child processes from now on
    try:
        yield
    finally:
        with _MEETING:
            _REPORTING.remove(engine)
            if not _REPORTING:
                del os.environ[API]
