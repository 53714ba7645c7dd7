"""`pseudo-preferences`: a judge model's preferences on generated music, by the method of CMI-Pref-Pseudo."""

from __future__ import annotations

from earmark.schemas.pseudo_preferences import CORPUS, PseudoPreferences
from earmark.tasks.build.flow import corpus_flow
from earmark.tasks.build.losses import check_inputs
from earmark.tasks.pseudo_preferences.judging import judge_pairs
from earmark.tasks.pseudo_preferences.labels import card_sections, keep_consistent
from earmark.tasks.pseudo_preferences.pairs import import_tables, measure_clips, plan_pairs, write_clips
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: PseudoPreferences) -> dict[str, str]:
    """Judge two generations of one prompt in both orders; what both orders agree on is a label."""
    tables = import_tables(stage, config)
    pool = measure_clips(stage, config, tables)
    write_clips(stage, config, pool)
    check_inputs(stage, config)
    pairs = plan_pairs(stage, config, pool)
    judged = judge_pairs(stage, config, pairs)
    keep_consistent(stage, config, judged)
    return card_sections(stage)
