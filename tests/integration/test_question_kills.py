"""Builds of `score-questions`, killed at random: the version is that of a calm build, little is asked twice."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import LocalServer
from tests.builds import Builds, contents_of
from tests.questions import asked_by, exam_answer
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer

CONCURRENCY = 4
KILLS = 10
WAIT_S = 120.0

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A writer, judge and labeller that takes its time."""
    with LocalServer(Faults(latency_s=0.02)) as started:
        started.answer = exam_answer
        yield started


def write_config(folder: Path, base_url: str) -> Path:
    """A config whose dump is empty: the process makes its own threads."""
    folder.mkdir()
    (folder / "dump.ndjson").touch()
    lines = ['corpus = "score-questions"', '[source]\nsubmissions = ["dump.ndjson"]\ncomments = ["dump.ndjson"]']
    for name, values in asked_by(base_url, max_concurrency=CONCURRENCY).items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    path = folder / "build.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def asked(server: OpenAIServer) -> int:
    """The server's own count."""
    return sum(server.faults.asked.values())


def newest(root: Path) -> Version:
    """The one version of a store."""
    (version,) = Store(root).versions("score-questions")
    return version


def test_a_harried_build_is_the_calm_one(tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", "one salt for both stores")  # else each makes its own
    config = write_config(tmp_path / "lists", server.base_url)
    dice = random.Random(17)
    with Builds("tests.questions") as builds:
        builds.start(config, tmp_path / "calm")
        assert builds.said() == 0
        calm = asked(server)
        assert calm > 60 * 3
        killed = 0
        for _ in range(KILLS):
            before, started = asked(server), time.monotonic()
            child = builds.start(config, tmp_path / "harried")
            upto = dice.randint(1, calm // 4)
            while asked(server) < before + upto and not builds.ended(0.01):
                assert time.monotonic() < started + WAIT_S
            if builds.ended(0):
                assert builds.said() == 0
                break
            builds.kill(child)
            killed += builds.said() != 0
        else:
            builds.start(config, tmp_path / "harried")
            assert builds.said() == 0
    assert killed >= 3
    assert asked(server) - calm <= calm + killed * CONCURRENCY
    harried = newest(tmp_path / "harried")
    assert contents_of(harried.folder) == contents_of(newest(tmp_path / "calm").folder)
    assert verify(harried) == []
