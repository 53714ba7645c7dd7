"""Rows between the steps of `instruction-rubrics`."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from earmark.schemas.rubric_tables import RubricSample

Failure = tuple[str, str] | None  # reason and detail


class CaptionRow(TypedDict):
    """A row of `usable_captions.sql`, and what `choose` gives it."""

    row: int
    source: str
    item: str
    file: str
    text: str
    origin: str | None
    generator: str | None
    source_file: str
    line: int
    subset: str
    domain: str
    language: str
    generated: bool
    set: Literal["train", "test"] | None
    path: str
    clip_sha256: str
    duration_s: float
    sample_rate_hz: int
    channels: int
    instruction_id: str
    group_id: str
    split: str
    place: float
    role: str
    base: int
    similarity: float | None


class WordChange(TypedDict):
    """A caption with a changed detail, as its writer gives it."""

    caption: str
    attribute: str
    before: str
    after: str


class VerifiedCaption(CaptionRow):
    """A caption with its decisions; `changed` and `failure` of positives with a negative of that kind."""

    positive: bool
    evidence: list[str]
    changed: WordChange
    failure: Failure
    verified: list[str]
    verified_by: str | None


class Candidate(TypedDict):
    """An instruction to try on a clip."""

    instruction_id: str
    text: str
    similarity: float
    attribute: str
    span_before: str
    span_after: str


class CandidateClip(VerifiedCaption):
    """A clip with the instructions to try on it."""

    candidates: list[Candidate]


class NegativeRow(TypedDict):
    """A clip with an instruction that is wrong for it."""

    item: str
    source: str
    source_file: str
    line: int
    split: str
    domain: str
    language: str
    base: int
    subset: str
    place: float
    clip_sha256: str
    path: str
    duration_s: float
    generated: bool
    instruction_id: str
    text: str
    kind: str
    truth: str
    truth_id: str | None
    verified: list[str]
    verified_by: str | None
    similarity: float | None
    written_by: NotRequired[str]
    attribute: NotRequired[str]
    span_before: NotRequired[str]
    span_after: NotRequired[str]


class ItemRow(TypedDict):
    """An item of an instruction."""

    dimension: str
    question: str
    basis: str
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
    """A negative of an instruction, by its number."""

    negative: int


class InstructionRow(TypedDict):
    """An instruction for judging clips, with its negatives."""

    item: str
    source: str
    source_file: str
    line: int
    split: str
    domain: str
    language: str
    instruction_id: str
    text: str
    written_by: str | None
    altered_from: NotRequired[str]
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


class SampleRow(RubricSample):
    """A row of `samples` in all languages, with its caption's number and its labels."""

    base: int
    labelled: Labelled
