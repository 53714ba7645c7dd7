"""Verify captions against their clips, and change those needed as negatives as soon as they fit."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, PERTURB, VERIFY
from earmark.tasks.instruction_rubrics.attributes import offered
from earmark.tasks.instruction_rubrics.deciding import kind_of, lost_by_kind, verdict
from earmark.tasks.instruction_rubrics.items import take_apart
from earmark.tasks.instruction_rubrics.rows import CaptionRow, InstructionFacts, JudgeDraw, VerifiedCaption
from earmark.tasks.pipeline.ask import Asker, GivenUp, Row, side_by_side
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, WalkLoss, walk
from earmark.tasks.store.staging import Stage

HARD = "neg_gemini"  # generated audio that failed, in the authors' words


@walk(
    "captions",
    asks=[VERIFY, DECOMPOSE, FILTER, PERTURB],
    columns=[("pass", pa.int64()), ("part", pa.string())],
    label="verify captions",
)
async def verify_caption(asker: Asker[InstructionRubrics], caption: CaptionRow) -> dict[str, Any]:
    """Verify a caption by its source's rules: a listener is asked once about real audio, twice about generated audio. A
    fitting caption is decomposed ahead for its rubric; and if its negative is a changed copy, the change is made."""
    config, source = asker.config, caption["source"]
    by = config.verifiers(source, "positives")
    about: Row = {**caption, "instruction": caption["text"], "written_by": None}
    answers: list[dict[str, str]] = []
    if "audio" in by:
        passes = (1, 2) if config.judged(source) else (1,)
        answers = await side_by_side(*(asker(VERIFY, {**about, "pass": number}) for number in passes))
    least = config.bound(source, "least") if "similarity" in by else None
    positive, fault = verdict([one["answer"] == "yes" for one in answers], caption["similarity"], least)
    if fault is not None:
        raise GivenUp(VERIFY.name, *fault)
    end = {"positive": positive, "evidence": [one["evidence"] for one in answers]}
    if positive:
        ahead = asker.ahead(lambda scout: take_apart(scout, about))
        changed, _ = await asyncio.gather(_changed(asker, caption), ahead)
        end |= changed
    return end


async def _changed(asker: Asker[InstructionRubrics], caption: CaptionRow) -> Row:
    """Change a detail of a caption, or return the failure; return nothing for captions with another kind of
    negative."""
    if caption["role"] != "perturb":
        return {}
    base = f"{caption['clip_sha256']}\n{caption['instruction_id']}"
    full = asker.config.source(caption["source"]).full
    attributes = offered(asker.config.seed, base, caption["domain"], caption["language"], full=full)
    question = {**caption, "caption": caption["text"], "attributes": [one._asdict() for one in attributes]}
    change = await asker.reply(PERTURB, question)
    return {"changed": change.value, "failure": change.failure}


@step("verify", unit="captions", follows="choose", label="keep captions that fit")
def keep_verified(stage: Stage, config: InstructionRubrics, verified: Walked) -> Done[Rows[VerifiedCaption]]:
    """Keep positives, and hard negatives of generated audio; reject the rest.

    Returns:
        Captions with their decisions.
    """
    by = {source.name: config.verifiers(source.name, "positives") for source in config.sources}
    judges = {name: config.judge.annotator if "audio" in verifiers else None for name, verifiers in by.items()}
    ends = Counter[tuple[str, str, bool]]()  # subset, kind, and whether it was lost

    def decided() -> Iterator[VerifiedCaption]:
        for row, end in verified.kept():
            caption: VerifiedCaption = row | end
            verifiers = by[caption["source"]]
            ends[caption["subset"], kind_of(verifiers) if caption["positive"] else HARD, False] += 1
            yield {**caption, "verified": list(verifiers), "verified_by": judges[caption["source"]]}

    kept, rejects = keep_rows(stage, "verified", decided()), []
    notes = [f"{sum(count for (_, kind, _), count in ends.items() if kind != HARD):,} captions fit their clips"]
    losses: Iterator[tuple[CaptionRow, WalkLoss]] = verified.lost()
    for row, end in losses:
        rejects.append((SAMPLES.name, reject_of(row, end["reason"], end["detail"])))
        ends[row["subset"], kind_of(by[row["source"]]), True] += 1
        ends[row["subset"], HARD, True] += end["reason"] == "passes_disagree"
    notes += lost_by_kind(ends.elements())
    if twice := _failures(verified):
        both, either = sum(map(all, twice)), sum(map(any, twice))
        share = f"{both / either:.0%}" if either else "none"
        notes.append(
            f"of {len(twice):,} generated clips judged twice, {either:,} failed a pass, {both:,} of these both: "
            f"an overlap of {share}"
        )
    return Done(kept, Account(verified.source.total, kept.total, rejects, notes=notes))


def _failures(verified: Walked) -> list[tuple[bool, bool]]:
    """Return the failed passes of each generated clip judged twice."""
    failed: dict[int, dict[int, bool]] = defaultdict(dict)
    drawn: Iterator[tuple[CaptionRow, JudgeDraw]] = verified.drawn()
    for caption, draw in drawn:
        answered, value = draw["ask"] == VERIFY.name and draw["last"] and draw["reason"] is None, draw["value"]
        if answered and value is not None and caption["generated"]:
            failed[draw["at"]] |= {draw["pass"]: value["answer"] == "no"}
    return [(passes[1], passes[2]) for passes in failed.values() if len(passes) == 2]


def reject_of(row: InstructionFacts, reason: str, detail: str, near: str | None = None) -> Reject:
    """Return a reject with the source line of a row; `near` is another instruction involved."""
    things = (("clip", row.get("clip_sha256")), ("instruction", row.get("instruction_id")), ("instruction", near))
    named = tuple((kind, str(id_)) for kind, id_ in things if id_)
    return Reject(row["item"], reason, detail, row["source_file"], row["line"], made_from=named)
