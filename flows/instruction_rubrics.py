"""Build `instruction-rubrics`: judgments of clips against instructions, item by item, by AnyAudio-Judge's method.

True captions are verified, false ones made and verified as false; each is decomposed once, and each item labelled.
"""

from earmark.schemas.instruction_rubrics import CORPUS, InstructionRubrics
from earmark.tasks.evaluation.qualification import qualify
from earmark.tasks.instruction_rubrics.choosing import choose_captions
from earmark.tasks.instruction_rubrics.gold import EXAM
from earmark.tasks.instruction_rubrics.negatives import choose_candidates, keep_negatives, try_candidates
from earmark.tasks.instruction_rubrics.report import build_sections
from earmark.tasks.instruction_rubrics.rubrics import keep_rubrics, write_rubric
from earmark.tasks.instruction_rubrics.samples import write_samples
from earmark.tasks.instruction_rubrics.sources import import_captions, index_clips
from earmark.tasks.instruction_rubrics.verification import keep_verified, verify_caption
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: InstructionRubrics) -> dict[str, str]:
    """Verify captions and make negatives of them; take each instruction apart, label its items, balance the samples."""
    captions = import_captions(stage, config)
    usable = index_clips(stage, config, captions)
    check_inputs(stage, config)
    chosen = choose_captions(stage, config, usable)
    qualify(stage, config, EXAM, chosen.captions)
    verdicts = verify_caption(stage, config, chosen.captions)
    verified = keep_verified(stage, config, verdicts)
    candidates = choose_candidates(stage, config, verified)
    tried = try_candidates(stage, config, candidates)
    negatives = keep_negatives(stage, config, verified, tried)
    written = write_rubric(stage, config, negatives.instructions)
    rubrics = keep_rubrics(stage, config, negatives, written)
    write_samples(stage, config, chosen, verified, negatives.negatives, rubrics, (verdicts, tried))
    return build_sections(stage, config)
