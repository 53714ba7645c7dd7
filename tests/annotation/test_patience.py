"""Waits for a server that is away, loading or limits its rate, and the end of patience."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.annotation import patience
from earmark.tasks.annotation.errors import (
    RateLimited,
    Retriable,
    ServerGone,
    Unavailable,
)
from earmark.tasks.annotation.patience import Patience
from tests.annotation.conftest import config_for, requests_for
from tests.annotation.error_bodies import RECORDED, Recorded
from tests.annotation.faulty_server import about, bench_of


@pytest.mark.parametrize("kind", [RateLimited, Unavailable])
@pytest.mark.parametrize("answered", [False, True])
def test_a_wait_beyond_the_patience_ends_the_run_at_once(kind: type[Retriable], answered: bool) -> None:
    state = Patience(900.0)
    if answered:
        state.answered()
    state.covers(kind("429: slow down", retry_after_s=60.0), 0.0)
    state.covers(kind("429: slow down"), 0.0)
    with pytest.raises(ServerGone, match=r"asks to wait 3,600 s or more, beyond patience_s = 900: 429: slow down"):
        state.covers(kind("429: slow down", retry_after_s=3600.0), 0.0)
    Patience(7200.0).covers(kind("429: slow down", retry_after_s=3600.0), 0.0)
    Patience(10.0).covers(kind("429: so many a minute", retry_after_s=36.0), 0.0)


def test_a_run_of_a_server_that_asks_for_a_day_ends_in_a_moment(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        day = Recorded(
            "any", 429, '{"error":{"message":"slow down"}}', RateLimited, 3600.0, (("retry-after", "86400"),)
        )
        server.meets = lambda number, body: day if number > 4 else None
        config = config_for(server, max_concurrency=2)
        with pytest.raises(ServerGone, match="asks to wait 3,600 s or more"):
            await asyncio.wait_for(bench.ask(config, requests_for(config, 20)), 20)
        server.meets = lambda number, body: None
        later = config_for(server, max_concurrency=3)  # a pace of its own, as in a process of its own
        assert (await bench.ask(later, requests_for(later, 20))).answered == 20
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back_costs_no_request(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.faults.latency_s = 0.01
        config = config_for(server, retries=1)
        asking = asyncio.create_task(bench.ask(config, requests_for(config, 300)))
        while server.asked < 60:
            await asyncio.sleep(0.005)
        port = server.port
        await server.stop()
        await asyncio.sleep(1.5)  # both tries of a request would be over in a tenth of that
        await server.start(port)
        report = await asking
        assert (report.answered, report.rejected) == (300, 0)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_run_with_one_line_and_nothing_is_lost(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.faults.latency_s = 0.01
        config = config_for(server, patience_s=0.5, retries=100)
        asking = asyncio.create_task(bench.ask(config, requests_for(config, 300)))
        while server.asked < 60:
            await asyncio.sleep(0.005)
        port = server.port
        await server.stop()
        with pytest.raises(ServerGone, match=r"no answer since \d\d:\d\d:\d\d, for 0.5 s \(patience_s\)"):
            await asking
        await server.start(port)
        assert (await bench.ask(config, requests_for(config, 300))).answered == 300
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_server_that_nobody_reaches_ends_the_run_after_ten_seconds(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert patience.NEVER_S == 10
    monkeypatch.setattr(patience, "NEVER_S", 1.0)

    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        port = server.port
        await server.stop()
        config = config_for(server, retries=6, retry_base_s=1.0)  # as users have it
        begun = time.monotonic()
        with pytest.raises(ServerGone, match=r"^nobody has answered in \d s: .*; check base_url and the server$"):
            await bench.ask(config, requests_for(config, 100))
        assert 1 <= time.monotonic() - begun < 8
        await server.start(port)
        assert (await bench.ask(config, requests_for(config, 100))).answered == 100
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_server_that_comes_up_within_ten_seconds_loses_no_request(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        port = server.port
        await server.stop()
        config = config_for(server, retries=1)
        asking = asyncio.create_task(bench.ask(config, requests_for(config, 50)))
        await asyncio.sleep(1.0)
        await server.start(port)
        assert (await asking).answered == 50
        await server.stop()

    run(story)


LOADING = next(one for one in RECORDED if "Loading model" in one.body)


SLOW_DOWN = next(one for one in RECORDED if one.provider == "tgi" and one.status == 429)


@pytest.mark.slow
def test_a_server_that_says_it_is_loading_is_waited_for_from_the_start(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        until = time.monotonic() + 1.0
        server.meets = lambda number, body: LOADING if time.monotonic() < until else None
        config = config_for(server, retries=1)
        assert (await bench.ask(config, requests_for(config, 20))).answered == 20
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_rate_limit_gives_up_no_request_while_others_are_served(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        served: Counter[int] = Counter()

        def twenty_a_window(number: int, body: dict[str, Any]) -> Recorded | None:
            served[int(time.monotonic() * 4)] += 1
            return SLOW_DOWN if served[int(time.monotonic() * 4)] > 20 else None

        server.meets = twenty_a_window
        config = config_for(server, retries=1)
        report = await bench.ask(config, requests_for(config, 86))
        assert (report.answered, report.rejected) == (86, 0)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_one_request_that_is_never_served_is_given_up_beside_others(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.faults.latency_s = 0.02
        server.meets = lambda number, body: LOADING if about(body) == 7 else None
        config = config_for(server, retries=1, patience_s=0.2, max_concurrency=4)
        report = await bench.ask(config, requests_for(config, 200))
        assert (report.answered, report.reasons()) == (199, {"server_error": 1})
        await server.stop()

    run(story)
