"""Provider batches: an intent before each submission, and a crash at any moment neither loses nor doubles one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import Prices
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import BudgetExhausted, ServerError
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_reports import stats
from earmark.tasks.annotation.ledger_rows import free
from tests.annotation.conftest import Bench, config_for, requests_for, serving, take_for_dead
from tests.annotation.test_kills import Server, asking, finish, serve
from tests.conftest import kill_count
from tests.servers.faults import Faults

__all__ = ["serve"]  # a fixture
BATCH: dict[str, Any] = {"batch": True, "batch_poll_s": 0.05, "batch_settle_s": 0.3, "batch_requests": 40}


def test_a_batch_answers_like_a_live_run_and_costs_half(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        live, batch = config_for(server, prices=prices), config_for(server, prices=prices, **BATCH)
        one = await Bench(tmp_path / "a.sqlite", server).ask(live, requests_for(live, 100))
        bench = Bench(tmp_path / "b.sqlite", server)
        two = await bench.ask(batch, requests_for(batch, 100))
        assert one.outcomes == two.outcomes
        assert len(server.batches) == 3
        assert two.spent_usd == pytest.approx(one.spent_usd / 2)
        assert (await bench.ask(live, requests_for(live, 100))).exchanges == 0
        assert stats(bench.ledger)["batches"] == {"done": {"batches": 3, "requests": 100}}
        await server.stop()

    run(story)


def test_faulty_lines_are_asked_again_in_another_batch(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(rate=0.3, kinds=("500", "wrong_shape", "refusal", "text_around"), most=1))
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 120))
        assert report.answered + report.rejected == 120
        assert set(report.reasons()) == {"refused"}
        await server.stop()

    run(story)


def test_a_lost_reply_to_a_submission_does_not_double_the_batch(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        server.lose_batch_replies = 1
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 30))
        assert report.answered == 30
        assert len(server.batches) == 1
        await server.stop()

    run(story)


def test_a_dry_run_counts_what_a_batch_holds_apart(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        server.batch_s = 60.0
        config, path = config_for(server, **BATCH), tmp_path / "l.sqlite"
        requests = requests_for(config, 40)
        asking = asyncio.create_task(Bench(path, server).ask(config, requests[:30]))
        while "submitted" not in (stats(path)["batches"] if path.exists() else ()):
            await asyncio.sleep(0.02)
        async with open_ledger(path, reading=True) as ledger, Annotator(config, ledger) as annotator:
            forecast = await annotator.forecast(requests)
        server.batch_s = 0.0
        await asking
        before = server.faults.numbers()["asked"]
        await Bench(path, server).ask(config, requests)
        sent = server.faults.numbers()["asked"] - before
        assert (before, sent) == (30, 10)
        assert (forecast["from_ledger"], forecast["in_batches"], forecast["to_ask"]) == (0, before, sent)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_the_budget_holds_for_batches(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices, budget_usd=0.05, **BATCH | {"batch_requests": 8})
        bench = Bench(tmp_path / "l.sqlite", server)
        with pytest.raises(BudgetExhausted):
            await bench.ask(config, requests_for(config, 1000))
        assert 0 < server.faults.numbers()["asked"] * 0.00015 <= 0.05
        await server.stop()

    run(story)


def test_a_process_taken_for_dead_submits_none_of_its_former_claims(tmp_path: Path, run: Any) -> None:
    """As after a machine's sleep before a submission: another process has asked the requests meanwhile."""

    async def story() -> None:
        server = await serving()
        config, path = config_for(server, **BATCH), tmp_path / "l.sqlite"
        live, requests = config_for(server), requests_for(config, 30)
        async with open_ledger(path) as opened, Annotator(config, opened) as sleeper:
            reserve = sleeper.budget.reserve

            async def asleep(worst_usd: float) -> None:
                await reserve(worst_usd)
                take_for_dead(opened, path)
                await Bench(path, server).ask(live, requests)

            sleeper.budget.reserve = asleep  # type: ignore[method-assign]
            report = await sleeper.ask(requests)
        assert report.answered == 30
        assert (server.faults.numbers()["asked"], len(server.batches)) == (30, 0)
        await server.stop()

    run(story)


def test_live_requests_of_a_run_in_batches_cost_the_full_price(tmp_path: Path, run: Any) -> None:
    """Requests that another process holds are asked live once it is gone."""

    async def story() -> None:
        server = await serving()
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        live, batch = config_for(server, prices=prices), config_for(server, prices=prices, **BATCH)
        requests = requests_for(live, 10)
        full = await Bench(tmp_path / "live.sqlite", server).ask(live, requests)
        wanted = [(one.key, one.model, one.canonical) for one in requests]
        async with open_ledger(tmp_path / "l.sqlite") as holder:
            assert len(await holder.claim(wanted, {}, 1)) == 10
            waiting = asyncio.create_task(Bench(tmp_path / "l.sqlite", server).ask(batch, requests))
            await asyncio.sleep(0.5)
            await holder.change(lambda driver: free(driver, holder.owner))
            report = await waiting
        assert (report.answered, len(server.batches)) == (10, 0)
        assert report.spent_usd == pytest.approx(full.spent_usd)
        await server.stop()

    run(story)


@pytest.mark.slow
@pytest.mark.parametrize("asked_by", ["another", "itself"])
@pytest.mark.parametrize("at", ["an upload", "a failed try"])
def test_a_process_taken_for_dead_while_it_submits_claims_before_it_submits_more(
    tmp_path: Path, run: Any, asked_by: str, at: str
) -> None:
    """As a network that fails before a submission and comes back after another process has asked the requests."""

    async def story() -> None:
        server = await serving()
        config, path = config_for(server, **BATCH), tmp_path / "l.sqlite"
        live, requests = config_for(server, batch_settle_s=0.3), requests_for(config, 30)
        async with open_ledger(path) as opened, Annotator(config, opened) as cut_off:
            await cut_off.open_backend()
            provider = cut_off.backend.batches()
            submit, cut_off.backend.batches = provider.submit, lambda: provider
            tries = []

            async def unreached(intent: str, lines: list[bytes], held: Any) -> str:
                tries.append(intent)
                if len(tries) > 1:
                    return await submit(intent, lines, held)
                take_for_dead(opened, path)
                if asked_by == "another":
                    await Bench(path, server).ask(live, requests)
                if at == "an upload":
                    await held()
                raise ServerError("no network")

            provider.submit = unreached
            report = await cut_off.ask(requests)
        assert report.answered == 30
        batches = int(asked_by == "itself")  # at half the price still
        assert (server.faults.numbers()["asked"], len(server.batches), len(tries)) == (30, batches, 1 + batches)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_live_run_takes_over_the_batch_of_a_dead_process(serve: Any, tmp_path: Path) -> None:
    server, ledger = serve("--batch-s", "1.0"), tmp_path / "l.sqlite"
    process = asking(server, ledger, 30, **BATCH)
    while server.counts()["batches"] == 0:
        time.sleep(0.02)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finish(asking(server, ledger, 30))
    counts = server.counts()
    assert (counts["asked"], counts["repeats"]) == (30, 0)


def kill_in_batches(serve: Any, tmp_path: Path, kills: int) -> None:
    draw, done, count, n = random.Random(kills), 0, 100, 0
    while done < kills:
        n += 1
        server: Server = serve("--batch-s", "0.4")
        ledger = tmp_path / f"{n}.sqlite"
        for _ in range(4):
            process = asking(server, ledger, count, **BATCH)
            time.sleep(draw.uniform(0.0, 0.35))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                done += 1
            process.communicate()
        final = finish(asking(server, ledger, count, **BATCH))
        counts = server.counts()
        assert (counts["distinct"], counts["repeats"]) == (count, 0), json.dumps(counts)
        assert connect(ledger).rows("SELECT count(*) FROM attempts") == [(count,)]
        server.process.kill()
    calm = serve()
    assert final == finish(asking(calm, tmp_path / "calm.sqlite", count))


@pytest.mark.slow
def test_kills_across_batches_lose_and_double_nothing(serve: Any, tmp_path: Path) -> None:
    kill_in_batches(serve, tmp_path, 4)


@pytest.mark.slow
def test_many_kills_across_batches(serve: Any, tmp_path: Path) -> None:
    kill_in_batches(serve, tmp_path, kill_count(100))
