"""Python looks for garbage seldom while a build runs, and as before afterwards."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from earmark.flows.command import running
from earmark.schemas.errors import EarmarkError
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store


@pytest.mark.parametrize("fault", [None, EarmarkError("no")])
def test_garbage_is_looked_for_seldom_during_a_build_and_as_before_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: EarmarkError | None
) -> None:
    during: list[tuple[int, int, int]] = []

    def flow(**inputs: Any) -> str:
        during.append(gc.get_threshold())
        if fault:
            raise fault
        return "v1"

    monkeypatch.setattr(running, "start_prefect", lambda: None)
    monkeypatch.setattr(running, "load", lambda reference: flow)
    before, name = gc.get_threshold(), "music-prompts"
    config: Any = find_corpus(name).config.model_construct()
    with pytest.raises(EarmarkError) if fault else nullcontext():
        running._start_flow(name, config, Store(tmp_path), force=False, inputs={})
    assert gc.get_threshold() == before
    assert during == [(*running.SEARCH_AFTER, before[2])]
    assert during[0][0] > 10 * before[0]
