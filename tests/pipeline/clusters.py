"""Real builds through Prefect, as processes of their own, whose shards go to clusters on this machine.

`python -m tests.pipeline.clusters CORPUS CONFIG STORE PAIRS_A_SHARD` runs one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.conftest import ROOT

PATIENCE_S = 240.0


class Build:
    """A build under way.

    Args:
        corpus: what is built.
        config: its config file.
        store: the store's folder.
        api_url: the Prefect server that it reports to; without one, it starts a temporary one.
        pairs_a_shard: so that few pairs make many shards.
        engine: where shards are worked on.
    """

    def __init__(
        self, corpus: str, config: Path, store: Path, api_url: str | None, pairs_a_shard: int = 500, *, engine: str
    ) -> None:
        command = [sys.executable, "-m", "tests.pipeline.clusters", corpus, str(config), str(store), str(pairs_a_shard)]
        self.log = store.with_suffix(".log")
        env = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
        env["EARMARK_ENGINE"] = engine
        if api_url:
            env["PREFECT_API_URL"] = api_url
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log, env=env)

    def until(self, happens: Callable[[], bool]) -> None:
        """Wait for something that happens while the build runs."""
        end = time.monotonic() + PATIENCE_S
        while not happens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def workers(self, step: str) -> list[psutil.Process]:
        """The processes that work on shards of a step: they bear its name while they do."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                called = " ".join(process.cmdline())
            except psutil.Error:
                continue  # it ended while we looked
            if called.startswith(f"ray::{step}"):
                found.append(process)
        return found

    def kill_one(self, step: str) -> None:
        """Kill a process that works on shards of a step."""
        found: list[psutil.Process] = []

        def looked() -> bool:
            found[:] = self.workers(step)
            return bool(found)

        self.until(looked)
        found[0].kill()

    def end(self) -> None:
        """Wait for the version."""
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


def run(corpus: str, config: str, store: str, pairs_a_shard: str) -> None:
    """Build, as `earmark build` does."""
    from earmark.flows.command.running import run_build
    from earmark.tasks.pseudo_preferences import judging
    from earmark.tasks.store.versions import open_store

    judging.PAIRS_A_SHARD = int(pairs_a_shard)
    assert run_build(corpus, Path(config), open_store(store)).new


if __name__ == "__main__":
    run(*sys.argv[1:])
