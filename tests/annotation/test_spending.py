"""Budgets, dry runs and quotas of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import Prices
from earmark.tasks.annotation.budget import Budget, limits_of
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import BudgetExhausted, QuotaExhausted
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.request import Unanswered
from earmark.tasks.annotation.server_faults import fault_of
from earmark.tasks.annotation.session import Session
from tests.annotation.conftest import Bench, config_for, requests_for, serving
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer


def test_the_budget_is_never_passed_and_the_run_goes_on(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(latency_s=0.01))
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices, budget_usd=0.01, max_tokens=100)
        bench, requests = Bench(tmp_path / "l.sqlite", server), requests_for(config, 100)
        with pytest.raises(BudgetExhausted, match="run again"):
            await bench.ask(config, requests)
        asked = server.faults.numbers()["asked"]
        assert 0 < asked * (100 * 1.0 + 20 * 10.0) / 1e6 <= 0.01
        rich = config.model_copy(update={"budget_usd": 1.0})
        report = await bench.ask(rich, requests)
        assert report.answered == 100
        assert server.faults.numbers()["distinct"] == 100
        assert report.spent_usd == pytest.approx((100 - report.from_ledger) * 300 / 1e6)  # exchanges may time out
        await server.stop()

    run(story)


def test_the_budget_holds_where_paid_answers_are_lost(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(
            Faults(rate=0.5, kinds=("truncated_body", "truncated_json", "stall"), most=None, stall_s=1)
        )
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices, budget_usd=0.05, max_tokens=100, read_timeout_s=0.2)
        with pytest.raises(BudgetExhausted, match="lost on the way"):
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 300))
        assert 0 < server.faults.numbers()["asked"] * 300 / 1e6 <= 0.05
        await server.stop()

    run(story)


class Uncounted(OpenAIServer):
    """A server that answers in full and counts no tokens."""

    def completion(self, body: dict[str, Any], content: str, kind: str | None = None) -> dict[str, Any]:
        """A completion with counts of 0."""
        zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {**super().completion(body, content, kind), "usage": zeros}


def test_the_budget_holds_where_a_server_counts_no_tokens(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Uncounted()
        await server.start()
        config = config_for(server, prices=Prices(input_per_million=1.0, output_per_million=10.0), max_concurrency=2)
        requests = requests_for(config, 12)
        most_usd = 3.5 * Budget(config, limits_of(config)).worst_usd(requests[0])
        bench = Bench(tmp_path / "l.sqlite", server)
        with pytest.raises(BudgetExhausted):
            await bench.ask(config.model_copy(update={"budget_usd": most_usd}), requests)
        assert server.faults.numbers()["asked"] == 3
        report = await bench.ask(config, requests)
        assert (report.answered, report.odd_usage) == (12, 9)
        free = config_for(server, max_tokens=100)
        report = await bench.ask(free, requests_for(free, 3))
        assert (report.answered, report.odd_usage, report.output_tokens) == (3, 0, 0)
        await server.stop()

    run(story)


@pytest.mark.parametrize("cut_s", [0.05, 20.0])
def test_what_a_gateway_cut_after_a_while_may_have_been_charged(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch, cut_s: float
) -> None:
    monkeypatch.setattr("earmark.tasks.annotation.run.CUT_S", cut_s)

    async def story() -> None:
        server = await serving(Faults(rate=1.0, kinds=("stall",), most=None, stall_s=0.1))  # ends with 504
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices, retries=4)
        requests = requests_for(config, 1)
        budget_usd = 2.5 * Budget(config, limits_of(config)).worst_usd(requests[0])
        config = config.model_copy(update={"budget_usd": budget_usd})
        bench = Bench(tmp_path / "l.sqlite", server)
        if cut_s < 0.1:
            with pytest.raises(BudgetExhausted, match="lost on the way"):
                await bench.ask(config, requests)
        else:  # a dead gateway, which nobody has paid
            (outcome,) = (await bench.ask(config, requests)).outcomes
            assert isinstance(outcome, Unanswered)
            assert outcome.reason == "server_error"
        assert server.faults.numbers()["asked"] == (2 if cut_s < 0.1 else 5)
        await server.stop()

    run(story)


def test_the_statuses_of_a_gateways_cut_are_known() -> None:
    statuses = [status for status in range(400, 600) if fault_of(status, "", {}, where="").cut]
    assert statuses == [408, 504, 524]


def test_a_dry_run_counts_and_asks_nothing(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices)
        await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 4))
        requests = requests_for(config, 10)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            forecast = await annotator.forecast(requests + requests)
        assert (forecast["requests"], forecast["distinct"], forecast["from_ledger"], forecast["to_ask"]) == (
            20,
            10,
            4,
            6,
        )
        assert forecast["most_usd"] > 6 * 1024 * 10 / 1e6
        assert server.faults.numbers()["asked"] == 4
        await server.stop()

    run(story)
    config = config_for(type("Nowhere", (), {"base_url": "http://127.0.0.1:9/v1"}))
    with Session(config, ledger=tmp_path / "m.sqlite") as session:
        assert session.forecast(requests_for(config, 3))["to_ask"] == 3


def test_quota_stops_the_run(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        server = await serving()
        from tests.servers import faults as module

        monkeypatch.setattr(
            module,
            "_error",
            lambda *a, **k: __import__("aiohttp").web.json_response(
                {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, status=429
            ),
        )
        server.faults.rate, server.faults.kinds = 1.0, ("429",)
        config = config_for(server)
        with pytest.raises(QuotaExhausted):
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        await server.stop()

    run(story)
