"""Declare how rows go through asks; shard, send, count, record and forecast their requests.

    DRAFT = Ask("draft", annotator="writer", request=draft_request, imagine=imagine_draft, about="threads")
    LABEL = Ask("label", annotator="labeller", request=label_request, imagine=imagine_label, about="questions")

    @walk("questions", asks=[DRAFT, LABEL])
    async def make_question(asker: Asker[ScoreQuestions], thread: Row) -> dict[str, str]:
        draft = await asker(DRAFT, thread)
        return {**draft, "label": await asker(LABEL, draft)}

A walk leads one source row through its asks, one after the other or side by side, and returns the result. Each row goes
on at its own answer, without waiting for other rows. One walk ends and another begins only at a step that needs all
rows (quotas, balance, partners). Prefect sees a task per shard of source rows. The result never depends on timing:
everything is written in the order of the rows.

In a dry run (`tasks/pipeline/forecast.py`) the same walks run on imagined answers, and their requests are counted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, cast

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.reasons import Reject
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.prompts import own_words
from earmark.tasks.annotation.session import Session
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.pipeline.ask import Ask, Asker, Config, FailedRequest, GivenUp, Row, check_failed
from earmark.tasks.pipeline.exchange import Exchange
from earmark.tasks.pipeline.funnel import FirstRows, check_answers
from earmark.tasks.pipeline.replied import tell_names, with_names
from earmark.tasks.pipeline.rows import Rows, Shard, each_row, read_shard, shards_of
from earmark.tasks.pipeline.sessions import sessions_for
from earmark.tasks.pipeline.step import Account, named, run_each
from earmark.tasks.store.parquet import tuples_of, write_rows
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
    ("final", pa.bool_()),  # whether another run would give the same outcome
]


_FIRST: dict[Path, FirstRows] = {}  # first rows of the active walks in this process, by folder
Shown: TypeAlias = Callable[[Stage, Config, list[Row], Encoder | None], AbstractContextManager[list[Row]]]


def as_they_are(stage: Stage, config: Any, rows: list[Row], encoder: object) -> AbstractContextManager[list[Row]]:
    """Return the rows of a shard unchanged."""
    return nullcontext(rows)


class Draw(TypedDict):
    """A draw of a question; a walk's own columns come beside these."""

    at: int
    ask: str
    draw: int
    last: bool
    value: Any
    role: str
    annotator: str
    prompt: str
    request_key: str
    notes: str | None
    reason: str | None
    detail: str
    final: bool


class WalkLoss(TypedDict):
    """The end of a row given up."""

    at: int
    stage: str
    reason: str
    detail: str


class WalkEnd(TypedDict):
    """The end of any row: its result as JSON, or the reason for none."""

    at: int
    stage: str | None
    reason: str | None
    detail: str | None
    data: str | None


class Walked(NamedTuple):
    """Results of a walk."""

    name: str  # the walk's
    source: Rows  # its source rows
    folder: Path  # the folder of its shards

    def close_walk(self) -> None:
        """Mark the walk as read by a finished step: answers that come later would reach no row of it."""
        self.folder.mkdir(parents=True, exist_ok=True)  # of no shard, if there were no rows
        self._used.touch()

    @property
    def closed(self) -> bool:
        """Return whether a finished step has read the walk."""
        return self._used.is_file()

    @property
    def _used(self) -> Path:
        return self.folder / "used"

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the walk's result for each row not given up, with the row's number, in order."""
        for end in self._ends():
            if end["data"] is not None:
                yield end["at"], json.loads(end["data"])

    def given_up(self) -> list[WalkLoss]:
        """Return the rows given up, in order."""
        return [cast(WalkLoss, end) for end in self._ends() if end["data"] is None]

    def kept(self) -> Iterator[tuple[Any, Any]]:
        """Yield each source row not given up with its result, in order, a shard in memory at a time."""
        end: WalkEnd
        for row, end in self._with_source(self._ends()):
            if end["data"] is not None:
                yield row, json.loads(end["data"])

    def lost(self) -> Iterator[tuple[Any, WalkLoss]]:
        """Yield each source row given up with its end, in order."""
        return self._with_source(self.given_up())

    def drawn(self) -> Iterator[tuple[Any, Any]]:
        """Yield the source row of each draw with the draw, as `read_draws`, a shard in memory at a time."""
        return self._with_source(self.read_draws())

    def accounts(self, stages: Sequence[str], reject: Callable[[Any, str, str], tuple[str, Reject]]) -> list[Account]:
        """Return an account for each stage that may give up rows; the remaining rows enter the next stage.

        Args:
            stages: in the order of the walk; they name the accounts.
            reject: turns a row, a reason and a detail into a reject, with the table that lacks it.
        """
        by_stage: dict[str, list[tuple[str, Reject]]] = {stage: [] for stage in stages}
        for row, end in self.lost():
            by_stage[end["stage"]].append(reject(row, end["reason"], end["detail"]))
        accounts, entered, before = [], self.source.total, ""
        for stage, rejects in by_stage.items():
            kept = entered - len(rejects)
            accounts.append(Account(entered, kept, rejects, name=stage, follows=before))
            entered, before = kept, stage
        return accounts

    def draws(self) -> list[Path]:
        """Return the files of all draws, in order: columns `DRAW` and the walk's own."""
        return sorted((self.folder / "draws").glob("*.parquet"))

    def read_draws(self) -> Iterator[Any]:
        """Yield all draws, in order, with parsed values: `Draw` and the walk's own columns."""
        for path in self.draws():
            draws: list[Draw] = pq.ParquetFile(path).read().to_pylist()
            for draw in draws:
                yield {**draw, "value": None if draw["value"] is None else json.loads(draw["value"])}

    def _with_source(self, records: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield records in the order of their source rows (`at`), each after its row."""
        source, at, row = each_row(self.source), -1, None
        for record in records:
            if record["at"] < at:
                raise ValueError(f"{self.name}: expected records in the order of rows, found {record['at']} after {at}")
            while at < record["at"]:
                at, row = at + 1, next(source)
            yield row, record

    def _ends(self) -> Iterator[WalkEnd]:
        for path in sorted((self.folder / "results").glob("*.parquet")):
            ends: list[WalkEnd] = pq.ParquetFile(path).read().to_pylist()
            yield from ends


class Walk(Generic[Config]):
    """Declared walk; see `walk`. Pickled as its name."""

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
        """Lead every row through the asks, shards side by side; answers in the ledger are not asked again.

        Args:
            stage: the build.
            config: its config.
            rows: the source rows; a shard is a row group.
            part: distinguishes the calls of one build, if a walk is called for several sets of rows.
            about: distinguishes them for a reader, in the progress and in a dry run.

        Raises:
            StopRun: a fault of every request, or the budget's end; the build can be resumed.
            EarmarkError: more questions than `most_failed` of their annotator have no answer yet.
        """
        folder = stage.work / self.name / part
        walked = Walked(self.name, rows, folder)
        if stage.forecast is not None:
            put = partial(stage.forecast.put, config, about)
            for shard in shards_of(rows):
                with self.opened(stage, config, read_shard(rows, shard), None) as opened:
                    numbers = range(shard.start, shard.start + len(opened))
                    askers = [Asker(config, at, self.columns, put, checks=False) for at in numbers]
                    asyncio.run(_lead(self, config, opened, askers))
                    _write(self, _paths(folder, shard), askers)
            return walked
        if walked.closed:
            return walked
        with sessions_for(stage, config, self.roles(config)) as (sessions, media):
            inputs = {"walk": self, "rows": rows, "folder": folder, "sessions": sessions, "media": media}
            label = f"{self.label}: {about}" if about else self.label
            _FIRST.pop(folder, None)
            run_each(self.name, label, walk_shard, stage, config, shards_of(rows), **inputs)
            _FIRST.pop(folder, None)
            refused_usd = sum(session.refused_usd for session in set(sessions.values()))
        tell_names(folder)
        self._check_failed(config, stage.work / self.name, refused_usd)
        check_answers(stage, config, folder, rows.total, {ask.name for ask in self.asks if ask.partial})
        return walked

    def roles(self, config: Config) -> list[str]:
        """Return the roles of the config that may be asked: all roles, if a row decides."""
        named = {ask.annotator for ask in self.asks}
        decided = all(isinstance(role, str) for role in named)
        return [role for role in config.asked() if not decided or role in named]

    def _check_failed(self, config: Config, folder: Path, refused_usd: float) -> None:
        """Stop a build if too many questions, over all parts, lack an answer that another run might get."""
        asked: Counter[tuple[str, str]] = Counter()  # several annotators answer for a role if they are a jury
        failures: dict[tuple[str, str], list[FailedRequest]] = defaultdict(list)
        names = ["role", "annotator", "last", "reason", "detail", "final"]
        for path in folder.glob("**/draws/*.parquet"):
            for role, annotator, last, reason, detail, final in tuples_of(pq.read_table(path, columns=names), *names):
                asked[role, annotator] += last
                if last and reason is not None:
                    failures[role, annotator].append({"reason": reason, "detail": detail, "final": final})
        for who, count in asked.items():
            check_failed(getattr(config.asked()[who[0]], "most_failed", 1.0), count, failures[who], refused_usd)


def walk(
    name: str,
    *,
    asks: Sequence[Ask[Config]],
    columns: Sequence[tuple[str, pa.DataType]] = (),
    label: str | None = None,
    opened: Shown[Config] = as_they_are,
) -> Callable[[Callable[[Asker[Config], Row], Coroutine[Any, Any, Any]]], Walk[Config]]:
    """Declare the path of a source row through asks.

    Args:
        name: of the walk, and of Prefect's tasks; unique in a corpus.
        asks: possible asks of the walk.
        columns: names and types of columns to record with each question beside `DRAW`, taken from its row; with the
            ask's name they distinguish the questions of one source row.
        label: text of the progress; default the name.
        opened: prepares the rows of a shard, and their resources while questions are open.
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
    """Lead one shard's rows through the asks; skip a finished shard unless it lacks answers that may still come."""
    paths = _paths(folder, item)
    if all(path.is_file() for path in paths) and all(pq.read_table(paths[0], columns=["final"])["final"].to_pylist()):
        return
    first = None if config.most_rejected is None else _FIRST.setdefault(folder, FirstRows(stage))
    stopped = [folder / "stopped" / f"{path.parent.name}-{path.name}" for path in paths]
    askers: list[Asker[Any]] = []
    encoder = media.load_audio if isinstance(media.load_audio, Encoder) else None
    with walk.opened(stage, config, read_shard(rows, item), encoder) as opened:
        try:
            asyncio.run(_exchange(walk, config, opened, item, sessions, first, askers))
        except BaseException:
            _FIRST.pop(folder, None)  # this process may serve the resumed build too
            _write(walk, stopped, [asker for asker in askers if asker.result])
            raise
    _write(walk, paths, askers)
    for path in stopped:
        path.unlink(missing_ok=True)


def _paths(folder: Path, item: Shard) -> list[Path]:
    return [folder / part / f"{item.name}.parquet" for part in ("draws", "results")]


async def _exchange(
    walk: Walk[Config],
    config: Config,
    rows: list[Row],
    item: Shard,
    sessions: Mapping[str, Session],
    first: FirstRows | None,
    askers: list[Asker[Config]],
) -> None:
    with Exchange(sessions) as exchange:
        numbers = range(item.start, item.start + len(rows))
        askers += [Asker(config, at, walk.columns, exchange.put, first=first) for at in numbers]
        await _lead(walk, config, rows, askers)


async def _lead(walk: Walk[Config], config: Config, rows: list[Row], askers: list[Asker[Config]]) -> None:
    """Lead all rows at once; stop at the first fault that is no reject."""
    with own_words(config.own_prompts()):  # set here, since a cluster's processes get only the config
        try:
            async with asyncio.TaskGroup() as group:
                for both in zip(askers, rows, strict=True):
                    group.create_task(_end(walk, *both))
        except BaseExceptionGroup as errors:
            raise _first_of(errors) from None


def ask_each(
    config: Config,
    sessions: Mapping[str, Session],
    story: Callable[[Asker[Config], Row], Coroutine[Any, Any, Any]],
    rows: Sequence[Row],
) -> list[Any]:
    """Return the result of a story for each row outside a build, or the `GivenUp` that ends it.

    Raises:
        StopRun: a fault of every request, or the budget's end.
    """

    async def end(asker: Asker[Config], row: Row) -> Any:
        try:
            return await story(asker, row)
        except GivenUp as lost:
            return lost

    async def ask_all() -> list[Any]:
        with Exchange(sessions) as exchange, own_words(config.own_prompts()):
            async with asyncio.TaskGroup() as group:
                askers = [Asker(config, at, pa.schema([]), exchange.put) for at in range(len(rows))]
                tasks = [group.create_task(end(*both)) for both in zip(askers, rows, strict=True)]
        return [task.result() for task in tasks]

    try:
        return asyncio.run(ask_all())
    except BaseExceptionGroup as errors:
        raise _first_of(errors) from None


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error


async def _end(walk: Walk[Config], asker: Asker[Config], row: Row) -> None:
    try:
        data = await walk.function(asker, row)
    except GivenUp as end:
        asker.end((asker.at, None, end.stage, end.reason, end.detail))
    else:
        asker.end((asker.at, json.dumps(data, ensure_ascii=False), None, None, None))


def _write(walk: Walk[Any], paths: Sequence[Path], askers: Sequence[Asker[Any]]) -> None:
    """Write draws and results of rows, in the order of the rows, regardless of timing."""
    draws: list[tuple[Any, ...]] = []
    order = {ask.name: number for number, ask in enumerate(walk.asks)}
    results = []
    for asker in askers:
        if len({key for key, _ in asker.draws}) < len(asker.draws):
            raise ValueError(f"walk {walk.name}: two questions of one row are alike in {walk.columns.names}")
        draws += [row for _, row in sorted(asker.draws, key=lambda draw: (order[draw[0][0]], draw[0][1:]))]
        results.append(asker.result or ())
    write_rows(paths[0], with_names(pa.schema([*DRAW, *walk.columns]), (one.names for one in askers)), draws)
    write_rows(paths[1], RESULT, results)
