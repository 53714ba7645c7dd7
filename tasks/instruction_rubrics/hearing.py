"""`instruction-rubrics`: steps in which the judge hears: whether captions fit their clips, whether others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from schemas.instruction_rubrics import InstructionRubrics
from schemas.rubric_tables import SAMPLES
from tasks.annotation.outcome import Answer
from tasks.annotation.session import Session
from tasks.build.asking import Checked, asking, clip_media
from tasks.build.rejects import rejects_table
from tasks.importers.rows import Reject
from tasks.instruction_rubrics.asking import heard_request, prompt_of
from tasks.instruction_rubrics.deciding import overlap, verdict
from tasks.instruction_rubrics.records import Record, Said, read_records, read_said, said, write_records, write_said
from tasks.instruction_rubrics.similarity import similarities
from tasks.store.manifest import Step
from tasks.store.staging import Stage
from tasks.store.versions import Store

Sessions: TypeAlias = Mapping[str, Session]


@contextmanager
def sessions_of(store: Store, config: InstructionRubrics) -> Iterator[Sessions]:
    """A session a role; roles that the config leaves to the writer share the writer's, its pace and its budget."""
    media = clip_media()
    with ExitStack() as stack:
        judge = stack.enter_context(asking(store, config.judge, media))
        writer = stack.enter_context(asking(store, config.writer, media))
        labeller = stack.enter_context(asking(store, config.labeller, media)) if config.labeller else writer
        translator = stack.enter_context(asking(store, config.translator, media)) if config.translator else writer
        yield {"judge": judge, "writer": writer, "labeller": labeller, "translator": translator}


def read_bases(stage: Stage) -> list[Record]:
    """The captions that were taken."""
    rows: list[Record] = pq.ParquetFile(stage.work / "bases.parquet").read().to_pylist()
    return rows


def plan_verify(stage: Stage, config: InstructionRubrics) -> None:
    """Leave `work/verify.parquet`: each caption with its clip and how similar they are."""
    bases = read_bases(stage)
    cosines = similarities(stage, config, [(row, row["text"]) for row in bases])
    write_records(stage, "verify", [{**row, "similarity": one} for row, one in zip(bases, cosines, strict=True)])


def verify_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Ask whether captions fit their clips: once of real audio, twice of generated audio.

    Returns:
        How many captions the shard holds.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    jobs = read_records(stage, "verify", shard)
    asked = [(job, number) for job in jobs for number in ((1, 2) if job["generated"] else (1,))]
    requests = [heard_request(config.judge, "verify", job, job["text"], again=number == 2) for job, number in asked]
    outcomes = sessions["judge"].ask(requests).outcomes
    rows = [
        said(job["at"], "verify", number, Checked(outcome, 0), config.judge.annotator, _verify_prompt(job))
        for (job, number), outcome in zip(asked, outcomes, strict=True)
    ]
    write_said(stage, "verify", shard, rows)
    return len(jobs)


def _verify_prompt(job: Record) -> str:
    return prompt_of("verify", job["language"]).id


def settle_verified(stage: Stage, config: InstructionRubrics) -> Step:
    """Tell positives, hard negatives and rejects apart. Leaves `work/verified.parquet`."""
    answers: dict[int, list[Record]] = defaultdict(list)
    for row in read_said(stage, "verify", config.judge.most_failed):
        answers[row["at"]].append(row)
    kept: list[Record] = []
    rejects: list[Reject] = []
    twice: list[tuple[bool, bool]] = []
    least = config.similarity.least if config.similarity else None
    for base in read_records(stage, "verify"):
        held = sorted(answers[base["at"]], key=lambda row: row["number"])
        failed = next((row for row in held if row["reason"] is not None), None)
        if failed is not None:
            rejects.append(reject_of(base, failed["reason"], failed["detail"]))
            continue
        passes = [row["value"]["answer"] == "yes" for row in held]
        if len(passes) == 2:
            twice.append((not passes[0], not passes[1]))
        positive, fault = verdict(passes, base["similarity"], least)
        if fault is not None:
            rejects.append(reject_of(base, *fault))
            continue
        heard = [row["value"]["evidence"] for row in held]
        kept.append({**base, "positive": positive, "evidence": heard, "verified_by": held[0]["by"]})
    write_records(stage, "verified", kept)
    stage.write_rejects("verify", rejects_table("verify", [(SAMPLES.name, reject) for reject in rejects]))
    both, either = overlap(twice)
    notes = [f"{sum(row['positive'] for row in kept):,} captions fit their clips"]
    if twice:
        share = f"{both / either:.0%}" if either else "none"
        notes.append(
            f"of {len(twice):,} generated clips judged twice, {either:,} failed a pass, {both:,} of these both: "
            f"an overlap of {share}"
        )
    return stage.record(
        Step(
            name="verify",
            place=4,
            unit="captions",
            stage="verify",
            follows=("choose",),
            entered=len(kept) + len(rejects),
            kept=len(kept),
            rejected=counted(rejects),
            notes=tuple(notes),
        )
    )


def contest_shard(stage: Stage, config: InstructionRubrics, sessions: Sessions, shard: int) -> int:
    """Ask whether altered or swapped instructions are wrong for the clip, one after the other until one is.

    Returns:
        How many clips the shard holds.

    Raises:
        StopRun: as `verify_shard`.
    """
    jobs = read_records(stage, "contest", shard)
    rows: list[Said] = []
    open_ = [job for job in jobs if job["candidates"]]
    for number in range(max((len(job["candidates"]) for job in open_), default=0)):
        requests = [heard_request(config.judge, "mismatch", job, job["candidates"][number]["text"]) for job in open_]
        outcomes = sessions["judge"].ask(requests).outcomes
        told = [
            said(job["at"], "mismatch", number + 1, Checked(outcome, 0), config.judge.annotator,
                 prompt_of("mismatch", job["language"]).id)
            for job, outcome in zip(open_, outcomes, strict=True)
        ]  # fmt: skip
        rows += told
        fits = [isinstance(outcome, Answer) and outcome.value["answer"] == "no" for outcome in outcomes]
        open_ = [job for job, fit in zip(open_, fits, strict=True) if fit and number + 1 < len(job["candidates"])]
    write_said(stage, "contest", shard, rows)
    return len(jobs)


def reject_of(row: Mapping[str, Any], reason: str, detail: str) -> Reject:
    """A reject that leads to the line that a row came from."""
    return Reject(row["item"], reason, detail, row["source_file"], row["line"])


def counted(rejects: Sequence[Reject]) -> dict[str, int]:
    """Rejects by reason."""
    counts: dict[str, int] = defaultdict(int)
    for reject in rejects:
        counts[reject.reason] += 1
    return dict(sorted(counts.items()))
