"""Build `mos-preferences`: preference pairs from mean opinion scores, by the method of MOS-RMBench.

Rated clips of published MOS corpora are paired within a listening test; of two clips with different MOS the higher is
chosen. Pairs are balanced over three categories: same content, same source, unmatched. A configured critic
describes clips and compares pairs in words.
"""

from earmark.schemas.mos_preferences import CORPUS, MosPreferences
from earmark.tasks.mos_preferences.critiques import plan_critiques, write_critiques
from earmark.tasks.mos_preferences.critiquing import critique
from earmark.tasks.mos_preferences.pairs import pair_clips
from earmark.tasks.mos_preferences.ratings import (
    import_source,
    index_clips,
    merge_ratings,
    shards_to_index,
    write_ratings,
)
from earmark.tasks.mos_preferences.report import critique_sections
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: MosPreferences) -> dict[str, str] | None:
    """Average the ratings of each clip, index its audio, pair clips, and have a critic hear some of both."""
    lists = import_source.map(stage, config, config.sources)
    clips = merge_ratings(stage, config, lists)
    media = index_clips.map(stage, config, shards_to_index(config, clips), clips=clips)
    ratings = write_ratings(stage, config, clips, media)
    check_inputs(stage, config)
    pairs = pair_clips(stage, config, ratings)
    if config.critiques is None:
        return None
    questions = plan_critiques(stage, config, clips, ratings, pairs)
    critiqued = critique(stage, config, questions.rows)
    write_critiques(stage, config, questions, critiqued)
    return critique_sections(stage, questions)
