"""Open the sessions of a build when a role is first asked, share them among all walks, and close them with the build.

A budget thus covers the whole build: one for all roles of a model with the same `budget_usd`. A
model in this process closes earlier, at the first walk that does not ask it: two models seldom fit one GPU.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.machine import give_back
from earmark.schemas.questions import Audio
from earmark.tasks.annotation import budget
from earmark.tasks.annotation.backend import Media, provider_of
from earmark.tasks.annotation.engine import Annotator, OnProgress
from earmark.tasks.annotation.patience import FEW, Vanguard
from earmark.tasks.annotation.request import Outcome, Report, Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.audio.measure import key_of, measure
from earmark.tasks.pipeline.media import clips_decoded_in_part
from earmark.tasks.pipeline.progress import say, telling
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, ledger_address

IDLE_S = 60.0  # idle time after which opening a visitor closes another: it may hold a model in memory

_VISITORS: dict[str, Visitor] = {}
"""All visitors ever, by name; closed ones stay, since shards may hold them and ask again."""
_MEETING = threading.Lock()


class SharedSession(Session):
    """A session on a store's ledger for several processes, each of which counts only its own spending.

    A session pickled to another process becomes a visitor there: it opens at its first request, stays open for later
    shards, and shares pace and budget with the original session. It finds the ledger by its own environment: an address
    may hold a password, so none is sent.

    Args:
        store: its ledger keeps the answers.
        config: model, pace and budget.
        media: access to audio and images.
        on_progress: as `Session`; visitors report nothing.
        shared_budget: name of a budget shared with other sessions; without it, the session has its own.

    Attributes:
        name: the same in all processes.
        shared_by: number of processes that ask at once; each gets its part of `max_concurrency`, at least one request.
            Set it before pickling.
    """

    def __init__(
        self,
        store: Store,
        config: AnnotatorConfig,
        media: Media,
        on_progress: OnProgress | None = None,
        shared_budget: str | None = None,
    ) -> None:
        ledger = ledger_address(store)
        super().__init__(config, ledger=ledger, media=media, on_progress=on_progress, shared_budget=shared_budget)
        self.name = uuid.uuid4().hex
        self._budget = shared_budget or self.name
        self.shared_by = 1
        self._handed_over = False
        self._made_of = (store.absolute(), config, media)

    def __reduce__(self) -> tuple[Callable[..., Visitor], tuple[Any, ...]]:
        self._handed_over = True
        store, config, media = self._made_of
        part = config.model_copy(update={"max_concurrency": max(1, config.max_concurrency // self.shared_by)})
        return visitor, (self.name, store, part, media, self._budget)

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
            await made.ledger.change(partial(budget.close, name=self._budget))


class Visitor:
    """Stand-in for a session of another process. Safe for threads.

    Args:
        name: the session's.
        store: its ledger keeps the answers.
        config: model, this process's share of the pace, the budget of all.
        media: access to audio and images.
        shared_budget: name of the session's budget.

    Attributes:
        name: the session's.
        config: as given.
    """

    def __init__(self, name: str, store: Store, config: AnnotatorConfig, media: Media, shared_budget: str) -> None:
        self.name = name
        self.config = config
        self._made_of = (store, config, media, shared_budget)
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._asking = 0
        self._left_at = time.monotonic()

    def __reduce__(self) -> tuple[Callable[..., Visitor], tuple[Any, ...]]:
        return visitor, (self.name, *self._made_of)  # it may pass through several processes

    def ask(self, requests: Iterable[Request]) -> Report:
        """Ask as `Session.ask`."""
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
                store, config, media, name = self._made_of
                session = Session(config, ledger=ledger_address(store), media=media, shared_budget=name)
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
            store, _, media, name = self._made_of
            self.config, self._made_of = config, (store, config, media, name)
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


def visitor(name: str, store: Store, config: AnnotatorConfig, media: Media, shared_budget: str) -> Visitor:
    """Return this process's visitor of a name, shared by all shards."""
    with _MEETING:
        here = _VISITORS.setdefault(name, Visitor(name, store, config, media, shared_budget))
    here.take_share(config)
    return here


def close_idle() -> None:
    """Close idle visitors."""
    with _MEETING:
        there = list(_VISITORS.values())
    for one in there:
        one.close_if_idle()


class Sessions:
    """Sessions of a build, one per annotator config."""

    def __init__(self, store: Store) -> None:
        self.media = clip_media(store)
        self._store = store
        self._open: list[tuple[AnnotatorConfig, Session, ExitStack]] = []
        self._budgets: dict[tuple[str, str | None, float | None], str] = {}

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *ended: object) -> None:
        encoder = self.media.load_audio
        if isinstance(encoder, Encoder) and encoder.given:
            say(f"{encoder.given:,} clips encoded for models; {encoder.decoded_clips:,} decoded for that")
        with ExitStack() as stack:
            for _, _, closing in self._open:
                stack.push(closing)
            self._open = []

    def of(
        self, annotators: Mapping[str, AnnotatorConfig], others: Iterable[AnnotatorConfig] = ()
    ) -> dict[str, Session]:
        """Return the session of each role's annotator; roles with the same config object share one session.

        Args:
            annotators: by role.
            others: all annotators of the build; those of one model with the same budget share it.
        """
        self._share_budgets(others)
        self._make_room([*annotators.values()])
        roles = {
            id(config): [role for role in annotators if annotators[role] is config] for config in annotators.values()
        }
        return {role: self._session(config, ", ".join(roles[id(config)])) for role, config in annotators.items()}

    @property
    def spent_usd(self) -> float:
        """Return the cost of the open sessions so far, in US dollars."""
        return sum(session.spent_usd for _, session, _ in self._open)

    def _session(self, annotator: AnnotatorConfig, roles: str) -> Session:
        for config, session, _ in self._open:
            if config is annotator:
                return session
        with ExitStack() as stack:
            shared_budget = self._budgets.get(_budget_of(annotator))
            session = stack.enter_context(open_session(self._store, annotator, self.media, roles, shared_budget))
            self._open.append((annotator, session, stack.pop_all()))
        return session

    def _share_budgets(self, annotators: Iterable[AnnotatorConfig]) -> None:
        distinct = {id(config): config for config in annotators if config.budget_usd is not None}.values()
        for key, roles in Counter(map(_budget_of, distinct)).items():
            if roles > 1:
                self._budgets.setdefault(key, uuid.uuid4().hex)

    def _make_room(self, wanted: list[AnnotatorConfig]) -> None:
        """Close models in this process that the next walk does not ask."""
        for one in [*self._open]:
            config, session, closing = one
            if session.in_process and not any(config is other for other in wanted):
                self._open.remove(one)
                closing.close()


def _budget_of(config: AnnotatorConfig) -> tuple[str, str | None, float | None]:
    return config.annotator, config.base_url, config.budget_usd


_OF_BUILD: ContextVar[Sessions] = ContextVar("sessions of the build under way")


@contextmanager
def sessions_of_build(store: Store) -> Iterator[None]:
    """Keep sessions open from the first walk to the end of the block; reuse sessions that the caller holds open."""
    if _OF_BUILD.get(None) is not None:
        yield
        return
    with Sessions(store) as sessions:
        token = _OF_BUILD.set(sessions)
        try:
            yield
        finally:
            _OF_BUILD.reset(token)


def forget_clips() -> None:
    """Free the memory of the build's clips after the last question about them."""
    sessions = _OF_BUILD.get(None)
    if sessions is not None and isinstance(sessions.media.load_audio, Encoder):
        sessions.media.load_audio.forget()
        give_back()


@contextmanager
def sessions_for(stage: Stage, config: BuildConfig, roles: Sequence[str]) -> Iterator[tuple[dict[str, Session], Media]]:
    """Yield sessions by role and their clip media, shared by the build, or opened for the block outside a build."""
    asked = config.asked()
    with ExitStack() as stack:
        sessions = _OF_BUILD.get(None) or stack.enter_context(Sessions(stage.store))
        yield sessions.of({role: asked[role] for role in roles}, asked.values()), sessions.media


@contextmanager
def open_session(
    store: Store,
    config: AnnotatorConfig,
    media: Media | None = None,
    roles: str = "",
    shared_budget: str | None = None,
) -> Iterator[Session]:
    """Open an annotator whose pace, budget and progress all shards of a build share; several may share one `media`.

    The progress label includes `roles` unless it is empty.
    """
    with (
        telling(f"ask {roles} ({config.annotator})" if roles else f"ask {config.annotator}") as tell,
        SharedSession(store, config, media or clip_media(store), tell, shared_budget) as session,
    ):
        try:
            yield session
        finally:
            if count := session.odd_usage:
                say(
                    f"{config.annotator}: {count:,} answers came with token counts that cannot be; for these, the "
                    "most that they may have cost counts as spent (earmark ledger stats: odd_usage)"
                )


def clip_media(store: Store, encoder: Encoder | None = None) -> Media:
    """Return access to clips of a store: encoded for models, measured for builtin judges."""
    encoder = encoder or Encoder()
    return Media(encoder, measure=partial(_measured, encoder), redecoded=partial(_redecoded, store.absolute()))


def _redecoded(store: Store) -> frozenset[str]:
    return clips_decoded_in_part(store) or frozenset()


def _measured(encoder: Encoder, part: Audio) -> dict[str, float]:
    samples, rate = encoder.span(part)
    return {**measure(samples, rate).as_dict(), "key": float(key_of(samples, rate))}
