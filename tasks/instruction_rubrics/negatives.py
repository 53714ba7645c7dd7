"""Make negatives: another sample's instruction, one with a detail changed, or generated audio failing its text."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.instruction_rubrics import InstructionRubrics, Verifier
from earmark.schemas.reasons import Reject
from earmark.schemas.rubric_tables import SAMPLES
from earmark.tasks.instruction_rubrics.asks import DECOMPOSE, FILTER, MISMATCH, READ
from earmark.tasks.instruction_rubrics.attributes import BY_READING, DROPPED
from earmark.tasks.instruction_rubrics.deciding import RingCaption, lost_by_kind, may_be_paired, partners
from earmark.tasks.instruction_rubrics.items import take_apart
from earmark.tasks.instruction_rubrics.rows import (
    Candidate,
    CandidateClip,
    InstructionRow,
    NegativeRow,
    VerifiedCaption,
)
from earmark.tasks.instruction_rubrics.similarity import similarities
from earmark.tasks.instruction_rubrics.verification import reject_of
from earmark.tasks.pipeline.ask import Asker, GivenUp, Row
from earmark.tasks.pipeline.references import references_of
from earmark.tasks.pipeline.rows import Rows, Sorted, each_row, keep_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import Walked, WalkLoss, walk
from earmark.tasks.store.staging import Stage

PARTNERS = 4  # instructions of others to try on a clip
SOUND = ("clip_sha256", "path", "duration_s", "generated")
KINDS = {"swap": "neg_swap", "perturb": "neg_change"}  # in the authors' words, by role
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
    rings: dict[tuple[str, str, str], list[RingCaption]] = defaultdict(list)
    for row in each_row(verified):
        if row["positive"]:
            own = (row["group_id"], row["instruction_id"], row["language"], row["text"])
            ring = rings[row["split"], row["subset"], row["source"]]
            ring.append(RingCaption(row["place"], row["row"], row["base"], *own))
    for ring in rings.values():
        ring.sort()
    places = {one.base: at for ring in rings.values() for at, one in enumerate(ring)}
    references = references_of(config, stage.store)
    tried: set[tuple[str, str]] = set()  # a clip may have several captions; no question about it is asked twice
    rejects: list[Reject] = []
    entered = 0

    def found() -> Iterator[CandidateClip]:
        nonlocal entered
        for row in each_row(verified):
            if not row["positive"] or row["role"] == "judged":
                continue
            entered += 1
            if row["role"] == "swap":
                ring = rings[row["split"], row["subset"], row["source"]]
                swapped = partners(ring, places[row["base"]], PARTNERS)
                options: list[Any] = [{"instruction_id": one.instruction_id, "text": one.text} for one in swapped]
            elif row["failure"] is None:
                options = [_changed(config, row)]
            else:
                rejects.append(reject_of(row, *row["failure"]))
                continue
            candidates = [one for one in options if (row["clip_sha256"], one["instruction_id"]) not in tried]
            if references:
                candidates = [one for one in candidates if not references.fault_of(one["text"])]
            tried.update((row["clip_sha256"], one["instruction_id"]) for one in candidates)
            if candidates:
                yield {**row, "candidates": candidates}
            else:
                rejects.append(reject_of(row, "no_partner", "expected an instruction to try on this clip, found none"))

    options = keep_rows(stage, "options", found())
    clips = keep_rows(stage, "candidates", _unlike(stage, config, options, rejects))
    account = Account(entered, clips.total, [(SAMPLES.name, reject) for reject in rejects])
    return Done(clips, account)


def _changed(config: InstructionRubrics, row: VerifiedCaption) -> Row:
    """Return a caption with a changed detail."""
    change = row["changed"]
    assert change is not None  # of a row without a failure
    text = change["caption"].strip()
    return {
        "instruction_id": instruction_id(row["source"], row["domain"], row["language"], text),
        "text": text,
        "attribute": change["attribute"],
        "span_before": change["before"],
        "span_after": change["after"],
        "written_by": config.writer.annotator,
    }


def _unlike(
    stage: Stage, config: InstructionRubrics, clips: Rows[CandidateClip], rejects: list[Reject]
) -> Iterator[CandidateClip]:
    """Add the similarity of each instruction to its clip; drop swapped ones above the limit."""
    pairs = ((clip, one["text"]) for clip in each_row(clips) for one in clip["candidates"])
    cosines = similarities(stage, config, pairs, unknown=-1.0)
    for clip in each_row(clips):
        measured: list[Candidate] = [{**one, "similarity": next(cosines)} for one in clip["candidates"]]
        most = config.bound(clip["source"], "most") if "similarity" in _verifiers(config, clip) else None
        if most is not None:
            measured = [one for one in measured if one["similarity"] <= most]
        if measured:
            yield {**clip, "candidates": measured}
        else:
            detail = f"expected an instruction of similarity {most:g} or less, found {len(clip['candidates'])} above"
            rejects.append(reject_of(clip, "partners_too_similar", detail))


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
        about: Row = {**clip, **candidate, "text": clip["text"], "instruction": candidate["text"]}
        question: Row = {"written_by": None, **about, "candidate": number, "truth": clip["text"]}
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
    ends = Counter[tuple[str, str, bool]]()  # subset, kind, and whether it was lost
    judged = 0

    def kept() -> Iterator[NegativeRow]:
        nonlocal judged
        won: Iterator[tuple[CandidateClip, int]] = tried.kept()
        for clip, number in won:
            ends[clip["subset"], KINDS[clip["role"]], False] += 1
            yield _negative(config, clip, number)
        for row in each_row(verified):
            if not row["positive"]:
                judged += 1
                yield _judged(row)

    negatives, rejects = keep_rows(stage, "negatives", kept()), []
    lost: Iterator[tuple[CandidateClip, WalkLoss]] = tried.lost()
    for clip, end in lost:
        rejects.append((SAMPLES.name, reject_of(clip, end["reason"], end["detail"])))
        ends[clip["subset"], KINDS[clip["role"]], True] += 1
    notes = [f"{judged:,} generated clips failed both passes: hard negatives"] if judged else []
    notes += lost_by_kind(ends.elements())
    instructions = keep_rows(stage, "instructions", list_instructions(stage, config, verified, negatives))
    account = Account(tried.source.total, negatives.total - judged, rejects, notes=notes)
    return Done(WrongInstructions(negatives, instructions), account)


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
    stage: Stage, config: InstructionRubrics, verified: Rows[VerifiedCaption], negatives: Rows[NegativeRow]
) -> Iterator[InstructionRow]:
    """Yield every instruction that a sample may need once: `true` of a positive with a negative or not, with its
    `negatives` by number. Another one's items, reasons and translations would be paid for nothing.

    Args:
        stage: the build.
        config: says whether a source's captions are full; the judge's evidence on a failed clip never is.
        verified: captions, those true of their clips among them.
        negatives: clips with instructions wrong for them.
    """
    places, complete = dict[str, int](), set[str | None]()
    parts, room = Sorted(stage, "parts"), negatives.total + 1

    def place_of(row: VerifiedCaption | NegativeRow, **more: object) -> int:
        if row["instruction_id"] not in places:
            places[row["instruction_id"]] = len(places) * room
            parts.put(places[row["instruction_id"]], {**_own(row), **more, "negatives": []})
        return places[row["instruction_id"]]

    paired, wrong = set[int](), set[str]()
    for one in each_row(negatives):
        paired.add(one["base"])
        wrong.add(one["instruction_id"])
    positives = (row for row in each_row(verified) if row["positive"])
    true = {row["instruction_id"] for row in positives if may_be_paired(row["role"], row["base"], paired)}
    for row in each_row(verified):
        if row["positive"] and (row["instruction_id"] in true or row["instruction_id"] in wrong):
            place_of(row, written_by=None, true=row["instruction_id"] in true)
    for number, one in enumerate(each_row(negatives)):
        origin = {"altered_from": one["truth_id"]} if one["kind"] == "perturb" else {}
        place = place_of(one, written_by=one.get("written_by"), true=False, **origin)
        if one.get("attribute") == DROPPED:  # both get the completeness item, so that it alone gives no answer away
            complete |= {one["instruction_id"], one["truth_id"]}
        full = one["kind"] != "judged" and config.source(one["source"]).full
        clip = {name: value for name, value in one.items() if name in SOUND}
        about = {"negative": number, "truth": one["truth"], "instruction": one["text"], "full": full, **clip}
        parts.put(place + 1 + number, about)
    instruction: Any = None
    for part in parts.read(0, len(places) * room):
        if "negatives" not in part:
            instruction["negatives"].append(part)
            continue
        if instruction is not None:
            yield instruction
        instruction = part | ({"complete": True} if part["instruction_id"] in complete else {})
    if instruction is not None:
        yield instruction


def _own(row: Row) -> Row:
    return {name: row[name] for name in (*FACTS, "instruction_id", "text")}
