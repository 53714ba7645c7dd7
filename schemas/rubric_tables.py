"""Tables of `instruction-rubrics` (AnyAudio-Judge): samples, their instructions, items and labels, and the clips.

Ids are the same in all languages: a sample, an instruction and an item have a row a language each.
"""

from typing import Annotated, TypedDict

from earmark.schemas.tables import Column, Table, WholeFile

LanguageName = Annotated[str, Column("Language of the row's text.", unit="en or zh")]
SplitName = Annotated[str, "test is the bench, train the corpus."]


class RubricSample(TypedDict):
    """One row a clip with an instruction and a language: does the clip follow it?"""  # noqa: D400

    sample_id: Annotated[
        str, Column("Sixteen hexadecimal digits; the same in all languages.", names="sample", role="is")
    ]
    language: LanguageName
    split: SplitName
    pair_id: Annotated[str, "Names the positive and the negative that balance each other."]
    subset: Annotated[str, "Subset, such as music-real."]
    domain: Annotated[str, Column("What is heard.", unit="speech, sound, music or mixed")]
    clip_sha256: Annotated[str, Column("SHA-256 of the clip's file.", names="clip")]
    instruction_id: Annotated[str, Column("The instruction that is judged.", names="instruction", role="keeps")]
    instruction: Annotated[str, "Its text."]
    follows: Annotated[bool, "Whether the clip follows the instruction: the sample's label."]
    kind: Annotated[str, Column("How it came about.", unit="pos, swap, perturb or judged")]
    truth_id: Annotated[str | None, Column("The clip's own instruction.", names="instruction", role="keeps")]
    truth: Annotated[
        str,
        "What is known of the clip, in its source's language: its own caption, or "
        "what both passes heard of generated audio that failed.",
    ]
    attribute: Annotated[str | None, "What was changed; null unless perturbed."]
    span_before: Annotated[str | None, "The words that were changed."]
    span_after: Annotated[str | None, "The words in their place."]
    verified_by: Annotated[str | None, Column("The annotator that heard or read; null if none did.", names="annotator")]
    verified: Annotated[
        list[str] | None,
        Column(
            "What verified the label; empty if nothing did, null in versions of before.", unit="audio, similarity, text"
        ),
    ]
    similarity: Annotated[
        float | None, Column("Cosine similarity of clip and instruction in its source's language.", unit="-1 to 1")
    ]
    items: Annotated[int, Column("Items of the instruction that are labelled.", unit="items")]
    items_yes: Annotated[int, Column("Of these, labelled yes.", unit="items")]
    source: Annotated[str, Column("The source's name in the config.", names="source")]
    source_file: Annotated[str, "The list that the clip came from."]
    source_line: Annotated[int, "Line in that list, counted from 1."]


class RubricInstruction(TypedDict):
    """One row an instruction and a language: a caption as its source has it, or with a detail changed."""

    instruction_id: Annotated[
        str, Column("Sixteen hexadecimal digits; the same in all languages.", names="instruction", role="is")
    ]
    language: LanguageName
    split: SplitName
    domain: Annotated[str, Column("What it speaks of.", unit="speech, sound, music or mixed")]
    text: Annotated[str, "The instruction."]
    original: Annotated[bool, "Whether this is the language that it was written in."]
    altered_from: Annotated[str | None, Column("The instruction that a detail was changed of.", names="instruction")]
    flags: Annotated[
        list[str],
        Column(
            "What the back-check of its translation found.", unit="speech, numbers, names, negations; empty if nothing"
        ),
    ]
    written_by: Annotated[
        str | None, Column("The annotator that wrote this text; null if its source did.", names="annotator")
    ]
    source: Annotated[str, Column("The source's name in the config.", names="source")]


class RubricItem(TypedDict):
    """One row an item of an instruction and a language: an independent question whose yes means aligned."""

    instruction_id: Annotated[str, Column("The instruction.", names="instruction")]
    item: Annotated[int, "Number of the item, from 1."]
    language: LanguageName
    split: SplitName
    dimension: Annotated[str, "What it asks about, such as tempo; `instruction` if it is the whole."]
    question: Annotated[str, "The yes/no question."]
    basis: Annotated[str, "The words that it rests on, in the instruction's own language."]
    flags: Annotated[
        list[str],
        Column(
            "What a second model and the back-check of its translation found.",
            unit="direction: yes would not mean aligned; unread; speech, numbers, names, negations",
        ),
    ]
    written_by: Annotated[
        str | None, Column("The annotator that wrote this text; null if it is the instruction.", names="annotator")
    ]
    source: Annotated[str, Column("The source's name in the config.", names="source")]


class RubricLabel(TypedDict):
    """One row an item of a sample and a language: the answer, and why."""

    sample_id: Annotated[str, Column("The sample.", names="sample")]
    item: Annotated[int, "Number of the item of its instruction, from 1."]
    language: LanguageName
    split: SplitName
    clip_sha256: Annotated[str, Column("The sample's clip.", names="clip")]
    answer: Annotated[bool, "Whether the clip does what the item asks."]
    rationale: Annotated[str, "Why."]
    labelled_by: Annotated[str, Column("The annotator that answered or gave the rationale.", names="annotator")]
    prompt: Annotated[str, "Prompt file and version that asked."]
    request_key: Annotated[str, "The request's key in the ledger."]
    source: Annotated[str, Column("The source's name in the config.", names="source")]


RubricJudgment = TypedDict(
    "RubricJudgment",
    {  # `pass` is no name in Python
        "clip_sha256": Annotated[str, Column("The clip.", names="clip")],
        "instruction_id": Annotated[str, Column("The instruction.", names="instruction")],
        "pass": Annotated[int, "1, or 2 for the second pass over generated audio."],
        "question": Annotated[
            str, Column("verify: does it fit? mismatch, read: is it wrong?", unit="verify, mismatch or read")
        ],
        "split": SplitName,
        "subset": Annotated[str, "Subset of the clip."],
        "answer": Annotated[bool, "The answer to the question."],
        "evidence": Annotated[str, "What the judge heard, or the reader compared."],
        "judge": Annotated[str, Column("The annotator.", names="annotator")],
        "prompt": Annotated[str, "Prompt file and version that asked."],
        "request_key": Annotated[str, "The request's key in the ledger."],
        "similarity": Annotated[float | None, Column("Cosine similarity of clip and instruction.", unit="-1 to 1")],
        "source": Annotated[str, Column("The source's name in the config.", names="source")],
    },
)
RubricJudgment.__doc__ = (
    "One row an answer of the judge that hears, or of a reader: does an instruction fit a clip, and why."
)


class RubricClip(TypedDict):
    """One row a clip of the samples."""

    clip_sha256: Annotated[str, Column("SHA-256 of the clip's file.", names="clip", role="is")]
    split: SplitName
    subset: Annotated[str, "Subset."]
    domain: Annotated[str, Column("What is heard.", unit="speech, sound, music or mixed")]
    generated: Annotated[bool, "Whether it was generated from its instruction."]
    generator: Annotated[str | None, "What generated it, as its source says."]
    group_id: Annotated[str, "Clips that may not part: same sound, near captions, one origin."]
    duration_s: Annotated[float, Column("Length.", unit="s")]
    sample_rate_hz: Annotated[int, Column("Samples a second and channel.", unit="Hz")]
    channels: Annotated[int, "Channels."]
    file: Annotated[str, "Audio file as the list names it."]
    source: Annotated[str, Column("The source's name in the config.", names="source")]
    audio: Annotated[WholeFile | None, "The clip's file, where it is embedded."]


SAMPLES = Table(
    "samples",
    row=RubricSample,
    key=("sample_id", "language"),
    exclusive=("clip_sha256", "instruction_id", "pair_id"),
    says=(
        "read from {source_file}, line {source_line}; {kind} of {subset}; follows: {follows}",
        "judged against instruction {instruction_id}: {instruction}",
        "attribute {attribute}: '{span_before}' became '{span_after}'; {items_yes} of {items} items yes",
    ),
)
INSTRUCTIONS = Table(
    "instructions", row=RubricInstruction, key=("instruction_id", "language"), exclusive=("instruction_id",)
)
ITEMS = Table("items", row=RubricItem, key=("instruction_id", "item", "language"), exclusive=("instruction_id",))
LABELS = Table("labels", row=RubricLabel, key=("sample_id", "item", "language"), exclusive=("sample_id",))
JUDGMENTS = Table("judgments", row=RubricJudgment, key=("clip_sha256", "instruction_id", "pass", "question"))
CLIPS = Table(
    "clips",
    row=RubricClip,
    key=("clip_sha256",),
    exclusive=("clip_sha256", "group_id"),
    rows_per_group=100,
    rows_per_file=100_000,
)
