"""What a build would ask of models: its flow is run on imagined answers, and the requests are counted. Asks nothing.

Steps read and choose as in a build; walks take each ask's `imagine` for its answer; the first step after the last walk
(`final=True`) ends the run. Requests whose words are known stand in the ledger if they were asked before; those about
texts that are not written yet stand for others, and each counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.annotation import AnnotatorConfig
from schemas.config import BuildConfig
from schemas.corpus import Corpus
from tasks.annotation.outcome import Answer
from tasks.annotation.request import Request
from tasks.annotation.session import Session
from tasks.build.asking import clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.build.step import Enough
from tasks.store.staging import Stage
from tasks.store.versions import Store

WORD = "word"
STAND_IN = f"{WORD} {WORD} {WORD}"


def imagined(words: int) -> str:
    """A text that is not written yet, of so many words, 3 or more."""
    return " ".join([WORD] * words)


@dataclass
class Counted:
    """One ask of a dry run: who is asked, about what, and the requests."""

    annotator: AnnotatorConfig
    about: str
    tries: int
    requests: list[Request] = field(default_factory=list)


class Forecast:
    """Takes the place of sessions in a dry run."""

    def __init__(self, config: BuildConfig) -> None:
        self.config = config
        self.asks: dict[str, Counted] = {}

    async def put(self, ask: Any, role: str, row: Any, request: Request) -> Answer:
        """Count a request; its imagined answer."""
        label = ask.label(self.config, row) if ask.label else ask.name
        annotator = self.config.asked()[role]
        counted = self.asks.setdefault(label, Counted(annotator, ask.about, ask.draws(self.config, row)))
        if any(STAND_IN in text for text in (request.canonical, *request.long_texts().values())):
            request = replace(request, sample=len(counted.requests))
        counted.requests.append(request)
        return Answer(request.key, ask.imagine(self.config, row))

    def facts(self, address: str | Path) -> dict[str, Any]:
        """Requests, tokens and money of each ask, the first one's beside the others; empty if nothing is asked."""
        facts = {}
        for name, counted in self.asks.items():
            with Session(counted.annotator, ledger=address, media=clip_media()) as session:
                forecast = asdict(session.forecast(counted.requests))
            about = f"{len(counted.requests):,} {counted.about}"
            facts[name] = {"about": about, "annotator": counted.annotator.annotator, "tries": counted.tries, **forecast}
        first, *others = facts or [""]
        return {**facts[first], "stage": first, **{name: facts[name] for name in others}} if first else {}


def forecast(
    corpus: Corpus, story: Callable[[Stage, Any], Any], config: BuildConfig, store: Store
) -> dict[str, Any] | None:
    """What a build would ask at least, one try a question; None if nothing. Leaves nothing in the store's corpus.

    Raises:
        InputError: an input is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        counting = Forecast(config.for_forecast())
        stage = Stage(store, corpus.name, "dry-run", Path(folder), counting)
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        with suppress(Enough):
            story(stage, counting.config)
        return counting.facts(ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite") or None
