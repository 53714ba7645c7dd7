"""`mos-preferences`: preference pairs from mean opinion scores, by the method of MOS-RMBench.

Rated clips of published MOS corpora are paired within a listening test; of two clips with different MOS the higher is
chosen. Pairs are balanced over three categories: same content, same source, unmatched. If the config names a critic, it
describes clips and compares pairs in words.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.mos_preferences import MosPreferences
from tasks.build.artifacts import run_name, show
from tasks.build.asking import asking
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.mos_preferences.critique_report import critique_sections
from tasks.mos_preferences.critiques import count_questions, critique, plan_critiques, write_critiques
from tasks.mos_preferences.pairs import pair_clips
from tasks.mos_preferences.ratings import (
    STEPS_AT_ONCE,
    import_source,
    in_shards,
    index_clips,
    merge_votes,
    write_ratings,
)
from tasks.mos_preferences.sources import plan_build
from tasks.store.versions import open_store


@flow(
    name="mos-preferences",
    flow_run_name=run_name,
    task_runner=Shards(STEPS_AT_ONCE),
)
def build(
    config: MosPreferences, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `mos-preferences`, or find it up to date.

    Args:
        config: the build config.
        store: the store: a folder, or s3://bucket/prefix.
        force: build again even if a version was built from the same inputs, config, schemas and code.
        inputs: digests of the input files, if the caller has just computed them.

    Returns:
        The version's name.
    """
    plan = plan_build(config, open_store(store), inputs)
    with plan.stage() as stage:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done.name
        import_source.map(unmapped(stage), unmapped(config), config.sources).result()
        merge_votes(stage, config)
        index_clips.map(unmapped(stage), unmapped(config), in_shards(stage, config)).result()
        write_ratings(stage, config)
        plan.check_inputs(stage)
        pair_clips(stage, config)
        if config.critiques:
            shards = plan_critiques(stage, config)
            with asking(stage.store, config.critiques) as session, working("critique", count_questions(stage)) as work:
                critique.map(unmapped(stage), unmapped(config), unmapped(session), shards, unmapped(work)).result()
            write_critiques(stage, config)
        said = critique_sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)
