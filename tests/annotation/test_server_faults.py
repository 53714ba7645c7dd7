"""Faults that every request meets stop a run, by a known form or by behaviour; those of a row stay its own."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict

from earmark.schemas.questions import Json
from earmark.tasks.annotation import patience, server_faults
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import (
    AllAlike,
    AskError,
    BadRequest,
    RateLimited,
    Retriable,
    RowRefused,
    ServerError,
    ServerGone,
    StopRun,
    Unavailable,
)
from earmark.tasks.annotation.ledger import open_ledger
from earmark.tasks.annotation.patience import FIRST, IN_A_ROW, Patience, Streaks
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


class Bodies(OpenAIServer):
    """A server that answers well but for what `meets` gives for a request's number and body."""

    meets: Callable[[int, dict[str, Any]], Recorded | None] = staticmethod(lambda number, body: None)
    asked = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """A completion or the error."""
        self.asked += 1
        if one := self.meets(self.asked, await request.json()):
            kind = "application/json" if one.body.startswith("{") else "text/html"
            return web.Response(status=one.status, text=one.body, content_type=kind, headers=dict(one.headers))
        return await super().chat(request)


def about(body: dict[str, Any]) -> int:
    """The number of the pair that a request of `requests_for` is about."""
    return int(body["messages"][-1]["content"].split()[-1])


async def bench_of(path: Path) -> tuple[Bodies, Bench]:
    server = Bodies()
    await server.start()
    return server, Bench(path, server)


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


# -- patience -------------------------------------------------------------------------------------------------


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
