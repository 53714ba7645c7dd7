"""Sessions of a build: one an annotator, and no model in this process that is not asked."""

from __future__ import annotations

from pathlib import Path

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.pipeline.sessions import Sessions
from earmark.tasks.store.versions import Store


def test_a_model_in_this_process_is_closed_by_the_first_walk_that_does_not_ask_it(tmp_path: Path) -> None:
    judge, writer = AnnotatorConfig(annotator="transformers:judge"), AnnotatorConfig(annotator="transformers:writer")
    server = AnnotatorConfig(annotator="openai:reader", base_url="http://127.0.0.1:9/v1")
    with Sessions(Store(tmp_path)) as sessions:
        first = sessions.of({"judge": judge, "verifier": judge, "reader": server})
        assert first["judge"] is first["verifier"]
        second = sessions.of({"writer": writer})
        assert not first["judge"]._thread.is_alive()
        assert first["reader"]._thread.is_alive()  # a server's session keeps its pace and its budget
        third = sessions.of({"judge": judge, "writer": writer, "reader": server})
        assert third["writer"] is second["writer"]
        assert third["reader"] is first["reader"]
        assert third["judge"] is not first["judge"]
    assert not any(session._thread.is_alive() for session in third.values())
