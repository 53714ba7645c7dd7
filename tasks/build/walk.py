"""How rows go through asks, declared once; sharded, sent, counted, recorded, forecast by this module.

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
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.annotation.session import Session
from earmark.tasks.build.ask import Ask, Asker, Config, GivenUp, Put, Row
from earmark.tasks.build.checks import check_failed
from earmark.tasks.build.exchange import Exchange
from earmark.tasks.build.rows import Rows, Shard, read_rows, read_shard, shards_of
from earmark.tasks.build.sessions import sessions_for
from earmark.tasks.build.step import Account, named, run_each
from earmark.tasks.importers.rows import Reject
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.staging import Stage

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


Shown: TypeAlias = Callable[[Stage, Config, list[Row], Media | None], AbstractContextManager[list[Row]]]


def as_they_are(stage: Stage, config: Any, rows: list[Row], media: Media | None) -> AbstractContextManager[list[Row]]:
    """Rows of a shard as their file has them."""
    return nullcontext(rows)


class Walked(NamedTuple):
    """What a walk left of every source row."""

    name: str  # the walk's
    source: Rows  # the rows that it went through
    folder: Path  # where its shards lie

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

    def __call__(self, stage: Stage, config: Config, rows: Rows, *, part: str = "", about: str = "") -> Walked:
        """Lead every row through the asks, shards side by side; what the ledger holds is not asked again.

        Args:
            stage: the build.
            config: its config.
            rows: the source rows; a shard is a row group.
            part: tells the calls of one build apart, where a walk is called for several sets of rows.
            about: tells them apart for a reader, in the progress and in a dry run.

        Raises:
            StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
            EarmarkError: more questions than `most_failed` of their annotator have no answer yet.
        """
        folder = stage.work / self.name / part
        walked = Walked(self.name, rows, folder)
        if stage.forecast is not None:
            put = partial(stage.forecast.put, config, about)
            for shard in shards_of(rows):
                with self.opened(stage, config, read_shard(rows, shard), None) as opened:
                    going = _lead(self, config, opened, shard, put, checks=False)
                    _write(self, folder, shard, asyncio.run(going))
            return walked
        with sessions_for(stage, config, self.roles(config)) as (sessions, media):
            inputs = {"walk": self, "rows": rows, "folder": folder, "sessions": sessions, "media": media}
            label = f"{self.label}: {about}" if about else self.label
            run_each(self.name, label, walk_shard, stage, config, shards_of(rows), **inputs)
        self._check_failed(config, stage.work / self.name)
        return walked

    def roles(self, config: Config) -> list[str]:
        """The roles of the config that may be asked: all of them, where a row decides."""
        named = {ask.annotator for ask in self.asks}
        decided = all(isinstance(role, str) for role in named)
        return [role for role in config.asked() if not decided or role in named]

    def _check_failed(self, config: Config, folder: Path) -> None:
        """Stop a build that too many questions, of all parts, left without an answer which another run might get."""
        asked: Counter[tuple[str, str]] = Counter()  # a role is asked of several annotators where they are a jury
        failures: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for path in folder.glob("**/draws/*.parquet"):
            for row in pq.read_table(path, columns=["role", "annotator", "last", "reason", "final"]).to_pylist():
                asked[row["role"], row["annotator"]] += row["last"]
                if row["last"] and row["reason"] is not None:
                    failures[row["role"], row["annotator"]].append(row)
        for who, count in asked.items():
            check_failed(getattr(config.asked()[who[0]], "most_failed", 1.0), count, failures[who])


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
    with own_words(config.own_prompts()):  # here, since a cluster's processes know nothing but the config
        return await _lead_all(walk, config, rows, item, put, checks=checks)


async def _lead_all(
    walk: Walk[Config], config: Config, rows: list[Row], item: Shard, put: Put, *, checks: bool
) -> list[Ended]:
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
