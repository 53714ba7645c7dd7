"""`instruction-rubrics`: the steps that its flow calls."""

from __future__ import annotations

from collections.abc import Callable

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.instruction_rubrics import InstructionRubrics
from tasks.build.progress import Work, working
from tasks.instruction_rubrics import altering, choosing, hearing, itemising, labelling, sources, translating, writing
from tasks.instruction_rubrics.hearing import Sessions
from tasks.store.manifest import Step
from tasks.store.staging import Stage

SHARDS_AT_ONCE = 4  # their requests share one pace; more shards would only hold more of them in memory

ASKS: dict[str, Callable[[Stage, InstructionRubrics, Sessions, int], int]] = {
    "verify": hearing.verify_shard,
    "perturb": altering.perturb_shard,
    "contest": hearing.contest_shard,
    "decompose": itemising.decompose_shard,
    "label": labelling.label_shard,
    "translate": translating.translate_shard,
}
"""What models are asked, in this order; each reads `work/<name>.parquet` and leaves what was said by shard."""


@task(name="import", cache_policy=NO_CACHE)
def import_captions(stage: Stage, config: InstructionRubrics) -> Step:
    """Read every source's list."""
    return stage.recorded("import") or sources.import_captions(stage, config)


@task(name="index", cache_policy=NO_CACHE)
def index_clips(stage: Stage, config: InstructionRubrics) -> Step:
    """Hash and measure every clip."""
    return stage.recorded("index") or sources.index_clips(stage, config)


@task(name="choose", cache_policy=NO_CACHE)
def choose_captions(stage: Stage, config: InstructionRubrics) -> None:
    """Place captions in bench and corpus and take as many as the counts need."""
    if not stage.recorded("choose"):
        choosing.choose_captions(stage, config)
    hearing.plan_verify(stage, config)


@task(name="ask", task_run_name="{name}-{shard:04d}", cache_policy=NO_CACHE)
def ask(
    stage: Stage, config: InstructionRubrics, sessions: Sessions, name: str, shard: int, progress: Work | None = None
) -> None:
    """Ask one thing about one shard; the ledger answers what was asked before."""
    count = ASKS[name](stage, config, sessions, shard)
    if progress is not None:
        progress.advance(count)


@task(name="positives", cache_policy=NO_CACHE)
def keep_positives(stage: Stage, config: InstructionRubrics) -> None:
    """Tell captions that fit from generated clips that failed twice; say whose details are to be changed."""
    hearing.settle_verified(stage, config)
    altering.plan_perturb(stage)


@task(name="alter", cache_policy=NO_CACHE)
def alter_instructions(stage: Stage, config: InstructionRubrics) -> None:
    """Say which instructions are tried on which clips: changed ones, and those of other samples."""
    altering.plan_contest(stage, config)


@task(name="negatives", cache_policy=NO_CACHE)
def keep_negatives(stage: Stage, config: InstructionRubrics) -> None:
    """Keep the instructions that are wrong for their clips; list every instruction once."""
    altering.settle_negatives(stage, config)
    itemising.plan_items(stage)


@task(name="items", cache_policy=NO_CACHE)
def keep_items(stage: Stage, config: InstructionRubrics) -> None:
    """Keep the items that can stand."""
    itemising.settle_items(stage, config)
    labelling.plan_labels(stage)


@task(name="labels", cache_policy=NO_CACHE)
def keep_labels(stage: Stage, config: InstructionRubrics) -> None:
    """Keep negatives whose contradiction was found; say what is to be translated."""
    labelling.settle_labels(stage, config)
    translating.plan_translation(stage, config)


@task(name="samples", cache_policy=NO_CACHE)
def write_samples(stage: Stage, config: InstructionRubrics) -> Step:
    """Balance positives and negatives and write the tables."""
    with working("write samples"):
        translating.settle_translation(stage, config)
        return writing.write_tables(stage, config)
