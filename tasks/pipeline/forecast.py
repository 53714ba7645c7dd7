"""Count a build's requests to models by running its flow on imagined answers. Asks nothing.

Steps read and choose as in a build; walks take outcomes from the ledger, and imagine missing answers; the first
step after the last walk (`final=True`) ends the run. Each request about an unwritten text counts: it stands
for a request of the build.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.prompts import own_words, versions_of
from earmark.tasks.annotation.request import Answer, AskPlan, Outcome, Request, Unanswered
from earmark.tasks.annotation.session import Session
from earmark.tasks.pipeline.imagined import STAND_IN
from earmark.tasks.pipeline.plan import staying
from earmark.tasks.pipeline.sessions import Sessions
from earmark.tasks.pipeline.step import Enough
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

GROUPS = ("split", "category")  # columns that group rows for a reader, if present
AT_ONCE = 5_000  # requests to keep with their words


def is_imagined(request: Request) -> bool:
    """Return whether a question is about an imagined text."""
    return any(STAND_IN in text for text in (request.canonical, *request.long_texts().values()))


@dataclass
class Counted:
    """Counts of one ask in a dry run."""

    annotator: AnnotatorConfig  # the annotator
    about: str  # subject of the questions
    tries: int  # draws of one question at most
    keys: set[str]  # keys of the run's requests with known words, to count each once: roles may ask the same
    requests: int = 0  # number of requests
    uncounted: list[Request] = field(default_factory=list)  # requests not yet in `totals`
    totals: Counter[str] = field(default_factory=Counter)  # fields of `earmark.tasks.annotation.request.Forecast`
    groups: Counter[tuple[str, ...]] = field(default_factory=Counter)  # requests by split and category of their rows
    newer: Counter[str] = field(default_factory=Counter)  # requests by newer prompts that the config does not use

    def add(self, request: Request) -> None:
        """Add a request."""
        if is_imagined(request):
            self.uncounted.append(replace(request, sample=self.requests))
        elif request.key not in self.keys:
            self.keys.add(request.key)
            self.uncounted.append(request)
        self.requests += 1

    def count(self, session: Session) -> None:
        """Count the noted requests, and forget their words."""
        counted: Any = session.forecast(self.uncounted)
        self.totals.update(counted)
        self.uncounted.clear()


class BuildAsk(AskPlan):
    """Estimate of an ask of a build."""

    tries: int  # most requests for an answer
    newer: dict[str, int]  # requests by newer prompts that the config does not use
    by: dict[str, int]  # requests by split and category of their rows


class ImaginedSessions:
    """Replacement of sessions in a dry run.

    Args:
        config: the build config.
        address: of the ledger, which is only read for known outcomes.
        media: knows the clips whose requests had another key in 1.0.0.
    """

    def __init__(self, config: BuildConfig, address: str | Path, media: Media) -> None:
        self.config = config
        self.asks: dict[str, Counted] = {}
        self.stage: Stage | None = None  # of the dry run
        self.sure: set[str] | None = None  # the steps finished before the first imagined answer
        self._address, self._media = address, media
        self._keys: set[str] = set()
        self._answers = "://" in str(address) or Path(address).is_file()
        self._sessions: dict[int, tuple[AnnotatorConfig, Session]] = {}
        self._waiting: list[tuple[AnnotatorConfig, Request, asyncio.Future[Outcome | None]]] = []

    async def put(self, config: Any, part: str, ask: Any, role: str, row: Any, request: Request) -> Outcome:
        """Count a request of a walk's part; return its outcome in the ledger, or its imagined answer."""
        label = _label(config, part, ask, row)
        about, draws = ask.about if label == ask.name else f"{ask.about} ({label})", ask.draws(config, row)
        counted = self.asks.setdefault(label, Counted(config.asked()[role], about, draws, self._keys))
        counted.add(request)
        if config.stays and (name := ask.pose(config, row).prompt.name) in config.stays:
            counted.newer[f"{name}@{versions_of(name)[-1]}"] += 1
        if isinstance(row, dict) and (group := tuple(row[name] for name in GROUPS if isinstance(row.get(name), str))):
            counted.groups[group] += 1
        if len(counted.uncounted) == AT_ONCE:
            counted.count(self._session(counted.annotator))
        if self._answers and not is_imagined(request):
            outcome = await self._outcome(counted.annotator, request)
            if outcome is not None:
                return outcome
        if self.sure is None and self.stage is not None:
            self.sure = {step.name for step in self.stage.steps()}
        return Answer(request.key, ask.answer(config, row, request))

    def known_scores(self, role: str, scorer: AnnotatorConfig, requests: Sequence[Request]) -> list[Outcome | None]:
        """Count the requests of a scorer; return their outcomes in the ledger."""
        counted = self.asks.setdefault(role, Counted(scorer, "clips scored", 1, self._keys))
        for request in requests:
            counted.add(request)
        outcomes: list[Outcome | None] = [None] * len(requests)
        if self._answers:
            outcomes = self._session(scorer).known(requests)
        if None in outcomes and self.sure is None and self.stage is not None:
            self.sure = {step.name for step in self.stage.steps()}
        return outcomes

    async def _outcome(self, annotator: AnnotatorConfig, request: Request) -> Outcome | None:
        """Look up the ledger's outcome of a request, together with those of all waiting rows."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._look_up)
        future: asyncio.Future[Outcome | None] = loop.create_future()
        self._waiting.append((annotator, request, future))
        return await future

    def _look_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in {id(annotator): annotator for annotator, _, _ in waiting}.values():
            mine = [(request, future) for annotator, request, future in waiting if annotator is asked]
            try:
                outcomes = self._session(asked).known([request for request, _ in mine])
            except Exception as error:  # noqa: BLE001  # the waiting rows raise it
                for _, future in mine:
                    future.set_exception(error)
                continue
            for (_, future), outcome in zip(mine, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)

    def _session(self, annotator: AnnotatorConfig) -> Session:
        if id(annotator) not in self._sessions:
            session = Session(annotator, ledger=self._address, media=self._media, reading=True)
            self._sessions[id(annotator)] = annotator, session.__enter__()
        return self._sessions[id(annotator)][1]

    def close(self) -> None:
        """Close the ledger."""
        while self._sessions:
            self._sessions.popitem()[1][1].__exit__(None, None, None)

    def facts(self) -> dict[str, Any]:
        """Return requests, tokens and money of each ask, the first ask's at the top level; empty without asks."""
        facts = {}
        for name, counted in self.asks.items():
            counted.count(self._session(counted.annotator))
            facts[name] = {
                "about": f"{counted.requests:,} {counted.about}",
                "annotator": counted.annotator.annotator,
                "tries": counted.tries,
                **counted.totals,
                "priced": counted.annotator.priced,
                "requests": counted.requests,
                "newer": dict(counted.newer),
                "by": {" ".join(group): count for group, count in sorted(counted.groups.items())},
            }
        self.close()
        first, *others = facts or [""]
        return {**facts[first], "stage": first, **{name: facts[name] for name in others}} if first else {}


Story: TypeAlias = Callable[[Stage, Any], Any]


class Shown(NamedTuple):
    """A question of a dry run, as sent to a model."""

    ask: str  # its name
    prompt: str  # name and version
    request: Request  # the question
    outcome: Outcome | None = None  # if it was asked
    fault: tuple[str, str] | None = None  # reason and detail of the check's fault in the answer
    role: str = ""  # the answering role, as in `config.asked()`


class Sampler:
    """Replacement of sessions in a dry run that shows questions, and optionally asks them.

    Args:
        config: the build config.
        wanted: numbers, from 1, of the questions to show of each ask.
        sessions: ask the shown questions; without sessions, all answers are imagined.
    """

    def __init__(self, config: BuildConfig, wanted: range, sessions: Sessions | None = None) -> None:
        self.config = config
        self.shown: list[Shown] = []
        self._wanted = wanted
        self._sessions = sessions
        self._counts: Counter[str] = Counter()

    async def put(self, config: Any, part: str, ask: Any, role: str, row: Any, request: Request) -> Outcome:
        """Show a question, or skip it; return its answer, imagined unless it is asked.

        Questions about imagined texts are neither shown nor asked if sessions are open.
        """
        name, imagined = _label(config, part, ask, row), Answer(request.key, ask.answer(config, row, request))
        if self._sessions is not None and is_imagined(request):
            return imagined
        self._counts[name] += 1
        if self._counts[name] not in self._wanted:
            return imagined
        prompt = ask.pose(config, row).prompt.id
        if self._sessions is None:
            self.shown.append(Shown(name, prompt, request, role=role))
            return imagined
        session = self._sessions.of({**config.asked()})[role]
        (outcome,) = (await asyncio.to_thread(session.ask, [request])).outcomes
        fault = ask.check(config, row, outcome.value) if isinstance(outcome, Answer) else None
        self.shown.append(Shown(name, prompt, request, outcome, fault))
        # a refused answer ends its row, as the last draw of a build does
        return Unanswered(request.key, fault[0], fault[1], final=True) if fault else outcome

    def known_scores(self, role: str, scorer: AnnotatorConfig, requests: Sequence[Request]) -> list[Outcome | None]:
        """Keep every clip: scores are no questions to show."""
        return [None] * len(requests)


def _label(config: Any, part: str, ask: Any, row: Any) -> str:
    name = ask.label_of(config, row)
    return f"{name}: {part}" if part else str(name)


def show_questions(corpus: Corpus, story: Story, config: BuildConfig, store: Store, number: int) -> list[Shown]:
    """Return the `number`th question of each ask, from 1, as sent to a model. Asks nothing.

    Raises:
        InputError: an input is missing.
    """
    config = staying(config, store, corpus.name)
    return _sample(corpus, story, store, Sampler(config.for_forecast(), range(number, number + 1)))


def try_questions(
    corpus: Corpus, story: Story, config: BuildConfig, store: Store, count: int
) -> tuple[list[Shown], float]:
    """Ask the first questions of each ask; the ledger keeps the answers, and nothing is built.

    Returns:
        The questions, and their cost in US dollars, where prices are known.

    Raises:
        InputError: an input is missing.
        StopRun: a fault of every request, or the budget's end.
    """
    config = staying(config, store, corpus.name)
    with Sessions(store) as sessions:
        shown = _sample(corpus, story, store, Sampler(config.for_forecast(), range(1, count + 1), sessions))
        return shown, sessions.spent_usd


def _sample(corpus: Corpus, story: Story, store: Store, sampler: Sampler) -> list[Shown]:
    with tempfile.TemporaryDirectory() as folder:
        run_dry(corpus, story, store, Path(folder), sampler)
    return sampler.shown


def run_dry(corpus: Corpus, story: Story, store: Store, folder: Path, instead: ImaginedSessions | Sampler) -> Stage:
    """Run a story in a folder up to its first final step, and return the stage."""
    stage = Stage(store, corpus.name, "dry-run", folder, instead)
    if isinstance(instead, ImaginedSessions):
        instead.stage = stage
    for part in ("work", "steps", "version"):
        (stage.folder / part).mkdir()
    try:
        with suppress(Enough), own_words(instead.config.own_prompts()):
            story(stage, instead.config)
    except BaseException:
        if isinstance(instead, ImaginedSessions):
            instead.close()
        raise
    return stage
