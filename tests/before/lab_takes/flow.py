"""`studio-takes`, as a flow."""

from __future__ import annotations

from earmark.tasks.build.flow import corpus_flow
from earmark.tasks.store.staging import Stage
from lab_takes.corpus import CORPUS, StudioTakes
from lab_takes.steps import measure_takes, write_takes


@corpus_flow(CORPUS)
def build(stage: Stage, config: StudioTakes) -> None:
    """Read the sheet, measure each take's clip, write the table."""
    write_takes(stage, config, measure_takes(stage, config))
