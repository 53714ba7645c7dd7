"""A process that may open few files asks as many at once as it can."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.annotation.test_kills import finish, serve  # noqa: F401  (serve is a fixture)

FEW = 150


@pytest.mark.slow
@pytest.mark.parametrize("hard", [FEW, None])
def test_what_is_in_flight_fits_the_files_that_may_be_open(serve: Any, tmp_path: Path, hard: int | None) -> None:  # noqa: F811
    """Without a hard limit the soft one is raised; with one, fewer are in flight, and one line says so."""
    server = serve("--latency-ms", "50")
    most = hard or resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    words = [server.base_url, str(tmp_path / "ledger.sqlite"), "600", json.dumps({"max_concurrency": 300})]
    with (tmp_path / "said").open("w") as said_to:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.annotation.asking", *words],
            stdout=subprocess.PIPE,
            stderr=said_to,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, most)),
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    finish(process)
    counts, said = server.counts(), (tmp_path / "said").read_text()
    assert (counts["distinct"], counts["repeats"]) == (600, 0)
    assert (counts["most_open"] < FEW / 2) == ("raise ulimit -n" in said) == (hard is not None)
