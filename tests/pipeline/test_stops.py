"""A session that is closed while the shards of a build ask through it, as where a person stops the build."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from earmark.tasks.annotation import session as sessions
from earmark.tasks.annotation.errors import Stopped
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.session import Session
from earmark.tasks.pipeline.exchange import Exchange
from tests.annotation.conftest import LocalServer, config_for, requests_for
from tests.annotation.test_kills import received
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

SHARDS, ROWS, SLACK_S = 3, 100, 10.0


async def lead(session: Session, requests: list[Request]) -> None:
    with Exchange({"judge": session}) as exchange:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(exchange.put(None, "judge", {}, request))


@contextmanager
def shards(session: Session, server: OpenAIServer, at_least: int) -> Iterator[list[Future[None]]]:
    """Shards that ask side by side in threads, as Prefect's task runner leads them, once so many requests are sent."""
    requests = requests_for(config_for(server), SHARDS * ROWS)
    threads = ThreadPoolExecutor(SHARDS)
    ending = [threads.submit(asyncio.run, lead(session, requests[number::SHARDS])) for number in range(SHARDS)]
    deadline = time.monotonic() + 30
    while sum(server.faults.asked.values()) < at_least:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield ending
    threads.shutdown()


def fault_of(error: BaseException | None) -> BaseException | None:
    return fault_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [2, 128])
def test_a_session_that_closes_keeps_what_is_in_flight_and_ends_every_shard(at_once: int, tmp_path: Path) -> None:
    ledger, patience = tmp_path / "ledger.sqlite", {"read_timeout_s": 30.0, "total_timeout_s": 30.0}
    with LocalServer(Faults(latency_s=0.3)) as server, ExitStack() as closing:
        session = closing.enter_context(Session(config_for(server, **patience, max_concurrency=at_once), ledger=ledger))
        with shards(session, server, at_once) as ending:
            closing.close()
            faults = [fault_of(one.exception(timeout=SLACK_S)) for one in ending]
        assert {type(fault) for fault in faults} == {Stopped}
        asked = sum(server.faults.asked.values())
        time.sleep(0.5)
        assert sum(server.faults.asked.values()) == asked < SHARDS * ROWS, "a closed session goes on asking"
    assert received(ledger) == asked, "an answer that was in flight is lost"


def test_a_session_that_closes_does_not_wait_for_ever_for_a_slow_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IN_FLIGHT_S", 0.2)
    patience = {"read_timeout_s": 60.0, "total_timeout_s": 60.0}
    with LocalServer(Faults(latency_s=30.0)) as server, ExitStack() as closing:
        session = closing.enter_context(
            Session(config_for(server, **patience, max_concurrency=4), ledger=tmp_path / "l")
        )
        with shards(session, server, 4) as ending:
            begun = time.monotonic()
            closing.close()
            faults = [fault_of(one.exception(timeout=SLACK_S)) for one in ending]
        assert time.monotonic() - begun < SLACK_S
    assert {type(fault) for fault in faults} == {Stopped}
    with pytest.raises(Stopped):
        session.ask(requests_for(config_for(server), 1))


def test_a_shard_that_fails_leaves_its_answers_in_flight_to_the_session(tmp_path: Path) -> None:
    """Other rows of the shard are let go; what the model was asked for them is paid for, and comes home."""

    async def fail_in_mid(session: Session, requests: list[Request]) -> None:
        with Exchange({"judge": session}) as exchange:
            async with asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(exchange.put(None, "judge", {}, request))
                while not server.faults.asked:
                    await asyncio.sleep(0.01)
                raise ValueError("a fault of the corpus")

    ledger, patience = tmp_path / "ledger.sqlite", {"read_timeout_s": 30.0, "total_timeout_s": 30.0}
    with LocalServer(Faults(latency_s=0.3)) as server:
        config = config_for(server, **patience, max_concurrency=4)
        with Session(config, ledger=ledger) as session, pytest.raises(ExceptionGroup):
            asyncio.run(fail_in_mid(session, requests_for(config, 40)))
        asked = sum(server.faults.asked.values())
    assert received(ledger) == asked <= 8
