"""Rows between the steps of `instruction-rubrics`."""

from typing import Any, Literal, NotRequired, TypedDict

from earmark.schemas.instruction_rubrics import Language

Failure = tuple[str, str] | None  # reason and detail


class InstructionFacts(TypedDict):
    """An instruction with its source line."""

    item: str
    source: str
    source_file: str
    line: int
    split: str
    domain: str
    language: str
    instruction_id: str
    text: str


class ClipFacts(InstructionFacts):
    """An instruction with a clip."""

    base: int
    subset: str
    place: float
    clip_sha256: str
    path: str
    duration_s: float
    generated: bool
    similarity: float | None


class CaptionRow(ClipFacts):
    """A row of `usable_captions.sql`, and what `choose` gives it."""

    row: int
    file: str
    origin: str | None
    generator: str | None
    set: Literal["train", "test"] | None
    sample_rate_hz: int
    channels: int
    group_id: str
    role: str


class WordChange(TypedDict):
    """A caption with a changed detail, as its writer gives it."""

    caption: str
    attribute: str
    before: str
    after: str
    also: NotRequired[list[dict[str, str]]]


class VerifiedCaption(CaptionRow):
    """A caption with its decisions; `changed` and `failure` of positives with a negative of that kind."""

    positive: bool
    evidence: list[str]
    changed: WordChange | None
    failure: Failure
    verified: list[str]
    verified_by: str | None


class Candidate(TypedDict):
    """An instruction to try on a clip."""

    instruction_id: str
    text: str
    similarity: float
    attribute: NotRequired[str]  # of a changed instruction, as its spans
    span_before: NotRequired[str]
    span_after: NotRequired[str]


class CandidateClip(VerifiedCaption):
    """A clip with the instructions to try on it."""

    candidates: list[Candidate]


class NegativeRow(ClipFacts):
    """A clip with an instruction that is wrong for it."""

    kind: str
    truth: str
    truth_id: str | None
    verified: list[str]
    verified_by: str | None
    written_by: NotRequired[str]
    attribute: NotRequired[str]
    span_before: NotRequired[str]
    span_after: NotRequired[str]


class BareItem(TypedDict):
    """An item of an instruction, as its writer gives it."""

    dimension: str
    question: str
    basis: str


class ItemRow(BareItem):
    """An item with its flags."""

    flags: list[str]


class ItemAnswer(TypedDict):
    """An answer about an item."""

    item: int
    answer: bool
    rationale: str
    by: str
    prompt: str
    key: str


class Translation(TypedDict):
    """Texts in another language, with the flags of each."""

    failure: Failure
    texts: list[str]
    flags: list[list[str]]
    by: str


class Labelled(TypedDict):
    """Labels of an instruction's items for a negative, or for its own clips."""

    negative: int | None
    failure: Failure
    unknown: NotRequired[list[str]]
    answers: list[ItemAnswer]
    translations: dict[str, Translation]


class AboutNegative(TypedDict):
    """A negative of an instruction, by its number, and its clip."""

    negative: int
    truth: str
    instruction: str
    full: bool
    clip_sha256: str
    path: str
    duration_s: float
    generated: bool


class InstructionRow(InstructionFacts):
    """An instruction for judging clips, with its negatives."""

    written_by: str | None
    altered_from: NotRequired[str]
    complete: NotRequired[bool]
    true: bool
    negatives: list[AboutNegative]


class RubricRow(InstructionRow):
    """An instruction with its items, labels and translations."""

    items: list[ItemRow]
    items_by: str | None
    removed: list[tuple[str, str]]
    stability: float | None
    labelled: list[Labelled]
    translations: dict[str, Translation]


class ItemReply(TypedDict, total=False):
    """A model's answer about an item, by the item's number."""

    id: int
    verdict: str
    answer: str
    rationale: str


class RubricQuestion(TypedDict, total=False):
    """Fields of a row that asks show; each ask reads some of them."""

    domain: str
    language: Language
    into: Language
    instruction_id: str
    instruction: str
    wording: str
    text: str
    caption: str
    base: int
    attributes: list[dict[str, str]]
    clip_sha256: str
    path: str
    duration_s: float
    generated: bool
    items: list[Any]
    texts: list[str]
    negative: int | None
    full: bool
    part: str


class PairedRow(NegativeRow):
    """A sample without its labels: a negative, or a caption in its shape."""

    sample_id: str
    pair_id: str


class SampleLabels(TypedDict):
    """A sample's labels, and its instruction's words by language."""

    texts: dict[str, str]
    answers: list[ItemAnswer]
    translations: dict[str, Translation]


JudgeDraw = TypedDict(
    "JudgeDraw",
    {  # `pass` is no name in Python
        "at": int,
        "ask": str,
        "last": bool,
        "value": dict[str, str] | None,
        "annotator": str,
        "prompt": str,
        "request_key": str,
        "reason": str | None,
        "pass": NotRequired[int],
        "candidate": NotRequired[int],
    },
)
"""A question to the judge or to a reader, and its answer."""
