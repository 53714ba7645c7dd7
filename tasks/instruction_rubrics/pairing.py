"""`instruction-rubrics`: positives and negatives that have all they need, one to one, bench and corpus apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import SAMPLES
from tasks.build.rejects import rejects_table
from tasks.instruction_rubrics.asking import others
from tasks.instruction_rubrics.deciding import choose_pairs
from tasks.instruction_rubrics.hearing import counted, reject_of
from tasks.instruction_rubrics.records import Record, read_records
from tasks.store.manifest import Step
from tasks.store.staging import Stage
from tasks.text.near_texts import near_any


class Parts(NamedTuple):
    """What samples are put together from.

    Attributes:
        instructions: with their items, by id.
        labels: of negatives, by the caption that their clip was taken with and the instruction.
        rationales: of true instructions, by id.
        instruction_texts: translated instruction and questions, by id and language.
        answer_texts: translated rationales, by the place among the labelled and language.
    """

    instructions: dict[str, Record]
    labels: dict[tuple[int, str], Record]
    rationales: dict[str, Record]
    instruction_texts: dict[tuple[str, str], Record]
    answer_texts: dict[tuple[int, str], Record]


def read_parts(stage: Stage) -> Parts:
    """All that was written about instructions and samples."""
    labelled = read_records(stage, "labelled")
    translated = read_records(stage, "translated")
    return Parts(
        {row["instruction_id"]: row for row in read_records(stage, "instructions")},
        {(row["base"], row["instruction_id"]): row for row in labelled if row["ask"] == "labels"},
        {row["instruction_id"]: row for row in labelled if row["ask"] == "rationales"},
        {(row["instruction_id"], row["into"]): row for row in translated if row["part"] == "instruction"},
        {(row["labelled"], row["into"]): row for row in translated if row["part"] == "answers"},
    )


def choose(stage: Stage, config: InstructionRubrics, parts: Parts) -> list[tuple[Record, Record]]:
    """The pairs that are published: a positive and a negative each, both with their `labelled` record.

    Records the steps `pairs` and `judged`.
    """
    positives = [row for row in read_records(stage, "verified") if row["positive"]]
    whole = [
        {**row, "labelled": parts.rationales[row["instruction_id"]]}
        for row in positives
        if _is_whole(parts.rationales.get(row["instruction_id"]), parts, config)
    ]
    negatives = [
        {**row, "labelled": parts.labels[row["base"], row["instruction_id"]]}
        for row in read_records(stage, "negatives")
        if _is_whole(parts.labels.get((row["base"], row["instruction_id"])), parts, config)
    ]
    near = _near_bench([*whole, *negatives], config)
    by_base = {row["base"]: row for row in negatives if row["kind"] != "judged"}
    rejects = [
        reject_of(row, "near_bench", f"expected a caption apart from the bench, found nearly instruction {near[key]}")
        for row in whole
        if (key := _near_key(row, by_base, near)) is not None
    ]
    pools: dict[tuple[str, str], tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
    for row in sorted(whole, key=lambda row: (row["place"], row["base"])):
        if _near_key(row, by_base, near) is None:
            pools[row["split"], row["subset"]][0].append({**row, "negative": by_base.get(row["base"])})
    judged = [row for row in negatives if row["kind"] == "judged" and row["instruction_id"] not in near]
    for row in sorted(judged, key=lambda row: (row["place"], row["base"])):
        pools[row["split"], row["subset"]][1].append(row)
    pairs: list[tuple[Record, Record]] = []
    short: list[str] = []
    for (split, subset), (ones, others_) in sorted(pools.items()):
        count = config.counts.get(split, {}).get(subset)  # type: ignore[call-overload]
        taken = choose_pairs(ones, others_, count, config.negatives.weights)
        pairs += [(dict(one), dict(other)) for one, other in taken]
        if count is not None and 2 * len(taken) < count:
            short.append(
                f"{split} {subset}: {2 * len(taken):,} of {count:,} samples; more captions or `spare` are needed"
            )
    stage.write_rejects("pairs", rejects_table("pairs", [(SAMPLES.name, reject) for reject in rejects]))
    _record(stage, len(positives), len(whole), pools, rejects=counted(rejects), pairs=pairs, short=short)
    return pairs


def _record(
    stage: Stage,
    entered: int,
    whole: int,
    pools: Mapping[tuple[str, str], tuple[list[Record], list[Record]]],
    *,
    rejects: dict[str, int],
    pairs: list[tuple[Record, Record]],
    short: list[str],
) -> None:
    alone = sum(row["negative"] is None and row["role"] != "judged" for ones, _ in pools.values() for row in ones)
    beyond = whole - sum(rejects.values()) - alone - len(pairs)
    dropped = {
        "without items, rationales or translation": entered - whole,
        "without a negative": alone,
        "beyond the counts or the shares": beyond,
    }
    kinds = Counter(negative["kind"] for _, negative in pairs)
    told = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))
    stage.record(
        Step(
            name="pairs",
            place=13,
            unit="positives",
            stage="pairs",
            entered=entered,
            kept=len(pairs),
            rejected=rejects,
            dropped={reason: count for reason, count in dropped.items() if count},
            notes=(*([f"negatives: {told}"] if told else []), *short),
        )
    )
    judged = sum(len(others_) for _, others_ in pools.values())
    stage.record(
        Step(
            name="judged",
            place=13,
            unit="hard negatives of generated audio",
            entered=judged,
            kept=kinds["judged"],
            dropped={"beyond the counts or the shares": judged - kinds["judged"]} if judged > kinds["judged"] else {},
        )
    )


def _is_whole(row: Record | None, parts: Parts, config: InstructionRubrics) -> bool:
    """Whether a labelled record, and its instruction, are there in all languages."""
    if row is None or row["instruction_id"] not in parts.instructions:
        return False
    return all(
        (row["instruction_id"], into) in parts.instruction_texts and (row["at"], into) in parts.answer_texts
        for into in others(config, row["language"])
    )


def _near_bench(rows: list[Record], config: InstructionRubrics) -> dict[str, str]:
    """Instructions of the corpus that nearly repeat one of the bench: id → the bench's id."""
    texts: dict[str, dict[str, str]] = {"test": {}, "train": {}}
    for row in rows:
        texts[row["split"]][row["instruction_id"]] = row["text"]
    bench = list(texts["test"])
    found = near_any(list(texts["train"].values()), list(texts["test"].values()), config.disjoint.captions)
    return {name: bench[at] for name, at in zip(texts["train"], found, strict=True) if at is not None}


def _near_key(row: Record, by_base: Mapping[int, Record], near: Mapping[str, str]) -> str | None:
    """The instruction of a pair that is too near to the bench, if there is one."""
    negative = by_base.get(row["base"])
    keys = [row["instruction_id"], *([negative["instruction_id"]] if negative else [])]
    return next((key for key in keys if row["split"] == "train" and key in near), None)
