"""What a build would ask of models: its flow is run on imagined answers, and the requests are counted. Asks nothing.

Steps read and choose as in a build; walks take each ask's `imagine` for its answer; the first step after the last walk
(`final=True`) ends the run. Requests whose words are known stand in the ledger if they were asked before; those about
texts that are not written yet stand for others, and each counts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.tasks.annotation.outcome import Answer, Outcome
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.ledger import has_ledger, ledger_address
from earmark.tasks.build.sessions import Sessions, clip_media
from earmark.tasks.build.step import Enough
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

WORD = "word"
STAND_IN = f"{WORD} {WORD} {WORD}"
AT_ONCE = 5_000  # requests that are kept with their words


def imagined(words: int) -> str:
    """A text that is not written yet, of so many words, 3 or more."""
    return " ".join([WORD] * words)


def is_imagined(request: Request) -> bool:
    """Whether a question is about a text that is not written yet."""
    return any(STAND_IN in text for text in (request.canonical, *request.long_texts().values()))


@dataclass
class Counted:
    """One ask of a dry run: who is asked, about what, and what the requests come to."""

    annotator: AnnotatorConfig  # who is asked
    about: str  # what the questions are about
    tries: int  # draws of one question at most
    requests: int = 0  # how many there were
    uncounted: list[Request] = field(default_factory=list)  # those of them that `totals` lacks
    keys: set[str] = field(default_factory=set)  # those of requests whose words are known, to count each once
    totals: Counter[str] = field(default_factory=Counter)  # fields of `earmark.tasks.annotation.outcome.Forecast`

    def add(self, request: Request) -> None:
        """Note a request."""
        if is_imagined(request):
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

    async def put(self, config: Any, part: str, ask: Any, role: str, row: Any, request: Request) -> Answer:
        """Count a request of a walk that was called with a config, `about` a part; its imagined answer."""
        label = _label(config, part, ask, row)
        about = ask.about if label == ask.name else f"{ask.about} ({label})"
        counted = self.asks.setdefault(label, Counted(config.asked()[role], about, ask.draws(config, row)))
        counted.add(request)
        if len(counted.uncounted) == AT_ONCE:
            counted.count(self._address)
        return Answer(request.key, ask.imagine(config, row))

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


Story: TypeAlias = Callable[[Stage, Any], Any]


def forecast(corpus: Corpus, story: Story, config: BuildConfig, store: Store) -> dict[str, Any] | None:
    """What a build would ask at least, one try a question; None if nothing. Leaves nothing in the store's corpus.

    Raises:
        InputError: an input is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        counting = Forecast(config.for_forecast(), address)
        run_dry(corpus, story, store, Path(folder), counting)
        return counting.facts() or None


class Shown(NamedTuple):
    """A question of a dry run, as a model gets it."""

    ask: str  # its name
    prompt: str  # the name of what words it
    request: Request  # the question
    outcome: Outcome | None = None  # how it ended, if it was asked
    fault: tuple[str, str] | None = None  # reason and detail of what the ask's check holds against the answer


class Sampler:
    """Takes the place of sessions in a dry run that shows questions, and asks those that are shown if it is to.

    Args:
        config: the build config.
        wanted: numbers, from 1, of the questions of each ask that are shown.
        sessions: asks them; without it, all answers are imagined.
    """

    def __init__(self, config: BuildConfig, wanted: range, sessions: Sessions | None = None) -> None:
        self.config = config
        self.shown: list[Shown] = []
        self._wanted = wanted
        self._sessions = sessions
        self._counts: Counter[str] = Counter()

    async def put(self, config: Any, part: str, ask: Any, role: str, row: Any, request: Request) -> Outcome:
        """Show a question, or pass it by; its answer, which is imagined unless it is asked.

        Nothing is asked about texts that are not written yet: only what follows from answers of a model.
        """
        if self._sessions is not None and is_imagined(request):
            return Answer(request.key, ask.imagine(config, row))
        name = _label(config, part, ask, row)
        self._counts[name] += 1
        prompt = ask.request(config, row).prompt.id
        if self._counts[name] not in self._wanted:
            return Answer(request.key, ask.imagine(config, row))
        if self._sessions is None:
            self.shown.append(Shown(name, prompt, request))
            return Answer(request.key, ask.imagine(config, row))
        session = self._sessions.of({**config.asked()})[role]
        (outcome,) = (await asyncio.to_thread(session.ask, [request])).outcomes
        fault = ask.check(config, row, outcome.value) if isinstance(outcome, Answer) else None
        self.shown.append(Shown(name, prompt, request, outcome, fault))
        return outcome


def _label(config: Any, part: str, ask: Any, row: Any) -> str:
    name = ask.label(config, row) if ask.label else ask.name
    return f"{name}: {part}" if part else str(name)


def show_questions(corpus: Corpus, story: Story, config: BuildConfig, store: Store, number: int) -> list[Shown]:
    """One question of each ask, the `number`th from 1, as a model would get it. Asks nothing.

    Raises:
        InputError: an input is missing.
    """
    return _sample(corpus, story, store, Sampler(config.for_forecast(), range(number, number + 1)))


def try_questions(
    corpus: Corpus, story: Story, config: BuildConfig, store: Store, count: int
) -> tuple[list[Shown], float]:
    """The first questions of each ask with the answers to them; the ledger keeps these, and nothing is built.

    Returns:
        The questions, and what their answers cost in US dollars, where prices are known.

    Raises:
        InputError: an input is missing.
        StopRun: a fault that every request would meet, or the budget's end.
    """
    with Sessions(store) as sessions:
        shown = _sample(corpus, story, store, Sampler(config.for_forecast(), range(1, count + 1), sessions))
        return shown, sessions.spent_usd


def _sample(corpus: Corpus, story: Story, store: Store, sampler: Sampler) -> list[Shown]:
    with tempfile.TemporaryDirectory() as folder:
        run_dry(corpus, story, store, Path(folder), sampler)
    return sampler.shown


def run_dry(corpus: Corpus, story: Story, store: Store, folder: Path, instead: Forecast | Sampler) -> None:
    stage = Stage(store, corpus.name, "dry-run", folder, instead)
    for part in ("work", "steps", "version"):
        (stage.folder / part).mkdir()
    with suppress(Enough), own_words(instead.config.own_prompts()):
        story(stage, instead.config)
