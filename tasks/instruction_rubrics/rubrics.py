"""Write rubrics: decompose instructions into items, label these for each clip, translate."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics, Language
from earmark.schemas.rubric_tables import INSTRUCTIONS, ITEMS, LABELS
from earmark.tasks.instruction_rubrics.asks import (
    DECOMPOSE,
    DIRECTION,
    FILTER,
    HEAR,
    LABEL,
    LABEL_PARTLY,
    RATIONALES,
    REDECOMPOSE,
    TRANSLATE,
    others,
)
from earmark.tasks.instruction_rubrics.checks import lost
from earmark.tasks.instruction_rubrics.decomposing import AT_ONCE, ask_in_parts, look_again, split, wording_of
from earmark.tasks.instruction_rubrics.items import take_apart, with_completeness
from earmark.tasks.instruction_rubrics.negatives import WrongInstructions
from earmark.tasks.instruction_rubrics.rows import (
    InstructionRow,
    ItemAnswer,
    ItemRow,
    Labelled,
    NegativeRow,
    RubricRow,
    Translation,
)
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.ask import Ask, Asker, Row, side_by_side
from earmark.tasks.pipeline.references import References, references_of
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.staging import Stage

STABILITY = "re-decomposition:"
VERDICTS = {
    "unsupported": "expected an item that the instruction asks for, found",
    "redundant": "expected an item that no other says, found",
    "inaudible": "expected an item that can be heard, found",
    "basis_not_found": "expected an item that rests on words of the instruction, found",
    "repeated_item": "expected each question once, found again",
}


@walk(
    "rubrics",
    asks=[DECOMPOSE, FILTER, DIRECTION, LABEL, LABEL_PARTLY, HEAR, RATIONALES, TRANSLATE, REDECOMPOSE],
    columns=[("negative", pa.int64()), ("part", pa.string()), ("into", pa.string())],
    label="write rubrics",
)
async def write_rubric(asker: Asker[InstructionRubrics], instruction: InstructionRow) -> dict[str, Any]:
    """Decompose an instruction and have its items read once more; without any left, it is its own item. Then label the
    items for each negative, give reasons for true items, and translate all."""
    about: Row = {**instruction, "instruction": instruction["text"]}
    parts = await take_apart(asker, about)
    about["wording"] = wording_of(asker.config, instruction["domain"])
    kept = [] if parts.whole else parts.items
    checked, stability = await look_again(asker, about, kept, parts.listed)
    items: list[ItemRow] = checked or [{**item, "flags": []} for item in parts.items]
    if instruction.get("complete"):
        items = with_completeness(items, instruction)
    labelled = await side_by_side(
        *(_label(asker, {**about, **negative}, items) for negative in instruction["negatives"]),
        *([_reasons(asker, about, items)] if instruction["true"] else []),
    )
    texts = [instruction["text"], *(item["question"] for item in items)]
    used = any(one["failure"] is None for one in labelled)
    return {
        "items": items,
        "items_by": None if parts.whole else asker.config.writer.annotator,
        "removed": parts.removed,
        "stability": stability,
        "labelled": labelled,
        "translations": await _translate(asker, {**instruction, "part": "instruction"}, texts) if used else {},
    }


async def _reasons(asker: Asker[InstructionRubrics], row: Row, items: list[ItemRow]) -> Labelled:
    """Return the reasons for the items of a true instruction."""
    answers, failure = await _answered(asker, RATIONALES, row, items, range(1, len(items) + 1))
    return await _labelled(asker, row, answers, []) if failure is None else _unlabelled(None, failure)


async def _label(asker: Asker[InstructionRubrics], row: Row, items: list[ItemRow]) -> Labelled:
    """Label the items of an instruction wrong for a clip. Without a full description, items left open are heard, and
    undecided ones dropped. A negative with all items answered yes is rejected: its contradiction was not found."""
    numbers = range(1, len(items) + 1)
    answers, failure = await _answered(asker, LABEL if row["full"] else LABEL_PARTLY, row, items, numbers)
    if failure is not None:
        return _unlabelled(row["negative"], failure)
    left = sorted({*numbers} - {one["item"] for one in answers})
    if left:
        answers += (await _answered(asker, HEAR, row, [items[number - 1] for number in left], left))[0]
    answers.sort(key=lambda one: one["item"])
    unknown = [items[number - 1]["question"] for number in left if number not in {one["item"] for one in answers}]
    if all(one["answer"] for one in answers):
        detail = f"expected an item that is not met, found all {len(answers)} answered yes"
        detail += f", {len(unknown)} not known" if unknown else ""
        return _unlabelled(row["negative"], ("contradiction_not_found", detail))
    return await _labelled(asker, row, answers, unknown)


async def _answered(
    asker: Asker[InstructionRubrics],
    ask: Ask[InstructionRubrics],
    row: Row,
    items: list[ItemRow],
    numbers: Sequence[int],
) -> tuple[list[ItemAnswer], tuple[str, str] | None]:
    """Return the answers about items of these numbers, and the failure without answers; leave unknown items out.
    Rationales are of met items."""
    replies = await ask_in_parts(asker, ask, row, items)
    if failure := next((reply.failure for reply in replies if reply.failure is not None), None):
        return [], failure
    return [
        {"item": number, "answer": one.get("answer", "yes") == "yes", "rationale": one["rationale"],
         "by": reply.annotator, "prompt": reply.prompt, "key": reply.key}
        for reply, part in zip(replies, split(numbers), strict=True)
        for number, one in zip(part, reply.value["items"], strict=True)
        if one.get("answer") != "unknown"
    ], None  # fmt: skip


async def _labelled(
    asker: Asker[InstructionRubrics], row: Row, answers: list[ItemAnswer], unknown: list[str]
) -> Labelled:
    """Return labels with their rationales in all languages, and the undecided items."""
    translations = await _translate(asker, {**row, "part": "answers"}, [one["rationale"] for one in answers])
    return {"negative": row.get("negative"), "failure": None, "unknown": unknown, "answers": answers,
            "translations": translations}  # fmt: skip


def _unlabelled(negative: int | None, failure: tuple[str, str]) -> Labelled:
    return {"negative": negative, "failure": failure, "answers": [], "translations": {}}


async def _translate(asker: Asker[InstructionRubrics], row: Row, texts: list[str]) -> dict[str, Translation]:
    """Translate texts into each other language, with the flags of a back-check; or return the failure."""
    languages = others(asker.config, row["language"])
    ends = await side_by_side(*(_translate_into(asker, row, texts, into) for into in languages))
    return dict(zip(languages, ends, strict=True))


async def _translate_into(asker: Asker[InstructionRubrics], row: Row, texts: list[str], into: Language) -> Translation:
    parts = split(texts, AT_ONCE + 1)  # an instruction and its items
    rows = [{**row, "texts": part, "part": f"{row['part']} {n}" if n > 1 else row["part"], "into": into}
            for n, part in enumerate(parts, 1)]  # fmt: skip
    replies = await side_by_side(*(asker.reply(TRANSLATE, one) for one in rows))
    if failure := next((reply.failure for reply in replies if reply.failure is not None), None):
        return {"failure": failure, "texts": [], "flags": [], "by": ""}
    translated = [text for reply in replies for text in reply.value["texts"]]
    flags = [lost(text, row["language"], other, into) for text, other in zip(texts, translated, strict=True)]
    return {"failure": None, "texts": translated, "flags": flags, "by": replies[0].annotator}


@step("items", unit="instructions", final=True, label="keep rubrics")
def keep_rubrics(
    stage: Stage, config: InstructionRubrics, negatives: WrongInstructions, written: Walked
) -> Done[Rows[RubricRow]]:
    """Account for items, labels, rationales and translations; keep instructions with all their parts."""
    instructions, clips = read_rows(negatives.instructions), read_rows(negatives.negatives)
    references = references_of(config, stage.store)
    rubrics: list[Any] = [{**instructions[at], **_without_repeats(end, references)} for at, end in written.results()]
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


def _without_repeats(end: Row, references: References | None) -> Row:
    """Mark translations nearly repeating the config's references as failed."""
    if references is None:
        return end
    translations = {
        language: {"failure": ("decontaminated", fault)}
        if one["failure"] is None and (fault := references.fault_of(one["texts"][0]))
        else one
        for language, one in end["translations"].items()
    }
    return {**end, "translations": translations}


def _items_account(rubrics: list[RubricRow]) -> Account:
    removed = [
        (ITEMS.name, reject_of(row, verdict, f"{VERDICTS[verdict]} '{question[:80]}'"))
        for row in rubrics
        for verdict, question in row["removed"]
    ]
    whole = sum(row["items_by"] is None for row in rubrics)
    kept = sum(len(row["items"]) for row in rubrics) - whole
    notes = [f"{whole:,} instructions had no item left and are their single item"] if whole else []
    if twice := [row["stability"] for row in rubrics if row["stability"] is not None]:
        share = sum(twice) / len(twice)
        notes.append(
            f"{STABILITY} {len(twice):,} instructions were taken apart twice: {share:.0%} of the items of both draws "
            "match one of the other"
        )
    if denied := sum("direction" in item["flags"] for row in rubrics for item in row["items"]):
        notes.append(f"{denied:,} of {kept + whole:,} items are flagged: a second model denies them of what is asked")
    return Account(kept + len(removed), kept, removed, name="filter", unit="items", notes=notes)


def _label_accounts(rubrics: list[RubricRow], clips: list[NegativeRow]) -> Iterator[Account]:
    """Account for negatives, and for true instructions."""
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
    unknown = [
        (LABELS.name, reject_of(subject, "not_known", f"expected an item that can be told, found '{question[:80]}'"))
        for subject, one in ends
        for question in one.get("unknown", ())
    ]
    kept = sum(len(one["answers"]) for _, one in ends if one["failure"] is None)
    yield Account(kept + len(unknown), kept, unknown, name="known", unit="items of samples")


def _translation_account(rubrics: list[RubricRow], clips: list[NegativeRow]) -> Account:
    ends: list[tuple[RubricRow | NegativeRow, Translation]] = []
    ends += [(row, one) for row in rubrics for one in row["translations"].values()]
    for row in rubrics:
        for labelled in row["labelled"]:
            ends += [(_subject(row, labelled, clips), one) for one in labelled.get("translations", {}).values()]
    kept = [one for _, one in ends if one["failure"] is None]
    rejects = [(INSTRUCTIONS.name, reject_of(row, *one["failure"])) for row, one in ends if one["failure"] is not None]
    flagged, texts = sum(bool(flags) for one in kept for flags in one["flags"]), sum(len(one["texts"]) for one in kept)
    notes = [f"{flagged:,} of {texts:,} translated texts are flagged for what they may have lost"] if kept else []
    return Account(len(ends), len(kept), rejects, name="translate", unit="translations", notes=notes)


def _subject(rubric: RubricRow, labelled: Labelled, clips: list[NegativeRow]) -> RubricRow | NegativeRow:
    """Return the labelled row: a negative, or a true instruction."""
    return rubric if labelled["negative"] is None else clips[labelled["negative"]]
