"""Builds that ask a critic, killed while it answers: the version is that of a calm build, and next to nothing is asked
twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.store.versions import Store, verify
from tests.annotation.test_kills import Server, received
from tests.builds import Builds, contents_of
from tests.critiques import make_study, write_config

CORPUS = "mos-preferences"
CONCURRENCY = 4
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A critic that takes its time, in a process of its own."""
    started = Server("--critic", "--latency-ms", "20")
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.mark.slow
def test_killed_builds_ask_nothing_twice(server: Server, tmp_path: Path) -> None:
    """Kill a build five times, each further on than the last; among them are kills within the second and third draw."""
    make_study(tmp_path / "study", 16)
    critiques = {"tries": 3, "seed": 7, "max_concurrency": CONCURRENCY}
    config = write_config(tmp_path / "study", server.base_url, critiques)
    with Builds("tests.critiques") as builds:
        builds.start(config, tmp_path / "calm")
        assert builds.said() == 0
        calm = server.counts()["asked"]
        lost = 0
        for part in range(1, 6):
            child = builds.start(config, tmp_path / "store")
            deadline = time.monotonic() + PATIENCE_S
            while server.counts()["asked"] - calm < part * calm // 6 and time.monotonic() < deadline:
                assert not builds.ended(0.002)
            builds.kill(child)
            assert builds.said() != 0
            asked = server.settled()["asked"] - calm
            cost = asked - received(tmp_path / "store/ledger.sqlite") - lost
            assert 0 <= cost <= CONCURRENCY
            lost += cost
            assert not (tmp_path / "store" / CORPUS / "v1").exists()
        builds.start(config, tmp_path / "store")
        assert builds.said() == 0
    assert calm <= server.counts()["asked"] - calm <= calm + lost
    (version,) = Store(tmp_path / "store").versions(CORPUS)
    assert verify(version) == []
    assert {"critiques", "paired_critiques"} <= version.manifest.rows.keys()
    assert contents_of(version.folder) == contents_of(tmp_path / "calm" / CORPUS / "v1")
