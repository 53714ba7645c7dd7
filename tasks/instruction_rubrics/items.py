"""Decompose an instruction into items."""

from typing import NamedTuple

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER
from earmark.tasks.instruction_rubrics.checks import usable_items
from earmark.tasks.instruction_rubrics.decomposing import in_parts, items_in, wording_of
from earmark.tasks.instruction_rubrics.rows import BareItem, InstructionRow, ItemRow, RubricQuestion
from earmark.tasks.pipeline.ask import Asker, side_by_side

WHOLE = "instruction"
_COMPLETE = {"en": 'Is nothing heard beyond this: "{}"?', "zh": "除此之外没有其他声音吗：“{}”？"}


class Parts(NamedTuple):
    """An instruction's items."""

    items: list[BareItem]  # the instruction itself without any other
    whole: bool  # whether the instruction is its own item
    removed: list[tuple[str, str]]  # reason and question of omitted items
    listed: list[BareItem]  # the items before a second reading


async def take_apart(asker: Asker[InstructionRubrics], row: RubricQuestion) -> Parts:
    """Decompose a row's `instruction` (with `language`, `domain`, `written_by`) and have its items read once more."""
    row = {**row, "wording": wording_of(asker.config, row["domain"])}
    listed, dropped = usable_items(row["instruction"], (await asker(DECOMPOSE, row))["items"])
    answers = await side_by_side(*(asker(FILTER, one) for one in in_parts(row, listed)))
    verdicts = [one["verdict"] for answer in answers for one in items_in(answer)]
    left = [item for item, verdict in zip(listed, verdicts, strict=True) if verdict == "keep"]
    whole: list[BareItem] = [{"dimension": WHOLE, "question": row["instruction"], "basis": row["instruction"]}]
    removed = [(verdict, item["question"]) for item, verdict in zip(listed, verdicts, strict=True) if verdict != "keep"]
    return Parts(left or whole, not left, [*dropped, *removed], listed)


def with_completeness(items: list[ItemRow], row: InstructionRow) -> list[ItemRow]:
    """Add an item to an instruction: whether all sounds heard are named in it.

    It is added to an instruction with a dropped sound, and to its original: no other item can tell them
    apart.
    """
    text = row["text"]
    question = _COMPLETE[row["language"]].format(text)
    return [*items, {"dimension": "completeness", "question": question, "basis": text, "flags": []}]
