"""What is asked of models, declared once; sharded, sent, drawn again, counted, recorded, forecast by this module.

    DRAFT = Ask("draft", annotator="writer", request=draft_request, imagine=imagine_draft, about="threads")
    LABEL = Ask("label", annotator="labeller", request=label_request, imagine=imagine_label, about="questions")

    @walk("questions", asks=[DRAFT, LABEL])
    async def make_question(asker: Asker[ScoreQuestions], thread: Row) -> dict[str, str]:
        draft = await asker(DRAFT, thread)
        return {**draft, "label": await asker(LABEL, draft)}

A walk leads one source row through the asks that it needs, one after the other or side by side, and returns what came
of it. Each row goes on as soon as its own answer is there; no row waits for another. Only where a step needs all rows
(quotas, balance, partners) one walk ends and another begins. Prefect sees a task a shard of source rows. The result
never depends on timing: everything is written in the order of the rows.

In a dry run (`tasks/build/forecast.py`) the same walks run on imagined answers, and their requests are counted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.config import BuildConfig
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.outcome import Outcome
from earmark.tasks.annotation.outcome import Reject as NoAnswer
from earmark.tasks.annotation.prompts import Prompt
from earmark.tasks.annotation.request import Ask as Form
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.asking import Fault, check_failed
from earmark.tasks.build.exchange import Exchange
from earmark.tasks.build.rows import Rows, Shard, read_rows, read_shard, shards_of
from earmark.tasks.build.sessions import sessions_for
from earmark.tasks.build.step import Account, named, run_each
from earmark.tasks.importers.rows import Reject
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.staging import Stage

Config = TypeVar("Config", bound=BuildConfig)
Row: TypeAlias = dict[str, Any]
Got = TypeVar("Got")
RESULT = pa.schema(
    [
        ("at", pa.int64()),
        ("data", pa.string()),  # JSON; null for a row that was given up
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
DRAW = [
    ("at", pa.int64()),
    ("ask", pa.string()),
    ("draw", pa.int64()),  # from 0
    ("last", pa.bool_()),  # of the draws of one question
    ("value", pa.string()),  # JSON; null without an answer
    ("role", pa.string()),
    ("annotator", pa.string()),
    ("prompt", pa.string()),
    ("request_key", pa.string()),
    ("notes", pa.string()),
    ("reason", pa.string()),
    ("detail", pa.string()),
    ("final", pa.bool_()),  # whether a further run comes to the same
]


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
    """One thing that models are asked.

    Attributes:
        name: unique in a corpus; the stage of rejects that stayed without an answer.
        annotator: the role in `config.asked()` that answers, or a function that gives it for a row.
        request: words a question about a row. Pure: its result is the request's key.
        imagine: the answer that a dry run takes for granted, for the asks that follow.
        check: what it holds against an answer's value; None accepts it. Pure: a resumed build checks again. What fails
            is asked again as the next draw.
        tries: draws of one question at most; by default the annotator's `tries`, or 1.
        about: what its questions are about, in the plural, for a dry run.
        label: its name in a dry run, by config and row, where one ask goes to several roles.
    """

    name: str
    annotator: str | Callable[[Config, Row], str]
    request: Callable[[Config, Row], Posed]
    imagine: Callable[[Config, Row], Any]
    check: Callable[[Config, Row, Any], Fault | None] = accept
    tries: Callable[[Config], int] | None = None
    about: str = "rows"
    label: Callable[[Config, Row], str] | None = None

    def role(self, config: Config, row: Row) -> str:
        """Who is asked about a row."""
        return self.annotator if isinstance(self.annotator, str) else self.annotator(config, row)

    def draws(self, config: Config, row: Row) -> int:
        """How often a question about a row may be asked."""
        return self.tries(config) if self.tries else tries_of(config.asked()[self.role(config, row)])


class Reply(NamedTuple):
    """How a question ended.

    Attributes:
        value: the answer that passed its check; without one, the last answer, or None.
        failure: reason and detail, if it did not pass, or there is none.
        key: the last draw's request key.
        draws: how many draws were asked for.
        annotator: who was asked.
        prompt: name and version.
        notes: what was done to the request to fit the model's limits.
        final: whether a further run comes to the same.
    """

    value: Any
    failure: tuple[str, str] | None
    key: str
    draws: int
    annotator: str
    prompt: str
    notes: tuple[str, ...] = ()
    final: bool = True


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
        for draw in range(most):
            outcome = await self._put(ask, role, row, replace(request, sample=request.sample + draw))
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
        raise AssertionError("a question has at least one draw")

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


Shown: TypeAlias = Callable[[Stage, Config, list[Row], Media | None], AbstractContextManager[list[Row]]]


def as_they_are(stage: Stage, config: Any, rows: list[Row], media: Media | None) -> AbstractContextManager[list[Row]]:
    """Rows of a shard as their file has them."""
    return nullcontext(rows)


class Walked(NamedTuple):
    """What a walk left of every source row.

    Attributes:
        name: the walk's.
        source: the rows that it went through.
        folder: where its shards lie.
    """

    name: str
    source: Rows
    folder: Path

    def results(self) -> Iterator[tuple[int, Any]]:
        """What the walk returned for each row that it did not give up, with the row's number, in order."""
        for row in self._rows("results"):
            if row["reason"] is None:
                yield row["at"], json.loads(row["data"])

    def given_up(self) -> list[Row]:
        """The rows that it gave up: `at`, `stage`, `reason`, `detail`, in order."""
        return [row for row in self._rows("results") if row["reason"] is not None]

    def accounts(self, stages: Sequence[str], reject: Callable[[Any, str, str], tuple[str, Reject]]) -> list[Account]:
        """An account for each stage at which the walk may give a row up; the rows that are left go on to the next.

        Args:
            stages: in the order of the walk; they name the accounts.
            reject: makes a row, a reason and a detail a reject, with the table that lacks it.
        """
        by_stage: dict[str, list[tuple[str, Reject]]] = {stage: [] for stage in stages}
        rows = read_rows(self.source)
        for end in self.given_up():
            by_stage[end["stage"]].append(reject(rows[end["at"]], end["reason"], end["detail"]))
        accounts, entered, before = [], len(rows), ""
        for stage, rejects in by_stage.items():
            kept = entered - len(rejects)
            accounts.append(Account(entered, kept, rejects, name=stage, follows=before))
            entered, before = kept, stage
        return accounts

    def draws(self) -> list[Path]:
        """The files of all draws, in order: columns `DRAW` and the walk's own."""
        return sorted((self.folder / "draws").glob("*.parquet"))

    def read_draws(self) -> Iterator[Row]:
        """All draws, in order; values are read."""
        for path in self.draws():
            for row in pq.ParquetFile(path).read().to_pylist():
                yield {**row, "value": None if row["value"] is None else json.loads(row["value"])}

    def _rows(self, part: str) -> Iterator[Row]:
        for path in sorted((self.folder / part).glob("*.parquet")):
            yield from pq.ParquetFile(path).read().to_pylist()


class Walk(Generic[Config]):
    """A declared walk; see `walk`. Travels to other processes as its name."""

    __qualname__: str

    def __init__(
        self,
        function: Callable[[Asker[Config], Row], Coroutine[Any, Any, Any]],
        name: str,
        asks: Sequence[Ask[Config]],
        columns: Sequence[tuple[str, pa.DataType]],
        label: str | None,
        opened: Shown[Config],
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self.name = name
        self.asks = tuple(asks)
        self.columns = pa.schema(list(columns))
        self.label = name if label is None else label
        self.opened = opened

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return named, (self.__module__, self.__qualname__)

    def __call__(self, stage: Stage, config: Config, rows: Rows, *, part: str = "") -> Walked:
        """Lead every row through the asks, shards side by side; what the ledger holds is not asked again.

        Args:
            stage: the build.
            config: its config.
            rows: the source rows; a shard is a row group.
            part: tells the calls of one build apart, where a walk is called for several sets of rows.

        Raises:
            StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
            EarmarkError: more questions than `most_failed` of their annotator have no answer yet.
        """
        folder = stage.work / self.name / part
        walked = Walked(self.name, rows, folder)
        if stage.forecast is not None:
            for shard in shards_of(rows):
                with self.opened(stage, config, read_shard(rows, shard), None) as opened:
                    going = _lead(self, config, opened, shard, stage.forecast.put, checks=False)
                    _write(self, folder, shard, asyncio.run(going))
            return walked
        with sessions_for(stage, config, self.roles(config)) as (sessions, media):
            inputs = {"walk": self, "rows": rows, "folder": folder, "sessions": sessions, "media": media}
            run_each(self.name, self.label, walk_shard, stage, config, shards_of(rows), **inputs)
        self._check_failed(config, stage.work / self.name)
        return walked

    def roles(self, config: Config) -> list[str]:
        """The roles that may be asked: all of the config's, where a row decides."""
        if all(isinstance(ask.annotator, str) for ask in self.asks):
            return list(dict.fromkeys(str(ask.annotator) for ask in self.asks))
        return list(config.asked())

    def _check_failed(self, config: Config, folder: Path) -> None:
        """Stop a build that too many questions, of all parts, left without an answer which another run might get."""
        asked: Counter[str] = Counter()
        failures: dict[str, list[Row]] = defaultdict(list)
        for path in folder.glob("**/draws/*.parquet"):
            for row in pq.read_table(path, columns=["role", "last", "reason", "final"]).to_pylist():
                asked[row["role"]] += row["last"]
                if row["last"] and row["reason"] is not None:
                    failures[row["role"]].append(row)
        for role, count in asked.items():
            check_failed(getattr(config.asked()[role], "most_failed", 1.0), count, failures[role])


def walk(
    name: str,
    *,
    asks: Sequence[Ask[Config]],
    columns: Sequence[tuple[str, pa.DataType]] = (),
    label: str | None = None,
    opened: Shown[Config] = as_they_are,
) -> Callable[[Callable[[Asker[Config], Row], Coroutine[Any, Any, Any]]], Walk[Config]]:
    """Declare how a source row goes through asks.

    Args:
        name: of the walk, and of Prefect's tasks; unique in a corpus.
        asks: what may be asked on the way.
        columns: names and types of what is recorded of each question beside `DRAW`, taken from the row that it is
            about; with the ask's name they tell the questions of one source row apart.
        label: what the progress says; the name without one.
        opened: prepares the rows of a shard, and what they need while they are asked about.
    """
    return lambda function: Walk(function, name, asks, columns, label, opened)


def walk_shard(
    stage: Stage,
    config: Any,
    item: Shard,
    place: int,
    walk: Walk[Any],
    rows: Rows,
    folder: Path,
    sessions: Mapping[str, Session],
    media: Media,
) -> None:
    """Lead one shard's rows through the asks. A shard that is there, and lacks no answer that may still come, stays."""
    paths = [folder / part / f"{item.name}.parquet" for part in ("draws", "results")]
    if all(path.is_file() for path in paths) and not _lacks_answers(paths[0]):
        return
    with walk.opened(stage, config, read_shard(rows, item), media) as opened:
        ended = asyncio.run(_exchange(walk, config, opened, item, sessions))
    _write(walk, folder, item, ended)


def _lacks_answers(path: Path) -> bool:
    return not all(pq.read_table(path, columns=["final"])["final"].to_pylist())


Ended: TypeAlias = tuple[Asker[Any], tuple[Any, ...]]


async def _exchange(
    walk: Walk[Config], config: Config, rows: list[Row], item: Shard, sessions: Mapping[str, Session]
) -> list[Ended]:
    with Exchange(sessions) as exchange:
        return await _lead(walk, config, rows, item, exchange.put)


async def _lead(
    walk: Walk[Config], config: Config, rows: list[Row], item: Shard, put: Put, *, checks: bool = True
) -> list[Ended]:
    """Lead all rows at once; the first fault that is no reject ends them."""
    askers = [Asker(config, item.start + number, walk.columns, put, checks=checks) for number in range(len(rows))]
    try:
        async with asyncio.TaskGroup() as group:
            going = [group.create_task(_end(walk, *both)) for both in zip(askers, rows, strict=True)]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [(asker, one.result()) for asker, one in zip(askers, going, strict=True)]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _end(walk: Walk[Config], asker: Asker[Config], row: Row) -> tuple[Any, ...]:
    try:
        data = await walk.function(asker, row)
    except GivenUp as end:
        return (asker.at, None, end.stage, end.reason, end.detail)
    return (asker.at, json.dumps(data, ensure_ascii=False), None, None, None)


def _write(walk: Walk[Any], folder: Path, item: Shard, ended: Iterable[Ended]) -> None:
    """Leave a shard's draws and results, in the order of the rows, whatever came first."""
    draws: list[tuple[Any, ...]] = []
    order = {ask.name: number for number, ask in enumerate(walk.asks)}
    results = []
    for asker, result in ended:
        if len({key for key, _ in asker.draws}) < len(asker.draws):
            raise ValueError(f"walk {walk.name}: two questions of one row are alike in {walk.columns.names}")
        draws += [row for _, row in sorted(asker.draws, key=lambda draw: (order[draw[0][0]], draw[0][1:]))]
        results.append(result)
    write_rows(folder / "draws" / f"{item.name}.parquet", pa.schema([*DRAW, *walk.columns]), draws)
    write_rows(folder / "results" / f"{item.name}.parquet", RESULT, results)
