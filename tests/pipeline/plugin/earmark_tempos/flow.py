"""`tempos`, as a flow."""

from __future__ import annotations

from earmark.plugins import Stage, corpus_flow
from earmark_tempos.corpus import CORPUS, Tempos
from earmark_tempos.steps import judge_notes, read_notes, write_notes


@corpus_flow(CORPUS)
def build(stage: Stage, config: Tempos) -> None:
    """Read notes, have a model say of each whether the piece is fast, write the table."""
    notes = read_notes(stage, config)
    judged = judge_notes(stage, config, notes)
    write_notes(stage, config, notes, judged)
