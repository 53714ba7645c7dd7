"""Sessions of a build: one an annotator, and no model in this process that is not asked."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.ledger import connect
from earmark.tasks.pipeline.sessions import Sessions
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import LocalServer, config_for, requests_for
from tests.pipeline.test_shards import elsewhere
from tests.servers.faults import Faults

__all__ = ["elsewhere"]  # fixtures


def test_a_model_in_this_process_is_closed_by_the_first_walk_that_does_not_ask_it(tmp_path: Path) -> None:
    judge, writer = AnnotatorConfig(annotator="transformers:judge"), AnnotatorConfig(annotator="transformers:writer")
    server = AnnotatorConfig(annotator="openai:reader", base_url="http://127.0.0.1:9/v1")
    with Sessions(Store(tmp_path)) as sessions:
        first = sessions.of({"judge": judge, "verifier": judge, "reader": server})
        assert first["judge"] is first["verifier"]
        second = sessions.of({"writer": writer})
        assert not first["judge"]._thread.is_alive()
        assert first["reader"]._thread.is_alive()  # a server's session keeps its pace and its budget
        third = sessions.of({"judge": judge, "writer": writer, "reader": server})
        assert third["writer"] is second["writer"]
        assert third["reader"] is first["reader"]
        assert third["judge"] is not first["judge"]
    assert not any(session._thread.is_alive() for session in third.values())


@pytest.mark.slow
@pytest.mark.parametrize("in_processes", [False, True])
def test_roles_of_a_model_spend_one_budget(tmp_path: Path, elsewhere: Any, in_processes: bool) -> None:
    """Three roles would spend 0.02 each; the fourth has a budget of its own."""
    prices = {"input_per_million": 1.0, "output_per_million": 10.0}
    with LocalServer(Faults()) as server:
        roles = {
            f"role{heat}": config_for(
                server, prices=prices, budget_usd=0.02 if heat else 0.01, max_tokens=100, temperature=heat / 10
            )
            for heat in range(4)
        }
        with Sessions(Store(tmp_path)) as sessions, ThreadPoolExecutor(4) as threads:
            opened = sessions.of({name: roles[name] for name in ("role0", "role1")}, roles.values())
            opened |= sessions.of({name: roles[name] for name in ("role2", "role3")}, roles.values())
            asked: dict[str, Any] = dict(opened)
            if in_processes:
                asked = {name: elsewhere(pickle.dumps(session)) for name, session in opened.items()}

            def ask(name: str) -> None:
                with pytest.raises(BudgetExhausted, match=r"budget_usd = 0\.0"):
                    asked[name].ask(requests_for(roles[name], 200))

            list(threads.map(ask, roles))
        ledger = connect(tmp_path / "ledger.sqlite")
        [(spent,)] = ledger.rows("SELECT sum(cost_usd) FROM attempts")
        ledger.close()
    assert 0.015 < spent <= 0.03
