"""How each request about a thread is worded, and the prompts that word them. Pure: a request is its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from earmark.schemas.score_questions import LABELLED, Judge, Reader, ScoreQuestions, Writer
from earmark.tasks.annotation.prompts import prompt_named
from earmark.tasks.annotation.request import Choice, Image
from earmark.tasks.build.ask import Posed, Row, pose
from earmark.tasks.score_questions.examples import examples_of
from earmark.tasks.score_questions.option_order import LETTERS

REWRITE, TIE, DISTRACTORS = "score-question-rewrite", "score-question-tie", "score-question-distractors"
MAY_BE_RIGHT, CONTRADICTS = "score-question-may-be-right", "score-question-contradicts"
LABELS = {name: f"score-question-{name}" for name in LABELLED}
NAMES = ("Option A", "Option B", "Option C")
YES, NO = "Yes", "No"
MEDIA_TYPES = {"png": "image/png", "jpg": "image/jpeg"}


def prompt_digests(config: ScoreQuestions) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    read = (MAY_BE_RIGHT, CONTRADICTS) if config.reader else ()
    labels = (label_prompt(config, label) for label in LABELS)
    prompts = map(prompt_named, (REWRITE, TIE, DISTRACTORS, *labels, *read))
    return {prompt.id: prompt.sha256 for prompt in prompts}


def best_of(comments: Sequence[Row]) -> list[Row]:
    """The comments of the highest score: one where people decided, several where they tie (WildScore: S = U - D)."""
    highest = max((comment["score"] for comment in comments), default=None)
    return [comment for comment in comments if comment["score"] == highest]


def needed_numbers(config: ScoreQuestions, comments: Sequence[Row]) -> set[int]:
    """Numbers, from 1, of the comments that must become options: the best, or those that tie for it."""
    best = best_of(comments)[: config.questions.options]
    return {number for number, comment in enumerate(comments, 1) if comment in best}


def rewrite_request(config: ScoreQuestions, thread: Row) -> Posed:
    """A thread (a row of `pool.sql`) to be rewritten as a question with options."""
    comments, made = thread["best_comments"], config.questions
    needed = needed_numbers(config, comments)
    shown = [{"text": comment["text"], "needed": number in needed} for number, comment in enumerate(comments, 1)]
    about = {"title": thread["title"], "text": thread["text"], "comments": shown}
    facts = {"step": "rewrite", **about, "options": made.options, "longest": made.longest_option_words}
    limits = {"most_options": made.options, "longest_words": made.longest_option_words}
    return pose(config.writer, prompt_named(REWRITE), facts, **about, **limits, **_picture(config.writer, thread))


def tie_request(config: ScoreQuestions, draft: Row) -> Posed:
    """Which of a draft's `best` options, which people like alike, is the best answer."""
    shown: dict[str, Any] = {"question": draft["question"], "options": [option["text"] for option in draft["best"]]}
    letters = Choice(tuple(LETTERS[: len(shown["options"])]))
    return pose(config.judge, prompt_named(TIE), shown, letters, **shown, **_picture(config.judge, draft))


def distractor_request(config: ScoreQuestions, draft: Row) -> Posed:
    """Wrong options beside a draft's right one; how many it `lacks`, 1 to 3."""
    about = {"question": draft["question"], "truth": draft["truth_text"], "others": draft["other_texts"]}
    count = draft["lacks"]
    facts = {"step": "distract", **about, "count": count}
    names = list(NAMES[:count])
    return pose(
        config.writer, prompt_named(DISTRACTORS), facts, title=draft["title"], **about, count=count, names=names
    )


def contradiction_request(config: ScoreQuestions, about: Row) -> Posed:
    """Whether an `option` contradicts the right one of a draft (`question`, `truth_text`)."""
    return _read(config, CONTRADICTS, about, truth=about["truth_text"])


def right_request(config: ScoreQuestions, about: Row) -> Posed:
    """Whether an `option` of a draft could be right; which option is taken to be right is not shown."""
    return _read(config, MAY_BE_RIGHT, about)


def _read(config: ScoreQuestions, name: str, about: Row, **more: str) -> Posed:
    if config.reader is None:
        raise ValueError("nobody reads without a [reader]")
    shown = {"question": about["question"], "option": about["option"], **more}
    picture = _picture(config.reader, about)
    return pose(config.reader, prompt_named(name), {"step": name, **shown}, Choice((YES, NO)), **shown, **picture)


def label_request(config: ScoreQuestions, draft: Row) -> Posed:
    """A question's category and subcategory, or its difficulty, as `label` says."""
    prompt, examples = prompt_named(label_prompt(config, draft["label"])), examples_of(config, draft["label"])
    shown: dict[str, Any] = {"question": draft["question"], "options": sorted(options_of(draft))}
    more = {"examples": examples} if examples else {}
    return pose(config.labeller, prompt, {"step": LABELS[draft["label"]], **shown}, **shown, **more)


def label_prompt(config: ScoreQuestions, label: str) -> str:
    """The prompt that asks for a label: another one where the config has examples of its own."""
    return LABELS[label] if config.examples()[label] is None else f"{LABELS[label]}-examples"


def options_of(draft: Row) -> list[str]:
    """The texts of a draft's options, the right one first."""
    return [draft["truth_text"], *draft["other_texts"], *draft["distractors"]]


def _picture(config: Writer | Judge | Reader, thread: Row) -> dict[str, Any]:
    image = Image(thread["image_sha256"], thread["image_file"], MEDIA_TYPES[thread["extension"]])
    return {"with_image": config.sees_image, "score_image": image}
