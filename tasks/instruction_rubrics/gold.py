"""What the judge of captions is qualified by: clips with their own caption, and with one of another clip."""

from __future__ import annotations

from collections.abc import Iterator

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.build.ask import Asker, Row
from earmark.tasks.build.rows import Rows, read_rows
from earmark.tasks.build.walk import walk
from earmark.tasks.evaluation.controls import draw_other
from earmark.tasks.evaluation.qualification import Exam, Given
from earmark.tasks.instruction_rubrics.asks import VERIFY
from earmark.tasks.store.staging import Stage


@walk("qualify", asks=[VERIFY], label="qualify the judge")
async def ask_fit(asker: Asker[InstructionRubrics], question: Row) -> None:
    """Ask whether an instruction fits a clip."""
    await asker.reply(VERIFY, question)


def questions(stage: Stage, config: InstructionRubrics, captions: Rows) -> Iterator[Row]:
    """Clips that were recorded, which their captions describe: what a model generated may have failed."""
    qualify = config.judge.qualify
    assert qualify is not None
    rows = [row for row in read_rows(captions) if not row["generated"]]
    alike = ("subset", "language")  # the other caption is one that could be this one's
    for row, other in draw_other(rows, qualify.each, config.seed, "clip_sha256", "group_id", alike):
        for text, fits in ((row["text"], "yes"), (other["text"], "no")):
            known = {"control": "prompt", "domain": row["subset"], "truth": {"fits": fits}}
            yield {**row, "instruction": text, "pass": 1, **known}


def answers(draw: Row) -> Iterator[Given]:
    """What the judge says of a clip and a caption."""
    yield Given("fits", draw["value"] and draw["value"]["answer"], "yes", "no")


EXAM = Exam(ask_fit, questions, answers)
