"""The separators of a build: one for each device, lent to one shard at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from schemas.errors import Interrupted
from schemas.instrumentals import Separation
from tasks.audio.separation import choice
from tasks.audio.separation.choice import Described
from tasks.audio.separation.jobs import Separator
from tasks.audio.separation.roformer import cuda_devices
from tasks.store.versions import Store


def describe_separator(config: Separation, resolve: Callable[[str], Path], store: Store) -> Described:
    """What names the separator of a config and decides its output; a known checkpoint is downloaded if need be.

    Raises:
        ConfigError: there is no such separator.
        MissingExtraError: it needs the extra `audio`.
    """
    return choice.describe_separator(**_named(config, resolve, store), precision=config.precision)


class Separators:
    """Separators that wait for work; as many shards are worked on at once. Whoever made them holds them in a `with`.

    Attributes:
        stopped: set at the end of the block: shards that are still at work then, as after an interrupt, end early.
    """

    def __init__(self, made: list[Separator]) -> None:
        self.stopped = threading.Event()
        self._free: queue.SimpleQueue[Separator] = queue.SimpleQueue()
        for separator in made:
            self._free.put(separator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()

    @contextmanager
    def one(self) -> Iterator[Separator]:
        """A separator for this thread alone; waits until one is free.

        Raises:
            Interrupted: the build was stopped.
        """
        separator = self._free.get()
        try:
            self.check()
            yield separator
        finally:
            self._free.put(separator)

    def check(self) -> None:
        """Go on, unless the build was stopped.

        Raises:
            Interrupted: it was.
        """
        if self.stopped.is_set():
            raise Interrupted("the build was stopped; finished tracks are kept")


def make_separators(config: Separation, resolve: Callable[[str], Path], store: Store) -> Separators:
    """Load the separator of a config onto each of its devices.

    Raises:
        ConfigError: there is no such separator.
        MissingExtraError: it needs the extra `audio`.
    """
    named = _named(config, resolve, store)
    options: dict[str, Any] = {
        "precision": config.precision,
        "compiled": config.compile,
        "batch_size": config.batch_size,
    }
    devices = config.devices or (cuda_devices() if named["name"] != choice.CENTRE_REMOVAL else ()) or ("auto",)
    return Separators([choice.make_separator(**named, device=device, **options) for device in devices])


def _named(config: Separation, resolve: Callable[[str], Path], store: Store) -> dict[str, Any]:
    """A checkpoint with a YAML is a path, from the config's folder; any other name is one that is known."""
    models = resolve(config.models_folder) if config.models_folder else store.root / "models"
    options = {"models": models, "sha256": config.sha256}
    if config.config is None:
        return {"name": config.model, **options}
    return {"name": str(resolve(config.model)), "settings": resolve(config.config), **options}
