"""Decompose an instruction into items, and ask the judge about the whole or the items."""

from __future__ import annotations

from typing import NamedTuple

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, HEAR, MISMATCH
from earmark.tasks.instruction_rubrics.checks import usable_items
from earmark.tasks.instruction_rubrics.decomposing import in_parts, numbered, wording_of
from earmark.tasks.pipeline.ask import Ask, Asker, Row, side_by_side

WHOLE = "instruction"
_COMPLETE = {"en": 'Is nothing heard beyond this: "{}"?', "zh": "除此之外没有其他声音吗：“{}”？"}


class Parts(NamedTuple):
    """An instruction's items."""

    items: list[Row]  # `dimension`, `question`, `basis`; the instruction itself without any other
    whole: bool  # whether the instruction is its own item
    removed: list[tuple[str, str]]  # reason and question of omitted items
    listed: list[Row]  # the items before a second reading


async def take_apart(asker: Asker[InstructionRubrics], row: Row) -> Parts:
    """Decompose a row's `instruction` (with `language`, `domain`, `written_by`) and have its items read once more."""
    row = {**row, "wording": wording_of(asker.config, row["domain"])}
    listed, dropped = usable_items(row["instruction"], (await asker(DECOMPOSE, row))["items"])
    answers = await side_by_side(*(asker(FILTER, one) for one in in_parts(row, listed)))
    verdicts = [one["verdict"] for answer in answers for one in answer["items"]]
    left = [item for item, verdict in zip(listed, verdicts, strict=True) if verdict == "keep"]
    whole = [{"dimension": WHOLE, "question": row["instruction"], "basis": row["instruction"]}]
    removed = [(verdict, item["question"]) for item, verdict in zip(listed, verdicts, strict=True) if verdict != "keep"]
    return Parts(left or whole, not left, [*dropped, *removed], listed)


def with_completeness(items: list[Row], row: Row) -> list[Row]:
    """Add an item to an instruction: whether all sounds heard are named in it.

    It is added to an instruction with a dropped sound, and to its original: no other item can tell them
    apart.
    """
    text = row["text"]
    question = _COMPLETE[row["language"]].format(text)
    return [*items, {"dimension": "completeness", "question": question, "basis": text, "flags": []}]


async def with_items(asker: Asker[InstructionRubrics], row: Row) -> Row:
    """Add the items to a question about an instruction, if its source verifies by items."""
    if not asker.config.source(row["source"]).verify.by_items:
        return row
    return {**row, "items": numbered((await take_apart(asker, row)).items)}


async def listen(asker: Asker[InstructionRubrics], ask: Ask[InstructionRubrics], row: Row) -> tuple[bool, str]:
    """Return whether the judge says yes to `verify` or `mismatch`, and its evidence.

    By items, an instruction is wrong if the judge denies one of them, and fits if it denies none.
    """
    if "items" not in row:
        answer = await asker(ask, row)
        return answer["answer"] == "yes", answer["evidence"]
    answers = await side_by_side(*(asker(HEAR, one) for one in in_parts(row, row["items"])))
    heard = [one for answer in answers for one in answer["items"]]
    wrong = [one for one in heard if one["answer"] == "no"]
    evidence = " ".join(one["rationale"] for one in wrong or heard)
    return (bool(wrong) if ask is MISMATCH else not wrong), evidence
