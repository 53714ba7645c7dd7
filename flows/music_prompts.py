"""Build `music-prompts`: text-to-music prompts in and out of the distribution of real tags, by ATTM's method."""

from earmark.schemas.music_prompts import CORPUS, MusicPrompts
from earmark.tasks.music_prompts.drawing import draw_triplets
from earmark.tasks.music_prompts.report import card_sections
from earmark.tasks.music_prompts.sources import import_lists
from earmark.tasks.music_prompts.tags import choose_questions, choose_tags, count_recalls, verify_tag
from earmark.tasks.music_prompts.writing import keep_prompts, write_prompts
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: MusicPrompts) -> dict[str, str]:
    """Tags are filtered, drawn in threes, and put in words by a writer until the words fit."""
    lists = import_lists(stage, config)
    check_inputs(stage, config)
    if config.verification is not None:
        questions = choose_questions(stage, config, lists)
        verified = verify_tag(stage, config, questions)
        lists = count_recalls(stage, config, lists, verified)
    choose_tags(stage, config, lists)
    drawn = draw_triplets(stage, config, lists)
    rounds = write_prompts(stage, config, drawn)
    keep_prompts(stage, config, drawn, rounds)
    return card_sections(stage)
