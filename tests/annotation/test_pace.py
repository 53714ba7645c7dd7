"""Caps a minute, shared by all who ask through one ledger."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.annotation.errors import AskError, ConnectionFailed, RateLimited, ServerError, TimedOut
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_rows import Driver, claim
from earmark.tasks.annotation.pace import AHEAD_S, Pace, Quota, quota_name, reserve
from tests.annotation.conftest import config_for
from tests.annotation.test_kills import Server, asking, finish, received, serve
from tests.annotation.test_ledger import ledger, postgres

__all__ = ["ledger", "postgres", "serve"]  # fixtures

TOKENS = st.lists(st.integers(0, 400), min_size=1, max_size=30)


class Clock(Driver):
    """A ledger in memory whose time stands still until it is told."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE quotas (name PRIMARY KEY, next_request_at, next_token_at)")

    def now(self) -> float:
        return self.time

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self.database.execute(sql, values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self.database.execute(sql, values).fetchall()


@given(st.lists(st.tuples(TOKENS, st.floats(0, 2)), max_size=12), st.floats(0, 2), st.floats(0, 0.01))
def test_no_order_of_reservations_passes_a_cap(
    calls: list[tuple[list[int], float]], request_s: float, token_s: float
) -> None:
    clock = Clock()
    leaving: list[tuple[float, int]] = []
    for wanted, pause_s in calls:
        waits = reserve(clock, "q", request_s, token_s, wanted)
        assert 1 <= len(waits) <= len(wanted)
        assert all(wait <= AHEAD_S for wait in waits[1:])
        leaving += [(clock.time + wait, tokens) for wait, tokens in zip(waits, wanted, strict=False)]
        clock.time += pause_s
    for (earlier, tokens), (later, _) in pairwise(leaving):
        assert later - earlier >= max(request_s, token_s * tokens) - 1e-6


def test_at_a_low_rate_all_take_turns() -> None:
    clock = Clock()
    first = [reserve(clock, "q", 10.0, 0.0, [0] * 50) for _ in range(3)]
    assert first == [[0.0], [10.0], [20.0]]  # however many requests a process has


@pytest.mark.parametrize(("request_s", "token_s"), [(10.0, 0.0), (0.0, 0.1), (10.0, 0.1)])
def test_a_clock_that_was_ahead_holds_nobody_back_once_it_is_right(request_s: float, token_s: float) -> None:
    clock = Clock()
    clock.time += 3 * 3600
    reserve(clock, "q", request_s, token_s, [100])
    clock.time -= 3 * 3600
    assert [reserve(clock, "q", request_s, token_s, [100]) for _ in range(3)] == [[0.0], [10.0], [20.0]]


def test_a_quota_of_few_requests_a_day_is_kept() -> None:
    clock = Clock()
    assert [reserve(clock, "q", 14_400.0, 0.0, [0]) for _ in range(6)] == [[14_400.0 * turn] for turn in range(6)]


def limits(fails: Callable[[int, int], AskError | None], exchanges: int) -> tuple[list[float], float]:
    """The limit after each exchange, of as many in flight as it admits, and the share that failed."""
    pace, failed = Pace(64), 0
    flying: deque[tuple[float, AskError | None]] = deque()
    after = []
    for number in range(exchanges):
        while len(flying) < int(pace.limit):
            flying.append((time.monotonic(), fails(number + len(flying), len(flying))))
        started, fault = flying.popleft()
        if fault is None:
            pace.succeeded()
        else:
            failed += 1
            pace.failed(fault, started)
        after.append(pace.limit)
    return after, failed / exchanges


@pytest.mark.parametrize(
    ("fault", "share"),
    [
        (ServerError("bad gateway"), 0.01),
        (TimedOut("an answer", 30.0), 0.01),
        (ConnectionFailed("reset"), 0.01),
        (RateLimited("slow"), 0.0025),
    ],
)
def test_faults_now_and_then_cost_no_places(fault: AskError, share: float) -> None:
    dice = random.Random(17)
    after, failed = limits(lambda number, flying: fault if dice.random() < share else None, 20_000)
    assert 0.5 * share < failed < 1.5 * share
    assert fmean(after) > 0.95 * 64


def test_a_limit_that_a_server_lowers_is_soon_regained() -> None:
    after, failed = limits(lambda number, flying: RateLimited("slow") if number % 2000 < 2 else None, 20_000)
    assert failed > 0.0005
    assert min(after) < 64 * 0.71
    assert fmean(after) > 0.8 * 64


@pytest.mark.parametrize("fault", [ServerError("overloaded"), RateLimited("too many")])
def test_what_a_server_can_take_is_found_and_not_passed_for_long(fault: AskError) -> None:
    after, failed = limits(lambda number, flying: fault if flying >= 16 else None, 20_000)
    assert 12 < fmean(after[1000:]) < 20
    assert failed < 0.25


def test_a_server_that_is_gone_is_asked_by_one() -> None:
    after, _ = limits(lambda number, flying: ConnectionFailed("refused"), 2_000)
    assert after[-1] == 1.0


def test_who_shares_a_quota() -> None:
    class At:
        base_url = "http://127.0.0.1:9/v1"

    one = config_for(At, annotator="openai:a")
    assert quota_name(one) == quota_name(config_for(At, annotator="openai:a", requests_per_minute=5))
    assert quota_name(one) != quota_name(config_for(At, annotator="openai:b"))


@pytest.mark.slow
def test_two_annotators_of_one_ledger_share_a_cap(ledger: str) -> None:
    class At:
        base_url = "http://127.0.0.1:9/v1"

    config = config_for(At, requests_per_minute=6000, tokens_per_minute=60_000)

    async def ask() -> None:
        async with open_ledger(ledger) as opened:
            pace, quota = Pace(8), Quota(opened, config)
            for _ in range(10):
                await pace.enter(20, quota)
                pace.leave()

    async def story() -> float:
        started = time.monotonic()
        await asyncio.gather(ask(), ask())
        return time.monotonic() - started

    assert asyncio.run(story()) >= 19 * 20 * 60 / 60_000 * 0.95


def sent_at(address: Path | str) -> list[float]:
    """When each recorded request left."""
    driver = connect(address)
    try:
        return [at for (at,) in driver.rows("SELECT started_at FROM attempts ORDER BY started_at")]
    finally:
        driver.close()


@pytest.mark.slow
def test_processes_share_a_cap_and_one_that_is_killed_blocks_nobody(serve: Any, ledger: str) -> None:
    server: Server = serve("--latency-ms", "5")
    began = time.time()
    processes = [asking(server, ledger, 120, requests_per_minute=1800) for _ in range(3)]
    while received(ledger) < 20:
        time.sleep(0.02)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].communicate()
    one, two = (finish(process) for process in processes[1:])
    assert one == two
    counts = server.counts()
    assert counts["distinct"] == 120
    assert counts["repeats"] <= 8  # what the killed one had in flight
    for number, at in enumerate(sent_at(ledger)):
        assert at - began >= number * 60 / 1800 - 0.01


@pytest.mark.slow
def test_transactions_that_wait_for_each_other_both_end_well(ledger: str) -> None:
    keys = [f"{number:064x}" for number in range(2)]

    def crosswise(driver: Driver, owner: str, order: list[str]) -> set[str]:
        held = set()
        for key in order:
            held |= claim(driver, owner, [(key, "model", "body")], {}, 1).keys()
            time.sleep(0.05)  # the other one takes its first row meanwhile
        return held

    async def story() -> list[set[str]]:
        async with open_ledger(ledger) as one, open_ledger(ledger) as two:
            return await asyncio.gather(
                one.change(partial(crosswise, owner=one.owner, order=keys)),
                two.change(partial(crosswise, owner=two.owner, order=keys[::-1])),
            )

    first, second = asyncio.run(story())
    assert first | second == set(keys)
    assert not first & second


def test_a_clock_that_is_set_back_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from earmark.tasks.annotation import ledger_sqlite

    driver = ledger_sqlite.SqliteDriver(tmp_path / "ledger.sqlite")

    def turn() -> list[float]:
        driver.begin()
        waits = reserve(driver, "q", 0.01, 0.0, [0])
        driver.commit()
        return waits

    assert turn()[0] < 1
    there = ledger_sqlite.time.time()
    monkeypatch.setattr(ledger_sqlite.time, "time", lambda: there - 3600)
    assert turn()[0] < 1
    monkeypatch.setattr(ledger_sqlite.time, "time", lambda: there + 3600)  # after a machine slept
    assert driver.now() == there + 3600
    driver.close()
