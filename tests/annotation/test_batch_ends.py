"""Provider batches end: whatever a line, a queue or an account comes to, the rest is collected and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from earmark.flows.command.ledger_cli import app
from earmark.schemas.annotation import Prices
from earmark.schemas.errors import EarmarkError
from earmark.schemas.questions import FreeText, Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import (
    AllAlike,
    AuthFailed,
    BatchUnreachable,
    BudgetExhausted,
    LedgerError,
    QuotaExhausted,
)
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_reports import batches, free_batch
from earmark.tasks.annotation.request import Unanswered
from tests.annotation.conftest import Bench, config_for, requests_for
from tests.annotation.test_batches import BATCH
from tests.servers.openai_server import OpenAIServer

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"


class Provider(OpenAIServer):
    """A batch API with one trouble at a time."""

    trouble = ""
    looks = pages = 0
    list_fault, list_faulty_s = 0, 0.0  # status of the list of batches, for so long after it is first asked for
    listed_at = 0.0
    inside = False  # whether that fault is sent as a success
    shows_counts = False  # whether a batch shows the number of its lines
    unlisted = 0  # number of these in no file, as failed

    def _work_off(self, batch: dict[str, Any]) -> None:
        super()._work_off(batch)
        lines = [json.loads(line) for line in self.files[batch["output_file_id"]].split(b"\n") if line]
        if self.trouble == "bad line" and batch is next(iter(self.batches.values())):
            texts = [json.dumps(line) for line in lines]
            texts[3] = texts[3][:40]
        elif self.trouble == "quota":
            said = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
            for line in lines[len(lines) // 2 :]:
                line["response"] = {"status_code": 429, "body": said}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "cancelled":
            texts = [json.dumps(line) for line in lines[: len(lines) // 2]]
            unasked = {"response": None, "error": {"code": "batch_cancelled", "message": "This batch was cancelled."}}
            batch["error_file_id"] = self._keep([lines[-1] | unasked])
        elif self.trouble == "words":
            for line in lines:
                answer = line["response"]
                line |= {"response": {"status_code": "200", "body": json.dumps(answer["body"])}, "error": {}}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "other protocol":
            for line in lines:
                line["response"]["body"] = {"output": line["response"]["body"]}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "hard rows":  # the same rows at every attempt
            asked = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
            said = {one["custom_id"]: json.dumps(one["body"]) for one in asked}
            for line in lines:
                if any(f'pair {row}"' in said[line["custom_id"]] for row in range(6)):
                    line["response"]["body"]["choices"][0]["finish_reason"] = "other"
            texts = [json.dumps(line) for line in lines]
        elif self.trouble in ("other ids", "loading"):
            for line in lines:
                if self.trouble == "loading":
                    line["response"] = {"status_code": 503, "body": {"error": {"message": "The model is loading"}}}
                else:
                    line["custom_id"] = line["custom_id"].upper()
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "empty errors":
            for line in lines:
                line |= {"response": {"body": line["response"]["body"]}, "error": {"code": None, "message": None}}
            texts = [json.dumps(line) for line in lines]
        elif self.trouble == "key":
            for line in lines[len(lines) // 2 :]:
                line["response"]["body"] = {"error": {"message": "API key expired", "code": "invalid_api_key"}}
            texts = [json.dumps(line) for line in lines]
        else:
            texts = [json.dumps(line, ensure_ascii=False) for line in lines]  # separators stand as they are
        self.files[batch["output_file_id"]] = ("\n".join(texts) + "\n").encode()

    def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
        shown = super()._shown(batch)
        self.looks += 1
        if self.shows_counts and shown["status"] == "completed":
            counts = {"total": batch["lines"], "completed": batch["lines"] - self.unlisted, "failed": self.unlisted}
            shown["request_counts"] = counts
        if self.trouble == "own state":
            return shown | {"status": {"completed": "DONE", "in_progress": "IN_QUEUE"}[shown["status"]]}
        if self.trouble == "late" and shown["status"] == "completed" and self.looks < 12:
            return shown | {"output_file_id": None, "error_file_id": None}
        if self.trouble == "cancelled" and shown["status"] == "completed":
            return shown | {"status": "cancelled"}
        if self.trouble == "failed":
            errors = {"data": [{"code": "invalid", "message": "The file holds a line that is no request."}]}
            return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
        if self.trouble == "never room":
            errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
            return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
        if self.trouble == "full":
            mine, held = batch["created_at"], self.batches.values()
            if batch.get("full") or (
                "met" not in batch and any(one["created_at"] < mine and one.get("open", True) for one in held)
            ):
                batch["full"], batch["open"] = True, False
                errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
                return shown | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
            batch["met"], batch["open"] = True, shown["status"] != "completed"
        return shown

    async def get_batch(self, request: web.Request) -> web.Response:
        """One batch; of the first, nobody knows anything if that is the trouble."""
        if self.trouble == "gone" and request.match_info["id"] == next(iter(self.batches)):
            return web.json_response({"error": {"message": "No batch found with id"}}, status=404)
        if self.trouble == "page for a state" and self.pages < 2:
            self.pages += 1
            return web.Response(text="<html><title>Bad gateway</title></html>", content_type="text/html")
        return await super().get_batch(request)

    async def download(self, request: web.Request) -> web.Response:
        """A file; twice a gateway's page in its place, or never more than nothing, if that is the trouble."""
        if self.trouble == "empty" or (self.trouble == "empty at first" and self.pages < 2):
            self.pages += 1
            return web.Response(body=b"\n", content_type="application/octet-stream")
        if self.trouble.startswith("half") and self.pages < (2 if self.trouble == "half at first" else 1_000):
            self.pages += 1
            content = self.files[request.match_info["id"]]
            lines = content.splitlines(keepends=True)
            half = b"".join(lines[: len(lines) // 2]) if self.trouble == "half" else content[: len(content) // 2]
            return web.Response(body=half, content_type="application/octet-stream")
        if self.trouble == "page for results" and self.pages < 2:
            self.pages += 1
            return web.Response(text="<html>\n<title>Sign in</title>\n</html>", content_type="text/html")
        return await super().download(request)

    async def list_batches(self, request: web.Request) -> web.Response:
        self.listed_at = self.listed_at or time.monotonic()
        if time.monotonic() - self.listed_at < self.list_faulty_s:
            said = {"error": {"message": "not now", "code": 401 if self.list_fault == 401 else None}}
            return web.json_response(said, status=200 if self.inside else self.list_fault)
        return await super().list_batches(request)


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


class Forgetful(Provider):
    """A batch API that keeps no metadata."""

    lists_files = True

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        try:
            return await super().create_batch(request)
        finally:
            for batch in self.batches.values():
                batch["metadata"] = None

    async def list_files(self, request: web.Request) -> web.Response:
        listed = await super().list_files(request)
        return listed if self.lists_files else web.json_response({"detail": "Method Not Allowed"}, status=405)


@pytest.mark.parametrize("lists_files", [True, False])
def test_a_batch_whose_metadata_is_dropped_is_found_after_a_lost_reply(
    tmp_path: Path, run: Any, lists_files: bool
) -> None:
    async def story() -> None:
        server = Forgetful()
        server.lists_files, server.lose_batch_replies = lists_files, 1
        await server.start()
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (5, 1, 5)
        await server.stop()

    run(story)


class Busy(Forgetful):
    """An account with a batch of somebody else, on a server that is busy at first and never lists files."""

    busy = 1

    async def create_batch(self, request: web.Request) -> web.StreamResponse:
        if self.busy:
            self.busy -= 1
            return web.json_response({"error": {"message": "busy"}}, status=503)
        return await super().create_batch(request)

    async def list_files(self, request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "not implemented"}}, status=501)


def test_a_refused_submission_is_sent_again_where_a_server_lists_no_files(tmp_path: Path, run: Any) -> None:
    """This process knows its uploads: no other file can be the input of its batch."""

    async def story() -> None:
        server = Busy()
        server.busy = 0
        await server.start()
        config, bench = config_for(server, **BATCH | {"retry_base_s": 0.001}), Bench(tmp_path / "l.sqlite", server)
        await bench.ask(config, requests_for(config, 2, first=20))
        server.busy = 1
        report = await bench.ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (5, 2, 7)
        await server.stop()

    run(story)


def test_a_later_run_finds_a_batch_whose_metadata_is_dropped_by_its_file(tmp_path: Path, run: Any) -> None:
    """The first run's key expires while it looks; other batches of the account have no metadata either."""

    async def story() -> None:
        server = Forgetful()
        await server.start()
        config, bench = config_for(server, **BATCH), Bench(tmp_path / "l.sqlite", server)
        await bench.ask(config, requests_for(config, 5))
        server.lose_batch_replies, server.list_fault, server.list_faulty_s = 1, 401, 60.0
        with pytest.raises(BatchUnreachable):
            await bench.ask(config, requests_for(config, 10))
        server.list_faulty_s = 0.0
        await bench.ask(config, requests_for(config, 2, first=20))
        report = await bench.ask(config, requests_for(config, 10))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (10, 3, 12)
        await server.stop()

    run(story)


def test_a_batch_missing_from_the_account_is_asked_anew_only_after_a_person_let_it_go(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = Provider()
        server.trouble = "gone"
        await server.start()
        config, bench = config_for(server, **BATCH | {"batch_requests": 10}), Bench(tmp_path / "l.sqlite", server)
        requests = requests_for(config, 30)
        for _ in range(2):  # a key of another account, also in a later run
            with pytest.raises(BatchUnreachable, match=r"of 10 requests.* set the key and base_url"):
                await bench.ask(config, requests)
        server.trouble = ""
        assert (await bench.ask(config, requests)).answered == 30
        assert server.faults.numbers()["asked"] == 30

        more = requests_for(config, 10, first=30)
        server.trouble = "gone"
        server.batches.clear()
        with pytest.raises(BatchUnreachable) as stop:
            await bench.ask(config, more)
        server.trouble = ""
        server.batches.clear()  # deleted
        assert free_batch(bench.ledger, str(stop.value).rpartition(" --free ")[2]) == 10
        assert (await bench.ask(config, more)).answered == 10
        assert server.faults.numbers()["asked"] == 50
        await server.stop()

    run(story)


def test_a_batch_waits_for_the_cost_of_those_before_it(tmp_path: Path, run: Any) -> None:
    """A batch costs $0.002 here, also at worst; the second would pass the cap."""

    async def story() -> None:
        server = await Provider(answer=lambda body, content: "so many tokens as it may").start()
        prices = Prices(input_per_million=0.0, output_per_million=20.0)
        config = config_for(server, prices=prices, max_tokens=20, budget_usd=0.003, **BATCH | {"batch_requests": 10})
        requests = [question(config, [Message.of("user", f"say {n}")], FreeText()) for n in range(30)]
        with pytest.raises(BudgetExhausted, match=r"spent 0\.0020.*; it is a batch of 10: see money"):
            await Bench(tmp_path / "l.sqlite", server).ask(config, requests)
        assert len(server.batches) == 1
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


@pytest.mark.parametrize("calls", [1, 3])
def test_a_batch_larger_than_the_queue_stops_the_run(tmp_path: Path, run: Any, calls: int) -> None:
    """Also beside others that are refused like it."""

    async def story() -> None:
        server = Provider()
        server.trouble = "never room"
        await server.start()
        config = config_for(server, patience_s=0.3, **BATCH | {"batch_requests": 10})
        requests = requests_for(config, 20 * calls)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            shards = [annotator.ask(requests[at : at + 20]) for at in range(0, len(requests), 20)]
            for end in await asyncio.wait_for(asyncio.gather(*shards, return_exceptions=True), 20):
                assert isinstance(end, QuotaExhausted)
                assert "a batch of 10 requests" in str(end)
                assert "set money.batch_requests (now 10) lower" in str(end)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_a_batch_waits_longer_than_the_patience_for_a_queue_that_others_fill(tmp_path: Path, run: Any) -> None:
    """The queue has room for one batch, and those of two calls take far longer than `patience_s`."""

    async def story() -> None:
        server = Provider(batch_s=0.5)
        server.trouble = "full"
        await server.start()
        config = config_for(server, patience_s=0.2, **BATCH)
        requests = requests_for(config, 20)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            first, second = await asyncio.gather(annotator.ask(requests[:10]), annotator.ask(requests[10:]))
        assert (first.answered, second.answered) == (10, 10)
        assert len(server.batches) > 3  # refused again after its patience
        await server.stop()

    run(story)


def test_calls_side_by_side_resume_in_batches(tmp_path: Path, run: Any) -> None:
    """A run is stopped while four shards upload. No shard takes the questions of another, which would be asked live."""

    async def story() -> None:
        server, live = Provider(), 0
        uploads: asyncio.Queue[str] = asyncio.Queue()
        upload, chat = server.upload, server.chat

        async def slow(request: web.Request) -> web.Response:
            if stopped:
                uploads.put_nowait("begun")
                await asyncio.Event().wait()
            return await upload(request)

        async def counted(request: web.Request) -> web.StreamResponse:
            nonlocal live
            live += 1
            return await chat(request)

        server.upload, server.chat = slow, counted  # type: ignore[method-assign]
        await server.start()
        config = config_for(server, **BATCH)
        requests = requests_for(config, 40)
        for stopped in (True, False):
            async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
                shards = [asyncio.create_task(annotator.ask(requests[at : at + 10])) for at in range(0, 40, 10)]
                if stopped:
                    for _ in shards:
                        await uploads.get()
                    for shard in shards:
                        shard.cancel()
                    await asyncio.gather(*shards, return_exceptions=True)
                else:
                    assert [report.answered for report in await asyncio.gather(*shards)] == [10] * 4
        assert (live, sum(batch["lines"] for batch in server.batches.values())) == (0, 40)
        await server.stop()

    run(story)


def test_a_batch_refused_for_a_full_queue_asks_the_same_again(tmp_path: Path, run: Any) -> None:
    """Its questions are those after unusable answers; the first ones would be paid for again."""
    bodies: list[str] = []

    class FullOnce(OpenAIServer):
        def _shown(self, batch: dict[str, Any]) -> dict[str, Any]:
            if [*self.batches.values()].index(batch) == 1:
                errors = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}]}
                return batch | {"status": "failed", "errors": errors, "output_file_id": None, "error_file_id": None}
            return super()._shown(batch)

    def answer(body: dict[str, Any], content: str) -> str:
        bodies.append(json.dumps(body, sort_keys=True))
        usable = {"musicality": "A", "alignment": "B", "reason": "as asked"}
        return "no JSON" if len(bodies) <= 5 else json.dumps(usable)

    async def story() -> None:
        server = await FullOnce(answer=answer).start()
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), len(bodies)) == (5, 3, 10)
        assert len(set(bodies)) == 10
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


def test_a_lost_batch_is_let_go_by_hand(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = tmp_path / "ledger.sqlite"

    async def story(server: Provider, *, frees: bool) -> int:
        await server.start()
        config = config_for(server, **BATCH)
        asking = asyncio.create_task(Bench(ledger, server).ask(config, requests_for(config, 4)))
        if frees:
            return (await asking).answered
        while not server.batches:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        driver = connect(ledger)
        driver.run("INSERT INTO runs (owner, host, pid, started_at, seen_at) VALUES ('dead', 'elsewhere', 1, 0, 0)")
        driver.close()
        with pytest.raises(LedgerError, match="a process that runs collects this batch"):
            free_batch(ledger, next(iter(server.batches)))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return 0

    run(lambda: story(Provider(batch_s=60.0), frees=False))
    (lost,) = batches(ledger)
    assert lost["state"] == "submitted"
    monkeypatch.setenv("EARMARK_LEDGER", str(ledger))
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "store"))
    listed = CliRunner().invoke(app, ["batches"])
    assert f"{lost['provider_id']}: submitted, 4 requests to openai:tiny" in listed.output
    freed = json.loads(CliRunner().invoke(app, ["batches", "--free", lost["provider_id"], "--json"]).output)
    assert freed["freed_requests"] == 4
    with pytest.raises(EarmarkError, match=r"no batch .* is under way"):
        free_batch(ledger, lost["provider_id"])
    assert run(lambda: story(Provider(), frees=True)) == 4
    driver = connect(ledger)
    assert driver.rows("SELECT count(*) FROM requests WHERE owner IS NOT NULL") == [(0,)]
    driver.close()


@pytest.mark.parametrize("inside", [False, True])
def test_a_submission_is_not_repeated_while_the_list_of_batches_cannot_be_read(
    tmp_path: Path, run: Any, inside: bool
) -> None:
    async def story() -> None:
        server = Provider()
        server.inside = inside
        server.lose_batch_replies, server.list_fault, server.list_faulty_s = 1, 503, 2 * BATCH["batch_settle_s"]
        await server.start()
        config = config_for(server, **BATCH)
        report = await Bench(tmp_path / "l.sqlite", server).ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (5, 1, 5)
        await server.stop()

    run(story)


@pytest.mark.parametrize("inside", [False, True])
def test_a_submission_of_unknown_fate_is_found_by_a_later_run(tmp_path: Path, run: Any, inside: bool) -> None:
    """The first run's key expires while it looks; the list fails for a while when the second run looks."""

    async def story() -> None:
        server = Provider()
        server.inside = inside
        server.lose_batch_replies, server.list_fault, server.list_faulty_s = 1, 401, 60.0
        await server.start()
        config, bench = config_for(server, **BATCH), Bench(tmp_path / "l.sqlite", server)
        with pytest.raises(BatchUnreachable, match=r"a submission may have arrived: .*looking for it: .*401"):
            await bench.ask(config, requests_for(config, 5))
        async with open_ledger(bench.ledger, reading=True) as ledger, Annotator(config, ledger) as annotator:
            forecast = await annotator.forecast(requests_for(config, 6))
        assert (forecast["in_batches"], forecast["to_ask"]) == (5, 1)
        server.listed_at, server.list_fault, server.list_faulty_s = 0.0, 503, 2 * BATCH["batch_settle_s"]
        report = await bench.ask(config, requests_for(config, 5))
        assert (report.answered, len(server.batches), server.faults.numbers()["asked"]) == (5, 1, 5)
        await server.stop()

    run(story)
