"""`instruction-rubrics`: negatives: another sample's instruction, one with a detail changed, or generated audio that
failed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.build.ask import Asker, GivenUp, Row
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked, walk
from earmark.tasks.importers.rows import Reject
from earmark.tasks.instruction_rubrics.asks import MISMATCH
from earmark.tasks.instruction_rubrics.deciding import partners
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.store.staging import Stage

FACTS = ("item", "source", "source_file", "line", "split", "domain", "language")


class Negatives(NamedTuple):
    """Clips with instructions that are wrong for them, and what instructions there are.

    Attributes:
        negatives: a row a clip and instruction.
        instructions: every instruction that a clip may be judged by, once, with the negatives that it makes.
    """

    negatives: Rows
    instructions: Rows


def instruction_id(source: str, domain: str, language: str, text: str) -> str:
    """Sixteen hexadecimal digits that name an instruction; as `usable_captions.sql` has them.

    What two sources say in the same words are two instructions: one source may be held back, and the other not.
    """
    return hashlib.md5(f"{source}\n{domain}\n{language}\n{text.strip()}".encode()).hexdigest()[:16]


@step("alter", unit="positives that need a negative", label="")
def choose_candidates(stage: Stage, config: InstructionRubrics, verified: Rows) -> Done[Rows]:
    """Say which instructions are tried on which clips: changed ones, and those of other samples.

    Returns:
        Positives that need a negative, with the instructions to try on the clip of each, in this order.
    """
    positives = [row for row in read_rows(verified) if row["positive"]]
    wanting = [row for row in positives if row["role"] != "judged"]
    rejects: list[Reject] = []
    rings: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in sorted(positives, key=lambda row: (row["place"], row["row"])):
        rings[row["split"], row["subset"], row["source"]].append(row)
    places = {row["base"]: at for ring in rings.values() for at, row in enumerate(ring)}
    tried: set[tuple[str, str]] = set()  # a clip may have several captions; no question about it is asked twice
    clips: list[Row] = []
    for row in wanting:
        if row["role"] == "swap":
            ring = rings[row["split"], row["subset"], row["source"]]
            swapped = partners(ring, places[row["base"]], config.negatives.tries)
            options = [{"instruction_id": one["instruction_id"], "text": one["text"]} for one in swapped]
        elif row["failure"] is None:
            options = [_changed(config, row)]
        else:
            rejects.append(reject_of(row, *row["failure"]))
            continue
        candidates = [one for one in options if (row["clip_sha256"], one["instruction_id"]) not in tried]
        tried |= {(row["clip_sha256"], one["instruction_id"]) for one in candidates}
        if candidates:
            clips.append({**row, "candidates": candidates})
        else:
            rejects.append(reject_of(row, "no_partner", "expected an instruction to try on this clip, found none"))
    clips = _unlike(stage, config, clips, rejects)
    account = Account(len(wanting), len(clips), [(SAMPLES.name, reject) for reject in rejects])
    return Done(keep_rows(stage, "candidates", clips), account)


def _changed(config: InstructionRubrics, row: Row) -> Row:
    """A caption of which a detail was changed."""
    change, text = row["changed"], row["changed"]["caption"].strip()
    return {
        "instruction_id": instruction_id(row["source"], row["domain"], row["language"], text),
        "text": text,
        "attribute": change["attribute"],
        "span_before": change["before"],
        "span_after": change["after"],
        "written_by": config.writer.annotator,
    }


def _unlike(stage: Stage, config: InstructionRubrics, clips: list[Row], rejects: list[Reject]) -> list[Row]:
    """The clips with how similar each instruction is to them; swapped ones that are too similar are not tried."""
    pairs = [(clip, one["text"]) for clip in clips for one in clip["candidates"]]
    cosines = iter(similarities(stage, config, pairs))
    most = config.similarity.most if config.similarity else None
    kept: list[Row] = []
    for clip in clips:
        measured = [{**one, "similarity": next(cosines)} for one in clip["candidates"]]
        if most is not None and clip["role"] == "swap":
            measured = [one for one in measured if one["similarity"] <= most]
        if measured:
            kept.append({**clip, "candidates": measured})
        else:
            detail = f"expected an instruction of similarity {most:g} or less, found {len(clip['candidates'])} above"
            rejects.append(reject_of(clip, "partners_too_similar", detail))
    return kept


@walk("candidates", asks=[MISMATCH], columns=[("candidate", pa.int64())], label="verify negatives")
async def try_candidates(asker: Asker[InstructionRubrics], clip: Row) -> int:
    """Ask whether instructions are wrong for a clip, one after the other; the number of the first that is."""
    for number, candidate in enumerate(clip["candidates"]):
        question = {**clip, "instruction": candidate["text"], "pass": 1, "candidate": number}
        if (await asker(MISMATCH, question))["answer"] == "yes":
            return number
    detail = f"expected an instruction that is wrong for the clip, found that {len(clip['candidates'])} fit it"
    raise GivenUp(MISMATCH.name, "fits_too" if clip["role"] == "swap" else "mismatch_not_heard", detail)


@step("contest", unit="positives that need a negative", follows="alter", label="keep negatives")
def keep_negatives(stage: Stage, config: InstructionRubrics, verified: Rows, tried: Walked) -> Done[Negatives]:
    """Keep instructions that are wrong for the clip, and generated audio that failed; list every instruction once."""
    captions, clips = read_rows(verified), read_rows(tried.source)
    kept = [_negative(config, clips[at], number) for at, number in tried.results()]
    judged = [_judged(row) for row in captions if not row["positive"]]
    rejects = [(SAMPLES.name, reject_of(clips[end["at"]], end["reason"], end["detail"])) for end in tried.given_up()]
    notes = [f"{len(judged):,} generated clips failed both passes: hard negatives"] if judged else []
    negatives = [*kept, *judged]
    instructions = list_instructions((row for row in captions if row["positive"]), negatives)
    output = Negatives(keep_rows(stage, "negatives", negatives), keep_rows(stage, "instructions", instructions))
    return Done(output, Account(len(clips), len(kept), rejects, notes=notes))


def _negative(config: InstructionRubrics, clip: Row, number: int) -> Row:
    """A clip with the first of its candidates that is wrong for it."""
    truth = {"truth": clip["text"], "truth_id": clip["instruction_id"], "verified_by": config.judge.annotator}
    return {**_of_clip(clip), **clip["candidates"][number], "kind": clip["role"], **truth}


def _judged(row: Row) -> Row:
    """A generated clip that does not follow its own text; what the judge heard is true of it."""
    own = {name: row[name] for name in ("instruction_id", "text", "verified_by", "similarity")}
    return {**_of_clip(row), **own, "kind": "judged", "truth": " ".join(dict.fromkeys(row["evidence"])),
            "truth_id": None}  # fmt: skip


def _of_clip(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "base", "subset", "place")}


def list_instructions(positives: Iterable[Row], negatives: Iterable[Row]) -> list[Row]:
    """Every instruction that a clip may be judged by, once.

    Args:
        positives: captions that are true of their clips.
        negatives: clips with instructions that are wrong for them.

    Returns:
        The instructions: `true` of some clip or not, and the `negatives` that each makes, by their number.
    """
    by_id: dict[str, Row] = {}
    for row in positives:
        by_id.setdefault(row["instruction_id"], {**_own(row), "written_by": None, "true": True, "negatives": []})
    for number, row in enumerate(negatives):
        origin: dict[str, Any] = {"altered_from": row["truth_id"]} if row["kind"] == "perturb" else {}
        made = {**_own(row), "written_by": row.get("written_by"), **origin, "true": False, "negatives": []}
        instruction = by_id.setdefault(row["instruction_id"], made)
        instruction["negatives"].append({"negative": number, "truth": row["truth"], "instruction": row["text"]})
    return list(by_id.values())


def _own(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "instruction_id", "text")}
