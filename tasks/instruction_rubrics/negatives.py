"""`instruction-rubrics`: negatives: another sample's instruction, one with a detail changed, or generated audio that
failed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics, Verifier
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.build.ask import Asker, GivenUp, Row
from earmark.tasks.build.references import references_of
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked, walk
from earmark.tasks.importers.rows import Reject
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, HEAR, MISMATCH, READ
from earmark.tasks.instruction_rubrics.attributes import BY_READING, DROPPED
from earmark.tasks.instruction_rubrics.deciding import lost_by_kind, partners
from earmark.tasks.instruction_rubrics.items import listen, take_apart, with_items
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.store.staging import Stage

SOUND = ("clip_sha256", "path", "duration_s", "generated")
FACTS = ("item", "source", "source_file", "line", "split", "domain", "language")


class Negatives(NamedTuple):
    """Clips with instructions that are wrong for them, and what instructions there are."""

    negatives: Rows  # a row a clip and instruction
    instructions: Rows  # every instruction that a clip may be judged by, once, with the negatives that it makes


def instruction_id(source: str, domain: str, language: str, text: str) -> str:
    """Sixteen hexadecimal digits that name an instruction; as `usable_captions.sql` has them.

    What two sources say in the same words are two instructions: one source may be held back, and the other not.
    """
    return hashlib.md5(f"{source}\n{domain}\n{language}\n{text.strip()}".encode()).hexdigest()[:16]


@step("alter", unit="positives that need a negative", label="")
def choose_candidates(stage: Stage, config: InstructionRubrics, verified: Rows) -> Done[Rows]:
    """Say which instructions are tried on which clips: changed ones, and those of other samples.

    Gives positives that need a negative, with the instructions to try on the clip of each, in this order.
    """
    positives = [row for row in read_rows(verified) if row["positive"]]
    wanting = [row for row in positives if row["role"] != "judged"]
    rejects: list[Reject] = []
    rings: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in sorted(positives, key=lambda row: (row["place"], row["row"])):
        rings[row["split"], row["subset"], row["source"]].append(row)
    places = {row["base"]: at for ring in rings.values() for at, row in enumerate(ring)}
    references = references_of(config, stage.store)
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
        if references:
            candidates = [one for one in candidates if not references.fault_of(one["text"])]
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
    kept: list[Row] = []
    for clip in clips:
        measured = [{**one, "similarity": next(cosines)} for one in clip["candidates"]]
        most = config.bound(clip["source"], "most") if "similarity" in _verifiers(config, clip) else None
        if most is not None:
            measured = [one for one in measured if one["similarity"] <= most]
        if measured:
            kept.append({**clip, "candidates": measured})
        else:
            detail = f"expected an instruction of similarity {most:g} or less, found {len(clip['candidates'])} above"
            rejects.append(reject_of(clip, "partners_too_similar", detail))
    return kept


def _verifiers(config: InstructionRubrics, clip: Row) -> tuple[Verifier, ...]:
    """Who verifies the negative of a clip. A reader stands in for a listener where something is missing from a text or
    in another order: each of its words may still be true."""
    if clip["role"] == "swap":
        return config.verifiers(clip["source"], "swaps")
    by = config.verifiers(clip["source"], "changes")
    read = clip["candidates"][0]["attribute"] in BY_READING
    return tuple(dict.fromkeys("text" if one == "audio" and read else one for one in by))


@walk(
    "candidates",
    asks=[READ, MISMATCH, DECOMPOSE, FILTER, HEAR],
    columns=[("candidate", pa.int64()), ("part", pa.string())],
    label="verify negatives",
)
async def try_candidates(asker: Asker[InstructionRubrics], clip: Row) -> int:
    """Verify that instructions are wrong for a clip, one after the other; the number of the first that is. It is taken
    apart already, for its rubric."""
    by = _verifiers(asker.config, clip)
    for number, candidate in enumerate(clip["candidates"]):
        about = {**clip, **candidate, "text": clip["text"], "instruction": candidate["text"], "pass": 1}
        question = {"written_by": None, **about, "candidate": number, "truth": clip["text"]}
        if await _is_wrong(asker, question, by):
            await asker.ahead(partial(take_apart, row=question))
            return number
    detail = f"expected an instruction that is wrong for the clip, found that {len(clip['candidates'])} fit it"
    raise GivenUp(MISMATCH.name, "fits_too" if clip["role"] == "swap" else "mismatch_not_heard", detail)


async def _is_wrong(asker: Asker[InstructionRubrics], question: Row, by: Sequence[Verifier]) -> bool:
    """Whether all who verify by asking say that an instruction is wrong for a clip; a reader first, who costs less."""
    if "text" in by and (await asker(READ, question))["answer"] == "no":
        return False
    if "audio" not in by:
        return True
    wrong, _ = await listen(asker, MISMATCH, await with_items(asker, question))
    return wrong


@step("contest", unit="positives that need a negative", follows="alter", label="keep negatives")
def keep_negatives(stage: Stage, config: InstructionRubrics, verified: Rows, tried: Walked) -> Done[Negatives]:
    """Keep instructions that are wrong for the clip, and generated audio that failed; list every instruction once."""
    captions, clips = read_rows(verified), read_rows(tried.source)
    kept = [_negative(config, clips[at], number) for at, number in tried.results()]
    judged = [_judged(row) for row in captions if not row["positive"]]
    rejects = [(SAMPLES.name, reject_of(clips[end["at"]], end["reason"], end["detail"])) for end in tried.given_up()]
    notes = [f"{len(judged):,} generated clips failed both passes: hard negatives"] if judged else []
    notes += lost_by_kind(
        (row["subset"], {"swap": "neg_swap", "perturb": "neg_change"}[row["role"]], lost)
        for row, lost in (
            *((clips[at], False) for at, _ in tried.results()),
            *((clips[end["at"]], True) for end in tried.given_up()),
        )
    )
    negatives = [*kept, *judged]
    instructions = list_instructions(config, (row for row in captions if row["positive"]), negatives)
    output = Negatives(keep_rows(stage, "negatives", negatives), keep_rows(stage, "instructions", instructions))
    return Done(output, Account(len(clips), len(kept), rejects, notes=notes))


def _negative(config: InstructionRubrics, clip: Row, number: int) -> Row:
    """A clip with the first of its candidates that is wrong for it."""
    by = _verifiers(config, clip)
    role = "judge" if "audio" in by else "labeller" if "text" in by else None
    who = config.asked()[role].annotator if role else None
    truth = {"truth": clip["text"], "truth_id": clip["instruction_id"], "verified": list(by), "verified_by": who}
    return {**_of_clip(clip), **clip["candidates"][number], "kind": clip["role"], **truth}


def _judged(row: Row) -> Row:
    """A generated clip that does not follow its own text; what the judge heard is true of it."""
    own = {name: row[name] for name in ("instruction_id", "text", "verified", "verified_by", "similarity")}
    return {**_of_clip(row), **own, "kind": "judged", "truth": " ".join(dict.fromkeys(row["evidence"])),
            "truth_id": None}  # fmt: skip


def _of_clip(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "base", "subset", "place", *SOUND)}


def list_instructions(config: InstructionRubrics, positives: Iterable[Row], negatives: Iterable[Row]) -> list[Row]:
    """Every instruction that a clip may be judged by, once.

    Args:
        config: says whether a source's captions are full; what a judge says of a clip that failed never is.
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
        if row.get("attribute") == DROPPED:  # both are asked about it, so that the item alone gives no answer away
            instruction["complete"] = by_id[row["truth_id"]]["complete"] = True
        full = row["kind"] != "judged" and config.source(row["source"]).full
        clip = {name: row[name] for name in SOUND}
        about = {"negative": number, "truth": row["truth"], "instruction": row["text"], "full": full, **clip}
        instruction["negatives"].append(about)
    return list(by_id.values())


def _own(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "instruction_id", "text")}
