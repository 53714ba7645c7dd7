"""What is asked of models, declared once: who is asked, how a row becomes a request, how an answer is checked.

    DRAFT = Ask("draft", annotator="writer", request=draft_request, imagine=imagine_draft, about="threads")

How rows go through asks is told by walks: `tasks/build/walk.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.explaining import explained
from earmark.tasks.annotation.outcome import Outcome
from earmark.tasks.annotation.outcome import Reject as NoAnswer
from earmark.tasks.annotation.prompts import Prompt
from earmark.tasks.annotation.request import Ask as Form
from earmark.tasks.annotation.request import Request
from earmark.tasks.build.checks import Fault

Config = TypeVar("Config", bound=BuildConfig)
Row: TypeAlias = dict[str, Any]
Got = TypeVar("Got")


class Posed(NamedTuple):
    """A request and the prompt that words it."""

    prompt: Prompt
    request: Request


def pose(
    config: AnnotatorConfig,
    prompt: Prompt,
    facts: Mapping[str, Any] | None = None,
    form: Form | None = None,
    /,
    **values: Any,
) -> Posed:
    """A prompt, rendered with values, as a request to the configured model.

    Args:
        config: the model.
        prompt: words the request.
        facts: reach builtin models alone.
        form: of the answer; without one, the prompt's schema, or free text where it has none.
        values: for the prompt's variables.
    """
    if form is None and prompt.schema is not None:
        form = prompt.ask
    return Posed(prompt, question(config, prompt.render(**values), form, facts=facts))


def accept(config: Any, row: Any, value: Any) -> Fault | None:
    """The check of an ask whose answers need none beyond their schema."""
    return None


def tries_of(config: AnnotatorConfig) -> int:
    """The draws of a question at most, by the annotator's own config."""
    return int(getattr(config, "tries", 1))


@dataclass(frozen=True)
class Ask(Generic[Config]):
    """One thing that models are asked."""

    name: str  # unique in a corpus; the stage of rejects that stayed without an answer
    # the role in `config.asked()` that answers, or a function that gives it for a row
    annotator: str | Callable[[Config, Row], str]
    request: Callable[[Config, Row], Posed]  # words a question about a row. Pure: its result is the request's key.
    imagine: Callable[[Config, Row], Any]  # the answer that a dry run takes for granted, for the asks that follow
    # what it holds against an answer's value; None accepts it. Pure: a resumed build checks again. What fails is asked
    # again as the next draw.
    check: Callable[[Config, Row, Any], Fault | None] = accept
    # draws of one question at most; by default the annotator's `tries`, or 1
    tries: Callable[[Config], int] | None = None
    about: str = "rows"  # what its questions are about, in the plural, for a dry run
    # its name in a dry run, by config and row, where one ask goes to several roles
    label: Callable[[Config, Row], str] | None = None

    def role(self, config: Config, row: Row) -> str:
        """Who is asked about a row."""
        return self.annotator if isinstance(self.annotator, str) else self.annotator(config, row)

    def draws(self, config: Config, row: Row) -> int:
        """How often a question about a row may be asked."""
        return self.tries(config) if self.tries else tries_of(config.asked()[self.role(config, row)])


class Reply(NamedTuple):
    """How a question ended."""

    value: Any  # the answer that passed its check; without one, the last answer, or None
    failure: tuple[str, str] | None  # reason and detail, if it did not pass, or there is none
    key: str  # the last draw's request key
    draws: int  # how many draws were asked for
    annotator: str  # who was asked
    prompt: str  # name and version
    notes: tuple[str, ...] = ()  # what was done to the request to fit the model's limits
    final: bool = True  # whether a further run comes to the same


class GivenUp(Exception):  # not an error: the row becomes a reject
    """Ends the walk of a row, which becomes a reject.

    Args:
        stage: the ask or step that gives it up.
        reason: a word of `schemas/reasons.py`.
        detail: what was expected and what was found, in one line.
    """

    def __init__(self, stage: str, reason: str, detail: str) -> None:
        super().__init__(stage, reason, detail)
        self.stage, self.reason, self.detail = stage, reason, detail


Put: TypeAlias = Callable[[Ask[Any], str, Row, Request], Coroutine[Any, Any, Outcome]]
"""Brings a request of an ask, to a role, about a row, to its outcome."""


class Asker(Generic[Config]):
    """Asks on behalf of one row.

    Attributes:
        config: the build config.
        at: number of the source row.
    """

    def __init__(self, config: Config, at: int, columns: pa.Schema, put: Put, *, checks: bool = True) -> None:
        self.config = config
        self.at = at
        self._checks = checks
        self.draws: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        self._columns = columns
        self._put = put

    async def __call__(self, ask: Ask[Config], row: Row) -> Any:
        """The answer to a question about a row.

        Raises:
            GivenUp: there is none that passes its check.
        """
        reply = await self.reply(ask, row)
        if reply.failure is not None:
            raise GivenUp(ask.name, *reply.failure)
        return reply.value

    async def reply(self, ask: Ask[Config], row: Row) -> Reply:
        """How a question about a row ends, for a walk that goes on either way.

        Args:
            ask: what is asked.
            row: what the question is about. Of its keys, those that are columns of the walk are recorded with every
                draw; they tell the questions of one source row apart.
        """
        role = ask.role(self.config, row)
        prompt, request = ask.request(self.config, row)
        most = ask.draws(self.config, row)
        again = request
        for draw in range(most):
            outcome = await self._put(ask, role, row, replace(again, sample=request.sample + draw))
            fault = self._fault(ask, row, outcome)
            last = fault is None or isinstance(outcome, NoAnswer) or draw + 1 == most
            if fault and draw and last:
                fault = (fault[0], f"{fault[1]}; asked {draw + 1} times")
            reply = Reply(
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
                return reply
            if fault and self.config.asked()[role].repair == "explain":
                again = explained(request, json.dumps(reply.value, ensure_ascii=False), fault[1])
        raise AssertionError("a question has at least one draw")

    async def ahead(self, story: Callable[[Asker[Config]], Coroutine[Any, Any, Any]]) -> None:
        """Ask now what a later walk asks in any case, so that its model need not wait for this walk's end: that walk
        gets the answers from the ledger. Here nothing is recorded, and nothing ends by it; a dry run counts it there.

        Args:
            story: asks by the asker that it is given.
        """
        if self._checks:
            with suppress(GivenUp):
                await story(Asker(self.config, self.at, self._columns, self._put))

    def _record(self, ask: Ask[Config], role: str, row: Row, reply: Reply, last: bool) -> None:
        about = tuple(row.get(name) for name in self._columns.names)
        value = None if reply.value is None else json.dumps(reply.value, ensure_ascii=False)
        notes, draw = "; ".join(reply.notes) or None, reply.draws - 1
        head = (self.at, ask.name, draw, last, value, role, reply.annotator, reply.prompt, reply.key, notes)
        order = (ask.name, *map(_sortable, about), draw)
        self.draws.append((order, (*head, *(reply.failure or (None, None)), reply.final, *about)))

    def _fault(self, ask: Ask[Config], row: Row, outcome: Outcome) -> tuple[str, str] | None:
        if isinstance(outcome, NoAnswer):
            return outcome.reason, outcome.detail
        return ask.check(self.config, row, outcome.value) if self._checks else None


def _sortable(value: Any) -> tuple[bool, Any]:
    return value is not None, 0 if value is None else value


async def side_by_side(*asked: Coroutine[Any, Any, Got]) -> list[Got]:
    """What several questions come to that do not wait for one another, in the order given.

    Raises:
        GivenUp: the first of them that is, once all have ended: so what is recorded does not depend on timing.
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
