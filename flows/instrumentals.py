"""Build `instrumentals`: tagged tracks without their voice, for training in the text-to-music challenge ATTM."""

from earmark.schemas.instrumentals import CORPUS, Instrumentals
from earmark.tasks.instrumentals.separated import SHARDS_AT_ONCE, separate_tracks
from earmark.tasks.instrumentals.sources import import_tracks, index_audio
from earmark.tasks.instrumentals.tracks import sections, write_tracks
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS, at_once=SHARDS_AT_ONCE)
def build(stage: Stage, config: Instrumentals) -> dict[str, str]:
    """Measure every track, take the voice out of it, check and index what is left."""
    tracks = import_tracks(stage, config)
    pool = index_audio(stage, config, tracks)
    check_inputs(stage, config)
    separated = separate_tracks(stage, config, pool)
    write_tracks(stage, config, pool, separated)
    return sections(stage, config, pool, separated)
