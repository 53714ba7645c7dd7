"""One call's machinery: a fixed pool of workers pulls jobs, asks, records, reads, and settles each exactly once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.answers import PARSER, answer_value
from earmark.tasks.annotation.backend import Batching
from earmark.tasks.annotation.budget import Bill
from earmark.tasks.annotation.errors import AskError, Retriable, StopRun
from earmark.tasks.annotation.explaining import explained
from earmark.tasks.annotation.ledger_rows import Attempt, Finished, Held, Verdict
from earmark.tasks.annotation.limits import tokens
from earmark.tasks.annotation.outcome import Answer, Outcome, Reject
from earmark.tasks.annotation.pace import backoff
from earmark.tasks.annotation.progress import Meter
from earmark.tasks.annotation.request import Request

if TYPE_CHECKING:
    from earmark.tasks.annotation.engine import Annotator

LOG = logging.getLogger("earmark.annotation")
CLAIM_AT_ONCE = 256
ODD_USAGE = "odd_usage"
"""The word that the ledger keeps with an answer whose token counts could not be believed."""
OTHERS_POLL_S = 0.5
"""How often a key that another process holds is looked for."""


NOT_HELD = Held(0)


@dataclass(slots=True)
class Job:
    """A request on its way."""

    request: Request
    notes: tuple[str, ...] = ()
    held: Held = NOT_HELD
    attempts: int = 0  # number of its last attempt, over all runs
    failures: int = 0  # failed exchanges in this run
    unusable: int = 0  # answers that could not be used, over all runs: they were paid for
    misread: tuple[str, str] | None = None  # text and fault of the last of them, where there is one
    sent_at: float = 0.0

    @property
    def key(self) -> str:
        """The request's key."""
        return self.request.key

    @property
    def row(self) -> int:
        """The request's row in the ledger."""
        return self.held.request_id


def from_ledger(key: str, finished: Finished, notes: tuple[str, ...]) -> Outcome:
    """The outcome that the ledger keeps."""
    if finished.reason is not None:
        return Reject(key, finished.reason, finished.detail or "", final=True, notes=notes, from_ledger=True)
    return Answer(key, json.loads(finished.answer or "null"), finished.reply_model, notes, from_ledger=True)


class Run:
    """Brings the jobs of one call to their outcomes."""

    def __init__(
        self,
        annotator: Annotator,
        meter: Meter,
        outcomes: dict[str, Outcome],
        hand_on: Callable[[str], None] = lambda key: None,
    ) -> None:
        self.annotator = annotator
        self._hand_on = hand_on
        self._open = False  # whether further jobs may come
        self.config = annotator.config
        self.ledger = annotator.ledger
        self.meter = meter
        self.outcomes = outcomes
        self._queue: asyncio.Queue[Job | None] = asyncio.Queue()
        self._hungry = asyncio.Event()
        self._unclaimed: deque[Job] = deque()
        self._others: dict[str, Job] = {}
        self._claimed: dict[str, Job] = {}
        self._sent: dict[str, Job] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: set[asyncio.Task[None] | None] = set()
        self._later: dict[str, tuple[Job, asyncio.TimerHandle]] = {}
        self._left = 0
        self._stop: EarmarkError | None = None
        self._workers = 0

    # -- the whole call ---------------------------------------------------------------------------------------

    async def finish(self, jobs: Sequence[Job], arriving: Coroutine[Any, Any, None] | None = None) -> None:
        """Bring all jobs to an outcome.

        Args:
            jobs: what is there already.
            arriving: brings further ones by `add`, and ends when there are no more.

        Raises:
            StopRun: as `Annotator.ask`.
            LedgerError: the ledger cannot be written.
        """
        self._left, self._open = len(jobs), arriving is not None
        watch = asyncio.create_task(self.annotator.watch(self.meter, self._waits_for))
        try:
            if self.config.batch:
                from earmark.tasks.annotation.batches import ask_in_batches

                jobs = await ask_in_batches(self, jobs)
            if jobs or arriving is not None:
                await self._ask_live(jobs, arriving)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            self._release()
        await self.ledger.flush()

    def add(self, jobs: Sequence[Job]) -> None:
        """Take further jobs."""
        self._left += len(jobs)
        self._unclaimed.extend(jobs)
        self._hungry.set()

    async def _until_closed(self, arriving: Coroutine[Any, Any, None]) -> None:
        await arriving
        self._open = False
        if self._left == 0:
            self._dismiss()

    async def _ask_live(self, jobs: Sequence[Job], arriving: Coroutine[Any, Any, None] | None = None) -> None:
        self._unclaimed.extend(jobs)
        self._workers = self.config.max_concurrency if arriving else min(self.config.max_concurrency, len(jobs))
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        tasks = [*self._tasks, asyncio.create_task(self._feed())]
        if arriving is not None:
            self._tasks.append(asyncio.create_task(self._until_closed(arriving)))
            tasks.append(self._tasks[-1])
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise fault
        if self._stop:
            await self.ledger.flush()
            raise self._stop

    # -- claiming ---------------------------------------------------------------------------------------------

    async def claim(self, jobs: Sequence[Job]) -> list[Job]:
        """Claim jobs in the ledger; returns those that are ours now, with their history."""
        texts: dict[str, str] = {}
        for job in jobs:
            texts.update(job.request.long_texts())
        wanted = [(job.key, job.request.model, job.request.canonical) for job in jobs]
        held = await self.ledger.claim(wanted, texts, PARSER)
        ours = [job for job in jobs if job.key in held]
        for job in ours:
            job.held = held[job.key]
            job.attempts = job.held.attempts
            job.unusable, job.misread = 0, None  # `replay` counts and reads again what was unusable
            self._claimed[job.key] = job
        return ours

    async def _feed(self) -> None:
        """Keep the workers supplied, first with what nobody holds, then with what others leave undone."""
        while (self._left or self._open) and not self._stop:
            if self._unclaimed and self._queue.qsize() < self._workers:
                count = min(len(self._unclaimed), max(16, min(CLAIM_AT_ONCE, self._workers)))
                await self._take([self._unclaimed.popleft() for _ in range(count)])
                continue
            self._hungry.clear()
            with suppress(TimeoutError):  # not `wait_for`, which forgets that it was cancelled once the event is set
                async with asyncio.timeout(OTHERS_POLL_S if self._others else 60.0):
                    await self._hungry.wait()
            if self._others and not self._unclaimed:
                await self._look_at_others()

    async def _take(self, jobs: list[Job]) -> None:
        ours = await self.claim(jobs)
        for job in ours:
            if not self.replay(job):
                self._queue.put_nowait(job)
        if len(ours) < len(jobs):
            taken = {job.key for job in ours}
            self._others.update({job.key: job for job in jobs if job.key not in taken})

    async def _look_at_others(self) -> None:
        """Keys that another process holds: take its outcome, or its place if it is gone."""
        for key, finished in (await self.ledger.finished(list(self._others))).items():
            if finished.parser == PARSER:
                job = self._others.pop(key)
                self.end(job, from_ledger(key, finished, job.notes), was_there=True)
        if self._others:
            await self.ledger.free_the_dead()
            await self._take_over_batches()
            jobs, self._others = list(self._others.values()), {}
            await self._take(jobs)

    async def _take_over_batches(self) -> None:
        """Keys may be held by a provider batch whose process is gone."""
        if isinstance(self.annotator.backend, Batching):
            from earmark.tasks.annotation.batches import Batches

            await Batches(self).take_over(self._others)
            self._others = {key: job for key, job in self._others.items() if key not in self.outcomes}

    # -- asking -----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._stop and (job := await self._queue.get()) is not None:
            if self._queue.qsize() < self._workers:
                self._hungry.set()
            try:
                await self._exchange(job)
            except EarmarkError as error:
                self._end_run(error)

    async def _exchange(self, job: Job) -> None:
        annotator, request = self.annotator, self.to_send(job)
        worst = annotator.budget.worst_usd(request) if self.config.charged else 0.0
        await annotator.budget.reserve(worst)
        try:
            await annotator.pace.enter(self._weight(request))
            try:
                raw = None if self._stop else await self._send(job, request)
            finally:
                annotator.pace.leave()
            if raw is not None:
                self.take_raw(job, job.attempts, raw)  # what it cost is counted there
        finally:
            annotator.budget.settle(worst, 0.0)

    def to_send(self, job: Job) -> Request:
        """The question as the model gets it now: after an answer that could not be used, another draw."""
        request = replace(job.request, repair=job.unusable)
        return explained(request, *job.misread) if job.misread and self.config.repair == "explain" else request

    def _weight(self, request: Request) -> int:
        """Tokens that count against the cap a minute; counted only where there is one."""
        if self.config.tokens_per_minute is None:
            return 0
        return tokens(request, self.annotator.limits) + request.sampling.max_tokens

    async def _send(self, job: Job, request: Request) -> str | None:
        """One exchange, recorded. The place in flight is kept until the record is durable: what a kill can make us
        ask again is never more than what was in flight."""
        job.attempts += 1
        started_at, started = time.time(), time.monotonic()
        job.sent_at = started
        self._sent[job.key] = job
        self._sending.add(asyncio.current_task())
        self.meter.in_flight += 1
        self.meter.exchanges += 1
        try:
            raw = await self.annotator.backend.send(request)
            latency_s = time.monotonic() - started
            await self.ledger.record(Attempt(job.row, job.attempts, "received", started_at, latency_s, raw=raw))
        except AskError as error:
            self.annotator.pace.failed(error, started)
            if error.charged:
                self.annotator.budget.doubt(job.request)
            self._record_failure(job, error, started_at, time.monotonic() - started)
            self._after(job, error)
            return None
        finally:
            self.meter.in_flight -= 1
            self._sending.discard(asyncio.current_task())
            del self._sent[job.key]
        self.annotator.pace.succeeded()
        return raw

    def _record_failure(self, job: Job, error: AskError, started_at: float, latency_s: float) -> None:
        LOG.info("%s: %s", error.reason, error, extra={"request": job.key, "model": job.request.model})
        raw = error.raw[:4000] if isinstance(error, Retriable) and error.raw else None
        self.ledger.record_soon(
            Attempt(job.row, job.attempts, "failed", started_at, latency_s, raw, error.reason, str(error))
        )

    # -- reading ----------------------------------------------------------------------------------------------

    def take_raw(self, job: Job, number: int, raw: str, *, again: bool = False, queue: bool = True) -> bool:
        """Read a recorded response; ends the job or sees to what comes next.

        Args:
            job: whose response it is.
            number: which attempt.
            raw: the response.
            again: it was recorded by an earlier run: nothing is spent, and nothing is asked from here.
            queue: whether an unusable answer is asked again by the workers.

        Returns:
            Whether the job has its outcome.
        """
        backend, budget = self.annotator.backend, self.annotator.budget
        bill, reply = Bill(), None
        try:
            reply = backend.read(job.request, raw)
            bill = budget.bill(job.request, reply)
            value = answer_value(job.request.ask, reply)
        except AskError as error:
            if not again:
                LOG.info("%s: %s", error.reason, error, extra={"request": job.key, "model": job.request.model})
            if reply is None and not again:
                budget.doubt(job.request)
            job.misread = (reply.text, str(error)) if reply else None
            self.ledger.judge_soon(Verdict(job.row, number, "unusable", error.reason, str(error), *bill[:3]))
            self._count(bill, again=again)
            return self._after(job, error, again=again, queue=queue and not again)
        self.ledger.judge_soon(Verdict(job.row, number, "ok", bill.odd and ODD_USAGE, bill.odd, *bill[:3]))
        self._count(bill, again=again)
        answer = Answer(job.key, value, reply.model, job.notes, from_ledger=again)
        self.ledger.settle_soon(job.row, Finished(json.dumps(value), None, None, PARSER, reply.model))
        self.end(job, answer, was_there=again)
        return True

    def replay(self, job: Job) -> bool:
        """Read what earlier runs received and did not settle; whether that gave an outcome."""
        return any(self.take_raw(job, number, raw, again=True) for number, raw in job.held.received)

    def _count(self, bill: Bill, *, again: bool) -> None:
        if not again:
            self.meter.input_tokens += bill.input_tokens
            self.meter.output_tokens += bill.output_tokens
            self.annotator.budget.settle(0.0, bill.cost_usd)
            self.annotator.budget.odd_answers += bill.odd is not None

    def _after(self, job: Job, error: AskError, *, again: bool = False, queue: bool = True) -> bool:
        """What follows a fault: another try, another answer, a reject, or the run's end. Whether the job ended."""
        match error.remedy:
            case "stop" if isinstance(error, StopRun):
                self._end_run(error)
                return False
            case "retry":
                job.failures += not again
                if again or job.failures <= self.config.retries:
                    if queue:
                        self._try_later(job, error)
                    return False
            case "repair":
                job.unusable += 1
                if job.unusable <= self.config.repairs:
                    if queue:
                        self._queue.put_nowait(job)
                    return False
        if error.final:
            self.ledger.settle_soon(job.row, Finished(None, error.reason, str(error), PARSER, None))
        else:
            self.ledger.release_soon([job.row])
        self.end(job, Reject(job.key, error.reason, str(error), error.final, job.notes, again), was_there=again)
        return True

    def _try_later(self, job: Job, error: AskError) -> None:
        least = error.retry_after_s if isinstance(error, Retriable) else None
        wait = backoff(job.failures - 1, self.config.retry_base_s, self.config.retry_longest_s, least_s=least or 0.0)

        def now() -> None:
            del self._later[job.key]
            self._queue.put_nowait(job)

        self._later[job.key] = (job, asyncio.get_running_loop().call_later(wait, now))

    def fail(self, job: Job, error: AskError) -> None:
        """A provider batch gave no answer for this job, or cannot hold it."""
        self._after(job, error, queue=False)

    def hand_over(self, jobs: Sequence[Job]) -> None:
        """A provider batch holds these now, beyond the life of this process."""
        for job in jobs:
            self._claimed.pop(job.key, None)

    async def let_go(self, jobs: Sequence[Job]) -> None:
        """Give claims back, to be claimed anew with all that was recorded since."""
        self.ledger.release_soon([job.row for job in jobs])
        for job in jobs:
            self._claimed.pop(job.key, None)
        await self.ledger.flush()

    def end(self, job: Job, outcome: Outcome, *, was_there: bool = False) -> None:
        """A job has its outcome."""
        self.outcomes[job.key] = outcome
        self._claimed.pop(job.key, None)
        self.meter.finished(failed=isinstance(outcome, Reject), from_ledger=was_there)
        self._left -= 1
        self._hand_on(job.key)
        if self._left == 0 and not self._open:
            self._dismiss()

    # -- ending -----------------------------------------------------------------------------------------------

    def _end_run(self, error: EarmarkError) -> None:
        """End the call: what is at the model comes home and is kept, all else is let go."""
        self._stop = self._stop or error
        for task in self._tasks:
            if task not in self._sending and task is not asyncio.current_task():
                task.cancel()
        self._hungry.set()

    def _dismiss(self) -> None:
        self._hungry.set()
        for _ in range(self._workers):
            self._queue.put_nowait(None)

    def _release(self) -> None:
        """Give back what was claimed and not finished, so that others need not wait for our end."""
        for _, timer in self._later.values():
            timer.cancel()
        if self._claimed and not self.ledger.broken:
            self.ledger.release_soon([job.row for job in self._claimed.values()])

    def _waits_for(self) -> str:
        pace, now = self.annotator.pace, time.monotonic()
        waits = []
        if self._sent:
            oldest = min(self._sent.values(), key=lambda job: job.sent_at)
            waits.append(
                f"{len(self._sent)} in flight, the oldest ({oldest.key[:12]}) for {now - oldest.sent_at:.0f} s"
            )
        if self._later:
            waits.append(f"{len(self._later)} wait to be tried again")
        if pace.paused_until > now:
            waits.append(f"the server asked to wait {pace.paused_until - now:.0f} s more")
        if self._others:
            waits.append(f"{len(self._others)} are held by another process or a provider batch")
        if not self._queue.empty():
            waits.append(f"{self._queue.qsize()} are queued at a concurrency of {int(pace.limit)}")
        return "; ".join(waits) or "the ledger"
