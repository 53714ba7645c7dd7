"""Build `human-preferences`: people's preferences on generated music, as in CMI-Pref and CMI-RewardBench."""

from earmark.schemas.human_preferences import CORPUS, HumanPreferences
from earmark.tasks.human_preferences.counting import measure_clips, write_comparisons
from earmark.tasks.human_preferences.derived import derive_tables
from earmark.tasks.human_preferences.report import card_sections
from earmark.tasks.human_preferences.sources import import_sources
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: HumanPreferences) -> dict[str, str]:
    """Votes become comparisons with splits that share nothing; from these, training data, a benchmark, agreement."""
    exports = import_sources(stage, config)
    media = measure_clips(stage, config, exports)
    write_comparisons(stage, config, exports, media)
    derive_tables(stage, config)
    return card_sections(stage)
