"""`instrumentals`: tagged tracks without their voice, as the text-to-music challenge ATTM trains on.

Every track's audio is measured, a separator takes the voice out, and what is left is checked and indexed.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.instrumentals import Instrumentals
from tasks.build.artifacts import run_name, show
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.instrumentals.separated import in_shards
from tasks.instrumentals.separators import Separators
from tasks.instrumentals.sources import plan_build
from tasks.instrumentals.steps import (
    SHARDS_AT_ONCE,
    count_tracks,
    import_tracks,
    index_audio,
    separate,
    write_tracks,
)
from tasks.instrumentals.tracks import sections
from tasks.store.versions import open_store


@flow(
    name="instrumentals",
    flow_run_name=run_name,
    task_runner=Shards(SHARDS_AT_ONCE),
)
def build(
    config: Instrumentals, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `instrumentals`, or find it up to date.

    Args:
        config: the build config.
        store: the store: a folder, or s3://bucket/prefix.
        force: build again even if a version was built from the same inputs, config, separator, schemas and code.
        inputs: digests of the input files, if the caller has just computed them.

    Returns:
        The version's name.
    """
    plan = plan_build(config, open_store(store), inputs)
    with plan.stage() as stage:
        if (done := plan.up_to_date(tidy=False)) and not force:
            return done.name
        import_tracks(stage, config)
        index_audio(stage, config)
        plan.check_inputs(stage)
        with (
            Separators(config.separator, config.path, stage.store) as separators,
            working("remove voices", count_tracks(stage)) as work,
        ):
            separate.map(
                unmapped(stage), unmapped(config), unmapped(separators), in_shards(stage), unmapped(work)
            ).result()
        write_tracks(stage, config)
        said = sections(stage, config)
        version = plan.commit(stage, sections=said)
        return show(version, said)
