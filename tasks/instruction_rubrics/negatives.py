"""Make negatives: another sample's instruction, one with a detail changed, or generated audio failing its text."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics, Verifier
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, MISMATCH, READ
from earmark.tasks.instruction_rubrics.attributes import BY_READING, DROPPED
from earmark.tasks.instruction_rubrics.deciding import lost_by_kind, partners
from earmark.tasks.instruction_rubrics.items import take_apart
from earmark.tasks.instruction_rubrics.rows import CandidateClip, InstructionRow, NegativeRow, VerifiedCaption
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.ask import Asker, GivenUp, Row
from earmark.tasks.pipeline.references import references_of
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, walk
from earmark.tasks.store.staging import Stage

PARTNERS = 4  # instructions of others to try on a clip
SOUND = ("clip_sha256", "path", "duration_s", "generated")
FACTS = ("item", "source", "source_file", "line", "split", "domain", "language")


class WrongInstructions(NamedTuple):
    """Clips with wrong instructions, and all instructions."""

    negatives: Rows[NegativeRow]  # a row for each clip and instruction
    instructions: Rows[InstructionRow]  # every instruction for judging clips, once, with its negatives


def instruction_id(source: str, domain: str, language: str, text: str) -> str:
    """Return an instruction's id of sixteen hexadecimal digits, equal to `usable_captions.sql`.

    Equal words of two sources are two instructions: a source may be held back without the other.
    """
    return hashlib.md5(f"{source}\n{domain}\n{language}\n{text.strip()}".encode()).hexdigest()[:16]


@step("alter", unit="positives that need a negative", label="")
def choose_candidates(
    stage: Stage, config: InstructionRubrics, verified: Rows[VerifiedCaption]
) -> Done[Rows[CandidateClip]]:
    """Choose the instructions to try on clips: changed ones, and those of other samples.

    Returns positives in need of a negative, each with the instructions to try on its clip, in order.
    """
    positives = [row for row in read_rows(verified) if row["positive"]]
    wanting = [row for row in positives if row["role"] != "judged"]
    rejects: list[Reject] = []
    rings: dict[tuple[str, str, str], list[VerifiedCaption]] = defaultdict(list)
    for row in sorted(positives, key=lambda row: (row["place"], row["row"])):
        rings[row["split"], row["subset"], row["source"]].append(row)
    places = {row["base"]: at for ring in rings.values() for at, row in enumerate(ring)}
    references = references_of(config, stage.store)
    tried: set[tuple[str, str]] = set()  # a clip may have several captions; no question about it is asked twice
    clips: list[Row] = []
    for row in wanting:
        if row["role"] == "swap":
            ring = rings[row["split"], row["subset"], row["source"]]
            swapped = partners(ring, places[row["base"]], PARTNERS)
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


def _changed(config: InstructionRubrics, row: VerifiedCaption) -> Row:
    """Return a caption with a changed detail."""
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
    """Add the similarity of each instruction to its clip; drop swapped ones above the limit."""
    pairs = [(clip, one["text"]) for clip in clips for one in clip["candidates"]]
    cosines = iter(similarities(stage, config, pairs, unknown=-1.0))
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


def _verifiers(config: InstructionRubrics, clip: CandidateClip) -> tuple[Verifier, ...]:
    """Return the verifiers of a clip's negative. A reader replaces a listener for a text with a missing or reordered
    part: each of its words may still be true."""
    if clip["role"] == "swap":
        return config.verifiers(clip["source"], "swaps")
    by = config.verifiers(clip["source"], "changes")
    read = clip["candidates"][0]["attribute"] in BY_READING
    return tuple(dict.fromkeys("text" if one == "audio" and read else one for one in by))


@walk(
    "candidates",
    asks=[READ, MISMATCH, DECOMPOSE, FILTER],
    columns=[("candidate", pa.int64()), ("part", pa.string())],
    label="verify negatives",
)
async def try_candidates(asker: Asker[InstructionRubrics], clip: CandidateClip) -> int:
    """Verify instructions as wrong for a clip, one after the other; return the number of the first wrong one. Decompose
    it ahead for its rubric."""
    by = _verifiers(asker.config, clip)
    for number, candidate in enumerate(clip["candidates"]):
        about = {**clip, **candidate, "text": clip["text"], "instruction": candidate["text"]}
        question = {"written_by": None, **about, "candidate": number, "truth": clip["text"]}
        if await _is_wrong(asker, question, by):
            await asker.ahead(partial(take_apart, row=question))
            return number
    detail = f"expected an instruction that is wrong for the clip, found that {len(clip['candidates'])} fit it"
    raise GivenUp(MISMATCH.name, "fits_too" if clip["role"] == "swap" else "mismatch_not_heard", detail)


async def _is_wrong(asker: Asker[InstructionRubrics], question: Row, by: Sequence[Verifier]) -> bool:
    """Return whether all asked verifiers call an instruction wrong for a clip; ask a reader first, at lower cost."""
    if "text" in by and (await asker(READ, question))["answer"] == "no":
        return False
    return "audio" not in by or bool((await asker(MISMATCH, question))["answer"] == "yes")


@step("contest", unit="positives that need a negative", follows="alter", label="keep negatives")
def keep_negatives(
    stage: Stage, config: InstructionRubrics, verified: Rows[VerifiedCaption], tried: Walked
) -> Done[WrongInstructions]:
    """Keep instructions wrong for the clip, and generated audio failing its text; list every instruction once."""
    captions = read_rows(verified)
    clips: list[CandidateClip] = read_rows(tried.source)
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
    output = WrongInstructions(keep_rows(stage, "negatives", negatives), keep_rows(stage, "instructions", instructions))
    return Done(output, Account(len(clips), len(kept), rejects, notes=notes))


def _negative(config: InstructionRubrics, clip: CandidateClip, number: int) -> Row:
    """Return a clip with the first candidate wrong for it."""
    by = _verifiers(config, clip)
    role = "judge" if "audio" in by else "labeller" if "text" in by else None
    who = config.asked()[role].annotator if role else None
    truth = {"truth": clip["text"], "truth_id": clip["instruction_id"], "verified": list(by), "verified_by": who}
    return {**_of_clip(clip), **clip["candidates"][number], "kind": clip["role"], **truth}


def _judged(row: VerifiedCaption) -> Row:
    """Return a generated clip failing its own text; the judge's evidence is its truth."""
    own = {name: row[name] for name in ("instruction_id", "text", "verified", "verified_by", "similarity")}
    return {**_of_clip(row), **own, "kind": "judged", "truth": " ".join(dict.fromkeys(row["evidence"])),
            "truth_id": None}  # fmt: skip


def _of_clip(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "base", "subset", "place", *SOUND)}


def list_instructions(
    config: InstructionRubrics, positives: Iterable[VerifiedCaption], negatives: Iterable[NegativeRow]
) -> list[Row]:
    """List every instruction for judging clips, once.

    Args:
        config: says whether a source's captions are full; the judge's evidence on a failed clip never is.
        positives: captions true of their clips.
        negatives: clips with instructions wrong for them.

    Returns:
        The instructions: `true` of some clip or not, and their `negatives`, by number.
    """
    by_id: dict[str, Row] = {}
    for row in positives:
        by_id.setdefault(row["instruction_id"], {**_own(row), "written_by": None, "true": True, "negatives": []})
    for number, one in enumerate(negatives):
        origin: dict[str, Any] = {"altered_from": one["truth_id"]} if one["kind"] == "perturb" else {}
        made = {**_own(one), "written_by": one.get("written_by"), **origin, "true": False, "negatives": []}
        instruction = by_id.setdefault(one["instruction_id"], made)
        if one.get("attribute") == DROPPED:  # both get the completeness item, so that it alone gives no answer away
            instruction["complete"] = by_id[str(one["truth_id"])]["complete"] = True
        full = one["kind"] != "judged" and config.source(one["source"]).full
        clip = {name: value for name, value in one.items() if name in SOUND}
        about = {"negative": number, "truth": one["truth"], "instruction": one["text"], "full": full, **clip}
        instruction["negatives"].append(about)
    return list(by_id.values())


def _own(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "instruction_id", "text")}
