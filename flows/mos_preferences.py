"""`mos-preferences`: preference pairs from mean opinion scores, by the method of MOS-RMBench.

Rated clips of published MOS corpora are paired within a listening test; of two clips with different MOS the higher is
chosen. Pairs are balanced over three categories: same content, same source, unmatched.
"""

from __future__ import annotations

from prefect import flow, unmapped

from schemas.mos_preferences import TABLES, MosPreferences
from tasks.fingerprint import file_digests
from tasks.importers import input_files
from tasks.media import audio_digest, media_index
from tasks.mos_pairs import pair_clips
from tasks.mos_ratings import audio_folder, import_source, in_shards, index_clips, merge_votes, write_ratings
from tasks.plan import Plan, make_plan
from tasks.progress import working
from tasks.store.card import Story
from tasks.store.versions import Store, open_store

STORY = Story(
    title="MOS preferences",
    summary=(
        "Pairs of rated speech and singing clips in which listeners scored one clip higher than the other, for training "
        "and testing reward models on audio quality. Each pair carries the gap between the two mean opinion scores."
    ),
    method=(
        "Lists of rated clips are read as their owners publish them; ratings by listener are averaged.",
        "Clips are paired within one listening test and split: same content from different sources, different contents "
        "from one source, or neither. The clip with the higher MOS is chosen.",
        "Pairs are drawn between neighbours on a line of hashed ids, limited to a number per clip, and picked by seeded "
        "hash order to fill the quotas, balanced over the three categories.",
        "Gaps are normalised by the 90th percentile of the dataset's gaps; where ratings per listener exist, the "
        "probability that the chosen clip is truly better is derived from the standard errors.",
        "Triplets A > B > C of one group are drawn in the same way, for measuring preference cycles.",
    ),
    main_table="pairs",
    citation=("MOS-RMBench: recasting mean opinion scores as preferences for speech reward models.",),
    limits=(
        "MOS of different listening tests do not compare; clips are never paired across tests or datasets.",
        "A small gap may lie within the listeners' noise: see `chosen_better_probability` and `gap_decile`.",
        "The licences of the rated corpora hold for their ratings and audio; this dataset adds none.",
    ),
    tags=("audio", "speech", "mos", "preference", "reward-model"),
)


@flow(name="mos-preferences", flow_run_name="mos-preferences")
def build(
    config: MosPreferences, store: str = "data/store", force: bool = False, inputs: dict[str, str] | None = None
) -> str:
    """Build a version of `mos-preferences`, or find it up to date.

    Args:
        config: the build config.
        store: the folder of the store.
        force: build again even if a version was built from the same inputs, config, schemas and code.
        inputs: digests of the input files, if the caller has just computed them.

    Returns:
        The version's name.
    """
    plan = plan_of(config, open_store(store), inputs)
    if (done := plan.up_to_date()) and not force:
        return done.name
    with plan.stage(fresh=force) as stage:
        import_source.map(unmapped(stage), unmapped(config), config.sources).result()
        merge_votes(stage, config)
        index_clips.map(unmapped(stage), unmapped(config), in_shards(stage, config)).result()
        write_ratings(stage, config)
        pair_clips(stage, config)
        return plan.commit(stage).name


def plan_of(config: MosPreferences, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; decides whether there is anything to build."""
    return make_plan(__name__, config, store, TABLES, STORY, inputs or digest_inputs(config, store))


def digest_inputs(config: MosPreferences, store: Store) -> dict[str, str]:
    """SHA-256 of every list, and of the names and contents of a source's audio files if they are looked at."""
    digests: dict[str, str] = {}
    for source in config.sources:
        digests |= file_digests(input_files(source, config.path))
        if config.audio != "none":
            with working(f"hash audio of {source.name}") as work:
                digests[f"{source.name}/audio"] = audio_digest(
                    audio_folder(config, source), media_index(store), work.advance
                )
    return digests
