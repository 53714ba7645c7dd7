"""Builds of `music-prompts`, killed at random: the version is that of a calm build, little is asked twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.music_prompts import MusicPrompts
from earmark.tasks.store.versions import Store, Version, verify
from tests.annotation.conftest import asked, model_server
from tests.builds import Builds, contents_of, write_toml
from tests.music_prompts.prompt_builds import GENRES, QUICK, made_tracks, write_captions, write_tracks, writing_answer
from tests.pseudo_preferences.music import write_clip
from tests.servers.openai_server import OpenAIServer

CONCURRENCY = 4
KILLS = 12
WAIT_S = 120.0

pytestmark = pytest.mark.slow


server = model_server(writing_answer, latency_s=0.02)


def write_config(folder: Path, base_url: str) -> Path:
    """Lists, clips for some tracks, and a config that asks a judge and a writer about them."""
    write_tracks(folder / "tracks.tsv", made_tracks(90))
    for number in range(1, 91):
        write_clip(folder / f"audio/{number:02d}/{number}.mp3.flac", number, seconds=0.1)
    write_captions(folder / "captions.json", {f"{n}.mp3": f"A calm {GENRES[n % 6]} tune, {n}." for n in range(20)})
    asked: dict[str, Any] = {**QUICK, "base_url": base_url, "max_concurrency": CONCURRENCY}
    values = {
        "tracks": "tracks.tsv",
        "captions": [{"name": "made", "file": "captions.json"}],
        "pool": {"popularity": 1, "mentions": 0, "recall": 0.0},
        "prompts": {"strict_id": 12, "improvised_id": 12, "strict_ood": 8},
        "verification": {**asked, "audio": "audio/{path}.flac", "tracks": 4},
        "synthesis": asked,
    }
    return write_toml(MusicPrompts, values, folder / "build.toml")


def newest(root: Path) -> Version:
    (version,) = Store(root).versions("music-prompts")
    return version


def test_a_harried_build_is_the_calm_one(tmp_path: Path, server: OpenAIServer) -> None:
    config = write_config(tmp_path / "lists", server.base_url)
    dice = random.Random(17)
    with Builds("tests.music_prompts.prompt_builds") as builds:
        builds.start(config, tmp_path / "calm")
        assert builds.said() == 0
        calm = asked(server)
        assert calm > 15 * 4
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
