"""Flows run in this process without Prefect's engine: the same story, its steps as plain calls; and scripted models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

from prefect.flows import Flow

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.request import Outcome, Report, Request
from earmark.tasks.pipeline import flow, plan, sessions
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Version, open_store

Held = TypeVar("Held", bound=BuildConfig)
# The code does not change while tests run; reading it anew is a third of what a small build takes.
plan.code_digest = cache(plan.code_digest)  # type: ignore[attr-defined]


def run_flow(build: Flow[..., str], config: BuildConfig, store_root: Path, *, force: bool = False) -> Version:
    """Build a version by a corpus's flow, or find it up to date, as `earmark build` does."""
    corpus = find_corpus(build.name)
    store = open_store(str(store_root))
    planned = plan.plan_build(corpus, config, store)
    if (done := planned.up_to_date()) and not force:
        version: Version = done
        return version
    if force:
        planned.forget()
    return flow.build_version(corpus, build.story, config, store_root, force=force)[0]  # type: ignore[attr-defined]


def read_as(model: type[Held], path: Path) -> Held:
    """The build config in a TOML file."""
    return parse_config(model, read_toml(path), path)


class Scripted:
    """A session whose answers are given."""

    refused_usd = 0.0
    in_batches = True

    def __init__(self, answer: Callable[[Request], Outcome]) -> None:
        self.answer = answer

    def ask(self, requests: Iterable[Request]) -> Report:
        outcomes = [self.answer(request) for request in requests]
        return Report(outcomes, len(outcomes), 0, 0, 0, 0, 0, 0, 0.0)


class ScriptedSessions:
    """Gives the same scripted session to every role."""

    def __init__(self, answer: Callable[[Request], Outcome]) -> None:
        self.media = Media()
        self._session: Any = Scripted(answer)

    def of(self, annotators: Mapping[str, AnnotatorConfig], others: Iterable[AnnotatorConfig] = ()) -> dict[str, Any]:
        """The session, whoever is asked."""
        return dict.fromkeys(annotators, self._session)


@contextmanager
def scripted(answer: Callable[[Request], Outcome]) -> Iterator[None]:
    """Have walks within the block answered by a function."""
    token = sessions._OF_BUILD.set(ScriptedSessions(answer))  # type: ignore[arg-type]
    try:
        yield
    finally:
        sessions._OF_BUILD.reset(token)
