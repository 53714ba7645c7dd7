"""`instruction-rubrics`: instructions taken apart into items, labels of these for each clip, translations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.rubric_tables import INSTRUCTIONS, ITEMS, LABELS
from earmark.tasks.build.ask import Ask, Asker, Row, side_by_side
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked, walk
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, LABEL, RATIONALES, TRANSLATE, others
from earmark.tasks.instruction_rubrics.checks import lost
from earmark.tasks.instruction_rubrics.negatives import Negatives
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.store.staging import Stage

WHOLE = "instruction"
VERDICTS = {
    "unsupported": "expected an item that the instruction asks for, found",
    "redundant": "expected an item that no other says, found",
    "inaudible": "expected an item that can be heard, found",
}


@walk(
    "rubrics",
    asks=[DECOMPOSE, FILTER, LABEL, RATIONALES, TRANSLATE],
    columns=[("negative", pa.int64()), ("part", pa.string()), ("into", pa.string())],
    label="write rubrics",
)
async def write_rubric(asker: Asker[InstructionRubrics], instruction: Row) -> dict[str, Any]:
    """Take an instruction apart and have its items read once more; without any left, it is its single item. Then label
    them for each negative, give the reasons why they are true where they are, and translate all."""
    about = {**instruction, "instruction": instruction["text"]}
    listed = (await asker(DECOMPOSE, about))["items"]
    verdicts = [one["verdict"] for one in (await asker(FILTER, {**about, "items": numbered(listed)}))["items"]]
    left = [item for item, verdict in zip(listed, verdicts, strict=True) if verdict == "keep"]
    items = left or [{"dimension": WHOLE, "question": instruction["text"], "basis": instruction["text"]}]
    labelled = await side_by_side(
        *(_label(asker, LABEL, {**about, **negative}, items) for negative in instruction["negatives"]),
        *([_label(asker, RATIONALES, about, items)] if instruction["true"] else []),
    )
    texts = [instruction["text"], *(item["question"] for item in items)]
    used = any(one["failure"] is None for one in labelled)
    return {
        "items": items,
        "items_by": asker.config.writer.annotator if left else None,
        "removed": [[verdict, item["question"]] for item, verdict in zip(listed, verdicts, strict=True)
                    if verdict != "keep"],
        "labelled": labelled,
        "translations": await _translate(asker, {**instruction, "part": "instruction"}, texts) if used else {},
    }  # fmt: skip


async def _label(asker: Asker[InstructionRubrics], ask: Ask[InstructionRubrics], row: Row, items: list[Row]) -> Row:
    """Answers and rationales for items. A negative whose items all come out yes is none: its contradiction was not
    found."""
    reply = await asker.reply(ask, {**row, "items": numbered(items)})
    end = {"negative": row.get("negative"), "failure": reply.failure}
    if reply.failure is not None:
        return end
    answers = [
        {"answer": one.get("answer", "yes") == "yes", "rationale": one["rationale"]} for one in reply.value["items"]
    ]
    if ask is LABEL and all(one["answer"] for one in answers):
        detail = f"expected an item that is not met, found all {len(answers)} answered yes"
        return {**end, "failure": ("contradiction_not_found", detail)}
    translations = await _translate(asker, {**row, "part": "answers"}, [one["rationale"] for one in answers])
    source = {"by": reply.annotator, "prompt": reply.prompt, "key": reply.key}
    return {**end, "answers": answers, **source, "translations": translations}


async def _translate(asker: Asker[InstructionRubrics], row: Row, texts: list[str]) -> dict[str, Row]:
    """Texts in each other language, with what a back-check holds against each; or why they are not there."""
    languages = others(asker.config, row["language"])
    replies = await side_by_side(*(asker.reply(TRANSLATE, {**row, "texts": texts, "into": into}) for into in languages))
    return {
        into: {"failure": reply.failure}
        if reply.failure is not None
        else {
            "failure": None,
            "texts": reply.value["texts"],
            "flags": [
                lost(text, row["language"], other, into)
                for text, other in zip(texts, reply.value["texts"], strict=True)
            ],
            "by": reply.annotator,
        }
        for into, reply in zip(languages, replies, strict=True)
    }


def numbered(items: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Items with numbers from 1, as prompts show them."""
    return [
        {"id": number, "question": item["question"], "basis": item["basis"]} for number, item in enumerate(items, 1)
    ]


@step("items", unit="instructions", final=True, label="keep rubrics")
def keep_rubrics(stage: Stage, config: InstructionRubrics, negatives: Negatives, written: Walked) -> Done[Rows]:
    """Account for items, labels, rationales and translations.

    Returns:
        Instructions with their items and all that was written of them.
    """
    instructions, clips = read_rows(negatives.instructions), read_rows(negatives.negatives)
    rubrics = [{**instructions[at], **end} for at, end in written.results()]
    ends = written.given_up()
    rejects = [
        (ITEMS.name, reject_of(instructions[end["at"]], end["reason"], f"{end['stage']}: {end['detail']}"))
        for end in ends
    ]
    without = {row["negative"] for end in ends for row in instructions[end["at"]]["negatives"]}
    return Done(
        keep_rows(stage, "rubrics", rubrics),
        Account(len(instructions), len(rubrics), rejects),
        _items_account(rubrics),
        Account(
            name="ready",
            unit="negatives",
            entered=len(clips),
            kept=sum(len(row["negatives"]) for row in rubrics),
            rejects=[
                (LABELS.name, reject_of(clips[number], "no_items", "expected items of its instruction, found none"))
                for number in sorted(without)
            ],
        ),
        *_label_accounts(rubrics, clips),
        _translation_account(rubrics, clips),
    )


def _items_account(rubrics: list[Row]) -> Account:
    removed = [
        (ITEMS.name, reject_of(row, verdict, f"{VERDICTS[verdict]} '{question[:80]}'"))
        for row in rubrics
        for verdict, question in row["removed"]
    ]
    whole = sum(row["items_by"] is None for row in rubrics)
    kept = sum(len(row["items"]) for row in rubrics) - whole
    notes = [f"{whole:,} instructions had no item left and are their single item"] if whole else []
    return Account(kept + len(removed), kept, removed, name="filter", unit="items", notes=notes)


def _label_accounts(rubrics: list[Row], clips: list[Row]) -> Iterator[Account]:
    """What became of negatives, and of instructions that are true."""
    ends = [(_subject(row, one, clips), one) for row in rubrics for one in row["labelled"]]
    negatives, true = sum(len(row["negatives"]) for row in rubrics), sum(row["true"] for row in rubrics)
    for name, unit, entered, follows in (
        ("labels", "negatives", negatives, "ready"),
        ("rationales", "true instructions", true, ()),
    ):
        own = [(subject, one["failure"]) for subject, one in ends if (one["negative"] is None) == (name != "labels")]
        rejects = [(LABELS.name, reject_of(subject, *failure)) for subject, failure in own if failure is not None]
        kept = sum(failure is None for _, failure in own)
        yield Account(entered, kept, rejects, name=name, unit=unit, follows=follows)


def _translation_account(rubrics: list[Row], clips: list[Row]) -> Account:
    ends = [(row, one) for row in rubrics for one in row["translations"].values()]
    for row in rubrics:
        for labelled in row["labelled"]:
            ends += [(_subject(row, labelled, clips), one) for one in labelled.get("translations", {}).values()]
    kept = [one for _, one in ends if one["failure"] is None]
    rejects = [(INSTRUCTIONS.name, reject_of(row, *one["failure"])) for row, one in ends if one["failure"] is not None]
    flagged, texts = sum(bool(flags) for one in kept for flags in one["flags"]), sum(len(one["texts"]) for one in kept)
    notes = [f"{flagged:,} of {texts:,} translated texts are flagged for what they may have lost"] if kept else []
    return Account(len(ends), len(kept), rejects, name="translate", unit="translations", notes=notes)


def _subject(rubric: Row, labelled: Row, clips: list[Row]) -> Row:
    """What was labelled: a negative, or an instruction that is true."""
    return rubric if labelled["negative"] is None else clips[labelled["negative"]]
