"""`instruction-rubrics`: which captions fit their clips; those that are to be changed are, as soon as they do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.build.ask import Asker, GivenUp, Row, side_by_side
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked, walk
from earmark.tasks.importers.rows import Reject
from earmark.tasks.instruction_rubrics.asks import PERTURB, VERIFY
from earmark.tasks.instruction_rubrics.deciding import overlap, verdict
from earmark.tasks.store.staging import Stage


@walk("captions", asks=[VERIFY, PERTURB], columns=[("pass", pa.int64())], label="verify captions")
async def verify_caption(asker: Asker[InstructionRubrics], caption: Row) -> dict[str, Any]:
    """Ask whether a caption fits its clip: once of real audio, twice of generated audio. If it does and its negative is
    to be the same with one detail changed, have it changed."""
    passes = (1, 2) if caption["generated"] else (1,)
    questions = [{**caption, "instruction": caption["text"], "pass": number} for number in passes]
    answers = await side_by_side(*(asker(VERIFY, question) for question in questions))
    least = asker.config.similarity.least if asker.config.similarity else None
    positive, fault = verdict([one["answer"] == "yes" for one in answers], caption["similarity"], least)
    if fault is not None:
        raise GivenUp(VERIFY.name, *fault)
    end = {"positive": positive, "evidence": [one["evidence"] for one in answers]}
    if positive and caption["role"] == "perturb":
        change = await asker.reply(PERTURB, {**caption, "caption": caption["text"]})
        end |= {"changed": change.value, "failure": change.failure}
    return end


@step("verify", unit="captions", follows="choose", label="keep captions that fit")
def keep_verified(stage: Stage, config: InstructionRubrics, verified: Walked) -> Done[Rows]:
    """Keep positives, and hard negatives of generated audio; the rest is rejected.

    Returns:
        Captions with what was decided of each.
    """
    captions = read_rows(verified.source)
    kept = [{**captions[at], **end, "verified_by": config.judge.annotator} for at, end in verified.results()]
    rejects = [
        (SAMPLES.name, reject_of(captions[end["at"]], end["reason"], end["detail"])) for end in verified.given_up()
    ]
    notes = [f"{sum(row['positive'] for row in kept):,} captions fit their clips"]
    if twice := _failures(verified):
        both, either = overlap(twice)
        share = f"{both / either:.0%}" if either else "none"
        notes.append(
            f"of {len(twice):,} generated clips judged twice, {either:,} failed a pass, {both:,} of these both: "
            f"an overlap of {share}"
        )
    return Done(keep_rows(stage, "verified", kept), Account(len(captions), len(kept), rejects, notes=notes))


def _failures(verified: Walked) -> list[tuple[bool, bool]]:
    """Of each clip that was judged twice, which passes it failed."""
    failed: dict[int, list[bool]] = defaultdict(list)
    for draw in verified.read_draws():
        if draw["ask"] == VERIFY.name and draw["reason"] is None:
            failed[draw["at"]].append(draw["value"]["answer"] == "no")
    return [(passes[0], passes[1]) for passes in failed.values() if len(passes) == 2]


def reject_of(row: Mapping[str, Any], reason: str, detail: str, near: str | None = None) -> Reject:
    """A reject that leads to the line that a row came from; `near` is another instruction that it is about."""
    things = (("clip", row.get("clip_sha256")), ("instruction", row.get("instruction_id")), ("instruction", near))
    named = tuple((kind, id_) for kind, id_ in things if id_)
    return Reject(row["item"], reason, detail, row["source_file"], row["line"], made_from=named)
