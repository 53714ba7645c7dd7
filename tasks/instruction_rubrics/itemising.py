"""`instruction-rubrics`: instructions taken apart into items, each once, for all the clips that are judged by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import ITEMS
from tasks.annotation.outcome import Answer
from tasks.build.asking import Fault, ask_checked
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.asking import decompose_request, filter_request, prompt_of
from tasks.instruction_rubrics.checks import items_fault, numbers_fault
from tasks.instruction_rubrics.hearing import Sessions, counted, reject_of
from tasks.instruction_rubrics.records import Record, read_records, read_said, said, write_records, write_said
from tasks.store.manifest import Step
from tasks.store.staging import Stage

WHOLE = "instruction"
VERDICTS = {
    "unsupported": "expected an item that the instruction asks for, found",
    "redundant": "expected an item that no other says, found",
    "inaudible": "expected an item that can be heard, found",
}


def plan_items(stage: Stage) -> None:
    """Leave `work/decompose.parquet`: every instruction that a clip may be judged by, once."""
    found: dict[str, Record] = {}
    names = ("item", "source", "source_file", "line", "split", "domain", "language", "instruction_id", "text")
    for row in read_records(stage, "verified"):
        if row["positive"]:
            found.setdefault(row["instruction_id"], {**{name: row[name] for name in names}, "written_by": None})
    for row in read_records(stage, "negatives"):
        altered = {"altered_from": row["truth_id"]} if row["kind"] == "perturb" else {}
        made = {**{name: row[name] for name in names}, "written_by": row.get("written_by"), **altered}
        found.setdefault(row["instruction_id"], made)
    write_records(stage, "decompose", found.values())


def decompose_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Have instructions taken apart, and their items read once more.

    Returns:
        How many instructions the shard holds.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    jobs = read_records(stage, "decompose", shard)
    writer, session = config.writer, sessions["writer"]

    def check_items(place: int, value: Any) -> Fault | None:
        return items_fault(jobs[place]["text"], value["items"])

    requests = [decompose_request(writer, job["language"], job["text"]) for job in jobs]
    told = ask_checked(session, requests, check_items, writer.tries)
    rows = [
        said(job["at"], "decompose", 1, one, writer.annotator, prompt_of("decompose", job["language"]).id)
        for job, one in zip(jobs, told, strict=True)
    ]
    listed = [
        (job, numbered(one.outcome.value["items"]))
        for job, one in zip(jobs, told, strict=True)
        if one.failure is None and isinstance(one.outcome, Answer)
    ]

    def check_verdicts(place: int, value: Any) -> Fault | None:
        return numbers_fault(len(listed[place][1]), value["items"])

    requests = [filter_request(writer, job["language"], job["text"], items) for job, items in listed]
    read = ask_checked(session, requests, check_verdicts, writer.tries)
    rows += [
        said(job["at"], "filter", 1, one, writer.annotator, prompt_of("filter", job["language"]).id)
        for (job, _), one in zip(listed, read, strict=True)
    ]
    write_said(stage, "decompose", shard, rows)
    return len(jobs)


def numbered(items: list[Mapping[str, Any]]) -> list[Record]:
    """Items with numbers from 1, as prompts show them."""
    return [
        {"id": number, "question": item["question"], "basis": item["basis"]} for number, item in enumerate(items, 1)
    ]


def settle_items(stage: Stage, config: InstructionRubrics) -> None:
    """Keep the items that can stand; without any, the instruction is its single item. Leaves
    `work/instructions.parquet`: instructions with their items."""
    answers: dict[int, dict[str, Record]] = defaultdict(dict)
    for row in read_said(stage, "decompose", config.writer.most_failed):
        answers[row["at"]][row["ask"]] = row
    kept: list[Record] = []
    lost: list[Reject] = []
    removed: list[Reject] = []
    whole = items_kept = 0
    for job in read_records(stage, "decompose"):
        failed = next((row for row in answers[job["at"]].values() if row["reason"] is not None), None)
        if failed is not None:
            lost.append(reject_of(job, failed["reason"], f"{failed['ask']}: {failed['detail']}"))
            continue
        listed = answers[job["at"]]["decompose"]["value"]["items"]
        verdicts = answers[job["at"]]["filter"]["value"]["items"]
        left = [item for item, read in zip(listed, verdicts, strict=True) if read["verdict"] == "keep"]
        removed += [
            reject_of(job, read["verdict"], f"{VERDICTS[read['verdict']]} '{item['question'][:80]}'")
            for item, read in zip(listed, verdicts, strict=True)
            if read["verdict"] != "keep"
        ]
        items_kept += len(left)
        whole += not left
        by = answers[job["at"]]["decompose"]["by"] if left else None
        items = left or [{"dimension": WHOLE, "question": job["text"], "basis": job["text"]}]
        kept.append({**job, "items": items, "items_by": by})
    write_records(stage, "instructions", kept)
    stage.write_rejects("items", rejects_table("items", [(ITEMS.name, reject) for reject in lost]))
    stage.write_rejects("filter", rejects_table("filter", [(ITEMS.name, reject) for reject in removed]))
    stage.record(
        Step(
            name="filter",
            place=8,
            unit="items",
            stage="filter",
            entered=items_kept + len(removed),
            kept=items_kept,
            rejected=counted(removed),
            notes=(f"{whole:,} instructions had no item left and are their single item",) if whole else (),
        )
    )
    stage.record(
        Step(
            name="items",
            place=7,
            unit="instructions",
            stage="items",
            entered=len(kept) + len(lost),
            kept=len(kept),
            rejected=counted(lost),
        )
    )
