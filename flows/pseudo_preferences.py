"""Build `pseudo-preferences`: a judge model's preferences on generated music, by the method of CMI-Pref-Pseudo."""

from earmark.schemas.pseudo_preferences import CORPUS, PseudoPreferences
from earmark.tasks.evaluation.juries import ask_each
from earmark.tasks.evaluation.qualification import qualify
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.pseudo_preferences.gold import EXAM
from earmark.tasks.pseudo_preferences.labels import card_sections, keep_consistent
from earmark.tasks.pseudo_preferences.pairs import import_tables, measure_clips, plan_pairs, write_clips
from earmark.tasks.pseudo_preferences.released import import_release, measure_release, take_released
from earmark.tasks.pseudo_preferences.scored import judge_or_score
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: PseudoPreferences) -> dict[str, str]:
    """Judge two generations of one prompt in both orders; what both orders agree on is a label."""
    if config.released:  # existing labels
        labels = import_release(stage, config)
        take_released(stage, config, labels, measure_release(stage, config, labels))
        return card_sections(stage)
    tables = import_tables(stage, config)
    pool = measure_clips(stage, config, tables)
    write_clips(stage, config, pool)
    check_inputs(stage, config)
    pairs = plan_pairs(stage, config, pool)
    qualify(stage, config, EXAM, pairs)
    judged = ask_each(judge_or_score, stage, config, pairs)
    keep_consistent(stage, config, judged)
    return card_sections(stage)
