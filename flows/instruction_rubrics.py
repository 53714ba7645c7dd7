"""`instruction-rubrics`: does a clip follow an instruction, item by item, by AnyAudio-Judge's method.

True captions are verified, false ones made and verified to be false; each is taken apart once, and each item labelled.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.instruction_rubrics import InstructionRubrics
from tasks.build.artifacts import run_name, show
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.instruction_rubrics import steps
from tasks.instruction_rubrics.hearing import Sessions, sessions_of
from tasks.instruction_rubrics.records import count_records, shards_of
from tasks.instruction_rubrics.report import build_sections
from tasks.instruction_rubrics.sources import plan_build
from tasks.store.staging import Stage
from tasks.store.versions import open_store


@flow(
    name="instruction-rubrics",
    flow_run_name=run_name,
    task_runner=Shards(steps.SHARDS_AT_ONCE),
)
def build(
    config: InstructionRubrics, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `instruction-rubrics`, or find it up to date.

    Args:
        config: the build config.
        store: the store: a folder, or s3://bucket/prefix.
        force: build again even if a version was built from the same inputs, config, prompts, schemas and code.
        inputs: digests of the input files, if the caller has just computed them.

    Returns:
        The version's name.
    """
    plan = plan_build(config, open_store(store), inputs)
    with plan.stage() as stage:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done.name
        steps.import_captions(stage, config)
        steps.index_clips(stage, config)
        plan.check_inputs(stage)
        steps.choose_captions(stage, config)
        with sessions_of(stage.store, config) as sessions:
            _ask(stage, config, sessions, "verify")
            steps.keep_positives(stage, config)
            _ask(stage, config, sessions, "perturb")
            steps.alter_instructions(stage, config)
            _ask(stage, config, sessions, "contest")
            steps.keep_negatives(stage, config)
            _ask(stage, config, sessions, "decompose")
            steps.keep_items(stage, config)
            _ask(stage, config, sessions, "label")
            steps.keep_labels(stage, config)
            _ask(stage, config, sessions, "translate")
        steps.write_samples(stage, config)
        said = build_sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)


def _ask(stage: Stage, config: InstructionRubrics, sessions: Sessions, name: str) -> None:
    """Ask one thing about everything that waits for it, shards side by side."""
    shards = shards_of(stage, name)
    with working(name, count_records(stage, name)) as work:
        steps.ask.map(
            unmapped(stage), unmapped(config), unmapped(sessions), unmapped(name), shards, unmapped(work)
        ).result()
