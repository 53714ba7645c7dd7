"""From a thread to a question: rewritten, its right option settled, wrong options added, sorted and rated."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from earmark.schemas.score_questions import CATEGORIES, DIFFICULTIES, ScoreQuestions
from earmark.tasks.build.ask import Ask, Asker, GivenUp, Row, side_by_side
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.build.walk import walk
from earmark.tasks.score_questions.checks import check_left, check_rewriting, good_distractors
from earmark.tasks.score_questions.option_order import LETTERS
from earmark.tasks.score_questions.requests import (
    LABELS,
    NAMES,
    NO,
    YES,
    best_of,
    contradiction_request,
    distractor_request,
    label_request,
    needed_numbers,
    options_of,
    rewrite_request,
    right_request,
    tie_request,
)

STAGES = ("rewrite", "settle", "distract", "check", "label")
"""Where a thread may be given up, in order; at `check` where options are read."""
READINGS = {"contradict": NO, "check": YES}  # the asks that read an option, and the answer by which a wrong one leaves


def tries(config: ScoreQuestions) -> int:
    """Draws of one text at most."""
    return config.questions.tries


def usable_distractors(draft: Row, value: Any) -> tuple[list[str], Fault | None]:
    """The distractors of an answer that can be used, and what speaks against the others."""
    written = [text for _, text in sorted(value.items())]
    return good_distractors(written, draft["truth_text"], draft["other_texts"], draft["lacks"])


def check_label(config: ScoreQuestions, draft: Row, value: Any) -> Fault | None:
    """Whether a subcategory belongs to its category."""
    if draft["label"] != "taxonomy" or value["subcategory"] in CATEGORIES[value["category"]]:
        return None
    own = ", ".join(CATEGORIES[value["category"]])
    return Fault("other_category", f"expected one of {own} for {value['category']}, found {value['subcategory']}")


def imagine_draft(config: ScoreQuestions, thread: Row) -> dict[str, Any]:
    """A question with as many options as its comments can give."""
    comments = range(1, len(thread["best_comments"]) + 1)
    needed = needed_numbers(config, thread["best_comments"])
    chosen = sorted(comments, key=lambda number: number not in needed)[: config.questions.options]
    options = [{"comment": number, "text": imagined(10)} for number in chosen]
    return {"usable": True, "why": "", "question": imagined(25), "options": options}


def imagine_distractors(config: ScoreQuestions, draft: Row) -> dict[str, str]:
    """Wrong options that differ."""
    return {name: f"{imagined(9)} {number}" for number, name in enumerate(NAMES[: draft["lacks"]])}


def imagine_label(config: ScoreQuestions, draft: Row) -> dict[str, str]:
    """The first of the labels."""
    category, subcategories = next(iter(CATEGORIES.items()))
    difficulty = {"difficulty": DIFFICULTIES[0]}
    return {"category": category, "subcategory": subcategories[0]} if draft["label"] == "taxonomy" else difficulty


REWRITE = Ask(
    "rewrite",
    annotator="writer",
    request=rewrite_request,
    imagine=imagine_draft,
    check=check_rewriting,
    tries=tries,
    about="threads",
)
SETTLE = Ask("settle", annotator="judge", request=tie_request, imagine=lambda config, row: LETTERS[0], about="ties")
DISTRACT = Ask(
    "distract",
    annotator="writer",
    request=distractor_request,
    imagine=imagine_distractors,
    check=lambda config, draft, value: usable_distractors(draft, value)[1],
    tries=tries,
    about="questions with few answers",
)
CONTRADICT = Ask(
    "contradict",
    annotator="reader",
    request=contradiction_request,
    imagine=lambda config, row: YES,
    about="other comments",
)
CHECK = Ask("check", annotator="reader", request=right_request, imagine=lambda config, row: NO, about="options")
LABEL = Ask(
    "label",
    annotator="labeller",
    request=label_request,
    imagine=imagine_label,
    check=check_label,
    tries=tries,
    about="categories and difficulties",
)


_COLUMNS = [("label", pa.string()), ("nth", pa.int64()), ("option", pa.string()), ("kind", pa.string())]


@walk("write", asks=[REWRITE, SETTLE, CONTRADICT, DISTRACT, CHECK, LABEL], columns=_COLUMNS, label="write questions")
async def write_questions(asker: Asker[ScoreQuestions], thread: Row) -> Row:
    """A thread (a row of `pool.sql`) becomes a question, beside what is known of the thread."""
    if asker.config.questions.wrong == "written":
        thread = {**thread, "best_comments": best_of(thread["best_comments"])}
    draft = await rewrite(asker, thread)
    draft = await settle(asker, draft)
    if asker.config.reader and draft["other_texts"]:
        stay = await side_by_side(*(stays(asker, CONTRADICT, row) for row in readings(draft, draft["other_texts"])))
        draft = {**draft, "other_texts": [text for text, one in zip(draft["other_texts"], stay, strict=True) if one]}
    draft = {**draft, "distractors": await distract(asker, draft)}
    if asker.config.reader:
        draft = await without_right(asker, draft)
    taxonomy, difficulty = await side_by_side(*(asker(LABEL, {**draft, "label": label}) for label in LABELS))
    return {**draft, **taxonomy, **difficulty}


async def rewrite(asker: Asker[ScoreQuestions], thread: Row) -> Row:
    """Adds `question`, `request_key` and `options`, each with its comment's `comment_key` and `score`.

    Raises:
        GivenUp: the writer finds no question in the thread.
    """
    reply = await asker.reply(REWRITE, thread)
    if reply.failure:
        raise GivenUp("rewrite", *reply.failure)
    if not reply.value["usable"]:
        why = one_line(reply.value["why"]) or "no reason given"
        raise GivenUp("rewrite", "unusable", f"the writer finds no question in it: {why}")
    options = []
    for option in reply.value["options"]:
        comment = thread["best_comments"][option["comment"] - 1]
        options.append({**comment, "text": one_line(option["text"])})
    return {**thread, "question": one_line(reply.value["question"]), "request_key": reply.key, "options": options}


async def settle(asker: Asker[ScoreQuestions], draft: Row) -> Row:
    """Adds the right option, by people's votes; where they tie, by a judge: `truth_text`, `other_texts`, `preference`.

    `tied` is how many options have as many votes as the best.
    """
    keys = {comment["comment_key"] for comment in best_of(draft["best_comments"])}
    best = sorted((o for o in draft["options"] if o["comment_key"] in keys), key=lambda option: option["comment_key"])
    truth, preference = best[0], "human"
    if len(best) > 1:
        truth, preference = best[LETTERS.index(await asker(SETTLE, {**draft, "best": best}))], "language_model"
    others = [option["text"] for option in draft["options"] if option["comment_key"] != truth["comment_key"]]
    if asker.config.questions.wrong == "written":
        others = []  # what ties for the best may be as right as what was chosen
    return {
        **draft, "truth_text": truth["text"], "other_texts": others, "preference": preference, "tied": len(best)
    }  # fmt: skip


async def distract(asker: Asker[ScoreQuestions], draft: Row) -> list[str]:
    """Wrong options for a draft that has fewer than the config wants.

    What can be used of the last draw is kept, if the question then has options enough and none gives it away.
    """
    made, count = asker.config.questions, 1 + len(draft["other_texts"])
    if (lacks := min(made.distractors, made.options - count)) <= 0:
        return []
    draft = {**draft, "lacks": lacks}
    reply = await asker.reply(DISTRACT, draft)
    good = [] if reply.value is None else usable_distractors(draft, reply.value)[0]
    if reply.failure:
        enough = reply.value is not None and count + len(good) >= made.least_options
        if not enough or reply.failure[0] == "longer_is_right":
            raise GivenUp("distract", *reply.failure)
    return good


async def without_right(asker: Asker[ScoreQuestions], draft: Row) -> Row:
    """Takes out wrong options that could be right.

    The right option is read, too, which tells how often the reader knows what is right; it stays in any case.

    Raises:
        GivenUp: too few are left, or those that are left give the right one away.
    """
    options = options_of(draft)
    stay = await side_by_side(*(stays(asker, CHECK, row) for row in readings(draft, options)))
    left = [text for text, one in zip(options[1:], stay[1:], strict=True) if one]
    if fault := check_left([options[0], *left], asker.config.questions.least_options):
        raise GivenUp("check", *fault)
    kept = {name: [text for text in draft[name] if text in left] for name in ("other_texts", "distractors")}
    return {**draft, **kept}


def readings(draft: Row, options: list[str]) -> list[Row]:
    """What a reader is asked about: each option of a draft, `nth` of them, and its `kind`."""
    kinds = {draft["truth_text"]: "truth"} | dict.fromkeys(draft["other_texts"], "comment")
    return [
        {**draft, "nth": nth, "option": text, "kind": kinds.get(text, "distractor")} for nth, text in enumerate(options)
    ]


async def stays(asker: Asker[ScoreQuestions], ask: Ask[ScoreQuestions], about: Row) -> bool:
    """Whether a reading lets an option stay; one that stays without an answer does not."""
    reply = await asker.reply(ask, about)
    return reply.failure is None and reply.value != READINGS[ask.name]


def one_line(text: str) -> str:
    """A text with single spaces for all white space."""
    return " ".join(text.split())
