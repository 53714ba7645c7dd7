"""Run one call: a fixed pool of workers takes jobs, asks, records, reads, and settles each exactly once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.answers import PARSER, answer_value
from earmark.tasks.annotation.backend import Batching
from earmark.tasks.annotation.budget import Bill, tokens
from earmark.tasks.annotation.errors import AskError, KeptRefused, Retriable, StopRun
from earmark.tasks.annotation.job import Job, from_ledger
from earmark.tasks.annotation.ledger_rows import Attempt, Finished, ReadAttempt, reopen
from earmark.tasks.annotation.pace import backoff
from earmark.tasks.annotation.patience import AGAIN_S
from earmark.tasks.annotation.progress import Meter, span
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered

if TYPE_CHECKING:
    from earmark.tasks.annotation.engine import Annotator

LOG = logging.getLogger("earmark.annotation")
CLAIM_AT_ONCE = 256
ODD_USAGE = "odd_usage"  # word in the ledger for an answer with implausible token counts
CUT_S = 20.0  # least time to a gateway's cut within which an answer may have been made; the shortest usual one is 29 s
OTHERS_POLL_S = 0.5  # interval of polls for a key held by another process, in seconds


class WorkerPool:
    """Worker pool for the jobs of one call."""

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
        self._fault = ""  # the last that is tried again
        self._stop: EarmarkError | None = None
        self._workers = 0
        self._held_back = 0  # claimed, and waiting for the first question of their kind
        self._vanguard = annotator.vanguard

    # -- the whole call ---------------------------------------------------------------------------------------

    async def finish(self, jobs: Sequence[Job], arriving: Coroutine[Any, Any, None] | None = None) -> None:
        """Bring all jobs to an outcome.

        Args:
            jobs: the first jobs.
            arriving: adds further jobs by `add`, and ends after the last.

        Raises:
            StopRun: as `Annotator.ask`.
            LedgerError: the ledger cannot be written.
        """
        self._left, self._open = len(jobs), arriving is not None
        watch = asyncio.create_task(self.annotator.watch(self.meter, self._waits_for, self._pause))
        try:
            if self.config.batch:
                from earmark.tasks.annotation.batches import ask_in_batches

                await self.annotator.open_backend()
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
        """Add jobs; further draws of a question go first, so their row ends soon."""
        self._left += len(jobs)
        self._unclaimed.extendleft(job for job in reversed(jobs) if job.request.sample)
        self._unclaimed.extend(job for job in jobs if not job.request.sample)
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
        """Claim jobs in the ledger; return the claimed jobs with their history."""
        texts: dict[str, str] = {}
        for job in jobs:
            texts.update(job.request.long_texts())
        wanted = [(job.key, job.request.model, job.request.canonical) for job in jobs]
        held = await self.ledger.claim(wanted, texts, PARSER)
        ours = [job for job in jobs if job.key in held]
        for job in ours:
            job.held, job.lease = held[job.key], self.ledger.lease
            job.attempts = job.held.attempts
            job.unusable = 0  # `replay` counts and reads the unusable answers again
            self._claimed[job.key] = job
        return ours

    async def _feed(self) -> None:
        """Supply the workers, first with unclaimed jobs, then with jobs left undone by other processes."""
        while (self._left or self._open) and not self._stop:
            if self._unclaimed and self._queue.qsize() + self._held_back < self._workers:
                count = min(len(self._unclaimed), max(16, min(CLAIM_AT_ONCE, self._workers)))
                await self._take([self._unclaimed.popleft() for _ in range(count)])
                continue
            self._hungry.clear()
            with suppress(TimeoutError):  # `wait_for` would forget its cancellation once the event is set
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
        """Look up keys held by another process: take its outcome, or its claim if the process is gone."""
        for key, finished in (await self.ledger.finished(list(self._others))).items():
            if finished.parser == PARSER:
                job = self._others.pop(key)
                self.end(job, from_ledger(key, finished, job.notes, self.config.least_share), was_there=True)
        if self._others:
            await self.ledger.free_the_dead()
            await self._take_over_batches()
            jobs, self._others = list(self._others.values()), {}
            await self._take(jobs)

    async def _take_over_batches(self) -> None:
        """Take over keys held by a provider batch without a live process."""
        if isinstance(self.annotator.backend, Batching):
            from earmark.tasks.annotation.batches import Batches

            await self.annotator.open_backend()
            await Batches(self).take_over(self._others)
            self._others = {key: job for key, job in self._others.items() if key not in self.outcomes}

    # -- asking -----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self._stop and (job := await self._queue.get()) is not None:
            if self._queue.qsize() < self._workers:
                self._hungry.set()
            if self._vanguard and not self._vanguard.admits(self, job, partial(self._go, job)):
                self._held_back += 1
                continue
            try:
                await self._exchange(job)
            except EarmarkError as error:
                self.stop(error)

    async def _exchange(self, job: Job) -> None:
        annotator, request = self.annotator, self.to_send(job)
        await annotator.open_backend()
        worst = annotator.budget.worst_usd(request, live=True) if self.config.charged else 0.0
        await annotator.budget.reserve(worst)
        try:
            await annotator.pace.enter(self._weight(request), annotator.quota)
            try:
                raw = await self._send(job, request) if not self._stop and await self._holds(job) else None
            finally:
                annotator.pace.leave()
            if raw is not None:
                self.take_raw(job, job.attempts, raw)  # this counts its cost
        finally:
            annotator.budget.settle(worst, 0.0)

    async def _holds(self, job: Job) -> bool:
        """Return whether the job's claim holds; queue it for a new claim if this process was taken for dead."""
        await self.ledger.keep_alive()
        if job.lease == self.ledger.lease:
            return True
        return self._claim_anew(job)

    def _claim_anew(self, job: Job) -> bool:
        """Queue a job whose claim has ended; a new claim reads the records made since, or finds another's."""
        self._claimed.pop(job.key, None)
        self._unclaimed.append(job)
        self._hungry.set()
        return False

    def to_send(self, job: Job) -> Request:
        """Return the question in its present form: after an unusable answer, another draw."""
        return replace(job.request, repair=job.unusable)

    def _weight(self, request: Request) -> int:
        """Return the tokens to count against the cap per minute; 0 without a cap."""
        if self.config.tokens_per_minute is None:
            return 0
        return tokens(request, self.annotator.limits) + request.sampling.max_tokens

    async def _send(self, job: Job, request: Request) -> str | None:
        """Send a request and record the exchange.

        The place in flight is kept until the record is durable, so a kill repeats at most the requests in flight.
        """
        new = job.attempts == 0 or not self.annotator.streaks.is_answered(job.request)
        if job.place is None and new:
            job.place = self.annotator.streaks.place(job.request)
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
            attempt = Attempt(job.row, job.attempts, "received", started_at, latency_s, raw=raw)
            job.attempts = await self.ledger.record(attempt, job.lease)
        except AskError as error:
            self.annotator.pace.failed(error, started)
            took_s = time.monotonic() - started
            if error.charged or (error.cut and took_s >= CUT_S):
                self.annotator.budget.doubt(job.request, live=True)
            self._record_failure(job, error, started_at, took_s)
            if await self._holds(job):
                self._after(job, error)
            return None
        finally:
            self.meter.in_flight -= 1
            self._sending.discard(asyncio.current_task())
            del self._sent[job.key]
        self.annotator.pace.succeeded()
        if self.annotator.patience.answered():
            self._wake_waiting()
        return raw

    def _record_failure(self, job: Job, error: AskError, started_at: float, latency_s: float) -> None:
        LOG.info("%s: %s", error.reason, error, extra={"request": job.key, "model": job.request.model})
        raw = error.raw[:4000] if isinstance(error, Retriable) and error.raw else None
        self.ledger.record_soon(
            Attempt(job.row, job.attempts, "failed", started_at, latency_s, raw, error.reason, str(error)), job.lease
        )

    # -- reading ----------------------------------------------------------------------------------------------

    def take_raw(self, job: Job, number: int, raw: str, *, again: bool = False, queue: bool = True) -> bool:
        """Read a recorded response; end the job or choose its next step.

        Args:
            job: the job of the response.
            number: number of the attempt.
            raw: the response.
            again: an earlier run recorded it: nothing is spent or asked.
            queue: whether the workers ask again after an unusable answer.

        Returns:
            Whether the job has its outcome.
        """
        backend, budget = self.annotator.backend, self.annotator.budget
        bill, reply, live = Bill(), None, queue and not again
        late = live and job.lease != self.ledger.lease
        try:
            reply = backend.read(job.request, raw)
            bill = budget.bill(job.request, reply, live=live)
            value = answer_value(job.request.ask, reply, self.config.least_share, job.request.fences())
        except AskError as error:
            if not again:
                LOG.info("%s: %s", error.reason, error, extra={"request": job.key, "model": job.request.model})
            if reply is None and not again:
                budget.doubt(job.request, live=live)
            job.refused = f"{error.reason}: {error}"
            self.ledger.judge_soon(ReadAttempt(job.row, number, "unusable", error.reason, str(error), *bill[:3]))
            self._count(bill, again=again)
            return self._claim_anew(job) if late else self._after(job, error, again=again, queue=live)
        self.ledger.judge_soon(ReadAttempt(job.row, number, "ok", bill.odd and ODD_USAGE, bill.odd, *bill[:3]))
        self._count(bill, again=again)
        if late:
            return self._claim_anew(job)
        answer = Answer(job.key, value, reply.model, job.notes, from_ledger=again)
        self.ledger.settle_soon(job.row, Finished(json.dumps(value), None, None, PARSER, reply.model))
        self.end(job, answer, was_there=again)
        return True

    def replay(self, job: Job) -> bool:
        """Read the unsettled responses of earlier runs; return whether the job ended.

        Answers of an earlier parser are asked again only by a later run, after their number was shown.
        """
        if any(self.take_raw(job, number, raw, again=True) for number, raw in job.held.received):
            return True
        settled = job.held.settled
        if settled is None:
            if job.held.reopened:  # its draws begin again
                job.unusable = 0
            return False
        if settled.reason is None and job.held.received:
            self.ledger.change_soon(partial(reopen, request_id=job.row))
            self.annotator.refused.append(self.annotator.budget.worst_usd(job.request))
            detail = f"an answer that was kept is none by today's rules: {job.refused}"
            self.end(job, Unanswered(job.key, KeptRefused.reason, detail, notes=job.notes))
        else:  # a reject, or an answer without a recorded response
            self.ledger.settle_soon(job.row, settled._replace(parser=PARSER))
            self.end(job, from_ledger(job.key, settled, job.notes, self.config.least_share), was_there=True)
        return True

    def _count(self, bill: Bill, *, again: bool) -> None:
        if not again:
            self.meter.input_tokens += bill.input_tokens
            self.meter.output_tokens += bill.output_tokens
            self.annotator.budget.settle(0.0, bill.cost_usd)
            self.annotator.budget.odd_answers += bill.odd is not None

    def _after(self, job: Job, error: AskError, *, again: bool = False, queue: bool = True) -> bool:
        """Handle a fault: another try, another answer, a reject, or the run's end. Return whether the job ended."""
        match error.remedy:
            case "stop" if isinstance(error, StopRun):
                if not again:  # the fault of an earlier run may be mended by now
                    self.stop(error)
                return False
            case "reject" if again and not error.final:
                return False
            case "retry" if queue and not again and self._waits(job, error):
                return False
            case "retry":
                job.failures += not again
                if self._vanguard and not again and (alike := self._vanguard.failed(job, error)):
                    self.stop(alike)
                    return False
                most = min(self.config.retries, error.most_tries) if isinstance(error, Retriable) else 0
                if again or job.failures <= most:
                    if queue:
                        self._try_later(job, error)
                    return False
            case "repair":
                job.unusable += 1
                if job.unusable <= self.config.repairs or (again and job.held.was_answered):
                    if queue:
                        self._queue.put_nowait(job)
                    return False
        if error.final:
            self.ledger.settle_soon(job.row, Finished(None, error.reason, str(error), PARSER, None))
        else:
            self.ledger.release_soon([job.claim])
            if job.place and (alike := self.annotator.streaks.failed(job.place, error)):
                self.stop(alike)
                return False
        self.end(job, Unanswered(job.key, error.reason, str(error), error.final, job.notes, again), was_there=again)
        return True

    def _waits(self, job: Job, error: AskError) -> bool:
        """Return whether to wait for the server; try the job later, or stop the run after too long a wait."""
        now, patience = time.monotonic(), self.annotator.patience
        if not self.config.retries and patience.unreached:
            return False
        job.waits_since = job.waits_since or now
        try:
            if not patience.covers(error, now - job.waits_since):
                return False
        except StopRun as gone:
            self.stop(gone)
            return True
        job.waits += 1
        self._try_later(job, error)
        return True

    def _try_later(self, job: Job, error: AskError) -> None:
        least, tries = error.retry_after_s if isinstance(error, Retriable) else None, job.failures + job.waits
        wait = backoff(tries - 1, self.config.retry_base_s, self.config.retry_longest_s, least_s=least or 0.0)
        if self.annotator.patience.unreached:
            wait = min(wait, AGAIN_S)
        self._fault = str(error)
        timer = asyncio.get_running_loop().call_later(wait, self._try_now, job)
        self._later[job.key] = (job, timer)

    def _try_now(self, job: Job) -> None:
        _, timer = self._later.pop(job.key)
        timer.cancel()
        self._queue.put_nowait(job)

    def _wake_waiting(self) -> None:
        """Try the waiting jobs at once: the server is back."""
        for job in [job for job, _ in self._later.values() if job.waits]:
            self._try_now(job)

    def fail(self, job: Job, error: AskError) -> None:
        """Handle a job without an answer from a provider batch."""
        self._after(job, error, queue=False)

    def _go(self, job: Job) -> None:
        """Queue a job held back for the first question of its kind."""
        self._held_back -= 1
        self._queue.put_nowait(job)
        self._hungry.set()

    def hand_over(self, jobs: Sequence[Job]) -> None:
        """Drop jobs held by a provider batch beyond the life of this process."""
        for job in jobs:
            self._claimed.pop(job.key, None)

    async def let_go(self, jobs: Sequence[Job]) -> None:
        """Release claims, so that a new claim reads the records made since."""
        self.ledger.release_soon([job.claim for job in jobs])
        for job in jobs:
            self._claimed.pop(job.key, None)
        await self.ledger.flush()

    def end(self, job: Job, outcome: Outcome, *, was_there: bool = False) -> None:
        """Record a job's outcome."""
        if isinstance(outcome, Answer):
            self.annotator.streaks.answered(job.request)
            if self._vanguard:
                self._vanguard.answered(job.request)
        elif self._vanguard:
            self._vanguard.unanswered(job)
        self.outcomes[job.key] = outcome
        self._claimed.pop(job.key, None)
        self.meter.finished(failed=isinstance(outcome, Unanswered), from_ledger=was_there)
        self._left -= 1
        self._hand_on(job.key)
        if self._left == 0 and not self._open:
            self._dismiss()

    # -- ending -----------------------------------------------------------------------------------------------

    def stop(self, error: EarmarkError) -> None:
        """End the call: record requests in flight; release the rest."""
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
        """Release the unfinished claims, so that others need not wait for the end of this process."""
        for _, timer in self._later.values():
            timer.cancel()
        if self._vanguard:
            self._vanguard.forget(self)
        if self._claimed and not self.ledger.broken:
            self.ledger.release_soon([job.claim for job in self._claimed.values()])

    def _pause(self) -> str | None:
        """Return a line about the time to the next try, if nothing is in flight until then."""
        tries = min((timer.when() for _, timer in self._later.values()), default=0.0)
        left_s = max(tries, self.annotator.pace.paused_until) - time.monotonic()
        if self._sent or not self._left or left_s < 1.0:
            return None
        return f"the next try in {span(left_s)}" + (f", after {self._fault}" if self._later else "")

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
