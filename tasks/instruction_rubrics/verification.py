"""Verify captions against their clips, and change those needed as negatives as soon as they fit."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, PERTURB, VERIFY
from earmark.tasks.instruction_rubrics.attributes import offered
from earmark.tasks.instruction_rubrics.deciding import kind_of, lost_by_kind, verdict
from earmark.tasks.instruction_rubrics.items import take_apart
from earmark.tasks.instruction_rubrics.rows import CaptionRow, VerifiedCaption
from earmark.tasks.pipeline.ask import Asker, GivenUp, Row, side_by_side
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.staging import Stage


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
    about = {**caption, "instruction": caption["text"], "written_by": None}
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
    captions: list[CaptionRow] = read_rows(verified.source)
    by = {source.name: config.verifiers(source.name, "positives") for source in config.sources}
    judges = {name: config.judge.annotator if "audio" in verifiers else None for name, verifiers in by.items()}
    ended = [(captions[at], end) for at, end in verified.results()]
    kept: list[Any] = [
        {**row, **end, "verified": list(by[row["source"]]), "verified_by": judges[row["source"]]} for row, end in ended
    ]
    losses = [(captions[end["at"]], end["reason"], end["detail"]) for end in verified.given_up()]
    rejects = [(SAMPLES.name, reject_of(*one)) for one in losses]
    notes = [f"{sum(row['positive'] for row in kept):,} captions fit their clips"]
    ends = [(row["subset"], kind_of(by[row["source"]]), False) for row in kept if row["positive"]]
    ends += [(row["subset"], kind_of(by[row["source"]]), True) for row, *_ in losses]
    ends += [(row["subset"], "neg_gemini", False) for row in kept if not row["positive"]]
    ends += [(row["subset"], "neg_gemini", True) for row, reason, _ in losses if reason == "passes_disagree"]
    notes += lost_by_kind(ends)
    if twice := _failures(verified):
        both, either = sum(map(all, twice)), sum(map(any, twice))
        share = f"{both / either:.0%}" if either else "none"
        notes.append(
            f"of {len(twice):,} generated clips judged twice, {either:,} failed a pass, {both:,} of these both: "
            f"an overlap of {share}"
        )
    return Done(keep_rows(stage, "verified", kept), Account(len(captions), len(kept), rejects, notes=notes))


def _failures(verified: Walked) -> list[tuple[bool, bool]]:
    """Return the failed passes of each generated clip judged twice."""
    captions: list[CaptionRow] = read_rows(verified.source)
    failed: dict[int, dict[int, bool]] = defaultdict(dict)
    for draw in verified.read_draws():
        answered = draw["ask"] == VERIFY.name and draw["last"] and draw["reason"] is None
        if answered and captions[draw["at"]]["generated"]:
            failed[draw["at"]][draw["pass"]] = draw["value"]["answer"] == "no"
    return [(passes[1], passes[2]) for passes in failed.values() if len(passes) == 2]


def reject_of(row: Mapping[str, Any], reason: str, detail: str, near: str | None = None) -> Reject:
    """Return a reject with the source line of a row; `near` is another instruction involved."""
    things = (("clip", row.get("clip_sha256")), ("instruction", row.get("instruction_id")), ("instruction", near))
    named = tuple((kind, id_) for kind, id_ in things if id_)
    return Reject(row["item"], reason, detail, row["source_file"], row["line"], made_from=named)
