"""Two machines in truth: network namespaces with loopbacks of their own share a ledger on a third. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from earmark.tasks.pipeline.registry import find_corpus
from tests.annotation.test_ledger import postgres_server
from tests.benchmarks.paper_sizes import mos_preferences
from tests.builds import contents_of, write_toml
from tests.conftest import ROOT

CUT_S = 60  # seconds without network: as long as a process without a heartbeat counts as alive
PLACES = 4  # requests in flight of a host
SERVICES = "10.211.0.1"
SERVER = f"""
import asyncio
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer, critic_answer

async def run() -> None:
    server = await OpenAIServer(Faults(latency_s=1.0), critic_answer).start(host="{SERVICES}")
    print(server.port, flush=True)
    await asyncio.Event().wait()

asyncio.run(run())
"""


@dataclass
class Host:
    """A machine: a network namespace whose only way out leads to the services."""

    name: str
    home: Path

    @property
    def inside(self) -> tuple[str, ...]:
        return "ip", "netns", "exec", self.name

    def build(self, config: Path, ledger: str) -> subprocess.Popen[str]:
        """Start a build into this host's own store."""
        own = {"PREFECT_HOME": str(self.home / "prefect"), "HOME": str(self.home), "EARMARK_LEDGER": ledger}
        command = ["-m", "earmark", "build", "mos-preferences", "-c", str(config), "--store", str(self.home / "store")]
        with (self.home / "log").open("a") as log:
            return subprocess.Popen(
                [*self.inside, sys.executable, *command], env=os.environ | own, stdout=log, stderr=log, text=True
            )


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Three hosts, the first with the services; each other reaches these alone."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("two hosts need root and iproute2")
    made = [Host(f"earmark-{os.getpid()}-{number}", tmp_path / f"host{number}") for number in range(3)]
    with ExitStack() as stack:
        for host in made:
            try:
                ip("netns", "add", host.name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces: {error.stderr.decode()}")
            stack.callback(ip, "netns", "delete", host.name)
            host.home.mkdir()
            ip("-n", host.name, "link", "set", "lo", "up")
        services = made[0].name
        ip("-n", services, "address", "add", f"{SERVICES}/32", "dev", "lo")
        for number, host in enumerate(made[1:], 1):
            ip("-n", services, "link", "add", f"to{number}", "type", "veth", "peer", "out", "netns", host.name)
            for name, device, last in ((services, f"to{number}", 1), (host.name, "out", 2)):
                ip("-n", name, "address", "add", f"10.211.{number}.{last}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
            ip("-n", host.name, "route", "add", f"{SERVICES}/32", "via", f"10.211.{number}.1")
        yield made


def counts(services: Host, port: int) -> dict[str, int]:
    """Return the server's counts of requests."""
    code = f"import urllib.request as u; print(u.urlopen('http://{SERVICES}:{port}/counts').read().decode())"
    told = subprocess.run([*services.inside, sys.executable, "-c", code], check=True, capture_output=True, text=True)
    numbers: dict[str, int] = json.loads(told.stdout)
    return numbers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_host_and_one_cut_off_for_a_minute_repeat_only_what_was_in_flight(
    hosts: list[Host], tmp_path: Path
) -> None:
    services, first, second = hosts
    with ExitStack() as stack:
        ledger = stack.enter_context(postgres_server(*services.inside, address=SERVICES))
        command = [*services.inside, sys.executable, "-c", SERVER]
        server = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        inputs = tmp_path / "inputs"
        inputs.mkdir()
        values = mos_preferences(inputs, 0.005, f"http://{SERVICES}:{port}/v1")
        values["critiques"] |= {"max_concurrency": PLACES, "tries": 1}
        write_toml(find_corpus("mos-preferences").config, {"corpus": "mos-preferences", **values}, inputs / "b.toml")

        one, other = (host.build(inputs / "b.toml", ledger) for host in (first, second))
        stack.callback(one.kill)
        stack.callback(other.kill)
        while counts(services, port)["asked"] < 60:
            assert one.poll() is None
            assert other.poll() is None
            time.sleep(0.5)
        one.send_signal(signal.SIGKILL)
        one.wait()
        cut = time.monotonic()
        ip("-n", services.name, "link", "set", "to2", "down")
        again = first.build(inputs / "b.toml", ledger)
        stack.callback(again.kill)
        time.sleep(max(0.0, cut + CUT_S - time.monotonic()))
        ip("-n", services.name, "link", "set", "to2", "up")
        assert again.wait() == 0, (first.home / "log").read_text()[-2000:]
        assert other.wait() == 0, (second.home / "log").read_text()[-2000:]

        told = counts(services, port)
        print(told, time.monotonic() - cut)
        assert told["asked"] - told["distinct"] <= 2 * PLACES
    versions = [contents_of(host.home / "store/mos-preferences/v1") for host in (first, second)]
    tables = [{path: content for path, content in files.items() if path.endswith(".parquet")} for files in versions]
    assert tables[0] == tables[1]
