"""How processes of a build share an annotator: its pace, its budget and its sessions."""

from __future__ import annotations

import pickle
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.annotation import budget
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.ledger import connect
from earmark.tasks.annotation.ledger_rows import free_the_dead
from earmark.tasks.annotation.session import Session
from earmark.tasks.pipeline import sessions as visiting
from earmark.tasks.pipeline.sessions import Visitor
from tests.annotation.conftest import LocalServer, config_for, requests_for
from tests.pipeline.test_shards import elsewhere, shared
from tests.servers.faults import Faults

__all__ = ["elsewhere"]  # fixtures


def test_a_session_asks_elsewhere_at_its_share_of_the_pace(tmp_path: Path, elsewhere: Any) -> None:
    with LocalServer(Faults()) as server:
        config = config_for(server, max_concurrency=9)
        with shared(tmp_path, config) as session:
            session.shared_by = 2
            sent = pickle.dumps(session)
            assert pickle.loads(sent) is pickle.loads(sent)
            one = elsewhere(sent)
            two = elsewhere(pickle.dumps(one))  # a scheduler may hand it on
            assert two.config.max_concurrency == 4
            requests = requests_for(config, 20)
            told = [one.ask(requests[:15]), two.ask(requests)]
            assert [report.answered for report in told] == [15, 20]
            assert session.ask(requests).from_ledger == 20
        assert server.faults.asked.total() == 20


@pytest.mark.slow
def test_a_further_step_shares_the_pace_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visiting, "_VISITORS", {})
    with LocalServer(Faults(latency_s=0.05)) as server:
        config = config_for(server, max_concurrency=8)
        with shared(tmp_path, config) as session:
            came: list[Visitor] = []
            for step, (shared_by, most) in enumerate([(1, 8), (20, 1), (5, 1), (2, 4)]):
                session.shared_by = shared_by
                came.append(pickle.loads(pickle.dumps(session)))
                assert came[-1].config.max_concurrency == most
                server.faults.most_open = 0
                came[-1].ask(requests_for(config, 30, first=30 * step))
                assert (most > 1) < server.faults.most_open <= most
            assert all(one is came[0] for one in came)
            came[0].close()


@pytest.mark.slow
def test_processes_share_a_budget(tmp_path: Path, elsewhere: Any) -> None:
    prices = {"input_per_million": 1.0, "output_per_million": 10.0}
    with LocalServer(Faults()) as server:
        config = config_for(server, prices=prices, budget_usd=0.02, max_tokens=100)
        spent: list[float] = []
        with shared(tmp_path, config) as session:
            visitors = [elsewhere(pickle.dumps(session)) for _ in range(3)]

            def ask(number: int) -> None:
                with pytest.raises(BudgetExhausted):
                    visitors[number].ask(requests_for(config, 200, first=200 * number))

            threads = [threading.Thread(target=ask, args=[number]) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ledger = connect(tmp_path / "ledger.sqlite")
            spent = [row[0] for row in ledger.rows("SELECT sum(cost_usd) FROM attempts")]
            kept = ledger.rows("SELECT sum(spent_usd), sum(reserved_usd) FROM budgets")
            ledger.close()
        assert 0.01 < spent[0] <= 0.02
        assert kept == [(pytest.approx(spent[0]), pytest.approx(0.0, abs=1e-9))]


def test_a_build_that_has_ended_grants_nothing_more(tmp_path: Path, elsewhere: Any) -> None:
    prices = {"input_per_million": 1.0, "output_per_million": 10.0}
    with LocalServer(Faults()) as server:
        config = config_for(server, prices=prices, budget_usd=0.02, max_tokens=100)
        with shared(tmp_path, config) as session:
            early, late = (elsewhere(pickle.dumps(session)) for _ in range(2))
            assert early.ask(requests_for(config, 1)).answered == 1
        for visitor in (early, late):  # whose shards are still at work
            with pytest.raises(BudgetExhausted, match=r"budget_usd = 0\.02: the build that it was given to has ended"):
                visitor.ask(requests_for(config, 1, first=1))
        assert server.faults.asked.total() == 1


def test_a_budget_is_kept_for_a_month(tmp_path: Path) -> None:
    driver = connect(tmp_path / "ledger.sqlite")
    driver.begin()
    budget.close(driver, "old")
    budget.add(driver, "new", "owner", 1.0, 0.0, 0.0)
    driver.run("UPDATE budgets SET used_at = used_at - ?", (29 * 86_400.0,))
    budget.add(driver, "new", "owner", 1.0, 0.0, 0.0)
    free_the_dead(driver)
    assert driver.rows("SELECT count(*) FROM budgets") == [(2,)]
    driver.run("UPDATE budgets SET used_at = used_at - ?", (2 * 86_400.0,))
    free_the_dead(driver)
    assert driver.rows("SELECT name, spent_usd FROM budgets") == [("new", 2.0)]
    driver.commit()
    driver.close()


@pytest.mark.slow
def test_what_a_killed_process_had_reserved_counts_as_spent(tmp_path: Path, elsewhere: Any) -> None:
    prices = {"input_per_million": 1.0, "output_per_million": 10.0}
    with LocalServer(Faults()) as server:
        config = config_for(server, prices=prices, budget_usd=0.02, max_tokens=100)
        with shared(tmp_path, config) as session:
            visitor = elsewhere(pickle.dumps(session))
            assert visitor.ask(requests_for(config, 1)).answered == 1
            ledger = connect(tmp_path / "ledger.sqlite")
            ledger.begin()
            ledger.run("INSERT INTO runs VALUES ('gone', 'elsewhere', 1, 0, 0)")
            ledger.run("INSERT INTO budgets VALUES (?, 'gone', 0, 0, 0.0199, 0, 0)", (session.name,))
            ledger.commit()
            with pytest.raises(BudgetExhausted, match=r"up to 0\.0199 for answers that were lost"):
                visitor.ask(requests_for(config, 100, first=1))
            ledger.close()


def test_a_process_opens_each_of_several_sessions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visiting, "_VISITORS", {})
    opened: list[str | None] = []

    class Noted(Session):
        def __init__(self, *given: Any, **named: Any) -> None:
            opened.append(named["shared_budget"])
            super().__init__(*given, **named)

    monkeypatch.setattr(visiting, "Session", Noted)
    with LocalServer(Faults()) as server:
        config = config_for(server)
        with shared(tmp_path, config) as first, shared(tmp_path, config) as second, ExitStack() as stack:
            for shard in range(3):
                pair = pickle.loads(pickle.dumps((first, second)))
                for one in pair:
                    one.ask(requests_for(config, 1, first=shard))
            assert opened == [first.name, second.name]
            monkeypatch.setattr(visiting, "IDLE_S", -1.0)
            pickle.loads(pickle.dumps(first)).close()
            pair[0].ask(requests_for(config, 1))  # opens it again, and closes the other as idle
            assert not pair[1].open
            again = pickle.loads(pickle.dumps((first, second)))
            assert all(one is other for one, other in zip(pair, again, strict=True))
            for one in pair:
                stack.callback(one.close)


def test_an_idle_visitor_closes_when_another_one_opens(
    tmp_path: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visiting, "IDLE_S", -1.0)
    with LocalServer(Faults()) as server:
        config = config_for(server)
        with shared(tmp_path, config) as first, shared(tmp_path, config) as second:
            one, two = pickle.loads(pickle.dumps(first)), pickle.loads(pickle.dumps(second))
            assert one.ask(requests_for(config, 2)).answered == 2
            assert one.open
            assert two.ask(requests_for(config, 2)).from_ledger == 2
            assert (one.open, two.open) == (False, True)
            assert one.ask(requests_for(config, 3)).answered == 3
            one.close()
            two.close()
