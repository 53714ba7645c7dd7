"""Faults that every request meets stop a run, by a known form or by behaviour; those of a row stay its own."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict

from earmark.schemas.questions import Json
from earmark.tasks.annotation import server_faults
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import (
    AllAlike,
    AskError,
    BadRequest,
    RowRefused,
    ServerError,
    StopRun,
)
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.patience import FIRST, IN_A_ROW, Streaks
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.server_faults import (
    FORMS,
    TABLE,
    FaultRow,
    fault_of,
    form_of,
    said_in,
    status_within,
    wait_s,
)
from earmark.tasks.annotation.vllm_serve import FAULTS
from tests.annotation.asking import digest
from tests.annotation.conftest import Bench, config_for, requests_for
from tests.annotation.error_bodies import RECORDED, WITHIN, Recorded
from tests.annotation.faulty_server import about, bench_of
from tests.servers.openai_server import OpenAIServer


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one.provider}-{one.status}-{one.body[:60]}")
def test_each_recorded_body_is_its_fault(one: Recorded) -> None:
    headers = CIMultiDict(one.headers)
    fault = fault_of(one.status, one.body, headers, where="http://server", advice="check the key")
    assert type(fault) is one.fault
    assert wait_s(one.status, headers, one.body) == one.wait_s
    assert str(fault).isprintable()


@pytest.mark.parametrize("one", WITHIN, ids=lambda one: one.body[:60])
def test_an_error_sent_as_a_success_is_its_fault(one: Recorded) -> None:
    status = status_within(one.body)
    assert status == one.status
    assert type(fault_of(status, one.body, {}, where="http://server")) is one.fault


@pytest.mark.parametrize(
    "body",
    [
        '{"choices":[{"message":{"content":"{\\"error\\": 1}"}}],"usage":{}}',
        '{"id":"1","choices":[],"error":{"message":"x"}}',
        '{"candidates":[],"code":7,"message":"x"}',
        '{"error":null,"choices":[]}',
        '{"code":0,"message":"ok","data":{}}',
        '{"code":200,"msg":"success","data":{}}',
        '{"quality":3.5,"error":0.25,"code":7,"message":4.5}',  # a scorer's figures
        '{"object":"list","data":[]}',
        '{"detail":"all is well"}',
        '{"message":"API key expired","quality":3.5}',  # a scorer's text
        '{"choices":[{"message":{"content":"x"}}],"error":{"message":"API key expired"}}',
        '{"message":{"role":"assistant","content":"my API key expired"},"done":true}',  # of another protocol
        '{"id":"1"}', "[]", "7", "{", "",
    ],
)  # fmt: skip
def test_a_body_that_is_no_error_has_no_status_within(body: str) -> None:
    assert status_within(body) is None


def test_sixty_bodies_of_every_provider_hold_every_form() -> None:
    assert len(RECORDED) >= 60
    wanted = {"openai", "azure", "gemini", "anthropic", "openrouter", "litellm", "vllm", "sglang", "tgi", "llama.cpp"}
    assert wanted | {"ollama", "lm-studio"} <= {one.provider for one in RECORDED}
    met = Counter(form_of(said_in(one.status, one.body)) for one in RECORDED)
    assert {form.fault for form in FORMS} <= met.keys()


def test_the_table_is_of_faults_and_patterns() -> None:
    keys = {"forms": {"fault", "patterns", "statuses"}, "ends": {"fault", "patterns", "says"}}
    assert TABLE.keys() == keys.keys()
    assert set.union(*keys.values()) == FaultRow.__annotations__.keys()
    assert not [one for part, rows in TABLE.items() for one in rows if one.keys() - keys[part]]
    assert len(FORMS) == len(TABLE["forms"]) > 7
    assert len(FAULTS) == len(TABLE["ends"]) > 4
    assert all(issubclass(form.fault, AskError) and set(form.statuses) < set(range(400, 601)) for form in FORMS)
    assert all(issubclass(kind, StopRun) and says == says.strip() and "\n" not in says for _, kind, says in FAULTS)
    patterns = [line for rows in TABLE.values() for one in rows for line in one["patterns"].split("\n")[:-1]]
    assert not [line for line in patterns if line != line.strip() or re.search(line, "")]


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (0, "add money or quota"),
        (3, "key"),
        (11, "check annotator and base_url"),
        (13, "Insufficient balance; add money"),
    ],
)
def test_a_common_fault_sent_as_a_success_stops_the_run_with_advice(
    tmp_path: Path, run: Any, place: int, says: str
) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        one = WITHIN[place]._replace(status=200)
        server.meets = lambda number, body: one if number > 4 else None
        config = config_for(server, max_concurrency=2)
        with pytest.raises(one.fault, match=says):
            await bench.ask(config, requests_for(config, 24))
        assert server.asked <= 4 + 2
        server.meets = lambda number, body: None
        assert (await bench.ask(config, requests_for(config, 24))).answered == 24
        await server.stop()

    run(story)


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("says", ["Insufficient credits", "API key expired", "The model `m` does not exist"])
def test_a_fault_of_money_key_or_model_in_a_server_error_stops_the_run_at_once(
    tmp_path: Path, run: Any, says: str, status: int
) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        body = f'{{"error":{{"message":"{says}"}}}}'
        server.meets = lambda number, _: Recorded("any", status, body, StopRun) if number > 4 else None
        with pytest.raises(StopRun, match=f"{status}: {says}; (add money|.*key|check annotator)"):
            await bench.ask(config_for(server, max_concurrency=2), requests_for(config_for(server), 24))
        assert server.asked <= 4 + 2
        await server.stop()

    run(story)


@pytest.mark.slow
def test_the_progress_shows_when_a_failed_server_is_tried_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        later = Recorded("any", 500, '{"error":{"message":"boom"}}', ServerError, 3.0, (("retry-after", "3"),))
        server.meets = lambda number, body: later if number == 5 else None
        config, lines = config_for(server, max_concurrency=1, retries=1), list[str]()
        async with (
            open_ledger(bench.ledger) as ledger,
            Annotator(config, ledger, on_progress=lambda look: lines.append(look.line())) as annotator,
        ):
            await annotator.ask(requests_for(config, 8))
        assert any(re.search(r"4/8 done .*, the next try in [23] s, after 500: boom$", line) for line in lines)
        assert "next try" not in lines[-1]
        await server.stop()

    run(story)


UNKNOWN = Recorded("unknown", 400, '{"error":{"message":"Zahlung erforderlich (Vorgang 8f3a91c2)"}}', BadRequest)


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 7))])
def test_any_recorded_body_at_any_moment_resumes_to_the_same_bytes_or_stops(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Every body, each from its own moment on (to the end, or for one request alone): the outcomes of an undisturbed
    run, or a stop with its reason after which the same call has them. A run never has fewer answers in silence."""

    monkeypatch.setattr(server_faults, "LONGEST_WAIT_S", 0.05)

    async def story() -> None:
        server, bench = await bench_of(tmp_path / "calm.sqlite")
        config = config_for(server, patience_s=0.3, max_concurrency=4)
        requests = requests_for(config, 24)
        calm = digest((await bench.ask(config, requests)).outcomes)
        for place, one in list(enumerate(RECORDED))[number::7]:
            begins = random.Random(place).randrange(1, 20)
            for lasts in (False, True):
                server.asked, server.meets = (
                    0,
                    lambda n, body, one=one, begins=begins, lasts=lasts: (
                        one if n == begins or (lasts and n > begins) else None
                    ),
                )
                bench = Bench(tmp_path / f"{place}{lasts}.sqlite", server)
                stopped = None
                try:
                    report = await bench.ask(config, requests)
                except StopRun as error:
                    stopped = error
                server.meets = lambda n, body: None
                if stopped:
                    assert str(stopped)
                else:
                    rejects = report.reasons()
                    assert rejects.keys() <= {"bad_request", "refused", "rate_limited", "server_error"}
                    assert lasts or sum(rejects.values()) <= 1
                    if rejects.get("refused"):  # an outcome
                        continue
                assert digest((await bench.ask(config, requests)).outcomes) == calm
        await server.stop()

    run(story)


def test_the_same_unknown_refusal_of_the_first_rows_stops_the_run(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.meets = lambda number, body: UNKNOWN
        config = config_for(server, max_concurrency=2)
        with pytest.raises(AllAlike, match="the first 5 questions all end alike: 400: Zahlung"):
            await bench.ask(config, requests_for(config, 500))
        assert server.asked <= FIRST + 2
        server.meets = lambda number, body: None
        assert (await bench.ask(config, requests_for(config, 500))).answered == 500
        await server.stop()

    run(story)


def test_a_resumed_run_stops_too_where_the_server_never_answered(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.meets = lambda number, body: UNKNOWN
        config = config_for(server, max_concurrency=2)
        for _ in range(2):
            with pytest.raises(AllAlike, match="questions all end alike: 400: Zahlung"):
                await bench.ask(config, requests_for(config, FIRST + 2))
        assert server.asked <= 2 * (FIRST + 2)
        await server.stop()

    run(story)


class Unlabelled(OpenAIServer):
    """A server that sends JSON without its content type."""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Send a completion as bytes of no kind."""
        answer = await super().chat(request)
        assert isinstance(answer, web.Response)
        return web.Response(body=answer.body, status=answer.status)


def test_an_answer_without_a_content_type_is_read(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Unlabelled()
        await server.start()
        config = config_for(server)
        told = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 20))
        assert (told.answered, told.exchanges) == (20, 20)
        await server.stop()

    run(story)


def test_the_same_unknown_refusal_of_rows_in_a_row_stops_the_run_in_its_middle(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.meets = lambda number, body: UNKNOWN if number > 40 else None
        config = config_for(server, max_concurrency=4)
        with pytest.raises(AllAlike, match="questions in a row end alike"):
            await bench.ask(config, requests_for(config, 500))
        assert server.asked <= 40 + IN_A_ROW + 8
        server.meets = lambda number, body: None
        assert (await bench.ask(config, requests_for(config, 500))).answered == 500
        await server.stop()

    run(story)


def test_rows_that_the_server_refuses_for_ever_stay_rejects_and_stop_no_later_run(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server, bench = await bench_of(tmp_path / "l.sqlite")
        server.meets = lambda number, body: UNKNOWN if about(body) % 8 == 3 else None
        config = config_for(server)
        first = await bench.ask(config, requests_for(config, 400))
        assert (first.answered, first.reasons()) == (350, {"bad_request": 50})
        again = await bench.ask(config, requests_for(config, 400))
        assert (again.exchanges, again.reasons()) == (50, {"bad_request": 50})
        await server.stop()

    run(story)


def test_a_form_that_is_about_one_row_stops_no_run_in_its_middle() -> None:
    streaks, requests = Streaks(), requests_for(config_for(type("At", (), {"base_url": "http://127.0.0.1:9/v1"})), 60)
    places = [streaks.place(request) for request in requests]
    streaks.answered(requests[0])
    assert not any(streaks.failed(place, RowRefused("400: the prompt is too long")) for place in places[1:])


def ends(order: list[int], alike: set[int]) -> bool:
    """Return true if questions that fail in an order stop a run; the others are answered later."""
    config = config_for(type("At", (), {"base_url": "http://127.0.0.1:9/v1"}))
    requests: list[Request] = requests_for(config, max(order) + 1)
    streaks = Streaks()
    places = [streaks.place(request) for request in requests]
    return any(streaks.failed(places[n], BadRequest(f"400: no (id {n})")) for n in order if n in alike)


def test_a_streak_is_by_the_order_of_sending_whatever_ends_first() -> None:
    dice = random.Random(17)
    for _ in range(100):
        order = list(range(30))
        dice.shuffle(order)
        assert ends(order, {*range(FIRST)})
        assert not ends(order, {0, 1, 2, 3, *range(FIRST, 20)})  # the fifth is answered
        assert ends(order, {*range(7, 7 + IN_A_ROW)})
        assert not ends(order, {*range(7, 6 + IN_A_ROW)})


def test_questions_whose_schemas_are_bound_to_their_rows_are_of_one_kind() -> None:
    config = config_for(type("At", (), {"base_url": "http://127.0.0.1:9/v1"}))
    streaks, faults = Streaks(), []
    for number, request in enumerate(requests_for(config, FIRST), 1):
        bound = replace(request, ask=Json.of({"type": "array", "maxItems": number}, ordered=True))
        faults.append(streaks.failed(streaks.place(bound), BadRequest("400: no schema of this form")))
    assert [fault is not None for fault in faults] == [False] * (FIRST - 1) + [True]
