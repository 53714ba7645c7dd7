"""Ask one model through a ledger, at a pace, within a budget.

async with open_ledger("ledger.sqlite") as ledger, Annotator(config, ledger, media=Media(load_audio=...)) as annotator:
    report = await annotator.ask([question(config, messages, Json.of(schema)) for ...])
"""

import asyncio
import contextlib
import json
import logging
import resource
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.answers import PARSER, answer_value
from earmark.tasks.annotation.backend import Backend, Media, make_backend
from earmark.tasks.annotation.budget import Budget, SharedBudget, limits_of, tokens, within
from earmark.tasks.annotation.errors import AskError, KeptRefused, OverLimit, Stopped
from earmark.tasks.annotation.job import Job, from_ledger
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.ledger_rows import Finished
from earmark.tasks.annotation.pace import Quota, shared_pace
from earmark.tasks.annotation.patience import Patience, Streaks, Vanguard
from earmark.tasks.annotation.progress import Meter, Progress
from earmark.tasks.annotation.request import Forecast, Outcome, Report, Request, Unanswered
from earmark.tasks.annotation.run import WorkerPool

MOST_FILES = 65_536  # highest limit: some kernels allow a billion, which older libraries walk through one by one
FILES_SHARE = 3  # divisor of the remaining files for the connections of a model: other models, and clips, need some too


def raise_limit() -> int:
    """Raise this process's soft limit on open files to its hard limit and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY:
        return MOST_FILES
    if soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a lower, hidden limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def at_once(wanted: int) -> int:
    """Return the number of the wanted requests allowed in flight."""
    limit = raise_limit()
    return max(1, min(wanted, (limit - sum(1 for _ in Path("/dev/fd").iterdir())) // FILES_SHARE))


LOG = logging.getLogger("earmark.annotation")
BEAT_S = 15.0  # interval of a process's heartbeats in seconds; its claims end `ALIVE_S` after the last beat
OnProgress: TypeAlias = Callable[[Progress], None]


def about_refused(count: int, most_usd: float) -> str:
    """Return the notice for a person before kept answers are asked again."""
    cost = f", which costs at most ${most_usd:,.2f}" if most_usd else ""
    return (
        f"{count:,} kept answers are none by today's rules (thoughts, broken ends, special tokens, fences, shares): "
        f"nothing was asked for them; the next run asks them anew{cost}"
    )


class Annotator:
    """Client of one model. Concurrent calls of `ask` share its pace and budget.

    Args:
        config: model, pace and budget.
        ledger: an open ledger.
        media: access to audio and images.
        on_progress: called about once a second during a call.
        backend: replaces the backend named in the config.
        shared_budget: name of a budget shared by processes through the ledger; without it, the budget is private.
    """

    def __init__(
        self,
        config: AnnotatorConfig,
        ledger: Ledger,
        *,
        media: Media | None = None,
        on_progress: OnProgress | None = None,
        backend: Backend | None = None,
        shared_budget: str | None = None,
    ) -> None:
        self.config = config
        self.ledger = ledger
        self.limits = limits_of(config)
        self.media = media or Media()
        self.backend = backend or make_backend(config, self.media)
        self.quota = Quota(ledger, config)
        self.pace = shared_pace(config)
        self.patience = Patience(config.patience_s)
        self.streaks = Streaks()
        self.vanguard: Vanguard | None = None  # holds questions back until the first of their kind is answered
        self.refused: list[float] = []  # greatest cost in USD of each kept answer invalid by today's rules
        self.budget = (
            SharedBudget(config, self.limits, ledger, shared_budget) if shared_budget else Budget(config, self.limits)
        )
        self.on_progress = on_progress
        self._opening, self._begun, self._opened = asyncio.Lock(), False, False
        self._redecoded: frozenset[str] | None = None
        self._runs: set[WorkerPool] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.quota.close()
        finally:
            if self._begun:
                await self.backend.close()

    async def ask(self, requests: Iterable[Request]) -> Report:
        """Answer every request, from the ledger where possible.

        Equal requests are asked once. A request ends in an `Answer` or a `Unanswered`; all outcomes are durable in the
        ledger before this returns.

        Raises:
            StopRun: a fault common to every further request, or the budget's end. The ledger keeps the answers; the
                same call resumes from there.
            LedgerError: the ledger cannot be read or written.
        """
        keys, jobs, rejected = self._prepare(requests)
        meter = Meter(len(jobs) + len(rejected))
        outcomes: dict[str, Outcome] = dict(rejected)
        for _ in rejected:
            meter.finished(failed=True)
        await self._take_finished(jobs, outcomes, meter)
        spent_before, odd_before = self.budget.spent_usd, self.budget.odd_answers
        refused_before = len(self.refused)
        if jobs:
            self._fit_open_files()
            await self._finish(WorkerPool(self, meter, outcomes), list(jobs.values()))
        self._report(meter)
        if refused := self.refused[refused_before:]:
            raise KeptRefused(about_refused(len(refused), sum(refused)))
        return Report(
            outcomes=[outcomes[key] for key in keys],
            distinct=meter.total,
            answered=meter.done,
            rejected=meter.failed,
            from_ledger=meter.from_ledger,
            exchanges=meter.exchanges,
            input_tokens=meter.input_tokens,
            output_tokens=meter.output_tokens,
            spent_usd=self.budget.spent_usd - spent_before,
            odd_usage=self.budget.odd_answers - odd_before,
        )

    async def stream(
        self, arriving: asyncio.Queue[list[Request] | Stopped | None], hand_on: Callable[[str, Outcome], None]
    ) -> None:
        """Answer requests as they arrive, and hand on each outcome at once.

        Args:
            arriving: lists of requests; None ends them, and `Stopped` ends the call after the requests in flight.
            hand_on: gets a request's key, as given, and its outcome.

        Raises:
            StopRun, LedgerError: as `ask`; outcomes handed on before stay.
        """
        meter = Meter(0)
        given: dict[str, list[str]] = {}  # the requests' own keys, by the key of the request within the limits
        outcomes: dict[str, Outcome] = {}

        def settle(key: str) -> None:
            for one in given.pop(key, []):
                hand_on(one, outcomes[key])

        run = WorkerPool(self, meter, outcomes, settle)

        async def take() -> None:
            while (requests := await arriving.get()) is not None:
                if isinstance(requests, Stopped):
                    run.stop(requests)
                    return
                keys, jobs, rejected = self._prepare(requests)
                new = {key: job for key, job in jobs.items() if key not in given and key not in outcomes}
                for request, key in zip(requests, keys, strict=True):
                    given.setdefault(key, []).append(request.key)
                meter.add(len(new) + len(rejected))
                outcomes.update(rejected)
                for _ in rejected:
                    meter.finished(failed=True)
                await self._take_finished(new, outcomes, meter)
                for key in [key for key in dict.fromkeys(keys) if key in outcomes]:
                    settle(key)
                if new:
                    self._fit_open_files()
                    run.add(list(new.values()))

        await self._finish(run, [], take())
        self._report(meter)

    async def _finish(
        self, run: WorkerPool, jobs: list[Job], arriving: Coroutine[Any, Any, None] | None = None
    ) -> None:
        self._runs.add(run)
        try:
            await run.finish(jobs, arriving)
        finally:
            self._runs.discard(run)

    def stop(self) -> None:
        """Send nothing more: each call ends with `Stopped` after its requests in flight are recorded."""
        for run in self._runs:
            run.stop(Stopped())

    async def forecast(self, requests: Iterable[Request]) -> Forecast:
        """Estimate the calls, tokens and cost of asking. Asks nothing and writes nothing."""
        keys, jobs, rejected = self._prepare(requests)
        finished, refused = await self._read_anew(jobs)
        there = await self.ledger.in_batches([key for key in jobs if key not in finished])
        todo = [job.request for key, job in jobs.items() if key not in finished and key not in there]
        return Forecast(
            requests=len(keys),
            distinct=len(jobs) + len(rejected),
            from_ledger=len(finished),
            in_batches=len(there),
            over_limit=len(rejected),
            to_ask=len(todo),
            input_tokens=sum(tokens(request, self.limits) for request in todo),
            most_output_tokens=sum(request.sampling.max_tokens for request in todo),
            most_usd=sum(self.budget.worst_usd(request) for request in todo),
            refused=len(refused),
            priced=self.config.priced,
            refused_usd=sum(self.budget.worst_usd(jobs[key].request) for key in refused),
        )

    async def known(self, requests: Iterable[Request]) -> list[Outcome | None]:
        """Return each request's outcome in the ledger; None if it would be asked."""
        keys, jobs, outcomes = self._prepare(requests)
        finished, _ = await self._read_anew(jobs)
        least = self.config.least_share
        outcomes |= {key: from_ledger(key, one, jobs[key].notes, least) for key, one in finished.items()}
        return [outcomes.get(key) for key in keys]

    async def _read_anew(self, jobs: Mapping[str, Job]) -> tuple[dict[str, Finished], set[str]]:
        """Return the ledger's finished requests by today's rules, and the keys of answers invalid by these rules."""
        finished = await self.ledger.finished(list(jobs))
        older = [key for key, one in finished.items() if one.parser != PARSER]
        received = await self.ledger.received(older) if older else {}
        refused = set()
        for key, raws in received.items():
            value = self._first_readable(jobs[key].request, raws)
            if value is not None:
                finished[key] = finished[key]._replace(answer=json.dumps(value), reason=None, detail=None)
            elif finished[key].reason is None:
                refused.add(key)
                del finished[key]
        return finished, refused

    def _first_readable(self, request: Request, raws: Sequence[str]) -> Any:
        for raw in raws:
            with contextlib.suppress(AskError):
                reply = self.backend.read(request, raw)
                return answer_value(request.ask, reply, self.config.least_share, request.fences())
        return None

    def allow(self, max_concurrency: int) -> None:
        """Set the greatest number of requests in flight."""
        self.config = self.config.model_copy(update={"max_concurrency": max_concurrency})
        self.pace.allow(max_concurrency)

    def _prepare(self, requests: Iterable[Request]) -> tuple[list[str], dict[str, Job], dict[str, Outcome]]:
        """Return the key of every request, a job for each distinct request, and the rejects over a limit."""
        keys: list[str] = []
        jobs: dict[str, Job] = {}
        rejected: dict[str, Outcome] = {}
        cut = self.config.on_limit == "cut"
        if self._redecoded is None:
            self._redecoded = self.media.redecoded()
        for request in requests:
            marked = request.redecoding(self._redecoded) if self._redecoded else request
            try:
                fitted, notes = within(marked, self.limits, cut=cut)
            except OverLimit as error:
                rejected[request.key] = Unanswered(request.key, error.reason, str(error))
                keys.append(request.key)
                continue
            keys.append(fitted.key)
            if fitted.key not in jobs:
                jobs[fitted.key] = Job(fitted, notes)
        return keys, jobs, rejected

    async def _take_finished(self, jobs: dict[str, Job], outcomes: dict[str, Outcome], meter: Meter) -> None:
        for key, finished in (await self.ledger.finished(list(jobs))).items():
            if finished.parser == PARSER:
                job = jobs.pop(key)
                outcomes[key] = from_ledger(key, finished, job.notes, self.config.least_share)
                if finished.reason is None:
                    self.streaks.answered(job.request)
                    if self.vanguard:
                        self.vanguard.answered(job.request)
                meter.finished(failed=finished.reason is not None, from_ledger=True)

    def _fit_open_files(self) -> None:
        """Limit concurrency to the number of files the process may open."""
        wanted = self.config.max_concurrency
        if (most := at_once(wanted)) < wanted:
            LOG.warning(
                "%s: max_concurrency = %d, and few files may be open: %d requests at once (raise ulimit -n)",
                self.config.annotator, wanted, most,
            )  # fmt: skip
            self.allow(most)

    async def open_backend(self) -> None:
        """Connect to the model or load it, once: for the first question without an answer in the ledger."""
        async with self._opening:
            if not self._opened:
                self._begun = True
                await self.backend.open()
                self._opened = True

    def _report(self, meter: Meter, waiting: str | None = None) -> None:
        if self.on_progress:
            self.on_progress(meter.look(self.budget.spent_usd if self.config.priced else None, waiting))

    async def watch(self, meter: Meter, waits_for: Callable[[], str], pause: Callable[[], str | None]) -> None:
        """Report progress, log the cause of a stall, and keep the claims alive."""
        loop = asyncio.get_running_loop()
        warned_at = beat_at = loop.time()
        while True:
            await asyncio.sleep(1.0)
            now, waiting = loop.time(), getattr(self.backend, "waiting", None) or self.patience.line()
            if waiting is None and meter.still_s() > self.config.stalled_after_s:
                waiting = f"nothing completed for {meter.still_s():.0f} s: {waits_for()}"
                if now - warned_at > self.config.stalled_after_s:
                    LOG.warning("%s: %s", self.config.annotator, waiting)
                    warned_at = now
            self._report(meter, waiting or pause())
            if now - beat_at > BEAT_S:
                await self.ledger.beat()
                beat_at = now
