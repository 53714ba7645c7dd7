"""Bench and corpus of `instruction-rubrics` with Chromaprint and without: what is compared, and what is said of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import soundfile

from earmark.schemas.errors import ConfigError
from earmark.schemas.instruction_rubrics import has_chromaprint
from earmark.tasks.instruction_rubrics.sources import plan_build
from earmark.tasks.store.versions import Store
from tests.annotation.conftest import model_server
from tests.audio.test_recordings import RATE, melody
from tests.builds import rows_of
from tests.instruction_rubrics.rubrics import build_rubrics, caption, config_of, rubric_answer, write_captions
from tests.servers.openai_server import OpenAIServer

server = model_server(rubric_answer)


def songs(folder: Path, count: int = 6) -> dict[str, Any]:
    """A source of songs, each as a FLAC file and, from its fifth second on and more softly, as an Ogg file."""
    lines = ["id,audio,text"]
    for number in range(count):
        song = melody(number)
        for ending, samples, words in (("flac", song, number), ("ogg", song[5 * RATE :] * 0.5, number + 50)):
            soundfile.write(folder / f"{number}.{ending}", samples, RATE)
            lines.append(f'{ending}-{number},{number}.{ending},"{caption(words)}"')
    (folder / "songs.csv").write_text("\n".join(lines) + "\n")
    return {"name": "songs", "subset": "songs", "domain": "music", "captions": "songs.csv"}


@pytest.mark.slow
def test_without_chromaprint_a_default_config_builds_and_says_what_was_not_compared(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_captions(tmp_path, "real", map(caption, range(8)))
    monkeypatch.setitem(sys.modules, "chromaprint", None)
    without = config_of(tmp_path, source, base_url=server.base_url, fingerprint=None)
    version = build_rubrics(without, tmp_path / "store")
    assert version.manifest.config["disjoint"]["fingerprint"] == 0
    card, report = ((version.folder / name).read_text("utf-8") for name in ("README.md", "report.html"))
    assert "recordings were not compared by sound" in card
    assert "recordings were not compared by sound" in report
    monkeypatch.setitem(sys.modules, "chromaprint", ModuleType("chromaprint"))
    with_it = config_of(tmp_path, source, base_url=server.base_url, fingerprint=None)
    assert with_it.fingerprint == 0.9
    store = Store(tmp_path / "store")
    assert plan_build(with_it, store).build_key != plan_build(without, store).build_key == version.manifest.build_key


def test_fingerprints_that_are_asked_for_need_chromaprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chromaprint", None)
    source = write_captions(tmp_path, "real", map(caption, range(2)))
    config = config_of(tmp_path, source, fingerprint=0.9)
    with pytest.raises(ConfigError, match=r"install libchromaprint1\), or set fingerprint = 0") as caught:
        plan_build(config, Store(tmp_path / "store"))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.skipif(not has_chromaprint(), reason="Chromaprint is not installed")
def test_with_chromaprint_other_encodings_and_excerpts_stay_together(server: OpenAIServer, tmp_path: Path) -> None:
    clips = {"length_s": [0.1, 60.0]}
    compared = config_of(tmp_path, songs(tmp_path), base_url=server.base_url, fingerprint=None, **clips)
    version = build_rubrics(compared, tmp_path / "store")
    assert "recordings were not compared" not in (version.folder / "README.md").read_text("utf-8")
    split_of = {Path(row["file"]).name: row["split"] for row in rows_of(version, "clips")}
    together = [(split_of[f"{n}.flac"], split_of[f"{n}.ogg"]) for n in range(6) if f"{n}.ogg" in split_of]
    assert together
    assert all(one == other for one, other in together)
    apart = config_of(tmp_path, songs(tmp_path), base_url=server.base_url, **clips)
    other = {Path(row["file"]).name: row["split"] for row in rows_of(build_rubrics(apart, tmp_path / "other"), "clips")}
    assert any(other.get(f"{n}.flac") != other.get(f"{n}.ogg") for n in range(6))
