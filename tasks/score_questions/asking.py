"""The requests of each step, and the prompts that they are asked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from schemas.score_questions import ScoreQuestions
from tasks.annotation.backend import question
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Choice, Image, Request
from tasks.score_questions.lettering import LETTERS
from tasks.score_questions.threads import Comment, Thread, best_of

REWRITE, TIE, DISTRACTORS = "score-question-rewrite", "score-question-tie", "score-question-distractors"
TAXONOMY, DIFFICULTY = "score-question-taxonomy", "score-question-difficulty"
NAMES = ("Option A", "Option B", "Option C")


@cache
def prompt_named(name: str) -> Prompt:
    """A prompt of the repository."""
    return load_prompt(Path(str(resources.files("prompts"))), name)


def prompt_digests() -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    prompts = [prompt_named(name) for name in (REWRITE, TIE, DISTRACTORS, TAXONOMY, DIFFICULTY)]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def annotators(config: ScoreQuestions) -> tuple[str, ...]:
    """Every model that is asked, once, in the order of the steps."""
    return tuple(dict.fromkeys((config.writer.annotator, config.judge.annotator, config.labeller.annotator)))


def needed_numbers(config: ScoreQuestions, comments: Sequence[Comment]) -> set[int]:
    """Numbers, from 1, of the comments that must become options: the best, or those that tie for it."""
    best = best_of(comments)[: config.questions.options]
    return {number for number, comment in enumerate(comments, 1) if comment in best}


def rewriting_request(config: ScoreQuestions, thread: Thread) -> Request:
    """A thread to be rewritten as a question with options."""
    comments = thread.comments
    needed = needed_numbers(config, comments)
    shown = [{"text": comment.text, "needed": number in needed} for number, comment in enumerate(comments, 1)]
    messages = prompt_named(REWRITE).render(
        title=thread.title,
        text=thread.text,
        comments=shown,
        most_options=config.questions.options,
        longest_words=config.questions.longest_option_words,
        with_image=config.writer.sees_image,
        score_image=thread.score_image,
    )
    facts = {
        "step": "rewrite",
        "title": thread.title,
        "text": thread.text,
        "comments": shown,
        "options": config.questions.options,
        "longest": config.questions.longest_option_words,
    }
    return question(config.writer, messages, prompt_named(REWRITE).ask, facts=facts)


def tie_request(config: ScoreQuestions, asked: str, options: Sequence[str], image: Image) -> Request:
    """Which of the options that people like alike is the best answer."""
    letters = tuple(LETTERS[: len(options)])
    messages = prompt_named(TIE).render(
        question=asked,
        options=list(options),
        with_image=config.judge.sees_image,
        score_image=image,
    )
    return question(config.judge, messages, Choice(letters), facts={"question": asked, "options": list(options)})


def distractor_request(
    config: ScoreQuestions, title: str, asked: str, truth: str, others: Sequence[str], count: int
) -> Request:
    """Wrong options beside the right one.

    Args:
        config: the build config.
        title: the thread's title.
        asked: the question.
        truth: the right option.
        others: options that are there already.
        count: how many are wanted, 1 to 3.
    """
    messages = prompt_named(DISTRACTORS).render(
        title=title, question=asked, truth=truth, others=list(others), count=count, names=list(NAMES[:count])
    )
    facts = {"step": "distract", "question": asked, "truth": truth, "others": list(others), "count": count}
    return question(config.writer, messages, prompt_named(DISTRACTORS).ask, facts=facts)


def label_request(config: ScoreQuestions, name: str, asked: str, options: Sequence[str]) -> Request:
    """A question's category and subcategory, or its difficulty; `name` is the prompt's."""
    messages = prompt_named(name).render(question=asked, options=list(options))
    facts: Mapping[str, Any] = {"step": name, "question": asked, "options": list(options)}
    return question(config.labeller, messages, prompt_named(name).ask, facts=facts)
