"""Build `captions`: captions of tagged tracks by audio-language models, by the pipelines of ATTM and AnyAudio-Judge."""

from earmark.schemas.captions import CORPUS, Captions
from earmark.tasks.captions.asking import caption_tracks
from earmark.tasks.captions.segments import cut_recordings
from earmark.tasks.captions.tracks import import_tracks, index_tracks
from earmark.tasks.captions.writing import sections, write_captions
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: Captions) -> dict[str, str]:
    """Each pipeline hears the tracks and refines what it heard; what it wrote is checked, by rules and by judges."""
    tracks = import_tracks(stage, config)
    recordings = index_tracks(stage, config, tracks)
    check_inputs(stage, config)
    pool = cut_recordings(stage, config, recordings)
    captioned = caption_tracks(stage, config, pool)
    write_captions(stage, config, pool, captioned)
    return sections(stage)
