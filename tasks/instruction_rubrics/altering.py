"""`instruction-rubrics`: negatives: another sample's instruction, one with a detail changed, or generated audio that
failed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import SAMPLES
from tasks.build.asking import Fault, ask_checked
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.asking import perturb_request, prompt_of
from tasks.instruction_rubrics.checks import perturbation_fault
from tasks.instruction_rubrics.deciding import partners
from tasks.instruction_rubrics.hearing import Sessions, counted, reject_of
from tasks.instruction_rubrics.records import Record, read_records, read_said, said, write_records, write_said
from tasks.instruction_rubrics.similarity import similarities
from tasks.store.manifest import Step
from tasks.store.staging import Stage


def instruction_id(source: str, domain: str, language: str, text: str) -> str:
    """Sixteen hexadecimal digits that name an instruction; as `heard.sql` has them.

    What two sources say in the same words are two instructions: one source may be held back, and the other not.
    """
    return hashlib.md5(f"{source}\n{domain}\n{language}\n{text.strip()}".encode()).hexdigest()[:16]


def plan_perturb(stage: Stage) -> None:
    """Leave `work/perturb.parquet`: positives whose negative is to be their own caption with a detail changed."""
    rows = read_records(stage, "verified")
    write_records(stage, "perturb", [row for row in rows if row["positive"] and row["role"] == "perturb"])


def perturb_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Have one detail of captions changed; an answer that changes more, or nothing, is asked again.

    Returns:
        How many captions the shard holds.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    jobs = read_records(stage, "perturb", shard)
    requests = [perturb_request(config.writer, job["domain"], job["language"], job["text"]) for job in jobs]

    def check(place: int, value: Any) -> Fault | None:
        return perturbation_fault(jobs[place]["text"], value)

    told = ask_checked(sessions["writer"], requests, check, config.writer.tries)
    rows = [
        said(job["at"], "perturb", 1, one, config.writer.annotator,
             prompt_of(f"perturb-{job['domain']}", job["language"]).id)
        for job, one in zip(jobs, told, strict=True)
    ]  # fmt: skip
    write_said(stage, "perturb", shard, rows)
    return len(jobs)


def plan_contest(stage: Stage, config: InstructionRubrics) -> Step:
    """Leave `work/contest.parquet`: every positive that needs a negative, with the instructions to try on its clip."""
    positives = [row for row in read_records(stage, "verified") if row["positive"]]
    wanting = [row for row in positives if row["role"] != "judged"]
    rejects: list[Reject] = []
    altered = _altered(stage, config, rejects)
    rings: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in sorted(positives, key=lambda row: (row["place"], row["row"])):
        rings[row["split"], row["subset"], row["source"]].append(row)
    places = {row["base"]: at for ring in rings.values() for at, row in enumerate(ring)}
    tried: set[tuple[str, str]] = set()  # a clip may have several captions; no question about it is asked twice
    jobs: list[Record] = []
    for row in wanting:
        if row["role"] == "perturb":
            found = [altered[row["base"]]] if row["base"] in altered else []
        else:
            ring = rings[row["split"], row["subset"], row["source"]]
            others = partners(ring, places[row["base"]], config.negatives.tries)
            found = [{"instruction_id": one["instruction_id"], "text": one["text"]} for one in others]
        candidates = [one for one in found if (row["clip_sha256"], one["instruction_id"]) not in tried]
        tried |= {(row["clip_sha256"], one["instruction_id"]) for one in candidates}
        if candidates:
            jobs.append({**row, "candidates": candidates})
        elif found or row["role"] == "swap":
            rejects.append(reject_of(row, "no_partner", "expected an instruction to try on this clip, found none"))
    jobs = _unlike(stage, config, jobs, rejects)
    write_records(stage, "contest", jobs)
    stage.write_rejects("alter", rejects_table("alter", [(SAMPLES.name, reject) for reject in rejects]))
    return stage.record(
        Step(
            name="alter",
            place=5,
            unit="positives that need a negative",
            stage="alter",
            entered=len(wanting),
            kept=len(jobs),
            rejected=counted(rejects),
        )
    )


def _unlike(stage: Stage, config: InstructionRubrics, jobs: list[Record], rejects: list[Reject]) -> list[Record]:
    """The jobs with how similar each instruction is to the clip; swapped ones that are too similar are not tried."""
    pairs = [(job, one["text"]) for job in jobs for one in job["candidates"]]
    cosines = iter(similarities(stage, config, pairs))
    most = config.similarity.most if config.similarity else None
    kept: list[Record] = []
    for job in jobs:
        measured = [{**one, "similarity": next(cosines)} for one in job["candidates"]]
        if most is not None and job["role"] == "swap":
            measured = [one for one in measured if one["similarity"] <= most]
        if measured:
            kept.append({**job, "candidates": measured})
        else:
            detail = f"expected an instruction of similarity {most:g} or less, found {len(job['candidates'])} above"
            rejects.append(reject_of(job, "partners_too_similar", detail))
    return kept


def _altered(stage: Stage, config: InstructionRubrics, rejects: list[Reject]) -> dict[int, Record]:
    """Changed captions by the caption that they were made of."""
    jobs = read_records(stage, "perturb")
    found: dict[int, Record] = {}
    for row in read_said(stage, "perturb", config.writer.most_failed):
        job = jobs[row["at"]]
        if row["reason"] is not None:
            rejects.append(reject_of(job, row["reason"], row["detail"]))
            continue
        value = row["value"]
        text = value["caption"].strip()
        found[job["base"]] = {
            "instruction_id": instruction_id(job["source"], job["domain"], job["language"], text),
            "text": text,
            "attribute": value["attribute"],
            "span_before": value["before"],
            "span_after": value["after"],
            "written_by": row["by"],
        }
    return found


def settle_negatives(stage: Stage, config: InstructionRubrics) -> Step:
    """Keep instructions that the judge says are wrong for the clip. Leaves `work/negatives.parquet`."""
    answers: dict[int, list[Record]] = defaultdict(list)
    for row in read_said(stage, "contest", config.judge.most_failed):
        answers[row["at"]].append(row)
    kept: list[Record] = []
    rejects: list[Reject] = []
    for job in read_records(stage, "contest"):
        last = answers[job["at"]][-1]
        if last["reason"] is not None:
            rejects.append(reject_of(job, last["reason"], last["detail"]))
        elif last["value"]["answer"] == "no":
            tried = len(answers[job["at"]])
            detail = f"expected an instruction that is wrong for the clip, found that {tried} fit it"
            rejects.append(reject_of(job, "fits_too" if job["role"] == "swap" else "mismatch_not_heard", detail))
        else:
            taken = job["candidates"][last["number"] - 1]
            kept.append(
                {**_facts(job), **taken, "kind": job["role"], "truth": job["text"], "truth_id": job["instruction_id"],
                 "verified_by": last["by"]}
            )  # fmt: skip
    stage.write_rejects("contest", rejects_table("contest", [(SAMPLES.name, reject) for reject in rejects]))
    judged = [
        {**_facts(row), "instruction_id": row["instruction_id"], "text": row["text"], "kind": "judged",
         "truth": " ".join(dict.fromkeys(row["evidence"])), "truth_id": None, "verified_by": row["verified_by"],
         "similarity": row["similarity"]}
        for row in read_records(stage, "verified")
        if not row["positive"]
    ]  # fmt: skip
    write_records(stage, "negatives", [*kept, *judged])
    return stage.record(
        Step(
            name="contest",
            place=6,
            unit="positives that need a negative",
            stage="contest",
            follows=("alter",),
            entered=len(kept) + len(rejects),
            kept=len(kept),
            rejected=counted(rejects),
            notes=(f"{len(judged):,} generated clips failed both passes: hard negatives",) if judged else (),
        )
    )


def _facts(row: Record) -> Record:
    """What a negative has of its clip's caption."""
    names = ("base", "item", "source", "source_file", "line", "split", "subset", "domain", "language", "place")
    return {name: row[name] for name in names}
