"""`score-questions`: multiple-choice questions about score images, from what a forum asked and answered (WildScore).

A dump is read without its names, images that show scores are kept, and models turn threads into exam questions.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.score_questions import ScoreQuestions
from tasks.build.artifacts import run_name, show
from tasks.build.asking import asking
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.score_questions.detector_report import card_sections
from tasks.score_questions.sources import plan_build
from tasks.score_questions.steps import (
    SHARDS_AT_ONCE,
    distract,
    find_scores,
    gather_threads,
    label,
    measure_detector,
    read_comments,
    read_submissions,
    rewrite,
    scrub_threads,
    settle,
    write_questions,
)
from tasks.store.versions import open_store


@flow(
    name="score-questions",
    flow_run_name=run_name,
    task_runner=Shards(SHARDS_AT_ONCE),
)
def build(
    config: ScoreQuestions, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `score-questions`, or find it up to date.

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
        measure_detector(stage, config)
        read_submissions(stage, config)
        read_comments(stage, config)
        plan.check_inputs(stage)
        scrub_threads(stage, config)
        find_scores(stage, config)
        plan.check_inputs(stage)
        shards = gather_threads(stage, config)
        held = unmapped(stage), unmapped(config)
        with asking(stage.store, config.writer) as writer, working("rewrite") as work:
            rewrite.map(*held, unmapped(writer), shards, unmapped(work)).result()
        with asking(stage.store, config.judge) as judge, working("settle ties") as work:
            settle.map(*held, unmapped(judge), shards, unmapped(work)).result()
        with asking(stage.store, config.writer) as writer, working("write distractors") as work:
            distract.map(*held, unmapped(writer), shards, unmapped(work)).result()
        with asking(stage.store, config.labeller) as labeller, working("label") as work:
            label.map(*held, unmapped(labeller), shards, unmapped(work)).result()
        write_questions(stage, config)
        said = card_sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)
