"""Batches wait for the queue, for the cost of those before them and for each other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from earmark.schemas.annotation import Prices
from earmark.schemas.questions import FreeText, Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import (
    BudgetExhausted,
    QuotaExhausted,
)
from earmark.tasks.annotation.ledger import open_ledger
from tests.annotation.batch_provider import Provider
from tests.annotation.conftest import Bench, config_for, requests_for
from tests.annotation.test_batches import BATCH
from tests.servers.openai_server import OpenAIServer


def test_a_batch_waits_for_the_cost_of_those_before_it(tmp_path: Path, run: Any) -> None:
    """A batch costs $0.002 here, also at worst; the second would pass the cap."""

    async def story() -> None:
        server = await Provider(answer=lambda body, content: "so many tokens as it may").start()
        prices = Prices(input_per_million=0.0, output_per_million=20.0)
        config = config_for(server, prices=prices, max_tokens=20, budget_usd=0.003, **BATCH | {"batch_requests": 10})
        requests = [question(config, [Message.of("user", f"say {n}")], FreeText()) for n in range(30)]
        with pytest.raises(BudgetExhausted, match=r"spent 0\.0020.*; it is a batch of 10: see money"):
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests)
        assert len(server.batches) == 1
        await server.stop()

    run(story)


@pytest.mark.parametrize("calls", [1, 3])
def test_a_batch_larger_than_the_queue_stops_the_run(tmp_path: Path, run: Any, calls: int) -> None:
    """Also beside others that are refused like it."""

    async def story() -> None:
        server = Provider()
        server.trouble = "never room"
        await server.start()
        config = config_for(server, patience_s=0.3, **BATCH | {"batch_requests": 10})
        requests = requests_for(config, 20 * calls)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            shards = [annotator.ask(requests[at : at + 20]) for at in range(0, len(requests), 20)]
            for end in await asyncio.wait_for(asyncio.gather(*shards, return_exceptions=True), 20):
                assert isinstance(end, QuotaExhausted)
                assert "a batch of 10 requests" in str(end)
                assert "set money.batch_requests (now 10) lower" in str(end)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_batch_waits_longer_than_the_patience_for_a_queue_that_others_fill(tmp_path: Path, run: Any) -> None:
    """The queue has room for one batch, and those of two calls take far longer than `patience_s`."""

    async def story() -> None:
        server = Provider(batch_s=0.5)
        server.trouble = "full"
        await server.start()
        config = config_for(server, patience_s=0.2, **BATCH)
        requests = requests_for(config, 20)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            first, second = await asyncio.gather(annotator.ask(requests[:10]), annotator.ask(requests[10:]))
        assert (first.answered, second.answered) == (10, 10)
        assert len(server.batches) > 3  # refused again after its patience
        await server.stop()

    run(story)


def test_calls_side_by_side_resume_in_batches(tmp_path: Path, run: Any) -> None:
    """A run is stopped while four shards upload. No shard takes the questions of another, which would be asked live."""

    async def story() -> None:
        server, live = Provider(), 0
        uploads: asyncio.Queue[str] = asyncio.Queue()
        upload, chat = server.upload, server.chat

        async def slow(request: web.Request) -> web.Response:
            if stopped:
                uploads.put_nowait("begun")
                await asyncio.Event().wait()
            return await upload(request)

        async def counted(request: web.Request) -> web.StreamResponse:
            nonlocal live
            live += 1
            return await chat(request)

        server.upload, server.chat = slow, counted  # type: ignore[method-assign]
        await server.start()
        config = config_for(server, **BATCH)
        requests = requests_for(config, 40)
        for stopped in (True, False):
            async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
                shards = [asyncio.create_task(annotator.ask(requests[at : at + 10])) for at in range(0, 40, 10)]
                if stopped:
                    for _ in shards:
                        await uploads.get()
                    for shard in shards:
                        shard.cancel()
                    await asyncio.gather(*shards, return_exceptions=True)
                else:
                    assert [report.answered for report in await asyncio.gather(*shards)] == [10] * 4
        assert (live, sum(batch["lines"] for batch in server.batches.values())) == (0, 40)
        await server.stop()

    run(story)


def test_a_batch_refused_for_a_full_queue_asks_the_same_again(tmp_path: Path, run: Any) -> None:
    """Its questions are those after unusable answers; the first ones would be paid for again."""
    bodies: list[str] = []

    class FullOnce(OpenAIServer):
        def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
            if [*self.batches.values()].index(batch) == 1:
                errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
                return batch | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
            return super()._shown(batch)

    def answer(body: dict[str, Any], content: str) -> str:
        bodies.append(json.dumps(body, sort_keys=True))
        usable = {"musicality": "A", "alignment": "B", "reason": "as asked"}
        return "no JSON" if len(bodies) <= 5 else json.dumps(usable)

    async def story() -> None:
        server = await FullOnce(answer=answer).start()
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), len(bodies)) == (5, 3, 10)
        assert len(set(bodies)) == 10
        await server.stop()

    run(story)
