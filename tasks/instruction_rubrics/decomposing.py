"""Split lists of items for requests, have items reviewed by a second model, and compare a second draw."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.instruction_rubrics.asks import DIRECTION, REDECOMPOSE
from earmark.tasks.instruction_rubrics.checks import plain, usable_items
from earmark.tasks.instruction_rubrics.deciding import draw
from earmark.tasks.instruction_rubrics.rows import BareItem, ItemReply, ItemRow, RubricQuestion
from earmark.tasks.pipeline.ask import Ask, Asker, AskReply, Row, side_by_side

AT_ONCE = 20  # items in a question; longer lists are split
LEAST_OVERLAP = 0.5
"""Smallest overlap of two items' words in the instruction, as share of their union, for possibly equal items."""
Thing = TypeVar("Thing")


async def look_again(
    asker: Asker[InstructionRubrics], row: RubricQuestion, items: list[BareItem], listed: Sequence[BareItem]
) -> tuple[list[ItemRow], float | None]:
    """Flag items by a second model; measure the agreement of a second draw, if drawn.

    Args:
        asker: sends the requests of a row.
        row: the `instruction`, and its `wording`.
        items: the kept items.
        listed: the items of the first draw.
    """
    config = asker.config
    flags = await _reversed(asker, row, items) if config.reader else [[] for _ in items]
    stability = None
    if draw(config.seed, "redecompose", row["instruction_id"]) < config.decomposition.stability:
        second = await asker.reply(REDECOMPOSE, {**row, "part": "again"})
        if second.failure is None:
            again = usable_items(row["instruction"], second.value["items"])[0]
            stability = agreement(row["instruction"], listed, again)
    return [{**item, "flags": one} for item, one in zip(items, flags, strict=True)], stability


def wording_of(config: InstructionRubrics, domain: str) -> str:
    """Return the prompt for decomposing an instruction of a domain."""
    return "decompose" if config.decomposition.prompts == "general" else f"decompose-{domain}"


async def _reversed(asker: Asker[InstructionRubrics], about: Row, items: list[BareItem]) -> list[list[str]]:
    """Return `direction` for each item denied by the second model of audio matching the instruction; `unread` for all
    without an answer."""
    replies = await ask_in_parts(asker, DIRECTION, about, items)
    if any(reply.failure for reply in replies):
        return [["unread"] for _ in items]
    answers = [one["answer"] for reply in replies for one in items_in(reply.value)]
    return [["direction"] if answer == "no" else [] for answer in answers]


def split(things: Sequence[Thing], at_once: int = AT_ONCE) -> list[Sequence[Thing]]:
    """Split a list into consecutive parts."""
    return [things[start : start + at_once] for start in range(0, len(things), at_once)]


def in_parts(row: Row, items: Sequence[BareItem]) -> list[Row]:
    """Split a row's items into parts of a question's size; all but the first name their `part`."""
    parts = enumerate(split(items), 1)
    return [{**row, "items": numbered(part), **({"part": f"items {n}"} if n > 1 else {})} for n, part in parts]


async def ask_in_parts(
    asker: Asker[InstructionRubrics], ask: Ask[InstructionRubrics], row: Row, items: Sequence[BareItem]
) -> list[AskReply]:
    """Return the replies about all items, in order."""
    return list(await side_by_side(*(asker.reply(ask, one) for one in in_parts(row, items))))


def items_in(value: Any) -> list[ItemReply]:
    """Return a model's answers about items."""
    answers: list[ItemReply] = value["items"]
    return answers


def numbered(items: Sequence[BareItem]) -> list[Row]:
    """Give items numbers from 1, for prompts."""
    return [
        {"id": number, "question": item["question"], "basis": item["basis"]} for number, item in enumerate(items, 1)
    ]


def agreement(instruction: str, first: Sequence[BareItem], second: Sequence[BareItem]) -> float:
    """Measure the agreement of two draws of items: matching items as share of all items of both (Dice), 0 to 1.

    Two items can match if their words in the instruction overlap by half or more of their union;
    each item matches one of the other draw at most, as many as possible.
    """
    from scipy.optimize import linear_sum_assignment

    spans = [[_span(instruction, item["basis"]) for item in items] for items in (first, second)]
    same = np.array([[_overlap(one, other) >= LEAST_OVERLAP for other in spans[1]] for one in spans[0]], dtype=float)
    rows, columns = linear_sum_assignment(same, maximize=True)
    return float(2 * same[rows, columns].sum() / (len(first) + len(second)))


def _span(instruction: str, basis: str) -> tuple[int, int]:
    """Locate an item's words, in characters, by the rule that found them usable."""
    words = plain(basis)
    start = plain(instruction).index(words)
    return start, start + len(words)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    common = min(one[1], other[1]) - max(one[0], other[0])
    return max(0, common) / (max(one[1], other[1]) - min(one[0], other[0]))
