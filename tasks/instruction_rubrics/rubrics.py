"""Write rubrics: decompose instructions into items, label these for each clip, translate."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics, Language
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import INSTRUCTIONS, ITEMS, LABELS
from earmark.schemas.tables import Table
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
from earmark.tasks.instruction_rubrics.decomposing import AT_ONCE, ask_in_parts, items_in, look_again, split, wording_of
from earmark.tasks.instruction_rubrics.items import take_apart, with_completeness
from earmark.tasks.instruction_rubrics.negatives import WrongInstructions
from earmark.tasks.instruction_rubrics.rows import (
    InstructionRow,
    ItemAnswer,
    ItemRow,
    Labelled,
    NegativeRow,
    RubricQuestion,
    RubricRow,
    Translation,
)
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.ask import Ask, Asker, Row, side_by_side
from earmark.tasks.pipeline.references import References, references_of
from earmark.tasks.pipeline.rows import Rows, each_row, keep_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, WalkLoss, walk
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
    wording = wording_of(asker.config, instruction["domain"])
    about: Row = {**instruction, "instruction": instruction["text"], "wording": wording}
    parts = await take_apart(asker, about)
    kept = [] if parts.whole else parts.items
    checked, stability = await look_again(asker, about, kept, parts.listed)
    items: list[ItemRow] = checked or [{**item, "flags": []} for item in parts.items]
    if instruction.get("complete"):
        items = with_completeness(items, instruction)
    labelled = await side_by_side(
        *(_label(asker, about | negative, items) for negative in instruction["negatives"]),
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
        "translations": await _translate(asker, about | {"part": "instruction"}, texts) if used else {},
    }


async def _reasons(asker: Asker[InstructionRubrics], row: RubricQuestion, items: list[ItemRow]) -> Labelled:
    """Return the reasons for the items of a true instruction."""
    answers, failure = await _answered(asker, RATIONALES, row, items, range(1, len(items) + 1))
    return await _labelled(asker, row, answers, []) if failure is None else _unlabelled(None, failure)


async def _label(asker: Asker[InstructionRubrics], row: RubricQuestion, items: list[ItemRow]) -> Labelled:
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
    row: RubricQuestion,
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
        for number, one in zip(part, items_in(reply.value), strict=True)
        if one.get("answer") != "unknown"
    ], None  # fmt: skip


async def _labelled(
    asker: Asker[InstructionRubrics], row: RubricQuestion, answers: list[ItemAnswer], unknown: list[str]
) -> Labelled:
    """Return labels with their rationales in all languages, and the undecided items."""
    translations = await _translate(asker, {**row, "part": "answers"}, [one["rationale"] for one in answers])
    return {"negative": row.get("negative"), "failure": None, "unknown": unknown, "answers": answers,
            "translations": translations}  # fmt: skip


def _unlabelled(negative: int | None, failure: tuple[str, str]) -> Labelled:
    return {"negative": negative, "failure": failure, "answers": [], "translations": {}}


async def _translate(asker: Asker[InstructionRubrics], row: RubricQuestion, texts: list[str]) -> dict[str, Translation]:
    """Translate texts into each other language, with the flags of a back-check; or return the failure."""
    languages = others(asker.config, row["language"])
    ends = await side_by_side(*(_translate_into(asker, row, texts, into) for into in languages))
    return dict(zip(languages, ends, strict=True))


async def _translate_into(
    asker: Asker[InstructionRubrics], row: RubricQuestion, texts: list[str], into: Language
) -> Translation:
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
    references, counts = references_of(config, stage.store), RubricCounts()
    whole = (counts.add(row | _without_repeats(end, references)) for row, end in written.kept())
    rubrics = keep_rows(stage, "rubrics", whole)
    rejects, without = [], set[int]()
    lost: Iterator[tuple[InstructionRow, WalkLoss]] = written.lost()
    for row, end in lost:
        rejects.append((ITEMS.name, reject_of(row, end["reason"], f"{end['stage']}: {end['detail']}")))
        without |= {one["negative"] for one in row["negatives"]}
    counts.losses["ready"] += [
        (number, "no_items", "expected items of its instruction, found none") for number in sorted(without)
    ]
    account = Account(written.source.total, rubrics.total, rejects)
    return Done(rubrics, account, *counts.accounts(negatives.negatives))


def _without_repeats(end: RubricRow, references: References | None) -> Row:
    """Mark translations nearly repeating the config's references as failed."""
    if references is None:
        return end
    translations: dict[str, Any] = {
        language: {"failure": ("decontaminated", fault)}
        if one["failure"] is None and (fault := references.fault_of(one["texts"][0]))
        else one
        for language, one in end["translations"].items()
    }
    return {**end, "translations": translations}


@dataclass
class RubricCounts:
    """Counts and losses of rubrics that go by one at a time."""

    of: Counter[str] = field(default_factory=Counter)
    stability: list[float] = field(default_factory=list)
    # by account: rejects; or the numbers of negatives, each with reason and detail
    losses: dict[str, list[Reject | tuple[int, str, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, row: RubricRow) -> RubricRow:
        """Count a rubric's parts; return it."""
        items = row["items"]
        self.of.update(negatives=len(row["negatives"]), true=row["true"], items=len(items))
        self.of.update(whole=row["items_by"] is None, denied=sum("direction" in item["flags"] for item in items))
        self.stability += [] if row["stability"] is None else [row["stability"]]
        for verdict, question in row["removed"]:
            self._lose("filter", row, None, (verdict, f"{VERDICTS[verdict]} '{question[:80]}'"))
        for into in row["translations"].values():
            self._add_translation("translate", row, None, into)
        for one in row["labelled"]:
            negative = one["negative"]
            if one["failure"] is None:
                self.of.update({"rationales" if negative is None else "labels": 1, "known": len(one["answers"])})
            else:
                self._lose("rationales" if negative is None else "labels", row, negative, one["failure"])
            for question in one.get("unknown", ()):
                detail = f"expected an item that can be told, found '{question[:80]}'"
                self._lose("known", row, negative, ("not_known", detail))
            for into in one["translations"].values():
                self._add_translation("translate answers", row, negative, into)
        return row

    def _add_translation(self, name: str, row: RubricRow, negative: int | None, into: Translation) -> None:
        if into["failure"] is None:
            self.of.update(translate=1, texts=len(into["texts"]), flagged=sum(map(bool, into["flags"])))
        else:
            self._lose(name, row, negative, into["failure"])

    def _lose(self, name: str, row: RubricRow, negative: int | None, why: tuple[str, str]) -> None:
        self.losses[name].append(reject_of(row, *why) if negative is None else (negative, *why))

    def accounts(self, negatives: Rows[NegativeRow]) -> Iterator[Account]:
        """Yield the accounts of items, negatives, true instructions, answers and translations."""
        of, numbers = self.of, {one[0] for each in self.losses.values() for one in each if not isinstance(one, Reject)}
        lost = {at: row for at, row in enumerate(each_row(negatives)) if at in numbers} if numbers else {}

        def account(table: Table, name: str, unit: str, kept: int, entered: int | None = None, **more: Any) -> Account:
            losses = [*self.losses[name], *self.losses[f"{name} answers"]]
            found = (one if isinstance(one, Reject) else reject_of(lost[one[0]], *one[1:]) for one in losses)
            rejects = [(table.name, one) for one in found]
            entered = kept + len(rejects) if entered is None else entered
            return Account(entered, kept, rejects, name=name, unit=unit, **more)

        notes = [f"{of['whole']:,} instructions had no item left and are their single item"] if of["whole"] else []
        if twice := self.stability:
            notes.append(
                f"{STABILITY} {len(twice):,} instructions were taken apart twice: {sum(twice) / len(twice):.0%} of the "
                "items of both draws match one of the other"
            )
        if denied := of["denied"]:
            notes.append(
                f"{denied:,} of {of['items']:,} items are flagged: a second model denies them of what is asked"
            )
        yield account(ITEMS, "filter", "items", of["items"] - of["whole"], notes=notes)
        yield account(LABELS, "ready", "negatives", of["negatives"], negatives.total)
        yield account(LABELS, "labels", "negatives", of["labels"], of["negatives"], follows="ready")
        yield account(LABELS, "rationales", "true instructions", of["rationales"], of["true"])
        yield account(LABELS, "known", "items of samples", of["known"])
        flagged = f"{of['flagged']:,} of {of['texts']:,} translated texts are flagged for what they may have lost"
        notes = [flagged] if of["translate"] else []
        yield account(INSTRUCTIONS, "translate", "translations", of["translate"], notes=notes)
