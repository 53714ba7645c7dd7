"""Answers by other models than the one that a build asks, such as a gateway's fallback: said once, and on the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from earmark.tasks.pipeline.progress import shown
from earmark.tasks.store.versions import Version
from tests.annotation.conftest import model_server
from tests.captions.captions import build_captions, caption_answer, config_of, direct, write_tracks
from tests.servers.openai_server import OpenAIServer

server = model_server(caption_answer, keep_bodies=True)
NAMES = ["hears-2025", None, "hears-2025", "mini", "hears-2025", ""]


def notes_of(version: Version) -> list[str]:
    return [note for note in version.manifest.notes() if "answered" in note]


@pytest.fixture
def names(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The names that the server's further replies report, in turn; afterwards what was asked for."""
    given: list[Any] = []
    complete = server.completion

    def named(body: dict[str, Any], *rest: Any) -> dict[str, Any]:
        said = complete(body, *rest)
        return {**said, "model": given.pop()} if given else said

    monkeypatch.setattr(server, "completion", named)
    return given


@pytest.mark.slow
def test_a_build_that_two_models_answered_says_so_and_so_does_its_card(
    tmp_path: Path, server: OpenAIServer, names: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write_tracks(tmp_path, 6)
    names += NAMES
    told = "openai:hears: models of 2 names answered, such as a gateway's fallbacks: hears-2025 (3), mini (1)"
    with shown():
        version = build_captions(config_of(tmp_path, direct(server.base_url)), tmp_path / "store")
    assert notes_of(version) == [told]
    assert told in (version.folder / "README.md").read_text("utf-8")
    assert capsys.readouterr().err.count(told) == 1
    asked = len(server.bodies)
    later = config_of(tmp_path, direct(server.base_url), repeats="reject")  # the same answers, from the ledger
    assert notes_of(build_captions(later, tmp_path / "store")) == [told]
    assert len(server.bodies) == asked == 6


@pytest.mark.slow
def test_answers_of_one_name_or_none_are_nothing_to_tell(
    tmp_path: Path, server: OpenAIServer, names: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write_tracks(tmp_path, 4)
    names += ["hears-2025", None, "hears-2025", ""]
    with shown():
        version = build_captions(config_of(tmp_path, direct(server.base_url)), tmp_path / "store")
    assert notes_of(version) == []
    assert "answered" not in capsys.readouterr().err
