"""`human-preferences`: what people prefer of generated music, as CMI-Pref and CMI-RewardBench hold it.

Votes from annotation platforms and arenas become comparisons with splits that share nothing, a training table, a
benchmark, and figures of how far annotators agree.
"""

from __future__ import annotations

from prefect import flow

from schemas.human_preferences import HumanPreferences
from tasks.build.artifacts import run_name, show
from tasks.human_preferences.sources import plan_build
from tasks.human_preferences.steps import compare, derive, read_votes
from tasks.store.versions import open_store


@flow(name="human-preferences", flow_run_name=run_name)
def build(
    config: HumanPreferences, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `human-preferences`, or find it up to date.

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
        read_votes(stage, config)
        compare(stage, config)
        derive(stage, config)
        version = plan.commit(stage)
        return show(version)
