"""Tables of `instruction-rubrics` (AnyAudio-Judge): samples, their instructions, items and labels, and the clips.

Ids are the same in all languages: a sample, an instruction and an item have a row a language each.
"""

from __future__ import annotations

import pyarrow as pa

from earmark.schemas.tables import WORDS, Table, audio_column, column

_LANGUAGE = column("language", pa.string(), "Language of the row's text.", unit="en or zh")
_SPLIT = column("split", pa.string(), "test is the bench, train the corpus.")

SAMPLES = Table(
    name="samples",
    description="One row a clip with an instruction and a language: does the clip follow it?",
    schema=pa.schema(
        [
            column(
                "sample_id", pa.string(), "Sixteen hexadecimal digits; the same in all languages.",
                names="sample", role="is",
            ),
            _LANGUAGE,
            _SPLIT,
            column("pair_id", pa.string(), "Names the positive and the negative that balance each other."),
            column("subset", pa.string(), "Subset, such as music-real."),
            column("domain", pa.string(), "What is heard.", unit="speech, sound, music or mixed"),
            column("clip_sha256", pa.string(), "SHA-256 of the clip's file.", names="clip"),
            column("instruction_id", pa.string(), "The instruction that is judged.", names="instruction", role="keeps"),
            column("instruction", pa.string(), "Its text."),
            column("follows", pa.bool_(), "Whether the clip follows the instruction: the sample's label."),
            column("kind", pa.string(), "How it came about.", unit="pos, swap, perturb or judged"),
            column(
                "truth_id", pa.string(), "The clip's own instruction.", optional=True,
                names="instruction", role="keeps",
            ),
            column("truth", pa.string(), "What is known of the clip, in its source's language: its own caption, or "
                   "what both passes heard of generated audio that failed."),
            column("attribute", pa.string(), "What was changed; null unless perturbed.", optional=True),
            column("span_before", pa.string(), "The words that were changed.", optional=True),
            column("span_after", pa.string(), "The words in their place.", optional=True),
            column("verified_by", pa.string(), "The annotator that heard the clip.", optional=True, names="annotator"),
            column("similarity", pa.float64(), "Cosine similarity of clip and instruction in its source's language.",
                   unit="-1 to 1", optional=True),
            column("items", pa.int64(), "Items of the instruction.", unit="items"),
            column("items_yes", pa.int64(), "Of these, labelled yes.", unit="items"),
            column("source", pa.string(), "The source's name in the config.", names="source"),
            column("source_file", pa.string(), "The list that the clip came from."),
            column("source_line", pa.int64(), "Line in that list, counted from 1."),
        ]
    ),
    key=("sample_id", "language"),
    exclusive=("clip_sha256", "instruction_id", "pair_id"),
    says=(
        "read from {source_file}, line {source_line}; {kind} of {subset}; follows: {follows}",
        "judged against instruction {instruction_id}: {instruction}",
        "attribute {attribute}: '{span_before}' became '{span_after}'; {items_yes} of {items} items yes",
    ),
)  # fmt: skip

INSTRUCTIONS = Table(
    name="instructions",
    description="One row an instruction and a language: a caption as its source has it, or with a detail changed.",
    schema=pa.schema(
        [
            column(
                "instruction_id", pa.string(), "Sixteen hexadecimal digits; the same in all languages.",
                names="instruction", role="is",
            ),
            _LANGUAGE,
            _SPLIT,
            column("domain", pa.string(), "What it speaks of.", unit="speech, sound, music or mixed"),
            column("text", pa.string(), "The instruction."),
            column("original", pa.bool_(), "Whether this is the language that it was written in."),
            column(
                "altered_from", pa.string(), "The instruction that a detail was changed of.", optional=True,
                names="instruction",
            ),
            column("flags", WORDS, "What the back-check of its translation found.",
                   unit="numbers, names, negations; empty if nothing"),
            column("written_by", pa.string(), "The annotator that wrote this text; null if its source did.",
                   optional=True, names="annotator"),
            column("source", pa.string(), "The source's name in the config.", names="source"),
        ]
    ),
    key=("instruction_id", "language"),
    exclusive=("instruction_id",),
)  # fmt: skip

ITEMS = Table(
    name="items",
    description="One row an item of an instruction and a language: an independent question whose yes means aligned.",
    schema=pa.schema(
        [
            column("instruction_id", pa.string(), "The instruction.", names="instruction"),
            column("item", pa.int64(), "Number of the item, from 1."),
            _LANGUAGE,
            _SPLIT,
            column("dimension", pa.string(), "What it asks about, such as tempo; `instruction` if it is the whole."),
            column("question", pa.string(), "The yes/no question."),
            column("basis", pa.string(), "The words that it rests on, in the instruction's own language."),
            column("flags", WORDS, "What the back-check of its translation found."),
            column("written_by", pa.string(), "The annotator that wrote this text; null if it is the instruction.",
                   optional=True, names="annotator"),
            column("source", pa.string(), "The source's name in the config.", names="source"),
        ]
    ),
    key=("instruction_id", "item", "language"),
    exclusive=("instruction_id",),
)  # fmt: skip

LABELS = Table(
    name="labels",
    description="One row an item of a sample and a language: the answer, and why.",
    schema=pa.schema(
        [
            column("sample_id", pa.string(), "The sample.", names="sample"),
            column("item", pa.int64(), "Number of the item of its instruction, from 1."),
            _LANGUAGE,
            _SPLIT,
            column("clip_sha256", pa.string(), "The sample's clip.", names="clip"),
            column("answer", pa.bool_(), "Whether the clip does what the item asks."),
            column("rationale", pa.string(), "Why."),
            column("labelled_by", pa.string(), "The annotator that answered or gave the rationale.", names="annotator"),
            column("prompt", pa.string(), "Prompt file and version that asked."),
            column("request_key", pa.string(), "The request's key in the ledger."),
            column("source", pa.string(), "The source's name in the config.", names="source"),
        ]
    ),
    key=("sample_id", "item", "language"),
    exclusive=("sample_id",),
)

JUDGMENTS = Table(
    name="judgments",
    description="One row an answer of the judge that hears: whether an instruction fits a clip, and what it heard.",
    schema=pa.schema(
        [
            column("clip_sha256", pa.string(), "The clip.", names="clip"),
            column("instruction_id", pa.string(), "The instruction.", names="instruction"),
            column("pass", pa.int64(), "1, or 2 for the second pass over generated audio."),
            column("question", pa.string(), "verify: does it fit? mismatch: is it wrong?", unit="verify or mismatch"),
            _SPLIT,
            column("subset", pa.string(), "Subset of the clip."),
            column("answer", pa.bool_(), "The answer to the question."),
            column("evidence", pa.string(), "What the judge heard."),
            column("judge", pa.string(), "The annotator.", names="annotator"),
            column("prompt", pa.string(), "Prompt file and version that asked."),
            column("request_key", pa.string(), "The request's key in the ledger."),
            column("similarity", pa.float64(), "Cosine similarity of clip and instruction.", unit="-1 to 1",
                   optional=True),
            column("source", pa.string(), "The source's name in the config.", names="source"),
        ]
    ),
    key=("clip_sha256", "instruction_id", "pass", "question"),
)  # fmt: skip

CLIPS = Table(
    name="clips",
    description="One row a clip of the samples.",
    schema=pa.schema(
        [
            column("clip_sha256", pa.string(), "SHA-256 of the clip's file.", names="clip", role="is"),
            _SPLIT,
            column("subset", pa.string(), "Subset."),
            column("domain", pa.string(), "What is heard.", unit="speech, sound, music or mixed"),
            column("generated", pa.bool_(), "Whether it was generated from its instruction."),
            column("generator", pa.string(), "What generated it, as its source says.", optional=True),
            column("group_id", pa.string(), "Clips that may not part: same sound, near captions, one origin."),
            column("duration_s", pa.float64(), "Length.", unit="s"),
            column("sample_rate_hz", pa.int64(), "Samples a second and channel.", unit="Hz"),
            column("channels", pa.int64(), "Channels."),
            column("file", pa.string(), "Audio file as the list names it."),
            column("source", pa.string(), "The source's name in the config.", names="source"),
            audio_column("The clip's file, where it is embedded."),
        ]
    ),
    key=("clip_sha256",),
    exclusive=("clip_sha256", "group_id"),
    rows_per_group=100,
    rows_per_file=100_000,
)  # fmt: skip
