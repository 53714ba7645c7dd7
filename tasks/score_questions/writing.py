"""Turn a thread into a question: rewrite it, settle its right option, add wrong options, label it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from earmark.schemas.score_questions import CATEGORIES, ScoreQuestions
from earmark.tasks.pipeline.ask import Ask, Asker, Fault, GivenUp, side_by_side
from earmark.tasks.pipeline.walk import walk
from earmark.tasks.score_questions.checks import check_left, check_rewriting, good_distractors, without_letters
from earmark.tasks.score_questions.option_order import LETTERS
from earmark.tasks.score_questions.requests import (
    CONTRADICTS,
    DISTRACTORS,
    LABELS,
    LEAST_OPTIONS,
    MAY_BE_RIGHT,
    MOST_OPTIONS,
    NAMES,
    NO,
    REWRITING,
    TIE,
    YES,
    best_of,
    distractor_values,
    label_prompt,
    label_values,
    needed_numbers,
    only_options,
    options_of,
    reading_values,
    rewrite_values,
    tie_values,
)
from earmark.tasks.score_questions.rows import (
    PooledThread,
    QuestionDraft,
    ReadOption,
    RewrittenThread,
    SettledDraft,
    ShortDraft,
    ThreadComment,
    UnlabelledDraft,
    WholeDraft,
)

STAGES = ("rewrite", "settle", "distract", "check", "label")
"""Stages that may give a thread up, in order; `check` only with a reader."""
READINGS = {"contradict": NO, "check": YES}  # asks that read an option, each with the answer removing a wrong one


def usable_distractors(draft: ShortDraft, value: Mapping[str, str]) -> tuple[list[str], Fault | None]:
    """Return the usable distractors of an answer, and the fault of the others."""
    written = [text for _, text in sorted(value.items())]
    return good_distractors(written, draft["truth_text"], draft["other_texts"], draft["lacks"], draft["tied_options"])


def check_label(config: ScoreQuestions, draft: UnlabelledDraft, value: dict[str, str]) -> Fault | None:
    """Return a fault if the subcategory does not belong to its category."""
    if draft["label"] != "taxonomy" or value["subcategory"] in CATEGORIES[value["category"]]:
        return None
    own = ", ".join(CATEGORIES[value["category"]])
    return Fault("other_category", f"expected one of {own} for {value['category']}, found {value['subcategory']}")


def imagine_draft(config: ScoreQuestions, thread: PooledThread) -> dict[str, Any]:
    """Imagine as many options as a thread's comments can give, the needed ones first."""
    comments = range(1, len(thread["best_comments"]) + 1)
    needed = needed_numbers(thread["best_comments"])
    chosen = sorted(comments, key=lambda number: number not in needed)[:MOST_OPTIONS]
    return {"options": [{"comment": number} for number in chosen]}


REWRITE = Ask(
    "rewrite",
    annotator="writer",
    prompt=REWRITING,
    values=rewrite_values,
    imagine=imagine_draft,
    check=check_rewriting,
    about="threads",
)
SETTLE = Ask("settle", annotator="judge", prompt=TIE, values=tie_values, about="ties")
DISTRACT = Ask(
    "distract",
    annotator="writer",
    prompt=DISTRACTORS,
    values=distractor_values,
    imagine=lambda config, draft: dict.fromkeys(NAMES[: draft["lacks"]], ...),
    check=lambda config, draft, value: usable_distractors(draft, value)[1],
    partial=True,
    about="questions with few answers",
)
CONTRADICT = Ask(
    "contradict",
    annotator="reader",
    prompt=CONTRADICTS,
    values=partial(reading_values, name=CONTRADICTS),
    about="other comments",
)
CHECK = Ask(
    "check",
    annotator="reader",
    prompt=MAY_BE_RIGHT,
    values=partial(reading_values, name=MAY_BE_RIGHT),
    imagine=lambda config, row: NO,
    about="options",
)
LABEL = Ask(
    "label",
    annotator="labeller",
    prompt=label_prompt,
    kinds=lambda config: [{"label": label} for label in LABELS],
    values=label_values,
    check=check_label,
    about="categories and difficulties",
)
ASKS = (REWRITE, SETTLE, CONTRADICT, DISTRACT, CHECK, LABEL)


_COLUMNS = [("label", pa.string()), ("nth", pa.int64()), ("option", pa.string()), ("kind", pa.string())]


@walk("write", asks=ASKS, columns=_COLUMNS, label="write questions")
async def write_questions(asker: Asker[ScoreQuestions], thread: PooledThread) -> dict[str, Any]:
    """Turn a thread (a row of `pool.sql`) into a question, keeping the thread's columns."""
    if asker.config.questions.wrong == "written":
        thread = {**thread, "best_comments": best_of(thread["best_comments"])}
    draft = await settle(asker, await rewrite(asker, thread))
    if asker.config.reader and draft["other_texts"]:
        stay = await side_by_side(*(stays(asker, CONTRADICT, row) for row in readings(draft, draft["other_texts"])))
        draft = {**draft, "other_texts": [text for text, one in zip(draft["other_texts"], stay, strict=True) if one]}
    whole: WholeDraft = {**draft, "distractors": await distract(asker, draft)}
    if asker.config.reader:
        whole = await without_right(asker, whole)
    taxonomy, difficulty = await side_by_side(*(asker(LABEL, {**whole, "label": label}) for label in LABELS))
    return {**whole, **taxonomy, **difficulty}


async def rewrite(asker: Asker[ScoreQuestions], thread: PooledThread) -> QuestionDraft:
    """Add `question`, `request_key` and `options`, each with its comment's `comment_key` and `score`.

    Raises:
        GivenUp: the writer finds no question in the thread.
    """
    reply = await asker.reply(REWRITE, thread)
    if reply.failure:
        raise GivenUp("rewrite", *reply.failure)
    rewritten: RewrittenThread = reply.value
    if not rewritten["usable"]:
        why = one_line(rewritten["why"]) or "no reason given"
        raise GivenUp("rewrite", "unusable", f"the writer finds no question in it: {why}")
    texts = without_letters([option["text"] for option in rewritten["options"]])
    options: list[ThreadComment] = [
        {**thread["best_comments"][option["comment"] - 1], "text": one_line(text)}
        for option, text in zip(rewritten["options"], texts, strict=True)
    ]
    return {**thread, "question": one_line(rewritten["question"]), "request_key": reply.key, "options": options}


async def settle(asker: Asker[ScoreQuestions], draft: QuestionDraft) -> SettledDraft:
    """Add the right option, by votes or by a judge's choice among ties: `truth_text`, `other_texts`, `preference`.

    `tied` is the number of options with the best's votes, and `tied_options` what the judge chose from.
    """
    keys = {comment["comment_key"] for comment in best_of(draft["best_comments"])}
    best = sorted((o for o in draft["options"] if o["comment_key"] in keys), key=lambda option: option["comment_key"])
    truth, preference = best[0], "human"
    if len(best) > 1:
        truth, preference = best[LETTERS.index(await asker(SETTLE, {**draft, "best": best}))], "language_model"
    others = [option["text"] for option in draft["options"] if option["comment_key"] != truth["comment_key"]]
    if asker.config.questions.wrong == "written":
        others = []  # options tied for the best may be as right as the chosen one
    tied = [option["text"] for option in best] if len(best) > 1 else []
    return {
        **draft,
        "truth_text": truth["text"],
        "other_texts": others,
        "preference": preference,
        "tied": len(best),
        "tied_options": tied,
    }


async def distract(asker: Asker[ScoreQuestions], draft: SettledDraft) -> list[str]:
    """Write wrong options for a draft with fewer than the config wants.

    Usable options of the last draw are kept, if the question then has options enough and none gives it away.
    """
    count = 1 + len(draft["other_texts"])
    if (lacks := MOST_OPTIONS - count) <= 0:
        return []
    short: ShortDraft = {**draft, "lacks": lacks}
    reply = await asker.reply(DISTRACT, short)
    good = [] if reply.value is None else usable_distractors(short, reply.value)[0]
    if reply.failure:
        enough = reply.value is not None and count + len(good) >= LEAST_OPTIONS
        if not enough or reply.failure[0] == "longer_is_right":
            raise GivenUp("distract", *reply.failure)
    return good


async def without_right(asker: Asker[ScoreQuestions], draft: WholeDraft) -> WholeDraft:
    """Remove wrong options that could be right.

    The right option is read, too, to measure the reader's accuracy; it stays in any case.
    """
    options = options_of(draft)
    stay = await side_by_side(*(stays(asker, CHECK, row) for row in readings(draft, options)))
    left = [text for text, one in zip(options[1:], stay[1:], strict=True) if one]
    if fault := check_left([options[0], *left]):
        raise GivenUp("check", *fault)
    return only_options(draft, left)


def readings(draft: SettledDraft, options: list[str]) -> list[ReadOption]:
    """Return the rows for a reader: each option of a draft, its number `nth`, and its `kind`."""
    kinds = {draft["truth_text"]: "truth"} | dict.fromkeys(draft["other_texts"], "comment")
    return [
        {**draft, "nth": nth, "option": text, "kind": kinds.get(text, "distractor")} for nth, text in enumerate(options)
    ]


async def stays(asker: Asker[ScoreQuestions], ask: Ask[ScoreQuestions], about: ReadOption) -> bool:
    """Return whether a reading keeps an option; without an answer, the option is dropped."""
    reply = await asker.reply(ask, about)
    return reply.failure is None and reply.value != READINGS[ask.name]


def one_line(text: str) -> str:
    """Collapse white space into single spaces."""
    return " ".join(text.split())
