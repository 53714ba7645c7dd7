"""The first question of a kind goes ahead in a build: a server that takes none of it is asked a few times alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import EarmarkError
from earmark.schemas.questions import Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.patience import Vanguard
from earmark.tasks.annotation.request import Request
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.captions.captions import build_captions, config_of, direct, write_tracks
from tests.servers.faults import Faults
from tests.servers.openai_server import caption_answer

TRACKS = 40


def built(folder: Path, tracks: int, faults: Faults) -> tuple[list[int], int]:
    """Build captions of so many tracks: how many requests were open at each answer, and how many captions there are."""
    write_tracks(folder, tracks)
    open_at: list[int] = []

    def answer(body: dict[str, Any], content: str) -> str:
        open_at.append(faults.open_now)
        return caption_answer(body, content)

    with LocalServer(faults) as server:
        server.answer = answer
        config = config_of(folder, direct(server.base_url, max_concurrency=32))
        return open_at, len(rows_of(build_captions(config, folder / "store"), "captions"))


@pytest.mark.slow
def test_the_first_question_goes_alone_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    faults = Faults(latency_s=0.2)
    open_at, captions = built(tmp_path, TRACKS, faults)
    assert captions == sum(faults.asked.values()) == TRACKS
    assert open_at[0] == 1
    assert max(open_at) > 8


@pytest.mark.slow
def test_a_kept_answer_of_the_kind_lets_all_go_at_once(tmp_path: Path) -> None:
    built(tmp_path, 2, Faults())
    open_at, captions = built(tmp_path, TRACKS, Faults(latency_s=0.2))
    assert (len(open_at), captions) == (TRACKS - 2, TRACKS)
    assert open_at[0] > 1


@dataclass(frozen=True)
class Job:
    """A question on its way."""

    request: Request

    @property
    def key(self) -> str:
        return self.request.key


def test_where_the_run_of_the_first_question_ends_another_goes_ahead() -> None:
    config = AnnotatorConfig(annotator="openai:x", base_url="http://127.0.0.1:9/v1")
    first, second, third = (Job(question(config, [Message.of("user", str(n))])) for n in range(3))
    gone: list[Job] = []

    async def story() -> None:
        vanguard = Vanguard()
        assert vanguard.admits("run 1", first, lambda: None)
        assert not vanguard.admits("run 2", second, partial(gone.append, second))
        assert not vanguard.admits("run 2", third, partial(gone.append, third))
        vanguard.forget("run 1")
        assert gone == [second]
        assert vanguard.admits("run 2", second, lambda: None)
        vanguard.answered(second.request)
        assert gone == [second, third]
        assert vanguard.admits("run 3", first, lambda: None)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("500", r"take audio\? earmark doctor"),
        ("truncated_json", "check base_url"),
        ("wrong_content_type", "check base_url"),
    ],
)
def test_a_server_that_fails_at_every_clip_is_asked_a_few_times_and_stops_the_build(
    tmp_path: Path, kind: str, advice: str
) -> None:
    faults = Faults(rate=1.0, kinds=(kind,), most=None)
    with pytest.raises(EarmarkError, match=f"15 requests for the first 5 questions all fail: .*{advice}"):
        built(tmp_path, TRACKS, faults)
    assert 15 <= sum(faults.asked.values()) <= 25  # an earlier question may be tried again meanwhile
    assert not (tmp_path / "store/captions/v1").exists()


@pytest.mark.slow
def test_a_question_that_fails_now_and_then_holds_nobody_back(tmp_path: Path) -> None:
    faults = Faults(rate=0.5, kinds=("500", "429", "truncated_body"), most=2)
    _, captions = built(tmp_path, TRACKS, faults)
    assert captions == TRACKS
