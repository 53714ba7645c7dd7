"""A build of `instruction-rubrics` that is killed at any of its asks goes on without asking again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.versions import Store, verify
from tests.annotation.conftest import LocalServer
from tests.builds import Builds, contents_of
from tests.rubrics import QUICK, asks, caption, rubric_answer, write_captions
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

CAPTIONS, WAIT_S = 40, 120.0

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A model that takes its time."""
    with LocalServer(Faults(latency_s=0.02)) as started:
        started.answer = rubric_answer
        yield started


def write_config(folder: Path, server: OpenAIServer) -> Path:
    """One set of captions, one server for both roles."""
    folder.mkdir()
    write_captions(folder, "real", map(caption, range(CAPTIONS)))
    asked = [f"{key} = {json.dumps(value)}" for key, value in QUICK.items()]
    asked.append(f'base_url = "{server.base_url}"')
    lines = [
        "bench_share = 0.5",
        '[[sources]]\nname = "real"\nsubset = "real"\ndomain = "music"\ncaptions = "real.csv"',
        "[clips]\nshortest_s = 0.1",
        "[disjoint]\nfingerprint = 0",
        '[judge]\nannotator = "openai:hears"\nhearing = { sample_rate_hz = 8000 }',
        *asked,
        '[writer]\nannotator = "openai:writes"',
        *asked,
    ]
    path = folder / "build.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_killed_build_goes_on_and_gives_the_same_bytes(tmp_path: Path, server: OpenAIServer) -> None:
    config = write_config(tmp_path / "lists", server)
    with Builds("tests.rubrics") as builds:
        builds.start(config, tmp_path / "calm")
        assert builds.said() == 0
        in_all = asks(server.faults)
        kills = 0
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            child = builds.start(config, tmp_path / "killed")
            started = time.monotonic()
            while asks(server.faults) < in_all * (1 + share) and not builds.ended(0.005):
                assert time.monotonic() < started + WAIT_S
            kills += not builds.ended(0)
            builds.kill(child)
            builds.said()
        assert kills == 5
        builds.start(config, tmp_path / "killed")
        assert builds.said() == 0
        assert asks(server.faults) <= 2 * in_all + kills * 2 * QUICK["max_concurrency"]
    (killed,) = Store(tmp_path / "killed").versions("instruction-rubrics")
    (calm,) = Store(tmp_path / "calm").versions("instruction-rubrics")
    assert contents_of(killed.folder) == contents_of(calm.folder)
    assert verify(killed) == []
