"""The ledger in both databases: durable, shared, readable by people. PostgreSQL runs for real."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import Prices
from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger import connect, open_ledger
from earmark.tasks.annotation.ledger_reports import count_old, export, prune, show, stats, vacuum
from earmark.tasks.annotation.ledger_rows import Attempt, Finished, free_the_dead, migrations, shown
from tests.annotation.conftest import Bench, config_for, requests_for, serving, take_for_dead
from tests.servers.faults import Faults


def postgres_binaries() -> Path | None:
    """The folder of PostgreSQL's programs, where Debian keeps them or on the path; or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    on_path = shutil.which("pg_ctl")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextmanager
def postgres_server(*inside: str, address: str = "127.0.0.1") -> Iterator[str]:
    """A PostgreSQL server of our own; its URL.

    Args:
        inside: what its commands begin with, such as `ip netns exec NAME`.
        address: where it listens.
    """
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's programs are not installed")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed (extra 'scale', group 'dev')")
    folder = Path(tempfile.mkdtemp(prefix="ledger-pg-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user and shutil.which("runuser") is None:
        pytest.skip("root needs `runuser` to start PostgreSQL")
    if as_user:
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def call(*command: str) -> None:
        subprocess.run([*inside, *as_user, *command], check=True, capture_output=True, cwd=folder)

    options = f"-p {port} -c listen_addresses={address} -k {folder}"
    control = str(binaries / "pg_ctl")
    try:
        call(str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "earmark")
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.0.0.0/8 trust\n")
        call(control, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        yield f"postgresql://earmark@{address}:{port}/postgres"
    finally:
        if (data / "postmaster.pid").exists():
            call(control, "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server of our own; its URL."""
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty ledger's address."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.sqlite")
        return
    url = request.getfixturevalue("postgres")
    import psycopg

    name = f"ledger_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield url.rsplit("/", 1)[0] + f"/{name}"


@pytest.mark.slow
def test_a_run_a_resume_and_reports(ledger: str, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(rate=0.3, kinds=("429", "500", "refusal"), most=1))
        config, bench = config_for(server), Bench(ledger, server)
        requests = requests_for(config, 60)
        first = await bench.ask(config, requests)
        server.faults.rate = 0.0
        again = await bench.ask(config, requests_for(config, 61))
        assert again.outcomes[:60] == first.outcomes
        assert (again.exchanges, again.from_ledger) == (1, 60)
        held = stats(ledger)["models"]["openai:tiny"]
        assert (held["answered"] + held["rejected"], held["open"]) == (61, 0)
        assert held["rejects"] == {"refused": first.reasons()["refused"]}
        assert held["attempts"] == first.exchanges + 1
        assert held["input_tokens"] == 6100
        one = show(ledger, requests[0].key[:20])
        assert one["key"] == requests[0].key
        assert "compare two clips" in one["body"]["messages"][0][1][0]["text"]
        assert one["attempts"][-1]["raw"].startswith("{")
        assert [row["key"] for row in export(ledger, model="openai:other")] == []
        assert sorted(row["key"] for row in export(ledger)) == sorted(r.key for r in requests_for(config, 61))
        before, after = vacuum(ledger)
        assert before > 0 < after
        with pytest.raises(LedgerError, match="no request"):
            show(ledger, "0" * 64)
        with pytest.raises(LedgerError, match="hexadecimal"):
            show(ledger, "xyz")
        await server.stop()

    run(story)


@pytest.mark.slow
def test_old_answers_are_in_a_file_before_they_go_and_others_stay(ledger: str, run: Any, tmp_path: Path) -> None:
    async def story() -> None:
        server = await serving()
        config, bench = config_for(server), Bench(ledger, server)
        requests = requests_for(config, 20)
        await bench.ask(config, requests[:12])
        await asyncio.sleep(0.02)
        between = time.time()
        await asyncio.sleep(0.02)
        await bench.ask(config, requests)
        everything = {row["key"]: row for row in export(ledger)}
        assert count_old(ledger, between) == 12
        assert prune(ledger, between, tmp_path / "old.jsonl") == 12
        kept = {row["key"]: row for row in map(json.loads, (tmp_path / "old.jsonl").read_text().splitlines())}
        assert kept == {one.key: json.loads(json.dumps(everything[one.key])) for one in requests[:12]}
        left = {row["key"]: row for row in export(ledger)}
        assert left == {one.key: everything[one.key] for one in requests[12:]}, "their long texts stay too"
        with pytest.raises(LedgerError, match=r"old\.jsonl: File exists; nothing was removed"):
            prune(ledger, time.time(), tmp_path / "old.jsonl")
        assert len(list(export(ledger))) == 8
        again = await bench.ask(config, requests)
        assert (again.exchanges, again.from_ledger) == (12, 8)
        await server.stop()

    run(story)


@pytest.mark.slow
def test_three_processes_ask_each_key_once(ledger: str, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(latency_s=0.01))
        config = config_for(server, max_concurrency=8, read_timeout_s=30.0, total_timeout_s=60.0)
        bench, requests = Bench(ledger, server), requests_for(config, 150)
        reports = await asyncio.gather(*[bench.ask(config, requests[n:] + requests[:n]) for n in (0, 50, 100)])
        assert {report.answered for report in reports} == {150}
        assert server.faults.numbers()["asked"] == 150
        await server.stop()

    run(story)


def test_what_is_acknowledged_is_there_for_another_connection(ledger: str, run: Any) -> None:
    async def story() -> None:
        async with open_ledger(ledger) as opened:
            held = await opened.claim([("ab" * 32, "m", "{}")], {"d": "lone \ud800 and \0"}, 1)
            other = connect(ledger)
            attempt = Attempt(held["ab" * 32].request_id, 1, "received", 0.0, 0.1, raw="raw")
            await opened.record(attempt, opened.lease)
            assert other.rows("SELECT raw FROM attempts") == [("raw",)]
            opened.settle_soon(held["ab" * 32].request_id, Finished("1", None, None, 1, None))
            assert (await opened.finished(["ab" * 32, "cd" * 32])) == {"ab" * 32: Finished("1", None, None, 1, None)}
            other.close()

    run(story)


def test_a_claim_holds_while_its_process_lives_and_not_longer(
    ledger: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        wanted = [("ab" * 32, "m", "{}")]
        async with open_ledger(ledger) as one:
            assert len(await one.claim(wanted, {}, 1)) == 1
            async with open_ledger(ledger) as two:
                assert len(await two.claim(wanted, {}, 1)) == 0
                assert await two.free_the_dead() == 0
                await two.change(
                    lambda driver: driver.run("UPDATE runs SET seen_at = seen_at - 61, host = 'elsewhere'")
                )
                monkeypatch.setattr("earmark.tasks.annotation.ledger_rows.OPEN_HERE", {two.owner})
                assert await two.free_the_dead() == 1
                assert len(await two.claim(wanted, {}, 1)) == 1

    run(story)


@pytest.mark.slow
def test_a_process_taken_for_dead_sends_none_of_its_former_claims(ledger: str, run: Any) -> None:
    """As after a machine's sleep or a minute without network: another one has freed the claims, and asks them."""

    async def story() -> None:
        server = await serving(Faults(latency_s=0.2))
        config = config_for(server, max_concurrency=2, read_timeout_s=30.0, total_timeout_s=60.0)
        requests = requests_for(config, 16)
        async with open_ledger(ledger) as opened, Annotator(config, ledger=opened) as sleeper:
            asleep = asyncio.create_task(sleeper.ask(requests))
            while server.faults.numbers()["asked"] < 4:
                await asyncio.sleep(0.01)
            take_for_dead(opened, ledger)
            awake = await Bench(ledger, server).ask(config, requests)
            assert (awake.answered, (await asleep).answered) == (16, 16)
        assert server.faults.numbers()["asked"] <= 16 + config.max_concurrency
        await server.stop()

    run(story)


@pytest.mark.slow
@pytest.mark.parametrize(("other_s", "fault"), [(0.1, None), (1.0, None), (1.0, "500")])
def test_an_answer_to_a_process_taken_for_dead_is_kept_beside_the_settled_one(
    ledger: str, run: Any, other_s: float, fault: str | None
) -> None:
    """It comes after the answer of the process that took the request over, or before."""

    async def story() -> None:
        server = await serving(Faults(latency_s=0.5, kinds=(fault or "",), rate=float(fault is not None), most=1))
        numbers = iter(range(100))
        server.answer = lambda body, content: f"answer {next(numbers)}"
        config = config_for(server, prices=Prices(input_per_million=1.0, output_per_million=10.0), read_timeout_s=9.0)
        asked = [question(config, [Message.of("user", "which?")])]
        async with open_ledger(ledger) as opened, Annotator(config, ledger=opened) as sleeper:
            asleep = asyncio.create_task(sleeper.ask(asked))
            while not server.faults.asked:
                await asyncio.sleep(0.01)
            take_for_dead(opened, ledger)
            server.faults.latency_s = other_s
            reports = [await Bench(ledger, server).ask(config, asked), await asleep]
        (settled,) = export(ledger)
        assert [report.outcomes[0].value for report in reports] == [settled["answer"]] * 2
        assert server.faults.numbers()["asked"] == len(settled["attempts"]) == 2
        answers = [json.loads(one["raw"] or "") for one in settled["attempts"] if one["status"] == "ok"]
        said = {one["choices"][0]["message"]["content"] for one in answers}
        assert said == ({"answer 0", "answer 1"} if fault is None else {"answer 1"})
        cost = stats(ledger)["models"]["openai:tiny"]["cost_usd"]
        assert cost == pytest.approx(len(answers) * 300e-6) == sum(report.spent_usd or 0.0 for report in reports)
        await server.stop()

    run(story)


def test_a_claim_of_an_earlier_lease_releases_no_newer_one(ledger: str, run: Any) -> None:
    async def story() -> None:
        wanted = [("ab" * 32, "m", "{}")]
        async with open_ledger(ledger) as one, open_ledger(ledger) as two:
            (held,) = (await one.claim(wanted, {}, 1)).values()
            before = (held.request_id, one.lease)
            take_for_dead(one, ledger)
            (held,) = (await one.claim(wanted, {}, 1)).values()
            one.release_soon([before])
            await one.flush()
            assert await two.claim(wanted, {}, 1) == {}
            one.release_soon([(held.request_id, one.lease)])
            await one.flush()
            assert len(await two.claim(wanted, {}, 1)) == 1

    run(story)


def test_a_heartbeat_between_a_look_and_its_verdict_saves_the_process(
    ledger: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In PostgreSQL both may happen; in SQLite a change excludes others."""

    async def story() -> None:
        async with open_ledger(ledger) as one:
            other = connect(ledger)
            other.run("UPDATE runs SET seen_at = seen_at - 61, host = 'elsewhere'")
            look = other.rows

            def slow(sql: str, values: Any = ()) -> Any:
                found = look(sql, values)
                if sql.startswith("SELECT owner, host"):
                    look("UPDATE runs SET seen_at = seen_at + 61 RETURNING owner")  # as the heartbeat of the process
                return found

            monkeypatch.setattr(other, "rows", slow)
            monkeypatch.setattr("earmark.tasks.annotation.ledger_rows.OPEN_HERE", set())
            assert free_the_dead(other) == 0
            monkeypatch.setattr(other, "rows", look)
            assert other.rows("SELECT owner FROM runs") == [(one.owner,)]
            other.close()

    run(story)


def test_a_clock_that_is_set_back_makes_nobody_dead_who_beats(
    ledger: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with open_ledger(ledger) as before:
            monkeypatch.setattr(before.driver, "_began", time.time() + 3600 - time.monotonic(), raising=False)
            async with open_ledger(ledger) as after:  # begun on the clock that was set back
                await before.beat()
                await after.change(lambda driver: driver.run("UPDATE runs SET host = 'elsewhere'"))
                monkeypatch.setattr("earmark.tasks.annotation.ledger_rows.OPEN_HERE", set())
                assert await before.free_the_dead() == 0
                assert await after.free_the_dead() == 0
                late = "UPDATE runs SET seen_at = seen_at + 3600 WHERE owner = ?"  # its last beat was before
                await after.change(lambda driver: driver.run(late, (before.owner,)))
                assert await after.free_the_dead() == 1

    run(story)


def test_migrations_are_numbered_alike_and_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    assert [n for n, _ in migrations("sqlite")] == [n for n, _ in migrations("postgres")] == [1, 2, 3, 4]
    driver = connect(tmp_path / "l.sqlite")
    driver.run("PRAGMA user_version = 999")
    driver.close()
    with pytest.raises(LedgerError, match="newer Earmark"):
        connect(tmp_path / "l.sqlite")


def test_addresses_are_checked_and_passwords_are_not_shown(tmp_path: Path) -> None:
    assert shown("postgresql://me:secret@host/db") == "postgresql://host/db"
    assert shown("postgresql://host:5433/db?user=me&password=secret") == "postgresql://host:5433/db"
    assert shown("postgresql://me:se%3Fcret@one:1,two:2/db?sslmode=require") == "postgresql://one:1,two:2/db"
    for address in ("u:ab/cd@h/l", "u:12/cd@h/l", "u:ab@cd@h/l", "u:ab?cd@h/l", "u:ab#cd@h/l", "h/l?user=u@ab"):
        with pytest.raises(ConfigError, match=r"^EARMARK_LEDGER: .* of a password as %2F") as refused:
            connect(f"postgresql://{address}")
        assert not re.search("ab|cd|12", str(refused.value))
    with pytest.raises(LedgerError, match="expected a file path"):
        connect("mysql://me:secret@host/db")
    (tmp_path / "no").write_bytes(b"this is not a database, and long enough to tell" * 10)
    with pytest.raises(LedgerError, match="cannot be opened"):
        connect(tmp_path / "no")
    with pytest.raises(LedgerError, match="not found"):
        stats(tmp_path / "missing.sqlite")


def test_a_ledger_that_cannot_be_written_ends_the_run(tmp_path: Path, run: Any) -> None:
    async def story() -> None:
        server = await serving(Faults(latency_s=0.01))
        config = config_for(server)
        async with open_ledger(tmp_path / "l.sqlite") as ledger, Annotator(config, ledger) as annotator:
            ledger.driver.run("DROP TABLE attempts")
            with pytest.raises(LedgerError, match="cannot write"):
                await annotator.ask(requests_for(config, 50))
            async with open_ledger(tmp_path / "l.sqlite") as other:  # whose turn it is now
                await other.beat()
        assert server.faults.numbers()["asked"] <= config.max_concurrency
        await server.stop()

    run(story)


def test_ledgers_of_one_file_take_turns_and_a_closed_one_leaves_its_own(tmp_path: Path) -> None:
    first, second = connect(tmp_path / "l.sqlite"), connect(tmp_path / "l.sqlite")
    first.begin()
    with ThreadPoolExecutor(1) as pool:
        begun = pool.submit(second.begin)
        with pytest.raises(TimeoutError):
            begun.result(timeout=0.2)
        first.commit()
        begun.result(timeout=60)
        second.run("DELETE FROM runs")
        second.close()  # in the middle of its transaction
        pool.submit(first.begin).result(timeout=60)
    first.commit()
    first.close()


@pytest.mark.slow
def test_processes_that_make_a_ledger_at_once_all_get_it(tmp_path: Path) -> None:
    importing = "from earmark.tasks.annotation.ledger import connect"
    opening = f"import sys; {importing}; [connect(path).close() for path in sys.argv[1:]]"
    paths = [f"{tmp_path / str(number)}.sqlite" for number in range(150)]
    command = [sys.executable, "-c", opening, *paths]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda process: process.communicate()[1], processes))
    assert told == ["", "", "", ""]
    assert len(list(tmp_path.glob("*.sqlite"))) == 150


def test_reading_makes_and_changes_nothing(ledger: str, run: Any) -> None:
    """A dry run reads, where there is no ledger yet, too."""

    async def story() -> None:
        async with open_ledger(ledger, reading=True) as opened:
            assert await opened.finished(["00" * 32]) == {}
        if "://" in ledger:
            import psycopg

            with psycopg.connect(ledger) as connection:
                assert connection.execute("SELECT to_regclass('ledger_schema')").fetchall() == [(None,)]
        assert contents(ledger) == {}
        server = await serving(Faults())
        config, bench = config_for(server), Bench(ledger, server)
        (request,) = requests_for(config, 1)
        await bench.ask(config, [request])
        before = contents(ledger)
        async with open_ledger(ledger, reading=True) as opened:
            assert list(await opened.finished([request.key])) == [request.key]
            with pytest.raises(Exception, match=r"read-?only"):
                opened.driver.run("DELETE FROM requests")
        assert contents(ledger) == before
        await server.stop()

    def contents(address: str) -> dict[Path, bytes]:
        return {} if "://" in address else {path: path.read_bytes() for path in Path(address).parent.iterdir()}

    run(story)
