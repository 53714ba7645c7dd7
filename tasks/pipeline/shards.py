"""Run the shards of a build in threads of this process, or on a cluster, by `[engine]` of the config.

A flow names `Shards` as its task runner: its mapped tasks run there, its plain calls in its own process.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from prefect.context import SettingsContext
from prefect.futures import PrefectFuture, PrefectFutureList
from prefect.settings import get_current_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.tasks import Task

from earmark.schemas.config import ENGINE, BuildConfig, Engine
from earmark.schemas.errors import ConfigError, EarmarkError, MissingExtraError
from earmark.tasks.annotation.ledger_rows import shown, this_host
from earmark.tasks.pipeline.code import code_digest
from earmark.tasks.pipeline.inputs import library_versions
from earmark.tasks.pipeline.media import INDEX
from earmark.tasks.pipeline.progress import Work
from earmark.tasks.pipeline.sessions import SharedSession
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import ledger_address

Answer = TypeVar("Answer")

LOCAL_STORE_BYTES = 256 << 20  # shared memory of our own Ray: shards receive paths, not tables
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
STARTS = 3
_USERS: list[Engine] = []  # engines of the builds connected to this process's Ray
_CONNECTING = threading.Lock()


class Share(NamedTuple):
    """Share of a machine for a shard at work."""

    cpus: float
    gpus: float = 0


class RayCluster:
    """A connected Ray: one process per shard under way, with its own processors and GPUs.

    Another process takes over the shard of a process that dies.

    Attributes:
        offers: processors and GPUs of each machine.
    """

    def __init__(self, stack: ExitStack, engine: Engine) -> None:
        try:
            import ray
            from prefect_ray import RayTaskRunner
        except ImportError:
            raise MissingExtraError(f"{ENGINE}=ray", "ray") from None
        stack.enter_context(_connected(engine))
        self._runner = stack.enter_context(RayTaskRunner())
        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.offers = [(one.get("CPU", 0.0), one.get("GPU", 0.0)) for one in found]

    def submit(self, share: Share, *given: Any, **named: Any) -> PrefectFuture[Any]:
        """Submit a shard; the other arguments are those of a task runner's `submit`."""
        from prefect_ray.context import remote_options

        with remote_options(num_cpus=share.cpus, num_gpus=share.gpus, scheduling_strategy="SPREAD"):
            future: PrefectFuture[Any] = self._runner.submit(*given, **named)
            return future

    def at_once(self, share: Share) -> int:
        """Return the number of processes that fit at once, given a shard's share."""
        room = (
            min(cpus / share.cpus, gpus / share.gpus if share.gpus else cpus / share.cpus) for cpus, gpus in self.offers
        )
        return max(1, sum(map(int, room)))

    def ask_each(self, question: Callable[[], Answer]) -> list[Answer]:
        """Return each machine's answer to a question."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def answer() -> Answer:
            return question()  # Ray takes functions, but not partial ones

        workers = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = [
            ray.remote(num_cpus=0)(answer)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote()
            for node in workers
        ]
        return list(ray.get(asked))


def _unreachable(engine: Engine, error: Exception) -> ConfigError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return ConfigError(f"{ENGINE}: no Ray answers at '{engine.address}': {reason}")


@contextmanager
def _connected(engine: Engine) -> Iterator[None]:
    """Connect this process to Ray, once for all its simultaneous builds."""
    with _CONNECTING:
        if not _USERS:
            _connect(engine)
        elif (engine.address, engine.workers) != (_USERS[0].address, _USERS[0].workers):
            raise ConfigError(f"{ENGINE}: builds side by side share one Ray: expected one address and number")
        _USERS.append(engine)
    try:
        yield
    finally:
        with _CONNECTING:
            _USERS.remove(engine)
            if not _USERS:
                import ray

                ray.shutdown()


def _connect(engine: Engine) -> None:
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet = {"log_to_driver": False, "configure_logging": False, "namespace": "earmark"}
    if engine.address is None:
        _start_own(partial(ray.init, "local", num_cpus=engine.workers, include_dashboard=False, **quiet))
        return
    try:
        _knock(engine.address)
        ray.init(engine.address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreachable(engine, error) from None


def _knock(address: str) -> None:
    """Check that a server listens at `host:port`: Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _start_own(start: Callable[..., object]) -> None:
    """Start our own Ray; retry after its 30-second timeout, which a busy machine may exceed."""
    for left in reversed(range(STARTS)):
        try:
            start(object_store_memory=LOCAL_STORE_BYTES)
        except Exception as error:
            if type(error) is not Exception:  # the start's timeout; other faults have types of their own
                raise
            if not left:
                raise EarmarkError(f"{ENGINE}: Ray does not start on this machine: {error}") from None
            continue
        return


API = "PREFECT_API_URL"
OURS = "EARMARK_PREFECT"  # environment variable with the command's own server, which serves this machine alone
Given = TypeVar("Given")
ANNOTATE = Share(cpus=0.5)  # asks a model behind a server: it mostly waits
AUDIO = Share(cpus=1)  # reads lists, decodes, measures, separates on a processor
GPU = Share(cpus=1, gpus=1)  # holds a model: a separator, vllm:, transformers:
_REPORTING: list[Engine] = []  # builds of this process whose clusters report to its temporary server
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
        self, task: Task[Any, Any], parameters: dict[str, Any], wait_for: Iterable[PrefectFuture[Any]] | None = None
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
            engine = Engine.of_environment()
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
        """Return a shard's resources, by its parameters."""
        offers = self._cluster.offers
        asks = bool(_given(parameters, SharedSession))
        runs_model = any(getattr(value, "in_process", False) for value in _given(parameters, object))
        model = GPU if any(gpus for _, gpus in offers) else AUDIO
        share = model if runs_model else ANNOTATE if asks else AUDIO
        if not any(share.cpus <= cpus and share.gpus <= gpus for cpus, gpus in offers):
            most = "; ".join(sorted({f"{cpus:g} and {gpus:g}" for cpus, gpus in offers})) or "none"
            raise ConfigError(
                f"{ENGINE}: a shard takes {share.cpus:g} processors and {share.gpus:g} GPUs, and no machine of the "
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
    """Refuse a cluster that would build something else, or damage shared files."""
    for one in sorted(set(there)):
        if not one.sees:
            raise EarmarkError(f"{ENGINE}: {one.host} has no folder {stage.folder}; {SHARED}")
        if one.lacks:
            raise EarmarkError(
                f"{ENGINE}: {one.host} does not find the input '{one.lacks}', which is here; {SHARED}, and "
                "EARMARK_CACHE where inputs are behind URLs"
            )
        if one.release != here.release:
            raise EarmarkError(f"{ENGINE}: {one.host} runs other code or libraries than this machine; install the same")
        if one.ledger != here.ledger:
            raise EarmarkError(
                f"{ENGINE}: {one.host} would keep answers in {one.ledger}, this machine in {here.ledger}; "
                "set EARMARK_LEDGER alike where the cluster's processes start"
            )
        if one.system == here.system:
            continue
        if "://" not in one.ledger:
            raise EarmarkError(
                f"{ENGINE}: {one.host} is another machine, and the ledger {one.ledger} is SQLite, which machines "
                "cannot share; set EARMARK_LEDGER=postgresql://… on all of them"
            )
        if not one.own_index:
            raise EarmarkError(
                f"{ENGINE}: {one.host} is another machine, and machines cannot share "
                f"{stage.store.root / 'media.sqlite'}; set {INDEX} there to a file on its own disk"
            )


SHARED = "a cluster of several machines needs store and inputs on a disk that all have under the same path"


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
        raise EarmarkError(f"{ENGINE}: {what}: {line}; {then}") from error


@contextmanager
def _reachable_prefect(engine: Engine) -> Iterator[None]:
    """Let the processes of a cluster report to this run's Prefect server."""
    with _MEETING:
        url = get_current_settings().api.url
        named = not _REPORTING and bool(url)
    if named and (engine.address is None or url != os.environ.get(OURS)):
        yield
        return
    if engine.address is not None:
        raise ConfigError(
            f"{ENGINE}: a cluster that runs elsewhere reports to a Prefect server, and {API} names none; "
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
