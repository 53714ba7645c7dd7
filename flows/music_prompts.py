"""`music-prompts`: prompts for text-to-music systems in and out of the distribution of real tags, by ATTM's method.

Tags are filtered, drawn in threes, and put in words by a writer until the words fit.
"""

from __future__ import annotations

from itertools import count

from prefect import flow, unmapped

from schemas.music_prompts import MusicPrompts
from tasks.build.artifacts import run_name, show
from tasks.build.asking import asking
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.music_prompts.card import sections
from tasks.music_prompts.sources import plan_build
from tasks.music_prompts.steps import (
    choose_tags,
    draw_triplets,
    in_shards,
    keep_prompts,
    plan_round,
    read_lists,
    verify_tags,
    write,
)
from tasks.store.versions import open_store

SHARDS_AT_ONCE = 4  # their requests share one pace


@flow(
    name="music-prompts",
    flow_run_name=run_name,
    task_runner=Shards(SHARDS_AT_ONCE),
)
def build(
    config: MusicPrompts, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `music-prompts`, or find it up to date.

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
        read_lists(stage, config)
        plan.check_inputs(stage)
        if config.verification is not None:
            with asking(stage.store, config.verification) as judge:
                verify_tags(stage, config, judge)
        choose_tags(stage, config)
        draw_triplets(stage, config)
        with asking(stage.store, config.synthesis) as writer, working("write prompts") as work:
            for number in count():
                drawn = plan_round(stage, config, number)
                if drawn is None:
                    break
                write.map(
                    unmapped(stage),
                    unmapped(config),
                    unmapped(writer),
                    unmapped(drawn),
                    in_shards(drawn),
                    unmapped(work),
                ).result()
        keep_prompts(stage, config)
        said = sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)
