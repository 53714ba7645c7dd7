"""Answers that an earlier parser kept: read anew for nothing, and asked anew only by the run after their number was
shown."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import Prices
from earmark.tasks.annotation import json_answers
from earmark.tasks.annotation.answers import PARSER
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import KeptRefused
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.request import Answer
from tests.annotation.conftest import Bench, config_for, requests_for, serving
from tests.servers.faults import Faults

PRICED = {"prices": Prices(input_per_million=1.0, output_per_million=10.0)}
EARLIER = """UPDATE requests SET parser = 3"""
BROKEN = """
UPDATE attempts SET raw = replace(raw, '"finish_reason": "stop"', '"finish_reason": "abort"')
WHERE request_id IN (SELECT id FROM requests WHERE state = 'answered' ORDER BY id LIMIT 7)
"""


def age(ledger: Path, *changes: str) -> None:
    """Have a ledger look as an earlier release left it."""
    with closing(connect(ledger)) as driver:
        for change in (EARLIER, *changes):
            driver.run(change)


@pytest.mark.parametrize("options", [{}, {"repairs": 0}, {"batch": True, "batch_poll_s": 0.05}])
def test_kept_answers_that_are_none_now_are_shown_with_money_before_they_are_asked(
    tmp_path: Path, run: Any, options: dict[str, Any]
) -> None:
    async def story() -> None:
        server, ledger = await serving(), tmp_path / "l.sqlite"
        config, bench = config_for(server, **PRICED, **options), Bench(ledger, server)
        requests = requests_for(config, 30)
        first = await bench.ask(config, requests)
        age(ledger, BROKEN)
        before = ledger.read_bytes()
        for _ in range(2):
            async with open_ledger(ledger, reading=True) as opened, Annotator(config, opened) as annotator:
                dry = await annotator.forecast(requests)
                known = await annotator.known(requests)
        assert (dry["from_ledger"], dry["to_ask"], dry["refused"]) == (23, 7, 7)
        assert 0 < dry["refused_usd"] == dry["most_usd"]
        assert known.count(None) == 7
        assert all(now in (None, then) for now, then in zip(known, first.outcomes, strict=True))
        assert ledger.read_bytes() == before
        with pytest.raises(KeptRefused, match="7 kept answers are none by today's rules"):
            await bench.ask(config, requests)
        assert server.faults.numbers()["asked"] == 30
        again = await bench.ask(config, requests)
        assert again.outcomes == first.outcomes
        assert server.faults.numbers()["asked"] == 37
        assert (await bench.ask(config, requests)).exchanges == 0
        with closing(connect(ledger)) as driver:
            assert driver.rows("SELECT DISTINCT parser, state FROM requests") == [(PARSER, "answered")]
        await server.stop()

    run(story)


def test_a_kill_before_the_number_was_shown_asks_nothing(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, ledger = await serving(), tmp_path / "l.sqlite"
        config, bench = config_for(server), Bench(ledger, server)
        requests = requests_for(config, 10)
        await bench.ask(config, requests)
        age(ledger, BROKEN, "UPDATE requests SET state = 'open'")  # claimed, and the process was gone
        with pytest.raises(KeptRefused):
            await bench.ask(config, requests)
        assert server.faults.numbers()["asked"] == 10
        await server.stop()

    run(story)


def test_a_judgment_that_was_refused_for_a_long_reason_is_read_anew_and_not_asked(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        server = await serving()
        server.keep_bodies = True
        said = {"musicality": "A", "alignment": "tie", "reason": "The drums of clip A are steadier. " * 50}
        server.answer = lambda body, content: json.dumps(said)
        config, bench = config_for(server, repairs=0), Bench(tmp_path / "l.sqlite", server)
        with monkeypatch.context() as before:
            before.setattr(
                json_answers, "_fitted_field", lambda name, value, schema: json_answers.fitted(value, schema)
            )
            first = await bench.ask(config, requests_for(config, 3))
        assert first.reasons() == {"schema_mismatch": 3}
        age(tmp_path / "l.sqlite")
        again = await bench.ask(config, requests_for(config, 3))
        assert (again.answered, again.exchanges) == (3, 0)
        (value,) = {json.dumps(one.value) for one in again.outcomes if isinstance(one, Answer)}
        assert json.loads(value) == said | {"reason": str(said["reason"])[:299].rstrip() + "…"}
        sent = server.bodies[0]["response_format"]["json_schema"]["schema"]
        assert sent["properties"]["reason"]["maxLength"] == 300
        await server.stop()

    run(story)


@pytest.mark.slow
def test_rejects_that_were_paid_for_are_never_asked_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        kinds = ("refusal", "empty", "enormous", "wrong_shape")
        server = await serving(Faults(rate=1.0, kinds=kinds, most=None, enormous_bytes=2 << 20))
        config, bench = config_for(server, repairs=1), Bench(tmp_path / "l.sqlite", server)
        first = await bench.ask(config, requests_for(config, 24))
        assert len(first.reasons()) >= 3
        age(tmp_path / "l.sqlite")
        again = await bench.ask(config, requests_for(config, 24))
        assert (again.outcomes, again.exchanges) == (first.outcomes, 0)
        await server.stop()

    run(story)
