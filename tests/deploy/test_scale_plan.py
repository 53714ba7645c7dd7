"""The plan on paper is what its command prints, for every corpus."""

from __future__ import annotations

import importlib
import sys

import pytest

from earmark.schemas.toml import read_toml
from earmark.tasks.music_prompts.asking import LONGEST_S
from tests.conftest import ROOT


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> object:
    """deploy/scale.py, as the command imports it."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    yield importlib.import_module("scale")
    for name in ("scale", "simulation"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_the_tables_are_what_the_command_prints(scale) -> None:  # type: ignore[no-untyped-def]
    text = (ROOT / "deploy/SCALE.md").read_text("utf-8")
    assert text.partition(scale.BEGIN)[2].partition(scale.END)[0].strip() == scale.tables()


@pytest.mark.slow
def test_a_hundred_times_takes_a_hundred_times_the_tokens_and_about_the_time(scale) -> None:  # type: ignore[no-untyped-def]
    for work in scale.WORKLOADS.values():
        once, more = scale.needs(work, 1), scale.needs(work, 100)
        assert more.requests == 100 * once.requests
        assert more.tokens_in == pytest.approx(100 * once.tokens_in)
        assert more.wall_h <= 100 * once.wall_h * 1.01


@pytest.mark.slow
def test_the_music_of_the_papers_size_takes_about_its_240_and_25_gigabytes(scale) -> None:  # type: ignore[no-untyped-def]
    """By the preset's bit rate; the listeners' seconds and the judge's questions are the presets', too."""
    by_name = {name: (work, scale.needs(work, 1)) for name, work in scale.WORKLOADS.items()}
    assert by_name["instrumentals"][1].stored_bytes == pytest.approx(240e9, rel=0.1)
    assert by_name["instrumentals, first 30 s"][1].stored_bytes == pytest.approx(25e9, rel=0.1)
    captions, tags = by_name["captions"][0], by_name["music-prompts, tags"][0]
    assert (captions.requests, captions.heard_s * captions.requests) == (3, 60)  # two listen to 30 s, one refines
    assert (tags.items * tags.requests, tags.heard_s) == (28_600, 30)


def test_the_work_on_music_is_that_of_the_presets(scale) -> None:  # type: ignore[no-untyped-def]
    music, captions, prompts = (
        read_toml(ROOT / f"deploy/configs/{name}.toml") for name in ("instrumentals", "captions", "music-prompts")
    )
    works = scale.WORKLOADS
    assert works["instrumentals"].bytes_s == music["output"]["bitrate_kbps"] * 1000 / 8
    listeners = [one["listen"] for one in captions["pipelines"]]
    refined = sum("refine" in one for one in captions["pipelines"])
    assert works["captions"].requests == len(listeners) + refined
    heard_s = sum(one["hears_s"] * one.get("spans", 1) for one in listeners)
    assert works["captions"].requests * works["captions"].heard_s == heard_s
    verified = prompts["verification"]
    assert works["music-prompts, tags"].requests == verified["tracks"] + verified["untagged"]
    assert works["music-prompts, tags"].heard_s == LONGEST_S
    assert works["music-prompts"].items == sum(prompts["prompts"].values())


@pytest.mark.slow
def test_ten_times_the_rows_take_at_most_ten_times_the_hours_though_each_request_is_simulated(scale) -> None:  # type: ignore[no-untyped-def]
    for work in scale.WORKLOADS.values():
        once, more = scale.needs(work, 1), scale.needs(work, 10)
        assert more.wall_h <= 10 * once.wall_h
        assert more.requests <= scale.SIMULATED
