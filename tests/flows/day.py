"""A day of schedules in minutes: `earmark serve` under quick schedules, and what its processes hold when nothing runs.

A leak is a growth from rest to rest. So the schedules are let go for some fires and held again; between, when no run is
in flight, it is counted what each process that stays holds: memory, open files by kind, threads; and what lies in the
folder for temporary files.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from tests.conftest import ROOT
from tests.deploy.test_deploy import QUICK, Prefect, waited

ENDED = ("COMPLETED", "CANCELLED", "FAILED", "CRASHED")
UNDER_WAY = ("RUNNING", "PENDING", "CANCELLING")
READY = b"schedules are running"
PARTS = {
    "annotation/children.py": "guard",  # its command line ends with that of its child
    "server start": "server",
    "create_app": "server",
    "worker start": "worker",
}
"""The processes that stay, by words of their command lines; whatever else `earmark serve` has started is a run."""


@dataclass(frozen=True)
class Rest:
    """What is held while no run is in flight.

    Attributes:
        fires: runs that were completed until then.
        parts: of each process that stays: `memory_mib`, `threads`, and open files by kind.
        runs: processes of runs that are still there.
        temporary: names in the folder for temporary files.
    """

    fires: int
    parts: dict[str, dict[str, float]]
    runs: int
    temporary: list[str]


@dataclass
class Day:
    """`earmark serve` and its schedules.

    Attributes:
        process: the command.
        prefect: its server.
        temporary: where it and its runs put temporary files.
        metrics: the port of its metrics.
        log: what it and its parts say.
        rests: what was held so far.
    """

    process: subprocess.Popen[bytes]
    prefect: Prefect
    temporary: Path
    metrics: int
    log: Path
    rests: list[Rest] = field(default_factory=list)

    def fire(self, count: int, seconds: float = 600) -> Rest:
        """Let the schedules bring that many more runs to their end; what is held when all is at rest again."""
        wanted = self.count("COMPLETED") + count
        self._schedules("resume_deployment")
        waited(f"{wanted} runs", lambda: self.count("COMPLETED") >= wanted, seconds)
        self._schedules("pause_deployment")
        try:
            self.rests.append(waited("the last runs", self._settled, seconds))
        except AssertionError as error:
            seen = f"{self.states()}, {self.count('SCHEDULED')} planned, {self.held()}, {self.log.read_text()[-3000:]}"
            raise AssertionError(f"{error}: {seen}") from None
        return self.rests[-1]

    def count(self, *states: str) -> int:
        """Runs in one of the states."""
        assert self.process.poll() is None, f"earmark serve ended by itself: {self.log.read_text()[-3000:]}"
        return int(self.prefect.ask("/flow_runs/count", {"flow_runs": {"state": {"type": {"any_": list(states)}}}}))

    def states(self) -> dict[str, int]:
        """Runs that are under way or have ended, by their state."""
        return {state: count for state in (*ENDED, *UNDER_WAY) if (count := self.count(state))}

    def held(self) -> Rest:
        parts, runs = {"serve": _held(psutil.Process(self.process.pid))}, 0
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                words = " ".join(child.cmdline())
                name = next((name for said, name in PARTS.items() if said in words), None)
                if name is None:
                    runs += 1
                else:
                    parts[name] = _held(child)
            except psutil.NoSuchProcess:
                continue  # a run that has just ended
        return Rest(self.count("COMPLETED"), parts, runs, sorted(path.name for path in self.temporary.iterdir()))

    def _settled(self, samples: int = 5) -> Rest | None:
        """The least that is held over some seconds, as what a request in flight opens is closed in one of the samples;
        None while a run is in flight, such as one that the worker had taken before the schedules were held.

        Prefect's scheduler may plan a hundred runs more just after a schedule is held, from what it read before; to
        hold the schedule again takes them away.
        """
        if self.count("SCHEDULED"):
            self._schedules("pause_deployment")
            return None
        seen = []
        for _ in range(samples):
            if self.count(*UNDER_WAY) or (held := self.held()).runs:
                return None
            seen.append(held)
            time.sleep(1)
        least = {
            part: {what: min(one.parts[part].get(what, 0) for one in seen) for what in whats}
            for part, whats in seen[-1].parts.items()
        }
        return Rest(seen[-1].fires, least, seen[-1].runs, seen[-1].temporary)

    def _schedules(self, change: str) -> None:
        for one in self.prefect.ask("/deployments/filter", {}):
            self.prefect.tell(f"/deployments/{one['id']}/{change}")


def growth(rests: list[Rest], part: str, what: str, fires: int = 24) -> float:
    """How much a part holds more after a day's fires, by the median of the slopes between rests (Theil and Sen)."""
    slopes = [
        (after.parts[part].get(what, 0.0) - before.parts[part].get(what, 0.0)) / (after.fires - before.fires)
        for before, after in combinations(rests, 2)
    ]
    return median(slopes) * fires


def _held(process: psutil.Process) -> dict[str, float]:
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            found[_kind(str(path.readlink()))] += 1
        except FileNotFoundError:
            continue  # closed meanwhile, or the listing's own
    with process.oneshot():
        return {"memory_mib": process.memory_info().rss / 2**20, "threads": process.num_threads(), **found}


def _kind(target: str) -> str:
    if "prefect.db" in target:
        return "database"
    return "sockets" if target.startswith("socket:") else "others"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quick_deployments(folder: Path, store: Path, every_s: float) -> Path:
    """Two of the shipped deployments, every few seconds: one finds its version up to date, one builds each time."""
    shipped: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prefect.yaml").read_text("utf-8"))
    chosen = [one for one in shipped["deployments"] if set(one["tags"]) & {"mos-preferences", "music-prompts"}]
    for one in chosen:
        one["schedules"] = [{"interval": every_s, "active": True}]
        one["parameters"] |= {"store": str(store), "force": "music-prompts" in one["tags"]}
        one["parameters"]["config"]["base"] = str(ROOT / "data/demo")
    path = folder / "prefect.yaml"
    path.write_text(yaml.safe_dump({**shipped, "deployments": chosen}), "utf-8")
    return path


@contextmanager
def served(folder: Path, deployments: Path, store: Path, **more: str) -> Iterator[Day]:
    """`earmark serve` with a home, a port and a folder for temporary files of its own; it ends with the block.

    The same folder again is the same machine: its server knows the runs of before.
    """
    home, temporary, log = folder / "prefect", folder / "temporary", folder / "serve.log"
    home.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(exist_ok=True)
    port, metrics = free_port(), free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "EARMARK_"))}
    ours = {**QUICK, "PREFECT_HOME": str(home), "TMPDIR": str(temporary)}
    ours["EARMARK_ROOTS"] = os.pathsep.join([str(deployments.parent), str(ROOT / "data")])
    words = ["serve", "--file", deployments, "--port", port, "--metrics-port", metrics, "--store", store]
    prefect = Prefect(home, f"http://127.0.0.1:{port}/api")
    before = log.read_bytes().count(READY) if log.is_file() else 0
    with log.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "earmark", *map(str, words)],
            cwd=ROOT,
            env={**kept, **ours, **more},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        waited("the schedules", lambda: log.read_bytes().count(READY) > before or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()[-3000:]
        yield Day(process, prefect, temporary, metrics, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        finally:
            for left in prefect.processes():
                left.kill()
