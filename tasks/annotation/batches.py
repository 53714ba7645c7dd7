"""Ask through provider batches: half the price, answers within a day, neither lost nor doubled by a crash.

A batch's content is written to the ledger before submission, under an intent also held in the provider's metadata.
After a crash the provider is searched for the intent: if found, its answers are collected; if not, its requests are
released; if the search fails, the run stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from earmark.schemas.errors import ConfigError
from earmark.tasks.annotation.backend import Batching, BatchProvider, BatchState, ClaimsEnded, ResultLine
from earmark.tasks.annotation.errors import (
    AllAlike,
    AskError,
    BatchFailed,
    BatchUnreachable,
    BudgetExhausted,
    MalformedResponse,
    ModelMissing,
    QuotaExhausted,
    Retriable,
    ServerError,
    StopRun,
    one_line,
)
from earmark.tasks.annotation.ledger_rows import Attempt, Driver, Held, record
from earmark.tasks.annotation.pace import backoff
from earmark.tasks.annotation.patience import FIRST, IN_A_ROW

if TYPE_CHECKING:
    from earmark.tasks.annotation.job import Job
    from earmark.tasks.annotation.run import WorkerPool

LOG = logging.getLogger("earmark.annotation")
INTEND = """
INSERT INTO batches (id, provider, model, state, owner, requests, created_at, updated_at)
VALUES (?, ?, ?, 'intended', ?, ?, ?, ?)
"""
MOVE = "UPDATE batches SET state = ?, provider_id = ?, detail = ?, updated_at = ? WHERE id = ?"
ORPHANS = """
SELECT id, provider_id FROM batches WHERE owner IS NULL AND model = ? AND state IN ('intended', 'submitted')
ORDER BY created_at
"""
ADOPT = "UPDATE batches SET owner = ? WHERE id = ? AND owner IS NULL RETURNING id"
MEMBERS = "SELECT r.key, r.id FROM batch_requests b JOIN requests r ON r.id = b.request_id WHERE b.batch_id = ?"
BESIDE = """
SELECT count(*) FROM batches b JOIN batches mine ON mine.id = ? AND b.model = mine.model AND b.id <> mine.id
WHERE (b.state = 'submitted' AND b.detail IS NULL AND b.created_at BETWEEN ? AND ?)
OR (b.state = 'done' AND b.updated_at > mine.created_at)
"""  # batches in the queue when one was refused; `detail` marks those that were refused too, and new ones may be yet
LONGEST_BATCH_S = 2 * 86_400.0  # an older one is in no queue: OpenAI's last a day, Google's may be pending for two
RECORD_AT_ONCE = 500
STOPPED = ("failed", "expired", "cancelled")  # states of a batch without results
WHOLE = ("completed", "succeeded")  # states of a batch with a line for each request, where the provider counts none
MOST_LOOKS = 20  # number of failed polls of the provider in a row before a run gives up; its batches stay there
Got = TypeVar("Got")


@dataclass(slots=True)
class Open:
    """Uncollected batch."""

    intent: str  # Earmark's id
    members: dict[str, int] = field(default_factory=dict)  # row of each request by key
    provider_id: str | None = None  # the provider's id; None until known
    worst_usd: float = 0.0  # amount reserved for it


async def ask_in_batches(run: WorkerPool, jobs: Sequence[Job]) -> list[Job]:
    """Ask jobs through the provider's batch API.

    Returns:
        Jobs held by another process; they are awaited as in a live run.
    """
    batches = Batches(run)
    await run.ledger.free_the_dead()
    elsewhere: list[Job] = []
    left = list(jobs)
    while left:
        await batches.take_over({job.key: job for job in left})
        left = [job for job in left if job.key not in run.outcomes]
        ours = await run.claim(left)
        mine = {job.key for job in ours}
        elsewhere += [job for job in left if job.key not in mine]
        ours = [job for job in ours if not run.replay(job)]
        await batches.ask(ours)
        left = [job for job in ours if job.key not in run.outcomes]
        await run.let_go(left)  # claimed again with the records of this round
    return elsewhere


class Batches:
    """Batches of one call."""

    def __init__(self, run: WorkerPool) -> None:
        if not isinstance(run.annotator.backend, Batching):
            raise ConfigError(f"annotator '{run.config.annotator}' has no batch API; set batch = false")
        self._run, self._backend = run, run.annotator.backend
        self._open = 0  # batches being awaited
        self._ended_one = asyncio.Event()

    @cached_property
    def _provider(self) -> BatchProvider:
        return self._backend.batches()  # imports the provider's library, which takes a second and is seldom needed

    async def take_over(self, jobs: dict[str, Job]) -> None:
        """Collect the batches of dead processes that hold these jobs; calls beside this one need the others' claims."""
        run, keys = self._run, [bytes.fromhex(key) for key in jobs]
        adopt = partial(_adopt, owner=run.ledger.owner, model=self._model, keys=keys)
        for intent, provider_id in await run.ledger.change(adopt):
            members = await run.ledger.change(partial(_members, intent=intent))
            batch = Open(intent, members, provider_id)
            if provider_id is None:
                batch.provider_id = await self._find(intent)
            if batch.provider_id is None:
                await self._close(batch, "failed", "the provider never heard of it")
                continue
            await self._move(batch, "submitted")
            if full := await self._collect(batch, jobs):
                await self._close(batch, "failed", full)  # releases its requests

    async def ask(self, jobs: Sequence[Job]) -> None:
        """Submit jobs and wait for their answers; early batches are collected while later batches are submitted."""
        by_key, waits = {job.key: job for job in jobs}, []
        try:
            async for part, lines in self._slices(jobs):
                batch = await self._submit(part, lines)
                if batch is not None:
                    waits.append(asyncio.create_task(self._bring(batch, part, by_key)))
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _bring(self, batch: Open | None, part: list[Job], jobs: dict[str, Job]) -> None:
        """Collect a batch; if the account's queue had no room for it, submit it again after another batch ends."""
        config, refused_at = self._run.config, 0.0  # since when no other batch can fill the queue
        patience_s = max(config.patience_s, 2 * config.batch_poll_s)  # a batch is refused at its first poll
        while batch is not None:
            try:
                full = await self._collect(batch, jobs)
            finally:  # not before its answers are counted: another batch may wait for what is left of the budget
                self._run.annotator.budget.settle(batch.worst_usd, 0.0)
            if not full:
                return
            LOG.warning("%s: a batch waits for room in the account's queue: %s", self._model, full)
            await self._move(batch, "submitted", full)
            alone = await self._run.ledger.change(partial(_refused_alone, intent=batch.intent, admitted_s=patience_s))
            refused_at = (refused_at or time.monotonic()) if alone else 0.0
            if alone and time.monotonic() - refused_at > patience_s:
                await self._close(batch, "failed", full)
                raise QuotaExhausted(
                    f"a batch of {len(batch.members)} requests has no room in the account's queue, though none of this "
                    f"ledger is before it: {full}; set money.batch_requests (now {config.batch_requests}) lower"
                )
            await self._room()
            await self._close(batch, "failed", full)
            if not (part := [job for job in await self._run.claim(part) if not self._run.replay(job)]):
                return
            lines = [await asyncio.to_thread(self._provider.line, job.key, self._run.to_send(job)) for job in part]
            batch = await self._submit(part, lines)

    async def _room(self) -> None:
        """Wait until another batch of this call ends; without another, wait for one poll interval."""
        if self._open:
            self._ended_one.clear()
            await self._ended_one.wait()
        else:
            await asyncio.sleep(self._run.config.batch_poll_s)

    @property
    def _model(self) -> str:
        return self._run.config.annotator

    async def _slices(self, jobs: Sequence[Job]) -> AsyncIterator[tuple[list[Job], list[bytes]]]:
        """Yield jobs and their lines, within the provider's limits of number and size."""
        config = self._run.config
        part: list[Job] = []
        lines: list[bytes] = []
        size = 0
        for job in jobs:
            try:
                line = await asyncio.to_thread(self._provider.line, job.key, self._run.to_send(job))
            except StopRun:
                raise
            except AskError as error:
                self._run.fail(job, error)
                continue
            if lines and (len(lines) >= config.batch_requests or size + len(line) > config.batch_bytes):
                yield part, lines
                part, lines, size = [], [], 0
            part.append(job)
            lines.append(line)
            size += len(line) + 1
        if lines:
            yield part, lines

    async def _submit(self, jobs: list[Job], lines: list[bytes]) -> Open | None:
        run = self._run
        worst = sum(run.annotator.budget.worst_usd(run.to_send(job)) for job in jobs)
        try:
            await run.annotator.budget.reserve(worst)
        except BudgetExhausted as spent:
            raise BudgetExhausted(f"{spent}; it is a batch of {len(jobs)}: see money.batch_requests") from None
        lease = min(job.lease for job in jobs)
        batch = Open(uuid.uuid4().hex, {job.key: job.row for job in jobs}, worst_usd=worst)
        intend = partial(_intend, batch=batch, model=self._model, owner=run.ledger.owner)
        if not await run.ledger.change_if_held(lease, intend):  # taken for dead while it waited: to be claimed anew
            run.annotator.budget.settle(worst, 0.0)
            return None
        run.hand_over(jobs)
        try:
            batch.provider_id = await self._submitted(batch, lines, lease)
        except AskError as error:
            run.annotator.budget.settle(worst, 0.0)
            if isinstance(error, BatchUnreachable):  # it may be there: it stays intended, and the next run looks for it
                raise
            await self._close(batch, "failed", str(error))
            if isinstance(error, StopRun):
                raise
            for job in jobs:
                run.fail(job, BatchFailed(f"could not be submitted: {error}"))
            return None
        if batch.provider_id is None:
            run.annotator.budget.settle(worst, 0.0)
            return None
        await self._move(batch, "submitted")
        return batch

    async def _submitted(self, batch: Open, lines: list[bytes], lease: int) -> str | None:
        """Return the provider's id, or None if this process was taken for dead: others look for the batch then.

        After a lost reply, the batch is looked up before it is sent again.
        """

        async def held() -> None:
            await self._run.ledger.keep_alive()
            if self._run.ledger.lease != lease:
                raise ClaimsEnded

        async def once() -> str:
            await held()
            try:
                return await self._provider.submit(batch.intent, lines, held)
            except Retriable as lost:
                try:
                    known = await self._find(batch.intent)
                except AskError as error:
                    raise BatchUnreachable(f"a submission may have arrived: {lost}; looking for it: {error}") from None
                if known is not None:
                    return known
                raise

        try:
            return await self._retried(once, self._run.config.retries)
        except ClaimsEnded:
            return None

    async def _find(self, intent: str) -> str | None:
        """Look for an intent at the provider for `batch_settle_s`, the time until a new batch is listed."""
        until = time.monotonic() + self._run.config.batch_settle_s
        while (found := await self._looked(partial(self._provider.find, intent))) is None and time.monotonic() < until:
            await asyncio.sleep(min(self._run.config.batch_poll_s, 2.0))
        return found

    async def _collect(self, batch: Open, jobs: dict[str, Job]) -> str:
        """Wait for a batch, record its answers, and settle its jobs.

        Returns:
            The provider's message if its queue had no room for the batch, which then stays open; else an empty string.
        """
        run = self._run
        if batch.provider_id is None:
            raise ValueError("a batch without the provider's id cannot be collected")
        run.meter.in_flight += len(batch.members)
        self._open += 1
        try:
            state = await self._ended(batch.provider_id)
            if state.full:
                return state.detail or "the queue is full"
            results = await self._looked(partial(self._results, state, batch))
            answered = _answered(results, batch)
            numbers = await self._record(batch, answered)
        except ModelMissing:
            raise BatchUnreachable(
                f"batch {batch.provider_id} of {len(batch.members)} requests: expected in this account with results, "
                "found none; set the key and base_url with which it was sent, or have it asked and paid anew by "
                f"earmark ledger batches --free {batch.provider_id}"
            ) from None
        finally:
            self._open -= 1
            self._ended_one.set()
            run.meter.in_flight -= len(batch.members)
        said = f"{state.word}: {state.detail}" if state.detail else state.word
        await self._close(batch, "done", said)
        faults = {key: fault for key, _, fault in results if fault is not None}
        run.meter.exchanges += len(answered)
        unread: list[Job] = []
        for key, job in self._members_of(batch, jobs, numbers):
            if key in answered:
                failures = job.failures
                if not run.take_raw(job, numbers[key], answered[key], queue=False) and job.failures > failures:
                    unread.append(job)
            elif results and state.word != "cancelled":  # a person stopped that one: a further run asks again
                run.fail(job, faults.get(key) or ServerError("in a batch: no line came back"))
            else:
                run.fail(job, BatchFailed(f"the batch ended without its answer, as '{said}'"))
        if stop := next((fault for fault in faults.values() if isinstance(fault, StopRun)), None):
            raise stop
        known = any(run.annotator.streaks.is_answered(job.request) for job in unread)  # some rows may always fail
        if len(unread) == len(answered) >= (IN_A_ROW if known else FIRST):  # another batch would be paid for the same
            raise AllAlike(f"all {len(unread)} answers of batch {batch.provider_id} end alike: {unread[0].refused}")
        return ""

    def _members_of(self, batch: Open, jobs: dict[str, Job], numbers: dict[str, int]) -> Iterator[tuple[str, Job]]:
        """Yield the jobs of this call in a batch, with their present state."""
        for key, row in batch.members.items():
            if job := jobs.get(key):
                job.held, job.attempts = Held(row), numbers.get(key, job.attempts)
                yield key, job

    async def _ended(self, provider_id: str) -> BatchState:
        late = 0
        while True:
            state = await self._looked(partial(self._provider.state, provider_id))
            late += state.late
            if state.ended and (not state.late or late > MOST_LOOKS):
                return state
            await asyncio.sleep(self._run.config.batch_poll_s)

    async def _results(self, state: BatchState, batch: Open) -> list[ResultLine]:
        results = await self._provider.results(state)
        found = {key for key, *_ in results} & batch.members.keys()
        unreadable = sum(not key for key, *_ in results)  # these came: only another answer can replace them
        least = len(batch.members) if state.word in WHOLE else int(state.word not in STOPPED)
        least = min(state.lines or least, len(batch.members))
        if len(found) + unreadable < least or (not found and state.word not in STOPPED):
            # paid for: not to be asked again as if unanswered
            await self._record(batch, _answered(results, batch))
            ids = f"other custom_ids, such as {one_line(results[0][0], 80)!r}" if results else "no line"
            said = f"those of {len(found)} of {len(batch.members)} requests" if found else ids
            raise MalformedResponse(
                f"batch {state.provider_id}, '{state.word}': expected results, found {said}; if no more come, have the "
                f"requests without one asked and paid anew by earmark ledger batches --free {state.provider_id}"
            )
        return results

    async def _looked(self, call: Callable[[], Awaitable[Got]]) -> Got:
        """Repeat a read-only call until it succeeds: the answers are paid for and wait at the provider."""
        try:
            return await self._retried(call, max(self._run.config.retries, MOST_LOOKS))
        except Retriable as error:
            raise BatchUnreachable(f"no usable answer of the batch API: {error}; run again to collect") from None

    async def _retried(self, call: Callable[[], Awaitable[Got]], most: int) -> Got:
        config, tries = self._run.config, 0
        while True:
            try:
                return await call()
            except Retriable as error:
                tries += 1
                if tries > most:
                    raise
                least = error.retry_after_s or 0.0
                await asyncio.sleep(backoff(tries, config.retry_base_s, config.retry_longest_s, least_s=least))

    async def _record(self, batch: Open, answered: dict[str, str]) -> dict[str, int]:
        """Record raw answers, each once even if collected again; return their attempt numbers."""
        numbers: dict[str, int] = {}
        rows = [(key, batch.members[key], raw) for key, raw in answered.items()]
        for start in range(0, len(rows), RECORD_AT_ONCE):
            some = rows[start : start + RECORD_AT_ONCE]
            numbers |= await self._run.ledger.change(partial(_record_lines, intent=batch.intent, rows=some))
        return numbers

    async def _move(self, batch: Open, state: str, detail: str | None = None) -> None:
        await self._run.ledger.change(partial(_move, batch=batch, state=state, detail=detail))

    async def _close(self, batch: Open, state: str, detail: str) -> None:
        """End a batch in the ledger: release its requests, with their answers recorded."""
        await self._run.ledger.change(partial(_close, batch=batch, state=state, detail=detail))


def _answered(results: Sequence[ResultLine], batch: Open) -> dict[str, str]:
    return {key: raw for key, raw, _ in results if raw is not None and key in batch.members}


def _adopt(driver: Driver, owner: str, model: str, keys: list[bytes]) -> list[tuple[str, str | None]]:
    if not (found := driver.rows(ORPHANS, (model,))):
        return []
    holders = {row[0] for row in driver.rows_in("SELECT DISTINCT owner FROM requests WHERE key IN {values}", keys)}
    ours = [(intent, provider_id) for intent, provider_id in found if f"batch:{intent}" in holders]
    return [(intent, provider_id) for intent, provider_id in ours if driver.rows(ADOPT, (owner, intent))]


def _refused_alone(driver: Driver, intent: str, admitted_s: float) -> bool:
    now = driver.now()
    return driver.rows(BESIDE, (intent, now - LONGEST_BATCH_S, now - admitted_s)) == [(0,)]


def _members(driver: Driver, intent: str) -> dict[str, int]:
    return {bytes(key).hex(): request_id for key, request_id in driver.rows(MEMBERS, (intent,))}


def _intend(driver: Driver, batch: Open, model: str, owner: str) -> None:
    now = driver.now()
    provider = model.partition(":")[0]
    driver.run(INTEND, (batch.intent, provider, model, owner, len(batch.members), now, now))
    for request_id in batch.members.values():
        driver.run("INSERT INTO batch_requests (batch_id, request_id) VALUES (?, ?)", (batch.intent, request_id))
        driver.run(
            "UPDATE requests SET owner = ? WHERE id = ? AND owner = ?", (f"batch:{batch.intent}", request_id, owner)
        )


def _move(driver: Driver, batch: Open, state: str, detail: str | None) -> None:
    driver.run(MOVE, (state, batch.provider_id, detail, driver.now(), batch.intent))


def _close(driver: Driver, batch: Open, state: str, detail: str) -> None:
    _move(driver, batch, state, detail)
    driver.run("UPDATE batches SET owner = NULL WHERE id = ?", (batch.intent,))
    driver.run("UPDATE requests SET owner = NULL WHERE owner = ?", (f"batch:{batch.intent}",))


def _record_lines(driver: Driver, intent: str, rows: list[tuple[str, int, str]]) -> dict[str, int]:
    numbers = {}
    now = driver.now()
    known = driver.rows_in(
        "SELECT request_id, number, batch_id FROM attempts WHERE request_id IN {values}", [row[1] for row in rows]
    )
    by_row: dict[int, list[tuple[int, str | None]]] = {}
    for request_id, number, batch in known:
        by_row.setdefault(request_id, []).append((number, batch))
    for key, request_id, raw in rows:
        earlier = by_row.get(request_id, [])
        here = next((number for number, batch in earlier if batch == intent), None)
        number = here or 1 + max((number for number, _ in earlier), default=0)
        numbers[key] = number
        if here is None:
            record(driver, Attempt(request_id, number, "received", now, 0.0, raw, batch_id=intent))
    return numbers
