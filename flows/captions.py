"""`captions`: what audio-language models write about tagged tracks, by the pipelines of ATTM and AnyAudio-Judge.

Every pipeline hears the tracks, some refine what was heard, and what is written is checked, by rules and by judges.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.captions import Captions
from tasks.audio.encode import SharedEncoder
from tasks.build.artifacts import run_name, show
from tasks.build.progress import working
from tasks.build.shards import Shards
from tasks.captions.captioning import judges, listeners, refiners
from tasks.captions.steps import SHARDS_AT_ONCE, import_tracks, index_tracks, judge, listen, refine, write_captions
from tasks.captions.tracks import count_tracks, plan_build, shards_of
from tasks.captions.writing import sections
from tasks.store.versions import open_store


@flow(
    name="captions",
    flow_run_name=run_name,
    task_runner=Shards(SHARDS_AT_ONCE),
)
def build(
    config: Captions, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `captions`, or find it up to date.

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
        import_tracks(stage, config)
        index_tracks(stage, config)
        plan.check_inputs(stage)
        shards, encoder = shards_of(stage), SharedEncoder()
        with listeners(stage.store, config, encoder) as heard, working("listen", count_tracks(stage)) as work:
            listen.map(
                unmapped(stage), unmapped(config), unmapped(heard), unmapped(encoder), shards, unmapped(work)
            ).result()
        with refiners(stage.store, config) as readers, working("refine") as work:
            refine.map(unmapped(stage), unmapped(config), unmapped(readers), shards, unmapped(work)).result()
        if config.judged:
            with judges(stage.store, config) as readers, working("judge") as work:
                judge.map(unmapped(stage), unmapped(config), unmapped(readers), shards, unmapped(work)).result()
        write_captions(stage, config)
        said = sections(stage)
        version = plan.commit(stage, sections=said)
        return show(version, said)
