"""A batch that is lost from sight is found again, or asked anew only after a person let it go."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earmark.flows.command.ledger_cli import app
from earmark.schemas.errors import EarmarkError
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import (
    BatchUnreachable,
    LedgerError,
)
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_reports import batches, free_batch
from tests.annotation.batch_provider import Busy, Forgetful, Provider
from tests.annotation.conftest import Bench, config_for, requests_for
from tests.annotation.test_batches import BATCH


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
