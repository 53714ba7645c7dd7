"""The real flow under Prefect gives the version that its steps give alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.schemas.errors import EarmarkError
from earmark.tasks.instrumentals import sources
from earmark.tasks.pseudo_preferences import judging
from tests import builds
from tests.annotation.conftest import LocalServer
from tests.importers import layouts
from tests.instrumentals import separating
from tests.pseudo_preferences import music
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    """One temporary Prefect server for all tests of this folder; it phones nobody."""
    os.environ.update({"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"})
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=120),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_flow_gives_the_same_version(tmp_path: Path) -> None:
    from earmark.flows.mos_preferences import build

    layouts.table(tmp_path / "t.csv")
    layouts.somos(tmp_path / "somos")
    table = {"name": "one", "format": "table", "files": {"train": "t.csv"}, "columns": layouts.TABLE_COLUMNS}
    config = builds.config_of(tmp_path, table, {"name": "somos", "format": "somos", "root": "somos"}, audio="index")
    assert build(config, str(tmp_path / "flow")) == "v1"
    alone = builds.build_version(config, tmp_path / "alone")
    (folder,) = (tmp_path / "flow").glob("*/v1")
    assert builds.contents_of(folder) == builds.contents_of(alone.folder)
    assert build(config, str(tmp_path / "flow")) == "v1"
    assert build(config, str(tmp_path / "flow"), force=True) == "v1"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_shards_judged_side_by_side_give_the_same_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from earmark.flows.pseudo_preferences import build

    monkeypatch.setattr(judging, "PAIRS_A_SHARD", 3)
    music.make_pool(tmp_path, 5)
    with LocalServer(Faults(rate=0.2, kinds=("500", "wrong_shape"))) as server:
        # a server's answer follows from the request's words: asked again, it is the same only at the same temperature
        config = music.config_of(tmp_path, server.base_url, judge={"temperature": 0.5})

        def broken(*_: object) -> str:
            raise RuntimeError("down")

        server.answer = broken
        with pytest.raises(EarmarkError, match="questions all end alike: 500"):
            build(music.config_of(tmp_path, server.base_url, judge={"retries": 0}), str(tmp_path / "flow"))
        server.answer = listening_answer
        assert build(config, str(tmp_path / "flow")) == "v1"
        alone = music.build_judged(config, tmp_path / "alone")
    (folder,) = (tmp_path / "flow").glob("*/v1")
    assert builds.contents_of(folder) == builds.contents_of(alone.folder)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_tracks_separated_shard_by_shard_give_the_same_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from earmark.flows.instrumentals import build

    monkeypatch.setattr(sources, "TRACKS_A_SHARD", 2)
    rows = separating.make_tracks(tmp_path / "t", 5)
    (tmp_path / "t/audio/0003.flac").write_bytes(b"no audio")
    separating.song(tmp_path / "t/audio/0004.flac", 4, channels=1)
    config = separating.config_of(tmp_path / "t", output={"keep": "files"})
    assert build(config, str(tmp_path / "flow")) == "v1"
    alone = separating.build_separated(config, tmp_path / "alone")
    (folder,) = (tmp_path / "flow").glob("*/v1")
    assert builds.contents_of(folder) == builds.contents_of(alone.folder)
    assert build(config, str(tmp_path / "flow"), force=True) == "v1"
    assert sum(alone.manifest.rows["tracks"].values()) == len(rows) - 2
