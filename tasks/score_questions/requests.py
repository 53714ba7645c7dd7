"""Fill the prompt of each request about a thread. Pure: a request is its key."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from earmark.schemas.questions import Choice, Image
from earmark.schemas.score_questions import LABELLED, ScoreQuestions
from earmark.tasks.pipeline.ask import Values
from earmark.tasks.score_questions.examples import examples_of
from earmark.tasks.score_questions.option_order import LETTERS
from earmark.tasks.score_questions.rows import (
    PooledThread,
    ReadOption,
    ShortDraft,
    ThreadComment,
    TiedDraft,
    UnlabelledDraft,
    WholeDraft,
)

Draft = TypeVar("Draft", bound=WholeDraft)

REWRITING, TIE, DISTRACTORS = "score-question-rewrite", "score-question-tie", "score-question-distractors"
MAY_BE_RIGHT, CONTRADICTS = "score-question-may-be-right", "score-question-contradicts"
LABELS = {name: f"score-question-{name}" for name in LABELLED}
LEAST_OPTIONS, MOST_OPTIONS = 3, 4  # WildScore: of a question
LONGEST_OPTION_WORDS = 14  # the prompts' limit; longer options explain themselves
NAMES = ("Option A", "Option B", "Option C")
YES, NO = "Yes", "No"
MEDIA_TYPES = {"png": "image/png", "jpg": "image/jpeg"}


def best_of(comments: Sequence[ThreadComment]) -> list[ThreadComment]:
    """Return the comments of the highest score: a single comment decided by votes, or several in a tie (S = U - D,
    WildScore).

    Unripe votes decide nothing: with any of them, all comments tie.
    """
    if any(comment["unripe"] for comment in comments):
        return list(comments)
    highest = max((comment["score"] for comment in comments), default=None)
    return [comment for comment in comments if comment["score"] == highest]


def needed_numbers(comments: Sequence[ThreadComment]) -> set[int]:
    """Return the numbers, from 1, of the comments required as options: the best, including ties."""
    best = best_of(comments)[:MOST_OPTIONS]
    return {number for number, comment in enumerate(comments, 1) if comment in best}


def rewrite_values(config: ScoreQuestions, thread: PooledThread) -> Values:
    """Show a thread, a row of `pool.sql`, to be rewritten as a question with options."""
    comments = thread["best_comments"]
    needed = needed_numbers(comments)
    shown = [{"text": comment["text"], "needed": number in needed} for number, comment in enumerate(comments, 1)]
    about = {"title": thread["title"], "text": thread["text"], "comments": shown}
    facts = {"step": "rewrite", **about, "options": MOST_OPTIONS, "longest": LONGEST_OPTION_WORDS}
    limits = {"most_options": MOST_OPTIONS, "longest_words": LONGEST_OPTION_WORDS}
    limits["most"] = min(MOST_OPTIONS, len(comments))
    return Values({**about, **limits, **_picture(False, thread)}, facts)


def tie_values(config: ScoreQuestions, draft: TiedDraft) -> Values:
    """Show a draft's `best` options, which have equal votes, for a choice of the best answer."""
    shown: dict[str, Any] = {"question": draft["question"], "options": [option["text"] for option in draft["best"]]}
    letters = Choice(tuple(LETTERS[: len(shown["options"])]))
    return Values({**shown, **_picture(config.judge.sees_image, draft)}, shown, letters)


def distractor_values(config: ScoreQuestions, draft: ShortDraft) -> Values:
    """Show a draft's right option, for wrong ones beside it; their number is its `lacks`, 1 to 3."""
    about = {"question": draft["question"], "truth": draft["truth_text"], "others": draft["other_texts"]}
    count = draft["lacks"]
    names = list(NAMES[:count])
    shown = {"title": draft["title"], **about, "count": count, "names": names}
    return Values(shown, {"step": "distract", **about, "count": count})


def reading_values(config: ScoreQuestions, about: ReadOption, name: str) -> Values:
    """Show an `option` of a draft that could be right; to tell whether it contradicts the right one, beside that."""
    assert config.reader is not None
    shown = {"question": about["question"], "option": about["option"]}
    shown |= {"truth": about["truth_text"]} if name == CONTRADICTS else {}
    return Values({**shown, **_picture(config.reader.sees_image, about)}, {"step": name, **shown}, Choice((YES, NO)))


def label_values(config: ScoreQuestions, draft: UnlabelledDraft) -> Values:
    """Show a question to be labelled with category and subcategory, or its difficulty, as `label` says."""
    examples = examples_of(config, draft["label"])
    shown: dict[str, Any] = {"question": draft["question"], "options": sorted(options_of(draft))}
    more = {"examples": examples} if examples else {}
    return Values({**shown, **more}, {"step": LABELS[draft["label"]], **shown})


def label_prompt(config: ScoreQuestions, draft: UnlabelledDraft) -> str:
    """Return the name of a label's prompt: a separate prompt if the config has examples of its own."""
    label = draft["label"]
    return LABELS[label] if config.examples()[label] is None else f"{LABELS[label]}-examples"


def options_of(draft: WholeDraft) -> list[str]:
    """Return the texts of a draft's options, the right one first."""
    return [draft["truth_text"], *draft["other_texts"], *draft["distractors"]]


def only_options(draft: Draft, left: Collection[str]) -> Draft:
    """Return a draft with these of its wrong options alone."""
    kept = draft.copy()
    kept["other_texts"] = [text for text in draft["other_texts"] if text in left]
    kept["distractors"] = [text for text in draft["distractors"] if text in left]
    return kept


def _picture(shown: bool, thread: PooledThread) -> dict[str, Any]:
    image = Image(thread["image_sha256"], thread["image_file"], MEDIA_TYPES[thread["extension"]])
    return {"with_image": shown, "score_image": image}
