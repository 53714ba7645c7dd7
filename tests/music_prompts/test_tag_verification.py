"""Tags verified by a judge that listens to their tracks, against a local server that gives log-probabilities."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.builds import contents_of, rows_of
from tests.music_prompts.prompt_builds import QUICK, build_prompts
from tests.music_prompts.test_music_prompts import SMALL, captioned, forecast_of, lists, server
from tests.pseudo_preferences.music import write_clip
from tests.servers.openai_server import OpenAIServer

__all__ = ["lists", "server"]  # fixtures


@pytest.fixture
def audible(lists: Path) -> Path:
    """The lists, and audio for every second track."""
    for number in range(1, 121, 2):
        write_clip(lists / f"audio/{number % 100:02d}/{number}.flac", number, seconds=0.2)
    write_clip(lists / "audio/01/broken.flac", 7)
    (lists / "audio/03/3.flac").write_bytes(b"fLaC but no more")
    return lists


def hearing(server: OpenAIServer, **values: Any) -> dict[str, Any]:
    """A judge of tags behind a local server."""
    heard = {"audio": "audio", "file": "{stem}.flac", "tracks": 5, "sample_rate_hz": 8_000, "longest_s": 0.1}
    return {**QUICK, "base_url": server.base_url, **heard, **values}


def test_a_judge_verifies_tags_on_tracks_that_carry_them(audible: Path, tmp_path: Path, server: OpenAIServer) -> None:
    server.keep_bodies = True
    config = captioned(audible, verification=hearing(server), pool={"popularity": 20, "recall": 0.2})
    version = build_prompts(config, tmp_path / "store")
    asked = [body for body in server.bodies if body.get("logprobs")]
    steps = {step.name: step for step in version.manifest.steps}
    tags = {row["tag"]: row for row in rows_of(version, "tags")}
    heard = {name: row for name, row in tags.items() if row["verified"]}
    silent = {name for name, row in tags.items() if row["criterion"] == "not_verified"}
    assert silent == {"jazz", "techno", "metal"}  # every second track has audio, and these stand on the others
    refused = [row for row in rows_of(version, "rejects") if row["stage"] == "verify"]
    assert steps["verify"].entered == steps["verify"].kept + len(refused)
    assert {row["reason"] for row in refused} <= {"audio_unreadable"}
    assert sum(row["asked"] for row in heard.values()) == steps["verify"].kept == len(asked)
    for row in heard.values():
        assert 4 <= row["asked"] <= 5
        assert row["recall"] == row["detected"] / row["asked"]
        assert row["recall_low"] <= row["recall"] <= row["recall_high"]
        assert row["criterion"] == ("low_recall" if row["recall"] < 0.2 else None)
    heads = Counter(str(body["messages"][0]["content"])[:40] for body in asked)
    assert len(heads) == 3  # each category has a prompt of its own
    assert version.manifest.prompts.keys() >= {"concept-genre@1", "concept-instrument@1", "concept-mood-theme@1"}


def test_verified_builds_are_the_same_again_and_ask_nothing(
    audible: Path, tmp_path: Path, server: OpenAIServer
) -> None:
    config = captioned(audible, verification=hearing(server), pool={"popularity": 1, "recall": 0.0})
    one = build_prompts(config, tmp_path / "store")
    before = contents_of(one.folder)
    asked = sum(server.faults.asked.values())
    assert build_prompts(config, tmp_path / "store").name == "v1"
    assert contents_of(build_prompts(config, tmp_path / "store", force=True).folder).keys() == before.keys()
    assert sum(server.faults.asked.values()) == asked
    write_clip(audible / "audio/05/5.flac", 99, seconds=0.2)
    assert build_prompts(config, tmp_path / "store").manifest.inputs["audio"] != one.manifest.inputs["audio"]


def test_a_forecast_counts_the_judges_questions_too(audible: Path, tmp_path: Path, server: OpenAIServer) -> None:
    config = captioned(audible, verification=hearing(server))
    facts = forecast_of(config, tmp_path / "store")
    assert facts["stage"] == "verify"
    assert facts["to_ask"] == facts["requests"] > 50
    assert facts["write"]["to_ask"] == sum(SMALL.values())
    assert server.faults.asked == {}
    build_prompts(captioned(audible, verification=hearing(server)), tmp_path / "store")
    assert forecast_of(config, tmp_path / "store")["to_ask"] == 0
