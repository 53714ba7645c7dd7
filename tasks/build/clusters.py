"""A cluster that works on shards: Ray's, driven through Prefect's task runner for it (the extra `ray`)."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from prefect.futures import PrefectFuture

from earmark.schemas.config import Engine, Share
from earmark.schemas.errors import ConfigError, EarmarkError, MissingExtraError

Answer = TypeVar("Answer")

LOCAL_STORE_BYTES = 256 << 20
"""Shared memory of a Ray of our own: shards get paths, not tables."""
RAY_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
STARTS = 3
_USERS: list[Engine] = []
"""Of the Ray that this process is connected to."""
_MEETING = threading.Lock()


class RayCluster:
    """A Ray that is connected: a process for each shard that is under way, with processors and GPUs of its own.

    A shard whose process dies is worked on again, by another one.

    Attributes:
        offers: processors and GPUs of each machine.
    """

    def __init__(self, stack: ExitStack, engine: Engine) -> None:
        try:
            import ray
            from prefect_ray import RayTaskRunner
        except ImportError:
            raise MissingExtraError("runner = 'ray'", "ray") from None
        stack.enter_context(_connected(engine))
        self._runner = stack.enter_context(RayTaskRunner())
        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.offers = [(one.get("CPU", 0.0), one.get("GPU", 0.0)) for one in found]

    def submit(self, share: Share, *given: Any, **named: Any) -> PrefectFuture[Any]:
        """Have a shard worked on; the rest is what a task runner's `submit` takes."""
        from prefect_ray.context import remote_options

        with remote_options(num_cpus=share.cpus, num_gpus=share.gpus, scheduling_strategy="SPREAD"):
            future: PrefectFuture[Any] = self._runner.submit(*given, **named)
            return future

    def at_once(self, share: Share) -> int:
        """How many processes work at once on shards that take so much."""
        room = (
            min(cpus / share.cpus, gpus / share.gpus if share.gpus else cpus / share.cpus) for cpus, gpus in self.offers
        )
        return max(1, sum(map(int, room)))

    def ask_each(self, question: Callable[[], Answer]) -> list[Answer]:
        """What each machine answers."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def answer() -> Answer:
            return question()  # Ray takes functions, and none that are given a part of what they need

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
    return ConfigError(f"engine.address: no Ray answers at '{engine.address}': {reason}")


@contextmanager
def _connected(engine: Engine) -> Iterator[None]:
    """Connect this process to Ray, once for all builds that it runs side by side."""
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
    """Make sure that somebody listens at `host:port`: Ray itself tries for minutes.

    Raises:
        OSError: nobody does.
        ValueError: it is no port.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _start_own(start: Callable[..., object]) -> None:
    """Start a Ray of our own. It gives its processes 30 seconds, which a busy machine may exceed: then once more.

    Raises:
        EarmarkError: it does not start.
    """
    for left in reversed(range(STARTS)):
        try:
            start(object_store_memory=LOCAL_STORE_BYTES)
        except Exception as error:
            if type(error) is not Exception:  # as its start is timed out; other faults have types of their own
                raise
            if not left:
                raise EarmarkError(f"engine: Ray does not start on this machine: {error}") from None
            continue
        return
