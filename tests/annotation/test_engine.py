"""The engine against a server that goes wrong in every way: each request ends in an answer or a typed reject."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import Choice, FreeText, Message, YesNo
from earmark.tasks.annotation.answers import PARSER, Reply
from earmark.tasks.annotation.backend import Media, make_backend, question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import AuthFailed, Stopped
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.progress import Progress
from earmark.tasks.annotation.request import Answer, Request, Unanswered
from earmark.tasks.annotation.session import Session
from tests.annotation.conftest import Bench, LocalServer, ask_all, config_for, requests_for, serving
from tests.servers.faults import ALL, TRANSPORT, Faults
from tests.servers.openai_server import default_answer


def test_answers_in_order_and_asks_equal_requests_once(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        config = config_for(server)
        requests = requests_for(config, 30)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests + requests[::-1])
        assert [o.key for o in report.outcomes] == [r.key for r in requests + requests[::-1]]
        assert report.distinct == report.answered == report.exchanges == 30
        assert server.faults.numbers()["asked"] == 30
        await server.stop()

    run(story)


def test_a_second_run_asks_nothing_and_one_more_row_asks_one(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        config, bench = config_for(server), Bench(tmp_path / "l.sqlite", server)
        first = await bench.ask(config, requests_for(config, 21))
        again = await bench.ask(config, requests_for(config, 22)[::-1])
        assert again.outcomes[::-1][:21] == first.outcomes
        assert (again.from_ledger, again.exchanges) == (21, 1)
        other = config.model_copy(update={"max_concurrency": 2, "retries": 1})
        assert (await bench.ask(other, requests_for(other, 22))).exchanges == 0
        assert server.faults.numbers()["asked"] == 22
        await server.stop()

    run(story)


def test_a_fault_of_our_own_ends_the_run_however_many_workers_meet_it_at_once(tmp_path: Path, run: Any) -> None:
    class Broken:
        async def open(self) -> None: ...

        async def close(self) -> None: ...

        async def send(self, request: Request) -> str:
            raise RuntimeError("no thread is left")

        def read(self, request: Request, raw: str) -> Reply:
            raise AssertionError

    async def story() -> None:
        config = AnnotatorConfig(annotator="openai:m", base_url="http://127.0.0.1:9/v1", max_concurrency=64)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger, backend=Broken()) as asks:
            with pytest.raises(RuntimeError, match="no thread is left"):
                await asyncio.wait_for(asks.ask(requests_for(config, 50)), 120)

    run(story)


def test_another_host_asks_nothing(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        one, two = await serving(), await serving()
        ledger = tmp_path / "l.sqlite"
        first = await Bench(ledger, one).ask(config_for(one), requests_for(config_for(one), 5))
        second = await Bench(ledger, two).ask(config_for(two), requests_for(config_for(two), 5))
        assert first.outcomes == second.outcomes
        assert two.faults.numbers()["asked"] == 0
        await one.stop()
        await two.stop()

    run(story)


@pytest.mark.slow
def test_a_third_faulty_every_request_ends_and_the_counts_add_up(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        faults = Faults(rate=0.3, kinds=ALL, most=None, stall_s=2.0, enormous_bytes=2 << 20)
        server = await serving(faults)
        config = config_for(server, max_concurrency=32, repairs=1, retries=3, read_timeout_s=0.3)
        requests = requests_for(config, 400)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests)
        assert len(report.outcomes) == 400
        assert report.answered + report.rejected == 400
        assert sum(isinstance(o, Answer) for o in report.outcomes) == report.answered
        assert sum(report.reasons().values()) == report.rejected
        assert report.exchanges == faults.numbers()["asked"]
        assert "refused" in report.reasons()
        for request, outcome in zip(requests, report.outcomes, strict=True):
            if isinstance(outcome, Answer):
                assert set(outcome.value) == {"musicality", "alignment", "reason"}, request.key
        attempts = connect(tmp_path / "l.sqlite").rows("SELECT count(*), sum(status = 'received') FROM attempts")
        assert attempts == [(report.exchanges, 0)]
        await server.stop()

    run(story)


@pytest.mark.parametrize("kind", TRANSPORT)
def test_each_fault_of_the_transport_is_outlived(tmp_path: Path, run: Any, kind: str) -> None:
    async def story() -> None:
        server = await serving(Faults(rate=1.0, kinds=(kind,), most=1, stall_s=2.0))
        config = config_for(server, read_timeout_s=0.2)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 3))
        assert (report.answered, report.exchanges) == (3, 6)
        await server.stop()

    run(story)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("429", "rate_limited"),
        ("500", "server_error"),
        ("reset", "connection_failed"),
        ("stall", "timed_out"),
        ("truncated_body", "connection_failed"),
        ("truncated_json", "malformed_response"),
        ("wrong_content_type", "wrong_content_type"),
        ("wrong_shape", "schema_mismatch"),
        ("refusal", "refused"),
        ("empty", "empty"),
        ("enormous", "too_large"),
    ],
)
def test_each_lasting_fault_becomes_its_reject(tmp_path: Path, run: Any, kind: str, reason: str) -> None:
    async def story() -> None:
        server = await serving(Faults(rate=1.0, kinds=(kind,), most=None, stall_s=2.0))
        config = config_for(server, retries=2, repairs=1, read_timeout_s=0.1)
        bench, requests = Bench(tmp_path / "l.sqlite", server), requests_for(config, 2)
        report = await bench.ask(config, requests)
        assert report.reasons() == {reason: 2}
        asked = report.exchanges
        server.faults.rate = 0.0
        again = await bench.ask(config, requests)
        if all(isinstance(o, Unanswered) and o.final for o in report.outcomes):
            assert (again.reasons(), again.exchanges) == ({reason: 2}, 0)
        else:
            assert (again.answered, again.exchanges) == (2, 2)
        assert asked == {"refused": 2}.get(reason, 4 if reason in ("schema_mismatch", "empty", "too_large") else 6)
        await server.stop()

    run(story)


def test_a_model_that_errs_at_temperature_0_is_asked_again_at_another(tmp_path: Path, run: Any) -> None:
    """A model without chance says the same each time: asked again at 0, it would be paid for the same fault again."""

    def deterministic(body: dict[str, Any], content: str) -> str:
        return default_answer(body, content) if body["temperature"] else "no JSON"

    async def story() -> None:
        server = await serving(answer=deterministic)
        server.keep_bodies = True
        config = config_for(server, repairs=2, seed=5)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 1))
        assert (report.answered, report.exchanges) == (1, 2)
        assert [body["temperature"] for body in server.bodies] == [0.0, 0.7]
        assert len({body["seed"] for body in server.bodies}) == 2
        warm = config.model_copy(update={"temperature": 0.3, "seed": 6})
        draws = [replace(one, sample=draw) for one in requests_for(warm, 1) for draw in (0, 1)]
        assert (await Bench(tmp_path / "l.sqlite", server).ask(warm, draws)).answered == 2
        assert [body["temperature"] for body in server.bodies[2:]] == [0.3, 0.3]
        await server.stop()

    run(story)


def test_text_around_the_json_is_read_without_asking_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(rate=1.0, kinds=("text_around",), most=None))
        config = config_for(server)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 4))
        assert (report.answered, report.exchanges) == (4, 4)
        await server.stop()

    run(story)


def test_choices_text_and_yes_no(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(answer=lambda body, content: " **tie**. ")
        config = config_for(server)
        message = [Message.of("user", "which?")]
        asks = [Choice(("A", "B", "tie")), FreeText(), YesNo(), Choice(("A", "B"))]
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, [question(config, message, a) for a in asks])
        choice, text, yes_no, none = report.outcomes
        assert isinstance(choice, Answer)
        assert isinstance(text, Answer)
        assert isinstance(yes_no, Answer)
        assert (choice.value, text.value) == ("tie", "**tie**.")
        assert 0 < yes_no.value["p_yes"] < 1
        assert yes_no.value["share"] == pytest.approx(0.98)
        assert isinstance(none, Unanswered)
        assert none.reason == "bad_answer"
        await server.stop()

    run(story)


def test_a_wrong_key_stops_the_run_and_is_never_shown(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")

    async def story() -> None:
        server = await serving()
        server.expected_key = "another"
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        config = config_for(server)
        with pytest.raises(AuthFailed, match="check the key in OPENAI_API_KEY") as caught:
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 50))
        assert "sk-very-secret" not in str(caught.value)
        assert "[redacted]" in str(caught.value)
        await server.stop()

    run(story)
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sk-very-secret" not in held


def test_no_key_for_a_hosted_service_is_said_before_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    from earmark.schemas.annotation import AnnotatorConfig

    config = AnnotatorConfig(annotator="openai:gpt-4.1-mini")
    with pytest.raises(AuthFailed, match="OPENAI_API_KEY"):
        ask_all(config, [question(config, [Message.of("user", "hello")])], ledger=tmp_path / "l.sqlite")


def test_concurrency_is_bounded_and_yields_to_the_server(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(latency_s=0.005))
        config = config_for(server, max_concurrency=7)
        await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 100))
        assert server.faults.most_open == 7
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_standstill_is_reported_with_what_it_waits_for(
    tmp_path: Path, run: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    monkeypatch.setattr(AnnotatorConfig, "stalled_after_s", 0.5)

    async def story() -> None:
        server = await serving(Faults(rate=1.0, kinds=("stall",), most=1, stall_s=4.0))
        config = config_for(server, read_timeout_s=2.5)
        async with (
            open_ledger(tmp_path / "l.sqlite") as ledger,
            Annotator(config, ledger, on_progress=seen.append) as annotator,
        ):
            await annotator.ask(requests_for(config, 2))
        await server.stop()

    with caplog.at_level(logging.WARNING):
        run(story)
    assert any(look.waiting and "2 in flight, the oldest" in look.waiting for look in seen)
    assert "nothing completed for" in caplog.text
    assert seen[-1].done == 2
    assert "2/2 done" in seen[-1].line()


def test_a_changed_parser_reads_again_and_asks_nothing(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        server = await serving()
        config, bench = config_for(server), Bench(tmp_path / "l.sqlite", server)
        first = await bench.ask(config, requests_for(config, 10))
        for module in ("engine", "run"):
            monkeypatch.setattr(f"earmark.tasks.annotation.{module}.PARSER", PARSER + 1)
        again = await bench.ask(config, requests_for(config, 10))
        assert again.outcomes == first.outcomes
        assert server.faults.numbers()["asked"] == 10
        assert connect(tmp_path / "l.sqlite").rows("SELECT DISTINCT parser FROM requests") == [(PARSER + 1,)]
        await server.stop()

    run(story)


def test_a_response_that_was_recorded_and_not_read_is_not_asked_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving()
        config, bench = config_for(server), Bench(tmp_path / "l.sqlite", server)
        first = await bench.ask(config, requests_for(config, 10))
        driver = connect(tmp_path / "l.sqlite")
        driver.run("UPDATE requests SET state = 'open', answer = NULL, parser = NULL, settled_at = NULL")
        driver.run("UPDATE attempts SET status = 'received', input_tokens = 0")
        again = await bench.ask(config, requests_for(config, 10))
        assert (again.outcomes, again.exchanges, again.from_ledger) == (first.outcomes, 0, 10)
        await server.stop()

    run(story)


def test_two_annotators_on_one_ledger_ask_each_key_once(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(latency_s=0.01))
        patient = {"read_timeout_s": 30.0, "total_timeout_s": 50.0}  # a retry after a timeout would be asked twice
        config, bench = config_for(server, max_concurrency=8, **patient), Bench(tmp_path / "l.sqlite", server)
        requests = requests_for(config, 120)
        one, two = await asyncio.gather(bench.ask(config, requests), bench.ask(config, requests[::-1]))
        assert one.outcomes == two.outcomes[::-1]
        assert server.faults.numbers()["asked"] == 120
        await server.stop()

    run(story)


def test_what_is_sent_is_what_the_protocol_wants(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        from earmark.schemas.questions import Audio, Json

        server = await serving()
        server.keep_bodies = True
        config = config_for(
            server, repairs=0, seed=3, extra_body={"top_k": 1}, structured="vllm", yes_no_token_ids=(5, 6)
        )
        clip = Audio("a" * 64, "a.wav")
        messages = [Message.of("system", "listen"), Message.of("user", "A:", clip, "B:", clip)]
        asks = [Json.of({"type": "object", "properties": {}}), YesNo(), Choice(("A", "B"))]
        await Bench(tmp_path / "l.sqlite", server).ask(
            config, [question(config, messages, ask) for ask in asks], Media(load_audio=lambda part: b"RIFF")
        )
        bodies = {json.dumps(sorted(body.keys() - {"messages"})): body for body in server.bodies}
        for body in bodies.values():
            kinds = [part["type"] for part in body["messages"][1]["content"]]
            assert kinds == ["text", "input_audio", "text", "input_audio"]
            assert body["messages"][1]["content"][1]["input_audio"] == {"data": "UklGRg==", "format": "wav"}
            assert (body["seed"], body["top_k"], body["model"]) == (3, 1, "tiny")
        logprobs = next(body for body in bodies.values() if "logprobs" in body)
        assert (logprobs["logprob_token_ids"], logprobs["max_tokens"]) == ([5, 6], 1)
        await server.stop()

    run(story)


def test_an_unknown_builtin_judge_is_refused() -> None:
    from earmark.schemas.annotation import AnnotatorConfig

    with pytest.raises(ConfigError, match="builtin"):
        make_backend(AnnotatorConfig(annotator="builtin:no-such-judge"), Media())


def test_shards_in_threads_share_one_session(tmp_path: Path) -> None:
    with LocalServer(Faults(latency_s=0.01)) as server:
        prices = Prices(input_per_million=1.0, output_per_million=10.0)
        config = config_for(server, prices=prices, max_concurrency=6)
        shards = [requests_for(config, 40, first) for first in (0, 20, 40)]
        with Session(config, ledger=tmp_path / "l.sqlite") as session, ThreadPoolExecutor(3) as threads:
            reports = list(threads.map(session.ask, shards))
            assert [report.answered for report in reports] == [40, 40, 40]
            assert session.spent_usd == pytest.approx(80 * 300 / 1e6)
        assert server.faults.numbers()["asked"] == 80
        assert server.faults.most_open <= 6


def test_roles_of_one_declared_model_share_its_pace(tmp_path: Path) -> None:
    """Four roles, each with a session and loop of its own; one ends early while its requests wait."""
    with LocalServer(Faults(latency_s=0.02)) as server:
        roles = [config_for(server, max_concurrency=3, temperature=heat / 10) for heat in range(4)]
        with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
            sessions = [stack.enter_context(Session(role, ledger=tmp_path / "l.sqlite")) for role in roles]
            asking = [
                threads.submit(session.ask, requests_for(role, 25))
                for session, role in zip(sessions, roles, strict=True)
            ]
            while server.faults.asked.total() < 12:
                time.sleep(0.01)
            sessions[0].stop()
            with pytest.raises(Stopped):
                asking[0].result(30)
            assert all(not one.result(30).rejected for one in asking[1:])
        assert server.faults.most_open == 3


def test_a_session_passes_errors_on_and_ends(tmp_path: Path) -> None:
    with LocalServer(Faults()) as server:
        server.expected_key = "another"
        config = config_for(server)
        with pytest.raises(AuthFailed), Session(config, ledger=tmp_path / "l.sqlite") as session:
            session.ask(requests_for(config, 3))
    assert not [thread for thread in threading.enumerate() if thread.name == "annotation"]
