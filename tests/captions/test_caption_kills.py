"""A build of `captions` that is killed on its way asks again only what was in flight."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from earmark.schemas.captions import Captions
from earmark.tasks.store.versions import Store, verify
from tests.annotation.conftest import asked, model_server
from tests.builds import Builds, contents_of, write_toml
from tests.captions.captions import HEARS, QUICK, READS, caption_answer, write_tracks
from tests.servers.openai_server import OpenAIServer

TRACKS, CONCURRENCY, WAIT_S = 60, 4, 120.0

pytestmark = pytest.mark.slow


hears = model_server(caption_answer)


reads = model_server(caption_answer, latency_s=0.05)


def write_config(folder: Path, hears: OpenAIServer, reads: OpenAIServer) -> Path:
    """Pipeline B, a server for each stage."""
    write_tracks(folder, TRACKS, seconds=0.2)
    listen = {"annotator": HEARS, "base_url": hears.base_url, "ask": "describe", **QUICK}
    values = {
        "source": {"name": "made", "format": "table", "tracks": "tracks.csv"},
        "length_s": [0.1, 7200.0],
        "pipelines": [
            {"name": "refined", "listen": listen, "refine": {"annotator": READS, "base_url": reads.base_url, **QUICK}}
        ],
    }
    return write_toml(Captions, values, folder / "build.toml")


def test_a_killed_build_asks_again_only_what_was_in_flight(
    tmp_path: Path, hears: OpenAIServer, reads: OpenAIServer
) -> None:
    config = write_config(tmp_path / "lists", hears, reads)
    with Builds("tests.captions.captions") as builds:
        for kills, target in enumerate((hears, reads), start=1):
            child, started = builds.start(config, tmp_path / "killed"), time.monotonic()
            while asked(target) < kills * TRACKS // 4 and not builds.ended(0.005):
                assert time.monotonic() < started + WAIT_S
            assert not builds.ended(0)
            builds.kill(child)
            assert builds.said() != 0
            assert asked(reads) < TRACKS
        builds.start(config, tmp_path / "killed")
        assert builds.said() == 0
        for server in (hears, reads):
            assert TRACKS <= asked(server) <= TRACKS + 2 * CONCURRENCY
        builds.start(config, tmp_path / "calm")
        assert builds.said() == 0
    (killed,) = Store(tmp_path / "killed").versions("captions")
    (calm,) = Store(tmp_path / "calm").versions("captions")
    assert contents_of(killed.folder) == contents_of(calm.folder)
    assert verify(killed) == []
