"""Build `score-questions`: multiple-choice questions about score images, from a forum's threads (WildScore)."""

from earmark.schemas.score_questions import CORPUS, ScoreQuestions
from earmark.tasks.pipeline.flow import corpus_flow
from earmark.tasks.pipeline.funnel import check_inputs
from earmark.tasks.score_questions.forum.images import find_scores
from earmark.tasks.score_questions.forum.scrubbing import forget_names, scrub_threads
from earmark.tasks.score_questions.forum.threads import read_comments, read_submissions
from earmark.tasks.score_questions.reading import card_section
from earmark.tasks.score_questions.tables import decided, write_tables
from earmark.tasks.score_questions.threads import gather_threads
from earmark.tasks.score_questions.writing import write_questions
from earmark.tasks.store.staging import Stage


@corpus_flow(CORPUS)
def build(stage: Stage, config: ScoreQuestions) -> dict[str, str]:
    """Read a dump without its names, keep threads with an image of a score, and have exam questions made of them."""
    candidates = read_submissions(stage, config)
    answers = read_comments(stage, config, candidates)
    check_inputs(stage, config)
    texts = scrub_threads(stage, config, candidates, answers)
    forget_names(stage, but=candidates)
    images = find_scores(stage, config, texts.threads, candidates)
    forget_names(stage)
    check_inputs(stage, config)
    threads = gather_threads(stage, config, texts, images)
    questions = write_questions(stage, config, threads)
    read = write_tables(stage, config, questions)
    return decided(stage) | card_section(config, read)
