"""The door to the engine: an annotator asks one model, through a ledger, at a pace, within a budget.

async with open_ledger("ledger.sqlite") as ledger, Annotator(config, ledger, media=Media(load_audio=...)) as annotator:
    report = await annotator.ask([question(config, messages, Json.of(schema)) for ...])
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeAlias

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.answers import PARSER
from earmark.tasks.annotation.backend import Backend, Media, make_backend
from earmark.tasks.annotation.budget import Budget
from earmark.tasks.annotation.errors import OverLimit
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.limits import limits_of, tokens, within
from earmark.tasks.annotation.outcome import Forecast, Outcome, Reject, Report
from earmark.tasks.annotation.pace import Pace
from earmark.tasks.annotation.progress import Meter, Progress
from earmark.tasks.annotation.quota import Quota
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.run import Job, Run, from_ledger
from earmark.tasks.annotation.shared_budget import SharedBudget

LOG = logging.getLogger("earmark.annotation")
BEAT_S = 15.0
"""How often a process says that it is alive; claims end `ALIVE_S` after the last time."""
OnProgress: TypeAlias = Callable[[Progress], None]


class Annotator:
    """Asks one model. Several calls of `ask` may run at once; they share pace and budget.

    Args:
        config: which model, how fast, for how much.
        ledger: an open ledger.
        media: how to get at audio and images.
        on_progress: called about once a second while a call runs.
        backend: the backend to use in place of the one that the config names.
        shared_budget: name of a budget that processes share through the ledger; without it, it is this annotator's.
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
        self.backend = backend or make_backend(config, media or Media())
        self.quota = Quota(ledger, config)
        self.pace = Pace(config.max_concurrency, self.quota)
        self.budget = (
            SharedBudget(config, self.limits, ledger, shared_budget) if shared_budget else Budget(config, self.limits)
        )
        self.on_progress = on_progress
        self._opened = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.quota.close()
        finally:
            if self._opened:
                await self.backend.close()

    async def ask(self, requests: Iterable[Request]) -> Report:
        """Answer every request, from the ledger where it can be.

        Equal requests are asked once. A request ends in an `Answer` or a `Reject`; all outcomes are durable in the
        ledger before this returns.

        Raises:
            StopRun: a fault that every further request would meet, or the budget's end. What was answered is in the
                ledger; the same call goes on from there.
            LedgerError: the ledger cannot be read or written.
        """
        keys, jobs, rejected = self._prepare(requests)
        meter = Meter(len(jobs) + len(rejected))
        outcomes: dict[str, Outcome] = dict(rejected)
        for _ in rejected:
            meter.finished(failed=True)
        await self._take_finished(jobs, outcomes, meter)
        spent_before, odd_before = self.budget.spent_usd, self.budget.odd_answers
        if jobs:
            await self._open()
            run = Run(self, meter, outcomes)
            await run.finish(list(jobs.values()))
        self._report(meter)
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
        self, arriving: asyncio.Queue[list[Request] | None], hand_on: Callable[[str, Outcome], None]
    ) -> None:
        """Answer requests as they arrive, and hand each outcome on as soon as it is there.

        Args:
            arriving: lists of requests; None ends them.
            hand_on: gets a request's key, as it was given, and its outcome.

        Raises:
            StopRun, LedgerError: as `ask`; what was handed on before stays.
        """
        meter = Meter(0)
        given: dict[str, list[str]] = {}  # keys as requests have them, by that of the request that fits the limits
        outcomes: dict[str, Outcome] = {}

        def settle(key: str) -> None:
            for one in given.pop(key, []):
                hand_on(one, outcomes[key])

        run = Run(self, meter, outcomes, settle)

        async def take() -> None:
            while (requests := await arriving.get()) is not None:
                keys, jobs, rejected = self._prepare(requests)
                new = {key: job for key, job in jobs.items() if key not in given and key not in outcomes}
                for request, key in zip(requests, keys, strict=True):
                    given.setdefault(key, []).append(request.key)
                meter.total += len(new) + len(rejected)
                outcomes.update(rejected)
                for _ in rejected:
                    meter.finished(failed=True)
                await self._take_finished(new, outcomes, meter)
                for key in [key for key in dict.fromkeys(keys) if key in outcomes]:
                    settle(key)
                if new:
                    await self._open()
                    run.add(list(new.values()))

        await run.finish([], take())
        self._report(meter)

    async def forecast(self, requests: Iterable[Request]) -> Forecast:
        """What asking would come to: calls, tokens and cost. Asks nothing and writes nothing."""
        keys, jobs, rejected = self._prepare(requests)
        finished = await self.ledger.finished(list(jobs))
        todo = [job.request for key, job in jobs.items() if key not in finished or finished[key].parser != PARSER]
        return Forecast(
            requests=len(keys),
            distinct=len(jobs) + len(rejected),
            from_ledger=len(jobs) - len(todo),
            over_limit=len(rejected),
            to_ask=len(todo),
            input_tokens=sum(tokens(request, self.limits) for request in todo),
            most_output_tokens=sum(request.sampling.max_tokens for request in todo),
            most_usd=sum(self.budget.worst_usd(request) for request in todo),
        )

    def allow(self, max_concurrency: int) -> None:
        """Have so many requests in flight at most from now on."""
        self.config = self.config.model_copy(update={"max_concurrency": max_concurrency})
        self.pace.allow(max_concurrency)

    def _prepare(self, requests: Iterable[Request]) -> tuple[list[str], dict[str, Job], dict[str, Outcome]]:
        """Key of every request, a job for each distinct one, and those that the model cannot take."""
        keys: list[str] = []
        jobs: dict[str, Job] = {}
        rejected: dict[str, Outcome] = {}
        cut = self.config.on_limit == "cut"
        for request in requests:
            try:
                fitted, notes = within(request, self.limits, cut=cut)
            except OverLimit as error:
                rejected[request.key] = Reject(request.key, error.reason, str(error))
                keys.append(request.key)
                continue
            keys.append(fitted.key)
            if fitted.key not in jobs:
                jobs[fitted.key] = Job(fitted, notes)
        return keys, jobs, rejected

    async def _take_finished(self, jobs: dict[str, Job], outcomes: dict[str, Outcome], meter: Meter) -> None:
        """Move what the ledger has finished from the jobs to the outcomes."""
        for key, finished in (await self.ledger.finished(list(jobs))).items():
            if finished.parser == PARSER:
                outcomes[key] = from_ledger(key, finished, jobs.pop(key).notes)
                meter.finished(failed=finished.reason is not None, from_ledger=True)

    async def _open(self) -> None:
        if not self._opened:
            self._opened = True
            await self.backend.open()

    def _report(self, meter: Meter, waiting: str | None = None) -> None:
        if self.on_progress:
            self.on_progress(meter.look(self.budget.spent_usd, waiting))

    async def watch(self, meter: Meter, waits_for: Callable[[], str]) -> None:
        """Report progress, say what a call waits for when nothing moves, and keep the claims alive."""
        loop = asyncio.get_running_loop()
        warned_at = beat_at = loop.time()
        while True:
            await asyncio.sleep(1.0)
            now, waiting = loop.time(), None
            if meter.still_s() > self.config.stalled_after_s:
                waiting = f"nothing completed for {meter.still_s():.0f} s: {waits_for()}"
                if now - warned_at > self.config.stalled_after_s:
                    LOG.warning("%s: %s", self.config.annotator, waiting)
                    warned_at = now
            self._report(meter, waiting)
            if now - beat_at > BEAT_S:
                await self.ledger.beat()
                beat_at = now
