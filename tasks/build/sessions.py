"""The sessions of a build: opened when a role is first asked, shared by all walks, closed with the build.

So a budget is that of the whole build, and roles that the config leaves to another role share its pace and budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import SharedEncoder
from earmark.tasks.build.asking import asking, clip_media
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store


class Sessions:
    """Opens a session for each annotator of a config, once."""

    def __init__(self, store: Store) -> None:
        self.media = clip_media(SharedEncoder())
        self._store = store
        self._stack = ExitStack()
        self._open: list[tuple[AnnotatorConfig, Session]] = []

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *ended: object) -> None:
        self._stack.__exit__(*ended)  # type: ignore[arg-type]

    def of(self, annotator: AnnotatorConfig) -> Session:
        """The session of an annotator; roles with the very same config object share one."""
        for config, session in self._open:
            if config is annotator:
                return session
        session = self._stack.enter_context(asking(self._store, annotator, self.media))
        self._open.append((annotator, session))
        return session


_OF_BUILD: ContextVar[Sessions] = ContextVar("sessions of the build under way")


@contextmanager
def sessions_of_build(store: Store) -> Iterator[None]:
    """Keep sessions open from the first walk to the end of the block; those that the caller keeps open serve too."""
    if _OF_BUILD.get(None) is not None:
        yield
        return
    with Sessions(store) as sessions:
        token = _OF_BUILD.set(sessions)
        try:
            yield
        finally:
            _OF_BUILD.reset(token)


@contextmanager
def sessions_for(stage: Stage, config: BuildConfig, roles: Sequence[str]) -> Iterator[tuple[dict[str, Session], Media]]:
    """Sessions by role, and what gives them clips: the build's, or for the block alone where there is no build."""
    asked = config.asked()
    with ExitStack() as stack:
        sessions = _OF_BUILD.get(None) or stack.enter_context(Sessions(stage.store))
        yield {role: sessions.of(asked[role]) for role in roles}, sessions.media
