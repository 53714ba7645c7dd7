"""`instruction-rubrics`: an answer and a rationale for each item: of negatives from what is true, of positives yes."""

from __future__ import annotations

from typing import Any

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import LABELS
from tasks.build.asking import Fault, ask_checked
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.asking import labels_request, prompt_of, rationales_request
from tasks.instruction_rubrics.checks import numbers_fault
from tasks.instruction_rubrics.hearing import Sessions, counted, reject_of
from tasks.instruction_rubrics.itemising import numbered
from tasks.instruction_rubrics.records import Record, read_records, read_said, said, write_records, write_said
from tasks.store.manifest import Step
from tasks.store.staging import Stage


def plan_labels(stage: Stage) -> Step:
    """Leave `work/label.parquet`: negatives with the items of their instruction, and instructions that are true."""
    instructions = {row["instruction_id"]: row for row in read_records(stage, "instructions")}
    jobs: list[Record] = []
    lost: list[Reject] = []
    negatives = read_records(stage, "negatives")
    for row in negatives:
        if row["instruction_id"] in instructions:
            jobs.append({**row, "ask": "labels", "items": instructions[row["instruction_id"]]["items"]})
        else:
            lost.append(reject_of(row, "no_items", "expected items of its instruction, found none"))
    true = {row["instruction_id"] for row in read_records(stage, "verified") if row["positive"]}
    jobs += [{**row, "ask": "rationales"} for row in instructions.values() if row["instruction_id"] in true]
    write_records(stage, "label", jobs)
    stage.write_rejects("ready", rejects_table("ready", [(LABELS.name, reject) for reject in lost]))
    return stage.record(
        Step(
            name="ready",
            place=9,
            unit="negatives",
            stage="ready",
            entered=len(negatives),
            kept=len(negatives) - len(lost),
            rejected=counted(lost),
        )
    )


def label_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Have the items of negatives answered and those of true instructions given a rationale.

    Returns:
        How many of both the shard holds.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    jobs = read_records(stage, "label", shard)
    reader = config.labeller or config.writer

    def check(place: int, value: Any) -> Fault | None:
        return numbers_fault(len(jobs[place]["items"]), value["items"])

    requests = [
        labels_request(reader, job["language"], job["truth"], job["text"], numbered(job["items"]))
        if job["ask"] == "labels"
        else rationales_request(reader, job["language"], job["text"], numbered(job["items"]))
        for job in jobs
    ]
    told = ask_checked(sessions["labeller"], requests, check, reader.tries)
    rows = [
        said(job["at"], job["ask"], 1, one, reader.annotator, prompt_of(job["ask"], job["language"]).id)
        for job, one in zip(jobs, told, strict=True)
    ]
    write_said(stage, "label", shard, rows)
    return len(jobs)


def settle_labels(stage: Stage, config: InstructionRubrics) -> None:
    """A negative whose items all came out yes is a reject: its contradiction was not found. Leaves
    `work/labelled.parquet`: answers and rationales of negatives (`labels`) and of true instructions (`rationales`)."""
    reader = config.labeller or config.writer
    jobs = read_records(stage, "label")
    kept: list[Record] = []
    lost: dict[str, list[Reject]] = {"labels": [], "rationales": []}
    for row in read_said(stage, "label", reader.most_failed):
        job = jobs[row["at"]]
        if row["reason"] is not None:
            lost[row["ask"]].append(reject_of(job, row["reason"], row["detail"]))
            continue
        answers = [
            {"answer": one.get("answer", "yes") == "yes", "rationale": one["rationale"]}
            for one in row["value"]["items"]
        ]
        if row["ask"] == "labels" and all(one["answer"] for one in answers):
            detail = f"expected an item that is not met, found all {len(answers)} answered yes"
            lost["labels"].append(reject_of(job, "contradiction_not_found", detail))
            continue
        kept.append({**job, "answers": answers, "by": row["by"], "prompt": row["prompt"], "key": row["request_key"]})
    write_records(stage, "labelled", kept)
    for name, unit, place, follows in (
        ("labels", "negatives", 10, ("ready",)),
        ("rationales", "true instructions", 11, ()),
    ):
        rejects = lost[name]
        stage.write_rejects(name, rejects_table(name, [(LABELS.name, reject) for reject in rejects]))
        count = sum(row["ask"] == name for row in kept)
        stage.record(
            Step(
                name=name,
                place=place,
                unit=unit,
                stage=name,
                follows=follows,
                entered=count + len(rejects),
                kept=count,
                rejected=counted(rejects),
            )
        )
