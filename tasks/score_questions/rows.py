"""Rows between the steps of `score-questions`, and the answers that make them."""

from typing import Literal, TypedDict

from earmark.tasks.pipeline.walk import Draw

Label = Literal["taxonomy", "difficulty"]


class ThreadComment(TypedDict):
    """A comment of a thread, and an option made of it."""

    comment_key: str
    text: str
    score: int
    unripe: bool


class PooledThread(TypedDict):
    """A row of `pool.sql`."""

    thread_key: str
    author_id: str
    forum: str
    year: int
    title: str
    text: str
    words: int
    comments: int
    image_from: str
    split: str
    best_comments: list[ThreadComment]
    image_sha256: str
    extension: str
    image_file: str
    width: int
    height: int
    detector: str
    score_confidence: float
    staves: int
    kind: str | None


class RewrittenOption(TypedDict):
    """An option of a rewritten thread."""

    comment: int  # its number, from 1
    text: str


class RewrittenThread(TypedDict):
    """The writer's answer about a thread."""

    usable: bool
    why: str
    question: str
    options: list[RewrittenOption]


class QuestionDraft(PooledThread):
    """A rewritten thread."""

    question: str
    request_key: str
    options: list[ThreadComment]


class TiedDraft(QuestionDraft):
    """A draft with the options in a tie for the best."""

    best: list[ThreadComment]


class SettledDraft(QuestionDraft):
    """A draft with its right option."""

    truth_text: str
    other_texts: list[str]
    preference: str
    tied: int
    tied_options: list[str]


class ShortDraft(SettledDraft):
    """A draft with too few options."""

    lacks: int  # wrong options to write


class ReadOption(SettledDraft):
    """A draft with one of its options, for a reader; `kind` is the option's from here on."""

    nth: int
    option: str


class WholeDraft(SettledDraft):
    """A draft with all its options."""

    distractors: list[str]


class UnlabelledDraft(WholeDraft):
    """A draft with the label asked for."""

    label: Label


class LabelledQuestion(WholeDraft):
    """The result of a thread's walk."""

    category: str
    subcategory: str
    difficulty: str


class LetteredQuestion(LabelledQuestion):
    """A question with its options in the order of the letters."""

    texts: list[str]
    place: int  # of the right option
    content_sha256: str


class OptionDraw(Draw):
    """A draw of `write_questions`, with the walk's columns."""

    nth: int | None
    option: str
    kind: str
