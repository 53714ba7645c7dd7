"""Every kind of faulty answer of the catalogue: a typed end of that request, and nothing else is lost, told or held."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.schemas.questions import Json, Message, YesNo
from earmark.tasks.annotation import patience, server_faults
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.budget import Budget, limits_of
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import BudgetExhausted
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_reports import stats
from earmark.tasks.annotation.request import Answer, Outcome, Request, Unanswered
from tests.annotation.conftest import SCHEMA
from tests.conftest import ROOT
from tests.servers.faulty.kinds import CAP, KINDS
from tests.servers.faulty.server import FaultyServer

KEY = "sk-canary-0123456789abcdef"
SLOW_S = 45.0
"""The whole catalogue has to end within this; it takes a few seconds on a quiet machine."""
HURRIED: dict[str, Any] = {"read_timeout_s": 0.4, "total_timeout_s": 1.0}
"""For those that would wait for ever."""
GOOD = 40
PATIENCE: dict[str, Any] = {
    "retries": 1,
    "repairs": 1,
    "retry_base_s": 0.01,
    "read_timeout_s": 20.0,
    "total_timeout_s": 30.0,
    "max_concurrency": 256,
    "max_tokens": 200,
}
PRICES = Prices(input_per_million=1.0, output_per_million=10.0)


def config_for(server: FaultyServer, **options: Any) -> AnnotatorConfig:
    """A config that asks the faulty server and loses patience soon."""
    return AnnotatorConfig(**{"annotator": "openai:tiny", "base_url": server.base_url, **PATIENCE, **options})


def meet(config: AnnotatorConfig, name: str) -> Request:
    """A request that meets a kind; any other name is answered well."""
    ask = YesNo() if name in KINDS and KINDS[name].yes_no else Json.of(SCHEMA)
    return question(config, [Message.of("user", f"meet {name}")], ask)


@dataclass
class Met:
    """What came of the whole catalogue, asked at once among good requests."""

    outcomes: dict[str, Outcome]
    seconds: float
    times: dict[str, int]
    canary: bytes
    ledger: Path
    spent_usd: float
    odd_usage: int


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Met]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("EARMARK_KEY_HOSTS", "OPENAI_API_KEY=127.0.0.1")
        patch.setattr(server_faults, "LONGEST_WAIT_S", 0.2)  # the longest wait that is believed is an hour
        for name in ("FIRST", "IN_A_ROW"):  # here each kind ends by itself
            patch.setattr(patience, name, 10**6)
        yield asyncio.run(ask_all(tmp_path_factory.mktemp("faulty") / "l.sqlite"))


async def ask_all(ledger: Path) -> Met:
    names = [f"nothing-{n}" for n in range(GOOD)]
    waiting = [name for name, kind in KINDS.items() if kind.ends in ("timed_out", "rate_limited")]
    outcomes, spent, odd, started = {}, 0.0, 0, time.monotonic()
    async with FaultyServer() as server, open_ledger(ledger) as opened:
        for some, options in ([name for name in KINDS if name not in waiting] + names, {}), (waiting, HURRIED):
            config = config_for(server, prices=PRICES, **options)
            async with Annotator(config, opened) as annotator:
                report = await asyncio.wait_for(annotator.ask([meet(config, name) for name in some]), 120)
            outcomes |= dict(zip(some, report.outcomes, strict=True))
            spent, odd = spent + report.spent_usd, odd + report.odd_usage
        seconds = time.monotonic() - started
        return Met(outcomes, seconds, dict(server.met), bytes(server.canary), ledger, spent, odd)


def test_there_are_more_than_sixty_kinds() -> None:
    assert len(KINDS) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_ends_as_the_catalogue_says(met: Met, name: str) -> None:
    outcome, wanted = met.outcomes[name], KINDS[name].ends
    if wanted == "answered":
        assert isinstance(outcome, Answer), outcome
        assert outcome.value["reason"] == f"meet {name}"
        assert outcome.model is None or (outcome.model.isprintable() and len(outcome.model) <= 200)
    else:
        assert isinstance(outcome, Unanswered), outcome
        assert outcome.reason == wanted, outcome
        assert outcome.detail
        assert outcome.detail.isprintable()  # one line, and no half surrogate that a table could not hold
        assert len(outcome.detail) < 600
        assert met.times[name] == (1 if wanted in ("refused", "bad_request") else 2)  # and once more, not for ever


@pytest.mark.slow
def test_the_good_requests_among_them_are_all_answered(met: Met) -> None:
    for n in range(GOOD):
        outcome = met.outcomes[f"nothing-{n}"]
        assert isinstance(outcome, Answer)
        assert outcome.value["reason"] == f"meet nothing-{n}"  # its own, not one that was left on a connection


@pytest.mark.slow
def test_it_ends_soon(met: Met) -> None:
    assert met.seconds < SLOW_S


@pytest.mark.parametrize("name", ["gzip_cut", "gzip_that_is_none"])
def test_a_body_that_cannot_be_unpacked_may_have_been_charged(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with FaultyServer() as server, open_ledger(tmp_path / "l.sqlite") as opened:
            config = config_for(server, prices=PRICES, retries=6)
            request = meet(config, name)
            budget_usd = 2.5 * Budget(config, limits_of(config)).worst_usd(request)
            async with Annotator(config.model_copy(update={"budget_usd": budget_usd}), opened) as annotator:
                with pytest.raises(BudgetExhausted, match="lost on the way"):
                    await annotator.ask([request])
            assert server.met[name] == 2

    asyncio.run(story())


def test_nothing_follows_a_redirect_and_no_key_is_kept(met: Met) -> None:
    assert met.canary == b""
    held = b"".join(file.read_bytes() for file in met.ledger.parent.iterdir())
    assert KEY.encode() not in held
    assert KEY not in str(met.outcomes)


def test_odd_token_counts_cost_the_most_that_they_may_and_are_counted(met: Met) -> None:
    odd = [name for name in KINDS if name.startswith("usage_") and KINDS[name].ends == "answered"]
    assert met.odd_usage == len(odd) >= 14
    told = stats(met.ledger)["models"]["openai:tiny"]
    assert told["faults"]["odd_usage"] == len(odd)
    assert 0 <= told["input_tokens"] < 100_000
    assert told["cost_usd"] == pytest.approx(met.spent_usd)
    driver = connect(met.ledger)
    counts = driver.rows("SELECT input_tokens, output_tokens, cost_usd FROM attempts WHERE error_type = 'odd_usage'")
    driver.close()
    worst = PATIENCE["max_tokens"] * PRICES.output_per_million / 1e6
    assert {out for _, out, _ in counts} == {PATIENCE["max_tokens"]}
    assert all(worst < cost < 1.1 * worst and 0 < read < 100 for read, _, cost in counts)


def test_a_second_response_that_comes_late_is_not_taken_for_the_next_answer(tmp_path: Path) -> None:
    async def story() -> list[Outcome]:
        async with FaultyServer() as server, open_ledger(tmp_path / "l.sqlite") as ledger:
            config = config_for(server, max_concurrency=1)
            async with Annotator(config, ledger) as annotator:
                first = await annotator.ask([meet(config, "two_responses_late")])
                await asyncio.sleep(0.2)
                return first.outcomes + (await annotator.ask([meet(config, "nothing-1")])).outcomes

    first, second = asyncio.run(story())
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert second.value["reason"] == "meet nothing-1"


BOMBS = [name for name in KINDS if "bomb" in name or name.startswith(("endless", "a_terabyte", "huge", "model_of_a"))]


@pytest.mark.slow
def test_bombs_take_little_memory(tmp_path: Path) -> None:
    """Two gigabytes each once they are unpacked, all at once, against the most that the asking process ever held."""

    async def story() -> tuple[bytes, bytes, int | None]:
        code = "from tests.annotation.test_faulty_answers import measure; measure()"
        async with FaultyServer() as server:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code, server.base_url, str(tmp_path / "l.sqlite")),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            told, wrong = await asyncio.wait_for(child.communicate(), 120)
            return told, wrong, child.returncode

    told, wrong, code = asyncio.run(story())
    assert code == 0, wrong.decode()
    before, after, reasons = json.loads(told)
    assert reasons == {name: KINDS[name].ends for name in BOMBS}
    assert after - before < 16 * CAP, f"{(after - before) >> 20} MiB more than the {before >> 20} MiB of good answers"


def measure() -> None:
    """Ask for all bombs; print the peak of this process's memory before and after, in bytes, and how each ended."""

    async def story() -> None:
        async with open_ledger(Path(sys.argv[2])) as ledger:
            config = AnnotatorConfig(annotator="openai:tiny", base_url=sys.argv[1], **PATIENCE)
            async with Annotator(config, ledger) as annotator:
                await annotator.ask([meet(config, f"nothing-{n}") for n in range(50)])
                before = peak()
                report = await annotator.ask([meet(config, name) for name in BOMBS])
        ended = [getattr(outcome, "reason", "answered") for outcome in report.outcomes]
        print(json.dumps([before, peak(), dict(zip(BOMBS, ended, strict=True))]))

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    asyncio.run(story())
