"""Builds on clusters of several processes, one of which is killed in mid-build: the version is that of threads, and
only what was in flight there is asked again."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from earmark.schemas.config import Engine
from earmark.tasks.pipeline.shards import RayCluster, check_machines, look_around
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from tests.annotation.test_kills import Server, received, slow_server
from tests.builds import contents_of
from tests.instrumentals import separating
from tests.pipeline.clusters import Build
from tests.pseudo_preferences import music

pytest.importorskip("prefect_ray", reason="without the extra ray")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORKERS = 3
CONCURRENCY = 6
PROMPTS = 40
REQUESTS = PROMPTS * 3 * 2
ENGINE = f"ray:{WORKERS}"


@pytest.fixture(scope="module")
def api_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server for the builds of this file."""
    os.environ.update({"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"})
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings

    database = tmp_path_factory.mktemp("prefect") / "prefect.db"
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{database}"}):
        server = SubprocessASGIServer()
        server.start(timeout=120)
    yield server.api_url
    server.stop()


server = slow_server("--listen", "--latency-ms", "150", scope="module")


def test_each_machine_is_examined(tmp_path: Path) -> None:
    stage = Stage(Store(tmp_path), "pseudo-preferences", "key", tmp_path)
    config = music.config_of(tmp_path, "http://127.0.0.1:9/v1")
    question = partial(look_around, stage, config, [])
    with ExitStack() as stack:
        there = RayCluster(stack, Engine(runner="ray", workers=1)).ask_each(question)
    assert there == [question()]
    check_machines(stage, question(), there)


def test_a_judging_process_is_killed(api_url: str, server: Server, tmp_path: Path) -> None:
    music.make_pool(tmp_path, PROMPTS)
    judge = {"max_concurrency": CONCURRENCY, "read_timeout_s": 30.0, "total_timeout_s": 60.0}
    calm = music.build_judged(music.config_of(tmp_path, server.base_url, judge=judge), tmp_path / "calm")
    config = music.write_config(tmp_path, server.base_url, judge=judge)
    before, store = server.settled()["asked"], tmp_path / "store"
    build = Build("pseudo-preferences", config, store, api_url, pairs_a_shard=12, engine=ENGINE)
    judged = store / "pseudo-preferences/.staging"
    build.until(lambda: len(list(judged.glob("*/work/judge/draws/*.parquet"))) >= 2)
    build.kill_one("judge")
    build.end()
    asked = server.settled()["asked"] - before
    lost = asked - received(store / "ledger.sqlite")
    assert 0 <= lost <= math.ceil(CONCURRENCY / WORKERS)
    assert asked == REQUESTS + lost
    assert contents_of(store / "pseudo-preferences/v1") == contents_of(calm.folder)


def test_a_separating_process_is_killed(tmp_path: Path) -> None:
    folder, store = tmp_path / "t", tmp_path / "store"
    separating.make_tracks(folder, 300, seconds=1.0)
    calm = separating.build_separated(separating.config_of(folder), tmp_path / "calm")
    config = folder / "build.toml"
    config.write_text(
        'corpus = "instrumentals"\nlength_s = [0.2, 7200.0]\n'
        '[source]\nname = "own"\nformat = "table"\ntracks = "tracks.jsonl"\n'
    )
    build = Build("instrumentals", config, store, None, engine=ENGINE)
    build.until(lambda: len(list(store.glob("separated/*/*/*.json"))) >= 20)
    build.kill_one("separate")
    build.end()
    assert contents_of(store / "instrumentals/v1") == contents_of(calm.folder)
