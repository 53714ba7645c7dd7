"""The separators of a build: one for each device, lent to one shard at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from schemas.instrumentals import Separation
from tasks.audio.separation.choice import make_separator
from tasks.audio.separation.jobs import Separator
from tasks.store.versions import Store


class Described(NamedTuple):
    """What is known of a separator before it is made."""

    name: str
    digest: str
    checkpoint_sha256: str | None


def describe_separator(config: Separation, resolve: Callable[[str], Path], store: Store) -> Described:
    """What names the separator of a config and decides its output.

    Raises:
        ConfigError: there is no such separator.
        MissingExtraError: it needs the extra `audio`.
    """
    separator = make_separator(config.model)
    return Described(separator.name, separator.digest, separator.checkpoint_sha256)


class Separators:
    """Separators that wait for work; as many shards are worked on at once."""

    def __init__(self, made: list[Separator]) -> None:
        self._free: queue.SimpleQueue[Separator] = queue.SimpleQueue()
        for separator in made:
            self._free.put(separator)

    @contextmanager
    def one(self) -> Iterator[Separator]:
        """A separator for this thread alone; waits until one is free."""
        separator = self._free.get()
        try:
            yield separator
        finally:
            self._free.put(separator)


def make_separators(config: Separation, resolve: Callable[[str], Path], store: Store) -> Separators:
    """Load the separator of a config onto each of its devices.

    Raises:
        ConfigError: there is no such separator.
        MissingExtraError: it needs the extra `audio`.
    """
    return Separators([make_separator(config.model)])
