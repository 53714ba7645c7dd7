"""Open the sessions of a build when a role is first asked, share them among all walks, and close them with the build.

A budget thus covers the whole build: one for all roles of a model with the same `budget_usd`. A
model in this process closes earlier, at the first walk that does not ask it: two models seldom fit one GPU.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.questions import Audio
from earmark.tasks.annotation.backend import Media, provider_of
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.patience import FEW, Vanguard
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.audio.measure import key_of, measure
from earmark.tasks.pipeline.media import clips_decoded_in_part
from earmark.tasks.pipeline.progress import say, telling
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, ledger_address


class StoreSession(Session):
    """A session on a store's ledger; behind a server, a few first questions try the model."""

    async def _open(self) -> Annotator:
        made = await super()._open()
        provider = provider_of(made.config.annotator)
        served = not (provider.in_process or provider.functions or made.config.batch)
        made.vanguard = Vanguard() if served and made.config.max_concurrency > FEW else None
        return made


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
        StoreSession(
            config,
            ledger=ledger_address(store),
            media=media or clip_media(store),
            on_progress=tell,
            shared_budget=shared_budget,
        ) as session,
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
