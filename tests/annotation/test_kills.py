"""SIGKILL at random moments: nothing is lost, and no more is asked twice than was in flight."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.annotation.ledger import connect
from tests.conftest import kill_count

CONCURRENCY = 8


class Server:
    """A server in a process of its own."""

    def __init__(self, *options: str) -> None:
        called = [sys.executable, "-m", "tests.servers.openai_server", *options]
        self.process = subprocess.Popen(called, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().strip().removeprefix("port="))
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/counts") as response:
            held: dict[str, int] = json.load(response)
            return held

    def settled(self) -> dict[str, int]:
        """What it was asked, once everything that a killed process had sent is counted."""
        held = self.counts()
        while True:
            time.sleep(0.03)
            before, held = held, self.counts()
            if held == before:
                return held


def slow_server(*options: str, scope: Any = "function") -> Any:
    """A fixture: a server in a process of its own."""

    @pytest.fixture(scope=scope)
    def server() -> Iterator[Server]:
        started = Server(*options)
        yield started
        started.process.kill()
        started.process.communicate()

    return server


@pytest.fixture
def serve() -> Iterator[Any]:
    """Start servers; they end with the test."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        started.append(Server(*options))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate()


def asking(server: Server, ledger: Path | str, count: int, **options: Any) -> subprocess.Popen[str]:
    """A process that asks; returns when it has begun."""
    held = json.dumps({"max_concurrency": CONCURRENCY, **options})
    called = [sys.executable, "-m", "tests.annotation.asking", server.base_url, str(ledger), str(count), held]
    process = subprocess.Popen(called, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """The digest that a process prints at its end."""
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return said.strip()


def received(ledger: Path) -> int:
    """Responses that the ledger holds."""
    driver = connect(ledger)
    try:
        return int(driver.rows("SELECT count(*) FROM attempts WHERE raw IS NOT NULL")[0][0])
    finally:
        driver.close()


def kill_at_random(serve: Any, tmp_path: Path, kills: int, count: int, longest_s: float) -> None:
    ledger, draw = tmp_path / "ledger.sqlite", random.Random(kills)
    server = serve("--latency-ms", "20")
    in_flight = done = 0
    while done < kills:
        process = asking(server, ledger, count)
        time.sleep(draw.uniform(0.0, longest_s))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            done += 1
        process.communicate()
        lost = server.settled()["asked"] - received(ledger) - in_flight
        assert 0 <= lost <= CONCURRENCY
        in_flight += lost
        assert server.counts()["distinct"] < count, "the run ended before the kills: make it longer"
    final = finish(asking(server, ledger, count))
    counts = server.counts()
    assert counts["distinct"] == count
    assert counts["repeats"] <= in_flight <= kills * CONCURRENCY
    calm = serve("--latency-ms", "1")
    assert final == finish(asking(calm, tmp_path / "calm.sqlite", count))
    assert calm.counts()["repeats"] == 0


@pytest.mark.slow
def test_ten_kills(serve: Any, tmp_path: Path) -> None:
    kill_at_random(serve, tmp_path, 10, 600, 0.12)


@pytest.mark.slow
def test_many_kills(serve: Any, tmp_path: Path) -> None:
    kill_at_random(serve, tmp_path, kill_count(100), 80 * kill_count(100), 0.15)


@pytest.mark.slow
def test_two_processes_share_one_ledger_and_one_takes_over_from_the_dead(serve: Any, tmp_path: Path) -> None:
    server, ledger = serve("--latency-ms", "20"), tmp_path / "ledger.sqlite"
    processes = [asking(server, ledger, 300) for _ in range(3)]
    time.sleep(0.2)
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[0].communicate()
    one, two = (finish(process) for process in processes[1:])
    assert one == two
    counts = server.counts()
    assert counts["distinct"] == 300
    assert counts["repeats"] <= CONCURRENCY


@pytest.mark.slow
def test_kills_among_faulty_answers_end_in_the_same_outcomes(serve: Any, tmp_path: Path) -> None:
    faults = "429,500,503,reset,truncated_body,truncated_json,wrong_content_type"
    server, ledger = serve("--latency-ms", "5", "--fault-rate", "0.3", "--faults", faults), tmp_path / "ledger.sqlite"
    for _ in range(3):
        process = asking(server, ledger, 300)
        time.sleep(0.15)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    final = finish(asking(server, ledger, 300))
    assert final == finish(asking(serve(), tmp_path / "calm.sqlite", 300))
