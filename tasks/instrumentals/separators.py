"""Hold the separators of a build: one for each device, lent to one shard at a time."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from earmark.schemas.errors import Interrupted
from earmark.schemas.instrumentals import Separation
from earmark.tasks.audio.separation import choice
from earmark.tasks.audio.separation.choice import Described
from earmark.tasks.audio.separation.jobs import Separator
from earmark.tasks.audio.separation.roformer import cuda_devices
from earmark.tasks.store.versions import Store


def describe_separator(config: Separation, resolve: Callable[[str], Path], store: Store) -> Described:
    """Return the separator's name and the digest of its output; download a known checkpoint if missing.

    Raises:
        ConfigError: the separator does not exist.
        MissingExtraError: it needs the extra `separation`.
    """
    return choice.describe_separator(**_named(config, resolve, store), precision=config.precision)


class Separators:
    """Separators waiting for work, one shard each. Their creator holds them in a `with`.

    They are loaded for the first shard. In another process, they are loaded there, on its devices.

    Args:
        resolve: makes a path of the config absolute.

    Attributes:
        stopped: set at the end of the block: shards still at work then, as after an interrupt, end early.
    """

    def __init__(self, config: Separation, resolve: Callable[[str], Path], store: Store) -> None:
        self.stopped = threading.Event()
        self._made_of = (config, resolve, store.absolute())
        self._free: queue.SimpleQueue[Separator] = queue.SimpleQueue()
        self._loading = threading.Lock()
        self._loaded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()

    def __reduce__(self) -> tuple[Any, ...]:
        return separators_here, self._made_of

    @property
    def in_process(self) -> bool:
        """Return whether a model runs in this process, quicker on a GPU."""
        config, _, _ = self._made_of
        return config.model != choice.CENTRE_REMOVAL

    @contextmanager
    def one(self) -> Iterator[Separator]:
        """Lend a separator to this thread alone; wait until one is free.

        Raises:
            ConfigError: the separator does not exist.
            Interrupted: the build was stopped.
            MissingExtraError: it needs the extra `separation`.
        """
        self._load()
        separator = self._free.get()
        try:
            self.check()
            yield separator
        finally:
            self._free.put(separator)

    def check(self) -> None:
        """Raise if the build was stopped.

        Raises:
            Interrupted: it was.
        """
        if self.stopped.is_set():
            raise Interrupted("the build was stopped; finished tracks are kept")

    def _load(self) -> None:
        """Load the separator onto each of its devices, once."""
        with self._loading:
            if self._loaded:
                return
            config, resolve, store = self._made_of
            named = _named(config, resolve, store)
            options: dict[str, Any] = {"precision": config.precision, "compiled": config.compile}
            for device in (cuda_devices() if self.in_process else ()) or ("auto",):
                self._free.put(choice.make_separator(**named, device=device, **options))
            self._loaded = True


_HERE: dict[bytes, Separators] = {}
_MEETING = threading.Lock()


def separators_here(config: Separation, resolve: Callable[[str], Path], store: Store) -> Separators:
    """Return this process's separators of a config; drop those of another config."""
    key = pickle.dumps((config, resolve, store))
    with _MEETING:
        if key not in _HERE:
            _HERE.clear()
            _HERE[key] = Separators(config, resolve, store)
        return _HERE[key]


def _named(config: Separation, resolve: Callable[[str], Path], store: Store) -> dict[str, Any]:
    """Return a checkpoint's options: with a YAML it is a path from the config's folder, else a known name."""
    options = {"models": store.root / "models", "sha256": config.sha256}
    if config.config is None:
        return {"name": config.model, **options}
    return {"name": str(resolve(config.model)), "settings": resolve(config.config), **options}
