"""`instruction-rubrics`: instructions, their items and rationales in the other language; what that may have lost."""

from __future__ import annotations

from typing import Any

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import INSTRUCTIONS
from tasks.build.asking import Fault, ask_checked
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.asking import others, prompt_named, translate_request
from tasks.instruction_rubrics.checks import lost, translation_fault
from tasks.instruction_rubrics.hearing import Sessions, counted, reject_of
from tasks.instruction_rubrics.records import Record, read_records, read_said, said, write_records, write_said
from tasks.store.manifest import Step
from tasks.store.staging import Stage


def plan_translation(stage: Stage, config: InstructionRubrics) -> None:
    """Leave `work/translate.parquet`: an instruction with its items is a request, a sample's rationales another."""
    jobs: list[Record] = []
    labelled = read_records(stage, "labelled")
    needed = {row["instruction_id"] for row in labelled}
    for row in read_records(stage, "instructions"):
        if row["instruction_id"] in needed:
            texts = [row["text"], *(item["question"] for item in row["items"])]
            jobs += [_job(row, "instruction", texts, into) for into in others(config, row["language"])]
    for number, row in enumerate(labelled):
        texts = [answer["rationale"] for answer in row["answers"]]
        jobs += [{**_job(row, "answers", texts, into), "labelled": number} for into in others(config, row["language"])]
    write_records(stage, "translate", jobs)


def _job(row: Record, part: str, texts: list[str], into: str) -> Record:
    names = ("item", "source_file", "line", "instruction_id", "language")
    return {**{name: row[name] for name in names}, "part": part, "texts": texts, "into": into}


def translate_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Have texts translated; an answer of another number of texts, or in another language, is asked again.

    Returns:
        How many requests the shard holds.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    jobs = read_records(stage, "translate", shard)
    translator = config.translator or config.writer

    def check(place: int, value: Any) -> Fault | None:
        return translation_fault(jobs[place]["texts"], jobs[place]["into"], value["texts"])

    requests = [translate_request(translator, job["into"], job["texts"]) for job in jobs]
    told = ask_checked(sessions["translator"], requests, check, translator.tries)
    rows = [
        said(job["at"], "translate", 1, one, translator.annotator, prompt_named(f"translate-{job['into']}").id)
        for job, one in zip(jobs, told, strict=True)
    ]
    write_said(stage, "translate", shard, rows)
    return len(jobs)


def settle_translation(stage: Stage, config: InstructionRubrics) -> Step:
    """Keep translations with what a back-check holds against each text. Leaves `work/translated.parquet`."""
    translator = config.translator or config.writer
    jobs = read_records(stage, "translate")
    kept: list[Record] = []
    rejects: list[Reject] = []
    flagged = 0
    for row in read_said(stage, "translate", translator.most_failed):
        job = jobs[row["at"]]
        if row["reason"] is not None:
            rejects.append(reject_of(job, row["reason"], row["detail"]))
            continue
        texts = row["value"]["texts"]
        flags = [
            lost(text, job["language"], other, job["into"]) for text, other in zip(job["texts"], texts, strict=True)
        ]
        flagged += sum(map(bool, flags))
        kept.append({**job, "translated": texts, "flags": flags, "by": row["by"]})
    write_records(stage, "translated", kept)
    stage.write_rejects("translate", rejects_table("translate", [(INSTRUCTIONS.name, reject) for reject in rejects]))
    texts_in_all = sum(len(row["texts"]) for row in kept)
    notes = (f"{flagged:,} of {texts_in_all:,} translated texts are flagged for what they may have lost",)
    return stage.record(
        Step(
            name="translate",
            place=12,
            unit="translations",
            stage="translate",
            entered=len(kept) + len(rejects),
            kept=len(kept),
            rejected=counted(rejects),
            notes=notes if kept else (),
        )
    )
