"""Share sessions with models among several processes, such as a cluster at work on a build's shards.

A session pickled to another process becomes a visitor there: it opens at its first request, stays open for later
shards, and shares pace and budget with the original session. It finds the ledger by its own environment: an address may
hold a password, so none is sent.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation import shared_budget
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.backends import provider_of
from earmark.tasks.annotation.engine import Annotator, OnProgress
from earmark.tasks.annotation.outcome import Outcome, Report
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.annotation.vanguard import FEW, Vanguard
from earmark.tasks.pipeline.ledger import ledger_address
from earmark.tasks.store.versions import Store

IDLE_S = 60.0
"""Idle time after which opening a visitor closes another: it may hold a model in memory."""

_VISITORS: dict[str, Visitor] = {}
"""All visitors ever, by name; closed ones stay, since shards may hold them and ask again."""
_MEETING = threading.Lock()


class SharedSession(Session):
    """A session on a store's ledger for several processes, each of which counts only its own spending.

    Args:
        store: its ledger keeps the answers.
        config: model, pace and budget.
        media: access to audio and images.
        on_progress: as `Session`; visitors report nothing.

    Attributes:
        name: the same in all processes.
        shared_by: number of processes that ask at once; each gets its part of `max_concurrency`, at least one request.
            Set it before pickling.
    """

    def __init__(
        self, store: Store, config: AnnotatorConfig, media: Media, on_progress: OnProgress | None = None
    ) -> None:
        super().__init__(config, ledger=ledger_address(store), media=media, on_progress=on_progress)
        self.name = uuid.uuid4().hex
        self.shared_by = 1
        self._handed_over = False
        self._made_of = (store.absolute(), config, media)

    def __reduce__(self) -> tuple[Callable[..., Visitor], tuple[Any, ...]]:
        self._handed_over = True
        store, config, media = self._made_of
        part = config.model_copy(update={"max_concurrency": max(1, config.max_concurrency // self.shared_by)})
        return visitor, (self.name, store, part, media)

    async def _open(self) -> Annotator:
        made = await super()._open()
        provider = provider_of(made.config.annotator)
        served = not (provider.in_process or provider.functions or made.config.batch)
        made.vanguard = Vanguard() if served and made.config.max_concurrency > FEW else None
        if made.config.budget_usd is not None:
            self._stack.push_async_callback(self._close_budget, made)
        return made

    async def _close_budget(self, made: Annotator) -> None:
        if self._handed_over:
            await made.ledger.change(partial(shared_budget.close, name=self.name))


class Visitor:
    """Stand-in for a session of another process. Safe for threads.

    Args:
        name: the session's.
        store: its ledger keeps the answers.
        config: model, this process's share of the pace, the budget of all.
        media: access to audio and images.

    Attributes:
        name: the session's.
        config: as given.
    """

    def __init__(self, name: str, store: Store, config: AnnotatorConfig, media: Media) -> None:
        self.name = name
        self.config = config
        self._made_of = (store, config, media)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._asking = 0
        self._left_at = time.monotonic()

    def __reduce__(self) -> tuple[Callable[..., Visitor], tuple[Any, ...]]:
        return visitor, (self.name, *self._made_of)  # it may pass through several processes

    def ask(self, requests: Iterable[Request]) -> Report:
        """Ask as `Session.ask`.

        Raises:
            StopRun, LedgerError: as `Session.ask`.
        """
        with self._opened() as session:
            return session.ask(requests)

    @contextmanager
    def streaming(
        self, hand_on: Callable[[str, Outcome], None], failed: Callable[[BaseException], None]
    ) -> Iterator[Callable[[list[Request]], None]]:
        """Stream as `Session.streaming`."""
        with self._opened() as session, session.streaming(hand_on, failed) as put:
            yield put

    @property
    def in_batches(self) -> bool:
        """Return `Session.in_batches`."""
        return self.config.batch

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        with self._lock:
            if self._session is None:
                close_idle()
                store, config, media = self._made_of
                session = Session(config, ledger=ledger_address(store), media=media, shared_budget=self.name)
                self._session = session.__enter__()
            self._asking += 1
            session = self._session
        try:
            yield session
        finally:
            with self._lock:
                self._asking -= 1
                self._left_at = time.monotonic()

    def take_share(self, config: AnnotatorConfig) -> None:
        """Adopt the pace of a later step: more or fewer processes may share it."""
        if config.max_concurrency == self.config.max_concurrency:
            return
        with self._lock:
            store, _, media = self._made_of
            self.config, self._made_of = config, (store, config, media)
            if self._session is not None:
                self._session.allow(config.max_concurrency)

    @property
    def open(self) -> bool:
        """Return whether the visitor has an open session."""
        return self._session is not None

    def close(self) -> None:
        """Close the session and end its requests."""
        with self._lock:
            self._close()

    def close_if_idle(self) -> None:
        """Close the session if it has been idle for a while."""
        if not self._lock.acquire(blocking=False):
            return  # it is being opened, perhaps by a thread that waits for our lock
        try:
            if not self._asking and time.monotonic() - self._left_at > IDLE_S:
                self._close()
        finally:
            self._lock.release()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None, None, None)


def visitor(name: str, store: Store, config: AnnotatorConfig, media: Media) -> Visitor:
    """Return this process's visitor of a name, shared by all shards."""
    with _MEETING:
        here = _VISITORS.setdefault(name, Visitor(name, store, config, media))
    here.take_share(config)
    return here


def close_idle() -> None:
    """Close idle visitors."""
    with _MEETING:
        there = list(_VISITORS.values())
    for one in there:
        one.close_if_idle()
