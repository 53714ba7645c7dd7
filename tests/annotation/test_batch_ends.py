"""Provider batches end: whatever a line, a queue or an account comes to, the rest is collected and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.questions import FreeText, Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.errors import (
    AllAlike,
    AuthFailed,
    BatchUnreachable,
    QuotaExhausted,
)
from earmark.tasks.annotation.ledger_reports import batches, free_batch
from earmark.tasks.annotation.request import Unanswered
from tests.annotation.batch_provider import Provider
from tests.annotation.conftest import Bench, config_for, requests_for
from tests.annotation.test_batches import BATCH

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


@pytest.mark.parametrize(
    "trouble",
    ["", "bad line", "late", "full", "words", "own state", "page for a state", "page for results", "empty at first",
     "empty errors", "half at first"],
)  # fmt: skip
def test_every_batch_ends_and_every_request_has_its_answer(
    tmp_path: Path, run: Any, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        server = Provider(answer=lambda body, content: f"first{SEPARATORS}second {content}")
        server.trouble = trouble
        await server.start()
        config = config_for(server, **BATCH | {"batch_requests": 10})
        requests = [question(config, [Message.of("user", f"say {n}")], FreeText()) for n in range(30)]
        bench = Bench(tmp_path / "l.sqlite", server)
        with caplog.at_level(logging.WARNING, "earmark.annotation"):
            report = await asyncio.wait_for(bench.ask(config, requests), 30)
        assert (report.answered, report.rejected) == (30, 0)
        assert (await bench.ask(config, requests)).exchanges == 0
        asked_again = {"bad line": 1, "full": None}.get(trouble, 0)
        if asked_again is not None:
            assert server.faults.numbers()["asked"] == 30 + asked_again
        told = {"full": "Enqueued token limit reached", "bad line": "a line"}
        assert told.get(trouble, "") in caplog.text
        await server.stop()

    run(story)


@pytest.mark.parametrize(
    ("trouble", "found"), [("empty", "no line"), ("other ids", "other custom_ids, such as '[0-9A-F]")]
)
def test_a_completed_batch_without_results_is_not_asked_again_as_if_unanswered(
    tmp_path: Path, run: Any, trouble: str, found: str
) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = trouble
        await server.start()
        config, bench = config_for(server, **BATCH | {"retry_base_s": 0.001}), Bench(tmp_path / "l.sqlite", server)
        with pytest.raises(
            BatchUnreachable, match=rf"'completed': expected results, found {found}.*; .* --free batch_"
        ):
            await bench.ask(config, requests_for(config, 5))
        server.trouble = ""
        for name, content in server.files.items():
            server.files[name] = content if name in server.file_names else re.sub(rb"[0-9A-F]{64}", _lower, content)
        report = await bench.ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (5, 1, 5)
        await server.stop()

    run(story)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("trouble", ["half", "half a line"])
def test_a_cut_results_file_has_its_missing_lines_asked_anew_only_after_a_person_let_it_go(
    tmp_path: Path, run: Any, trouble: str, counts: bool
) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble, server.shows_counts = trouble, counts
        await server.start()
        config, bench = config_for(server, **BATCH | {"retry_base_s": 0.001}), Bench(tmp_path / "l.sqlite", server)
        requests = requests_for(config, 8)
        for _ in range(2):
            with pytest.raises(BatchUnreachable, match=r"found those of [34] of 8 requests; .* --free batch_") as stop:
                await bench.ask(config, requests)
        assert server.faults.numbers()["asked"] == 8
        came = int(re.search(r"those of (\d) of", str(stop.value))[1])  # type: ignore[index]
        assert free_batch(bench.ledger, next(iter(server.batches))) == 8
        server.trouble = ""
        report = await bench.ask(config, requests)
        assert (report.answered, server.faults.numbers()["asked"]) == (8, 16 - came)
        await server.stop()

    run(story)


def test_failed_requests_that_a_provider_counts_and_does_not_list_are_asked_again(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble, server.shows_counts, server.unlisted = "half", True, 4
        await server.start()
        config, bench = config_for(server, **BATCH | {"retries": 0}), Bench(tmp_path / "l.sqlite", server)
        report = await bench.ask(config, requests_for(config, 8))
        assert (report.answered, report.reasons()) == (4, {"server_error": 4})
        await server.stop()

    run(story)


def _lower(part: re.Match[bytes]) -> bytes:
    return part[0].lower()


def test_lines_that_failed_for_the_servers_state_cost_their_requests_a_try(tmp_path: Path, run: Any) -> None:
    """A live request waits `patience_s` for it; batches went out one after the other for as long."""

    async def story() -> None:
        server = Provider()
        server.trouble = "loading"
        await server.start()
        config = config_for(server, retries=2, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        assert (report.reasons(), len(server.batches)) == ({"server_error": 5}, 3)
        await server.stop()

    run(story)


def test_a_batch_cancelled_by_a_person_is_not_submitted_again_in_the_same_run(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "cancelled"
        await server.start()
        config, bench = config_for(server, **BATCH), Bench(tmp_path / "l.sqlite", server)
        report = await bench.ask(config, requests_for(config, 10))
        assert (report.answered, report.reasons(), len(server.batches)) == (5, {"batch_failed": 5}, 1)
        assert {one.detail for one in report.outcomes if isinstance(one, Unanswered)} == {
            "the batch ended without its answer, as 'cancelled'"
        }
        server.trouble = ""
        report = await bench.ask(config, requests_for(config, 10))
        assert (report.answered, report.from_ledger, server.faults.numbers()["asked"]) == (10, 5, 15)
        await server.stop()

    run(story)


def test_the_sentence_of_the_provider_is_in_the_reject_and_in_the_list(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "failed"
        await server.start()
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 3))
        assert {getattr(one, "detail", "") for one in report.outcomes} == {
            "the batch ended without its answer, as 'failed: The file holds a line that is no request.'"
        }
        (listed,) = batches(tmp_path / "l.sqlite")
        assert (listed["state"], listed["requests"]) == ("done", 3)
        assert "no request" in listed["detail"]
        await server.stop()

    run(story)


def test_a_quota_within_a_batch_stops_the_run_and_keeps_what_was_answered(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "quota"
        await server.start()
        config, bench = config_for(server, **BATCH), Bench(tmp_path / "l.sqlite", server)
        with pytest.raises(QuotaExhausted, match="exceeded your current quota"):
            await bench.ask(config, requests_for(config, 20))
        server.trouble = ""
        report = await bench.ask(config, requests_for(config, 20))
        assert (report.answered, report.from_ledger) == (20, 10)
        assert server.faults.numbers()["asked"] == 30
        await server.stop()

    run(story)


def test_a_key_that_expires_within_a_batch_stops_the_run_though_its_lines_say_success(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "key"
        await server.start()
        bench, config = Bench(tmp_path / "l.sqlite", server), config_for(server, **BATCH)
        with pytest.raises(AuthFailed, match="API key expired"):
            await bench.ask(config, requests_for(config, 20))
        await server.stop()

    run(story)


def test_a_batch_of_answers_in_another_protocol_is_bought_once(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "other protocol"
        await server.start()
        bench, config = Bench(tmp_path / "l.sqlite", server), config_for(server, **BATCH)
        with pytest.raises(
            AllAlike, match=r"all 20 answers of batch batch_\w+ end alike: malformed_response: .*output"
        ):
            await bench.ask(config, requests_for(config, 20))
        assert server.faults.numbers()["asked"] == 20
        await server.stop()

    run(story)


def test_a_few_rows_that_always_fail_do_not_stop_the_batches_of_others(tmp_path: Path, run: Any) -> None:
    """They are alone in the batches of further tries, and in those of a later run."""

    async def story() -> None:
        server = Provider()
        server.trouble = "hard rows"
        await server.start()
        bench, config = Bench(tmp_path / "l.sqlite", server), config_for(server, **BATCH)
        for _ in range(2):
            report = await bench.ask(config, requests_for(config, 20))
            refused = [one.reason for one in report.outcomes if isinstance(one, Unanswered)]
            assert refused == ["interrupted"] * 6
        await server.stop()

    run(story)
