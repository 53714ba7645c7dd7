"""A version with more rows than the one before: equal to a build from nothing, without doing again what is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from earmark.tasks.pipeline import report
from earmark.tasks.store.versions import Version
from tests.annotation.conftest import model_server
from tests.builds import build_version, contents_of
from tests.mos_preferences.critiques import config_of, make_study
from tests.pages import data_of
from tests.pseudo_preferences.music import RATE_HZ, write_clip
from tests.servers.openai_server import OpenAIServer, critic_answer

server = model_server(critic_answer, keep_bodies=True)
CLIPS = 12


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Frames of each sound encoded for a report."""
    frames: list[int] = []
    real: Callable[..., bytes] = report.as_mp3

    def watched(samples: list[float], rate: int) -> bytes:
        frames.append(len(samples))
        return real(samples, rate)

    monkeypatch.setattr(report, "as_mp3", watched)
    return frames


def append(study: Path, *seconds: float) -> None:
    """Append rated clips of known lengths to the study."""
    with (study / "ratings.csv").open("a") as lines:
        for number, length in enumerate(seconds):
            write_clip(study / f"clips/more{number}.wav", seed=1000 + number, seconds=length)
            lines.write(f"clips/more{number}.wav,{2.01 + number / 3:.4f}\n")


def sounds(version: Version) -> dict[str, str]:
    """Sounds in a version's report by SHA-256."""
    found: dict[str, str] = data_of((version.folder / "report.html").read_text("utf-8"))["sounds"]
    return found


def tables(version: Version) -> dict[str, bytes]:
    """Parquet files by path."""
    return {path: content for path, content in contents_of(version.folder).items() if path.endswith(".parquet")}


@pytest.mark.slow
def test_appended_rows_give_the_tables_and_sounds_of_a_build_from_nothing(
    server: OpenAIServer, tmp_path: Path, encoded: list[int]
) -> None:
    make_study(tmp_path / "study", CLIPS)
    config = config_of(tmp_path / "study", server.base_url)
    first = build_version(config, tmp_path / "grown")
    assert len(encoded) == len(sounds(first)) == CLIPS
    sent, known = len(server.bodies), {str(body) for body in server.bodies}
    encoded.clear()
    append(tmp_path / "study", 0.4, 0.5)
    grown = build_version(config, tmp_path / "grown")
    assert grown.name == "v2"
    assert sorted(encoded) == [round(0.4 * RATE_HZ), round(0.5 * RATE_HZ)]
    more = [str(body) for body in server.bodies[sent:]]
    assert more
    assert not known & set(more), "a request was sent again"
    whole = build_version(config, tmp_path / "whole")
    assert tables(grown) == tables(whole)
    assert sounds(grown) == sounds(whole)
    assert len(sounds(grown)) == CLIPS + 2


@pytest.mark.slow
@pytest.mark.parametrize("change", ["damaged", "cut", "lost", "encoded otherwise"])
def test_sounds_of_a_report_that_is_not_as_committed_or_of_another_encoder_are_encoded_again(
    change: str, server: OpenAIServer, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_study(tmp_path / "study", CLIPS)
    config = config_of(tmp_path / "study", server.base_url)
    first = build_version(config, tmp_path / "store")
    page = first.folder / "report.html"
    text, right = page.read_bytes(), sounds(first)
    sound = next(iter(right.values()))
    if change == "damaged":
        page.write_bytes(text.replace(sound.encode(), sound[::-1].encode()))
    elif change == "cut":
        page.write_bytes(text[: len(text) // 2])
    elif change == "lost":
        page.unlink()
    else:
        monkeypatch.setattr(report, "library_versions", lambda: {"soundfile": "0"})
    encoded.clear()
    append(tmp_path / "study", 0.4)
    second = build_version(config, tmp_path / "store")
    assert second.name == "v2"
    assert len(encoded) == CLIPS + 1
    assert {sha256: sounds(second)[sha256] for sha256 in right} == right
