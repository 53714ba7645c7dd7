"""Run shards on a Ray cluster through Prefect's task runner for Ray (the extra `ray`)."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from prefect.futures import PrefectFuture

from earmark.schemas.config import Engine
from earmark.schemas.errors import ConfigError, EarmarkError, MissingExtraError

Answer = TypeVar("Answer")

LOCAL_STORE_BYTES = 256 << 20
"""Shared memory of our own Ray: shards receive paths, not tables."""
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
STARTS = 3
_USERS: list[Engine] = []
"""Engines of the builds connected to this process's Ray."""
_MEETING = threading.Lock()


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
            raise MissingExtraError("engine = 'ray'", "ray") from None
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
    return ConfigError(f"engine: no Ray answers at '{engine.address}': {reason}")


@contextmanager
def _connected(engine: Engine) -> Iterator[None]:
    """Connect this process to Ray, once for all its simultaneous builds."""
    with _MEETING:
        if not _USERS:
            _connect(engine)
        elif (engine.address, engine.workers) != (_USERS[0].address, _USERS[0].workers):
            raise ConfigError("engine: builds side by side share one Ray: expected one address and number of workers")
        _USERS.append(engine)
    try:
        yield
    finally:
        with _MEETING:
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
    """Check that a server listens at `host:port`: Ray itself tries for minutes.

    Raises:
        OSError: nothing listens.
        ValueError: the port is invalid.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _start_own(start: Callable[..., object]) -> None:
    """Start our own Ray; retry after its 30-second timeout, which a busy machine may exceed.

    Raises:
        EarmarkError: it does not start.
    """
    for left in reversed(range(STARTS)):
        try:
            start(object_store_memory=LOCAL_STORE_BYTES)
        except Exception as error:
            if type(error) is not Exception:  # the start's timeout; other faults have types of their own
                raise
            if not left:
                raise EarmarkError(f"engine: Ray does not start on this machine: {error}") from None
            continue
        return
