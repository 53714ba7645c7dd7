"""The plan on paper is what its command prints, for every corpus."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.conftest import ROOT


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> object:
    """deploy/scale.py, as the command imports it."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    yield importlib.import_module("scale")
    for name in ("scale", "simulation"):
        sys.modules.pop(name, None)


def test_the_tables_are_what_the_command_prints(scale) -> None:  # type: ignore[no-untyped-def]
    text = (ROOT / "deploy/SCALE.md").read_text("utf-8")
    assert text.partition(scale.BEGIN)[2].partition(scale.END)[0].strip() == scale.tables()


def test_a_hundred_times_takes_a_hundred_times_the_tokens_and_about_the_time(scale) -> None:  # type: ignore[no-untyped-def]
    for work in scale.WORKLOADS:
        once, more = scale.needs(work, 1), scale.needs(work, 100)
        assert more.requests == 100 * once.requests
        assert more.tokens_in == pytest.approx(100 * once.tokens_in)
        assert more.wall_h <= 100 * once.wall_h * 1.01


def test_the_music_of_the_papers_size_takes_about_its_240_and_25_gigabytes(scale) -> None:  # type: ignore[no-untyped-def]
    """By the preset's bit rate; the listeners' seconds and the judge's questions are the presets', too."""
    by_name = {work.corpus: (work, scale.needs(work, 1)) for work in scale.WORKLOADS}
    assert by_name["instrumentals"][1].stored_bytes == pytest.approx(240e9, rel=0.1)
    assert by_name["instrumentals, first 30 s"][1].stored_bytes == pytest.approx(25e9, rel=0.1)
    captions, tags = by_name["captions"][0], by_name["music-prompts, tags"][0]
    assert (captions.requests, captions.heard_s * captions.requests) == (3, 60)  # two listen to 30 s, one refines
    assert (tags.items * tags.requests, tags.heard_s) == (28_600, 30)
