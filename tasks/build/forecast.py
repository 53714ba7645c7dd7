"""What a build would ask of models: its flow is run on imagined answers, and the requests are counted. Asks nothing.

Steps read and choose as in a build; walks take each ask's `imagine` for its answer; the first step after the last walk
(`final=True`) ends the run. Requests whose words are known stand in the ledger if they were asked before; those about
texts that are not written yet stand for others, and each counts.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.tasks.annotation.outcome import Answer
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.ledger import has_ledger, ledger_address
from earmark.tasks.build.sessions import clip_media
from earmark.tasks.build.step import Enough
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

WORD = "word"
STAND_IN = f"{WORD} {WORD} {WORD}"
AT_ONCE = 5_000  # requests that are kept with their words


def imagined(words: int) -> str:
    """A text that is not written yet, of so many words, 3 or more."""
    return " ".join([WORD] * words)


@dataclass
class Counted:
    """One ask of a dry run: who is asked, about what, and what the requests come to.

    Attributes:
        annotator: who is asked.
        about: what the questions are about.
        tries: draws of one question at most.
        requests: how many there were.
        uncounted: those of them that `totals` lacks.
        keys: those of requests whose words are known, to count each once.
        totals: fields of `earmark.tasks.annotation.outcome.Forecast`.
    """

    annotator: AnnotatorConfig
    about: str
    tries: int
    requests: int = 0
    uncounted: list[Request] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, request: Request) -> None:
        """Note a request."""
        if any(STAND_IN in text for text in (request.canonical, *request.long_texts().values())):
            self.uncounted.append(replace(request, sample=self.requests))
        elif request.key not in self.keys:
            self.keys.add(request.key)
            self.uncounted.append(request)
        self.requests += 1

    def count(self, address: str | Path) -> None:
        """Add up what was noted, and forget its words."""
        with Session(self.annotator, ledger=address, media=clip_media()) as session:
            self.totals.update(asdict(session.forecast(self.uncounted)))
        self.uncounted.clear()


class Forecast:
    """Takes the place of sessions in a dry run.

    Args:
        config: the build config.
        address: of the ledger.
    """

    def __init__(self, config: BuildConfig, address: str | Path) -> None:
        self.config = config
        self.asks: dict[str, Counted] = {}
        self._address = address

    async def put(self, ask: Any, role: str, row: Any, request: Request) -> Answer:
        """Count a request; its imagined answer."""
        label = ask.label(self.config, row) if ask.label else ask.name
        about = f"{ask.about} ({label})" if ask.label else ask.about
        annotator = self.config.asked()[role]
        counted = self.asks.setdefault(label, Counted(annotator, about, ask.draws(self.config, row)))
        counted.add(request)
        if len(counted.uncounted) == AT_ONCE:
            counted.count(self._address)
        return Answer(request.key, ask.imagine(self.config, row))

    def facts(self) -> dict[str, Any]:
        """Requests, tokens and money of each ask, the first one's beside the others; empty if nothing is asked."""
        facts = {}
        for name, counted in self.asks.items():
            counted.count(self._address)
            facts[name] = {
                "about": f"{counted.requests:,} {counted.about}",
                "annotator": counted.annotator.annotator,
                "tries": counted.tries,
                **counted.totals,
                "requests": counted.requests,
            }
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
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        counting = Forecast(config.for_forecast(), address)
        stage = Stage(store, corpus.name, "dry-run", Path(folder), counting)
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        with suppress(Enough):
            story(stage, counting.config)
        return counting.facts() or None
