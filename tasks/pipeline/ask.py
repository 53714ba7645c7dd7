"""Declare questions to models: the annotator, the request for a row, and the check of its answer.

    DRAFT = Ask("draft", annotator="writer", prompt="score-question-rewrite", values=draft_values, about="threads")

Walks lead rows through asks: `tasks/pipeline/walk.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar

import pyarrow as pa

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import EarmarkError
from earmark.schemas.questions import Ask as Form
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import about_refused
from earmark.tasks.annotation.errors import KeptRefused
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Outcome, Request
from earmark.tasks.annotation.request import Unanswered as NoAnswer
from earmark.tasks.pipeline.funnel import FailedRow, FirstRows
from earmark.tasks.pipeline.imagined import imagined_answers
from earmark.tasks.pipeline.replied import Names

LASTING = frozenset({"over_limit", "bad_media"})  # never sent; another run asks again, with the same outcome


class Fault(NamedTuple):
    """Fault of an answer: a fixed word, and expected and found in one line."""

    reason: str
    detail: str


class FailedRequest(TypedDict):
    """Reason of a request without an answer; `final` if another run would give the same outcome."""

    reason: str
    detail: str
    final: bool


def check_failed(most: float, asked: int, failures: Sequence[FailedRequest], refused_usd: float = 0.0) -> None:
    """Stop a build with too many unanswered requests that another run might still answer.

    Requests beyond the model's limits, or with an unreadable clip, do not count: they stay rejects. Requests that the
    server refuses count: a row that it cannot take looks the same as a fault of all rows.

    Args:
        most: allowed share of unanswered requests.
        asked: number of requests.
        failures: unanswered requests.
        refused_usd: greatest cost of asking again for kept answers that today's rules refuse.
    """
    if refused := [row["detail"] for row in failures if row["reason"] == KeptRefused.reason]:
        raise EarmarkError(
            f"{about_refused(len(refused), refused_usd)}: earmark resume. The first of them: {refused[0]}"
        )
    passing = [row for row in failures if not row["final"] and row["reason"] not in LASTING]
    if not passing or len(passing) <= most * asked:
        return
    reasons = [row["reason"] for row in passing]
    commonest = max(sorted(set(reasons)), key=reasons.count)
    words = next(row["detail"] for row in passing if row["reason"] == commonest)
    ways = {"bad_request": "keep such rows as rejects: most_failed", "low_share": "take such answers: least_share"}
    way_out = f" (or {ways[commonest]})" if commonest in ways else ""
    raise EarmarkError(
        f"{len(passing)} of {asked} requests have no answer yet, most for '{commonest}': {words}; answers are kept: "
        f"when the cause is gone, go on with: earmark resume{way_out}"
    )


Config = TypeVar("Config", bound=BuildConfig)
Row: TypeAlias = Any  # of any row type: `request` and `check` of an ask name theirs
Got = TypeVar("Got")


class Posed(NamedTuple):
    """A request and its prompt."""

    prompt: Prompt
    request: Request


class Values(NamedTuple):
    """Values of a prompt's variables, facts for builtin models only, and the answer's form."""

    shown: Mapping[str, Any]
    facts: Mapping[str, Any] | None = None
    form: Form | None = None  # default the prompt's schema, or free text without a schema


def pose(
    config: AnnotatorConfig,
    prompt: Prompt,
    facts: Mapping[str, Any] | None = None,
    form: Form | None = None,
    /,
    **values: Any,
) -> Posed:
    """Return a prompt, rendered with values, as a request to the configured model.

    Args:
        config: the model.
        prompt: words the request.
        facts: for builtin models only.
        form: of the answer; default the prompt's schema, or free text without a schema.
        values: for the prompt's variables.
    """
    if form is None and prompt.schema is not None:
        form = prompt.ask(**values)
    return Posed(prompt, question(config, prompt.render(**values), form, facts=facts))


def accept(config: Any, row: Any, value: Any) -> Fault | None:
    """Accept every answer: the check of an ask whose schema suffices."""
    return None


def tries_of(config: AnnotatorConfig) -> int:
    """Return the most draws of a question, by the annotator's own config."""
    return int(getattr(config, "tries", 1))


@dataclass(frozen=True)
class Ask(Generic[Config]):
    """One kind of question to models."""

    name: str  # unique in a corpus; the stage of its unanswered rows' rejects
    # the answering role of `config.asked()`, or a function that chooses it by row
    annotator: str | Callable[[Config, Row], str]
    # words a question about a row, if prompt and values do not suffice. Pure: its result is the request's key.
    request: Callable[[Config, Row], Posed] | None = None
    # the dry run's answer, for the following asks, where the form of the answer does not suffice: a whole answer, or
    # fields of a JSON answer as `imagined_answers` takes them
    imagine: Callable[[Config, Row], Any] | None = None
    # returns the fault of an answer's value; None accepts it. Pure: a resumed build checks again. Refused answers are
    # asked again as the next draw.
    check: Callable[[Config, Row, Any], Fault | None] = accept
    partial: bool = False  # whether rows may go on with a refused answer, as far as it is usable
    # draws of one question at most; by default the annotator's `tries`, or 1
    tries: Callable[[Config], int] | None = None
    about: str = "rows"  # subject of its questions, in the plural, for a dry run
    # its name in a dry run, by config and row; by default the role, where the row decides it
    label: Callable[[Config, Row], str] | None = None
    # a prompt of the package by name, one of a plug-in, or a function that chooses it by row
    prompt: str | Prompt | Callable[[Config, Row], str] = ""
    values: Callable[[Config, Row], Values] | None = None  # fill the prompt. Pure, as `request`
    # a row for each prompt that a config uses, with the columns that choose role and prompt
    kinds: Callable[[Config], Iterable[Row]] = lambda config: [{}]

    def role(self, config: Config, row: Row) -> str:
        """Return the role that answers about a row."""
        return self.annotator if isinstance(self.annotator, str) else self.annotator(config, row)

    def draws(self, config: Config, row: Row) -> int:
        """Return the most draws of a question about a row."""
        return self.tries(config) if self.tries else tries_of(config.asked()[self.role(config, row)])

    def label_of(self, config: Config, row: Row) -> str:
        """Return the name of a question about a row in a dry run."""
        if self.label:
            return self.label(config, row)
        return self.name if isinstance(self.annotator, str) else self.annotator(config, row)

    def prompt_of(self, config: Config, row: Row) -> Prompt:
        """Return the prompt of a question about a row: the package's, or the config's own."""
        if isinstance(self.prompt, Prompt):
            return self.prompt
        return prompt_named(self.prompt if isinstance(self.prompt, str) else self.prompt(config, row))

    def prompts(self, config: Config) -> list[Prompt]:
        """Return the prompts that a config uses; none if it names no annotator for them."""
        if not self.prompt:
            return []
        asked = config.asked()
        return [self.prompt_of(config, row) for row in self.kinds(config) if self.role(config, row) in asked]

    def pose(self, config: Config, row: Row) -> Posed:
        """Return the question about a row."""
        if self.request is not None:
            return self.request(config, row)
        if self.values is None:
            raise ValueError(f"ask {self.name}: expected values of its prompt, or a request")
        shown, facts, form = self.values(config, row)
        return pose(config.asked()[self.role(config, row)], self.prompt_of(config, row), facts, form, **shown)

    def answer(self, config: Config, row: Row, request: Request) -> Any:
        """Return an imagined answer to a request about a row: the first to pass the check, if any does."""
        given = None if self.imagine is None else self.imagine(config, row)
        first, *others = imagined_answers(request.ask, given)
        passing = (one for one in (first, *others) if self.check(config, row, one) is None)
        return next(passing, first) if others else first


def prompt_digests(config: Config, asks: Iterable[Ask[Config]]) -> dict[str, str]:
    """Return the SHA-256 of the prompts that a config uses, by name and version."""
    return {prompt.id: prompt.sha256 for ask in asks for prompt in ask.prompts(config)}


class AskReply(NamedTuple):
    """Result of a question."""

    value: Any  # the accepted answer; else the last answer, or None
    failure: tuple[str, str] | None  # reason and detail, if it was refused or missing
    key: str  # the last draw's request key
    draws: int  # number of draws
    annotator: str  # the answering model
    prompt: str  # name and version
    notes: tuple[str, ...] = ()  # changes of the request to fit the model's limits
    final: bool = True  # whether another run would give the same outcome


class GivenUp(Exception):  # no error: the row becomes a reject
    """End of the walk of a row, which becomes a reject.

    Args:
        stage: the ask or step that gives up the row.
        reason: a word of `schemas/reasons.toml`.
        detail: expected and found, in one line.
    """

    def __init__(self, stage: str, reason: str, detail: str) -> None:
        super().__init__(stage, reason, detail)
        self.stage, self.reason, self.detail = stage, reason, detail


Put: TypeAlias = Callable[[Ask[Any], str, Row, Request], Coroutine[Any, Any, Outcome]]
"""Return the outcome of an ask's request to a role about a row."""


class Asker(Generic[Config]):
    """Asker of one source row's questions.

    Attributes:
        config: the build config.
        at: number of the source row.
        result: the walk's result for the row, after its end.
        names: counts of the names that its replies report.
    """

    def __init__(
        self,
        config: Config,
        at: int,
        columns: pa.Schema,
        put: Put,
        *,
        checks: bool = True,
        first: FirstRows | None = None,
    ) -> None:
        self.config = config
        self.at = at
        self.result: tuple[Any, ...] | None = None
        self._first = first
        self._failed: dict[tuple[str, str], tuple[bool, AskReply]] = {}
        self._checks = checks
        self.draws: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        self.names = Names()
        self._columns = columns
        self._put = put

    async def __call__(self, ask: Ask[Config], row: Row) -> Any:
        """Return the answer to a question about a row.

        Raises:
            GivenUp: no answer passes its check.
        """
        reply = await self.reply(ask, row)
        if reply.failure is not None:
            raise GivenUp(ask.name, *reply.failure)
        return reply.value

    async def reply(self, ask: Ask[Config], row: Row) -> AskReply:
        """Return the result of a question about a row, for a walk that goes on either way.

        Args:
            ask: the ask.
            row: subject of the question. Every draw records its keys that are columns of the walk; they distinguish the
                questions of one source row.
        """
        if self._first and self._first.fault:
            raise self._first.fault
        role = ask.role(self.config, row)
        prompt, request = ask.pose(self.config, row)
        most = ask.draws(self.config, row)
        for draw in range(most):
            asked = replace(request, sample=request.sample + draw) if draw else request
            outcome = await self._put(ask, role, row, asked)
            fault = self._fault(ask, row, outcome)
            if not isinstance(outcome, NoAnswer) and outcome.model:
                self.names[request.model, outcome.model] += 1
            last = fault is None or isinstance(outcome, NoAnswer) or draw + 1 == most
            if fault and draw and last:
                fault = (fault[0], f"{fault[1]}; asked {draw + 1} times")
            reply = AskReply(
                value=None if isinstance(outcome, NoAnswer) else outcome.value,
                failure=fault,
                key=outcome.key,
                draws=draw + 1,
                annotator=request.model,
                prompt=prompt.id,
                notes=outcome.notes,
                final=not isinstance(outcome, NoAnswer) or outcome.final,
            )
            self._record(ask, role, row, reply, last)
            if last:
                self._note(ask, role, reply)
                return reply
        raise AssertionError("a question has at least one draw")

    def end(self, result: tuple[Any, ...]) -> None:
        """Note the end of the row's walk: `at`, `data`, `stage`, `reason`, `detail`.

        Raises:
            TooManyRejects: it is one of the first rows, and none of them passed an ask.
        """
        self.result = result
        if self._first is None:
            return
        for (ask, role), (partial, reply) in self._failed.items():
            if partial and reply.value is not None and ask != result[2]:
                self._first.passes(ask, role)
            elif reply.final and reply.failure:
                value = None if reply.value is None else json.dumps(reply.value, ensure_ascii=False)
                self._first.fails(ask, role, reply.annotator, FailedRow(*reply.failure, value, reply.key))

    def _note(self, ask: Ask[Config], role: str, reply: AskReply) -> None:
        if self._first and reply.failure is None:
            self._first.passes(ask.name, role)
        elif self._first:
            self._failed.setdefault((ask.name, role), (ask.partial, reply))

    async def ahead(self, story: Callable[[Asker[Config]], Coroutine[Any, Any, Any]]) -> None:
        """Ask a later walk's certain questions now, so that its model need not wait for this walk's end.

        The later walk reads the answers from the ledger. Nothing is recorded or given up here; a dry run counts them
        there.

        Args:
            story: asks by the given asker.
        """
        if self._checks:
            with suppress(GivenUp):
                await story(Asker(self.config, self.at, self._columns, self._put))

    def _record(self, ask: Ask[Config], role: str, row: Row, reply: AskReply, last: bool) -> None:
        about = tuple(row.get(name) for name in self._columns.names)
        value = None if reply.value is None else json.dumps(reply.value, ensure_ascii=False)
        notes, draw = "; ".join(reply.notes) or None, reply.draws - 1
        head = (self.at, ask.name, draw, last, value, role, reply.annotator, reply.prompt, reply.key, notes)
        order = (ask.name, *map(_sortable, about), draw)
        self.draws.append((order, (*head, *(reply.failure or (None, None)), reply.final, *about)))

    def _fault(self, ask: Ask[Config], row: Row, outcome: Outcome) -> tuple[str, str] | None:
        if isinstance(outcome, NoAnswer):
            return outcome.reason, outcome.detail
        return ask.check(self.config, row, outcome.value) if self._checks or outcome.from_ledger else None


def _sortable(value: Any) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value


async def side_by_side(*asked: Coroutine[Any, Any, Got]) -> list[Got]:
    """Run several independent questions side by side, and return their results in the given order.

    Raises:
        GivenUp: the first of them in that order, after all have ended: records thus do not depend on timing.
    """

    async def to_its_end(question: Coroutine[Any, Any, Got]) -> Got | GivenUp:
        try:
            return await question
        except GivenUp as end:
            return end

    replies: list[Got] = []
    for reply in await asyncio.gather(*map(to_its_end, asked)):
        if isinstance(reply, GivenUp):
            raise reply
        replies.append(reply)
    return replies
