"""Qualify the judge of captions by clips with their own caption, and with a caption of another clip."""

from collections.abc import Iterator

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.evaluation.controls import draw_other
from earmark.tasks.evaluation.qualification import Exam, Given
from earmark.tasks.instruction_rubrics.asks import VERIFY
from earmark.tasks.instruction_rubrics.rows import CaptionRow, JudgeDraw
from earmark.tasks.pipeline.ask import Asker, Row
from earmark.tasks.pipeline.rows import Rows, read_rows
from earmark.tasks.pipeline.walk import walk
from earmark.tasks.store.staging import Stage


@walk("qualify", asks=[VERIFY], label="qualify the judge")
async def ask_fit(asker: Asker[InstructionRubrics], question: Row) -> None:
    """Ask whether an instruction fits a clip."""
    await asker.reply(VERIFY, question)


def questions(stage: Stage, config: InstructionRubrics, captions: Rows[CaptionRow]) -> Iterator[Row]:
    """Yield recorded clips described by their captions; generated clips may have failed their text."""
    qualify = config.judge.qualify
    assert qualify is not None
    rows = [row for row in read_rows(captions) if not row["generated"]]
    alike = ("subset", "language")  # the other caption could plausibly be this clip's
    drawn: Iterator[tuple[CaptionRow, CaptionRow]] = draw_other(
        rows, qualify.each, config.seed, "clip_sha256", "group_id", alike
    )
    for row, other in drawn:
        for text, fits in ((row["text"], "yes"), (other["text"], "no")):
            known = {"control": "prompt", "domain": row["subset"], "truth": {"fits": fits}}
            yield {**row, "instruction": text, "pass": 1, **known}


def answers(draw: JudgeDraw) -> Iterator[Given]:
    """Yield the judge's answer about a clip and a caption."""
    yield Given("fits", draw["value"]["answer"] if draw["value"] else None, "yes", "no")


EXAM = Exam(ask_fit, questions, answers)
