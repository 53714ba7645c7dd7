"""Tables of `instruction-rubrics` (AnyAudio-Judge): samples, their instructions, items and labels, and the clips.

Ids are the same in all languages: a sample, an instruction and an item have a row a language each.
"""

from __future__ import annotations

from earmark.schemas.tables import WORDS, Table, audio_column, column, columns, flag, integer, number, text

_LANGUAGE = text("language", "Language of the row's text.", unit="en or zh")
_SPLIT = text("split", "test is the bench, train the corpus.")

SAMPLES = Table(
    name="samples",
    description="One row a clip with an instruction and a language: does the clip follow it?",
    schema=columns(
        text("sample_id", "Sixteen hexadecimal digits; the same in all languages.", names="sample", role="is"),
        _LANGUAGE,
        _SPLIT,
        text("pair_id", "Names the positive and the negative that balance each other."),
        text("subset", "Subset, such as music-real."),
        text("domain", "What is heard.", unit="speech, sound, music or mixed"),
        text("clip_sha256", "SHA-256 of the clip's file.", names="clip"),
        text("instruction_id", "The instruction that is judged.", names="instruction", role="keeps"),
        text("instruction", "Its text."),
        flag("follows", "Whether the clip follows the instruction: the sample's label."),
        text("kind", "How it came about.", unit="pos, swap, perturb or judged"),
        text("truth_id", "The clip's own instruction.", optional=True, names="instruction", role="keeps"),
        text(
            "truth",
            "What is known of the clip, in its source's language: its own caption, or "
            "what both passes heard of generated audio that failed.",
        ),
        text("attribute", "What was changed; null unless perturbed.", optional=True),
        text("span_before", "The words that were changed.", optional=True),
        text("span_after", "The words in their place.", optional=True),
        text("verified_by", "The annotator that heard or read; null if none did.", optional=True, names="annotator"),
        column(
            "verified",
            WORDS,
            "What verified the label; empty if nothing did, null in versions of before.",
            unit="audio, similarity, text",
            optional=True,
        ),
        number(
            "similarity",
            "Cosine similarity of clip and instruction in its source's language.",
            unit="-1 to 1",
            optional=True,
        ),
        integer("items", "Items of the instruction that are labelled.", unit="items"),
        integer("items_yes", "Of these, labelled yes.", unit="items"),
        text("source", "The source's name in the config.", names="source"),
        text("source_file", "The list that the clip came from."),
        integer("source_line", "Line in that list, counted from 1."),
    ),
    key=("sample_id", "language"),
    exclusive=("clip_sha256", "instruction_id", "pair_id"),
    says=(
        "read from {source_file}, line {source_line}; {kind} of {subset}; follows: {follows}",
        "judged against instruction {instruction_id}: {instruction}",
        "attribute {attribute}: '{span_before}' became '{span_after}'; {items_yes} of {items} items yes",
    ),
)

INSTRUCTIONS = Table(
    name="instructions",
    description="One row an instruction and a language: a caption as its source has it, or with a detail changed.",
    schema=columns(
        text(
            "instruction_id", "Sixteen hexadecimal digits; the same in all languages.", names="instruction", role="is"
        ),
        _LANGUAGE,
        _SPLIT,
        text("domain", "What it speaks of.", unit="speech, sound, music or mixed"),
        text("text", "The instruction."),
        flag("original", "Whether this is the language that it was written in."),
        text("altered_from", "The instruction that a detail was changed of.", optional=True, names="instruction"),
        column(
            "flags",
            WORDS,
            "What the back-check of its translation found.",
            unit="numbers, names, negations; empty if nothing",
        ),
        text(
            "written_by",
            "The annotator that wrote this text; null if its source did.",
            optional=True,
            names="annotator",
        ),
        text("source", "The source's name in the config.", names="source"),
    ),
    key=("instruction_id", "language"),
    exclusive=("instruction_id",),
)

ITEMS = Table(
    name="items",
    description="One row an item of an instruction and a language: an independent question whose yes means aligned.",
    schema=columns(
        text("instruction_id", "The instruction.", names="instruction"),
        integer("item", "Number of the item, from 1."),
        _LANGUAGE,
        _SPLIT,
        text("dimension", "What it asks about, such as tempo; `instruction` if it is the whole."),
        text("question", "The yes/no question."),
        text("basis", "The words that it rests on, in the instruction's own language."),
        column(
            "flags",
            WORDS,
            "What a second model and the back-check of its translation found.",
            unit="direction: yes would not mean aligned; unread; numbers, names, negations",
        ),
        text(
            "written_by",
            "The annotator that wrote this text; null if it is the instruction.",
            optional=True,
            names="annotator",
        ),
        text("source", "The source's name in the config.", names="source"),
    ),
    key=("instruction_id", "item", "language"),
    exclusive=("instruction_id",),
)

LABELS = Table(
    name="labels",
    description="One row an item of a sample and a language: the answer, and why.",
    schema=columns(
        text("sample_id", "The sample.", names="sample"),
        integer("item", "Number of the item of its instruction, from 1."),
        _LANGUAGE,
        _SPLIT,
        text("clip_sha256", "The sample's clip.", names="clip"),
        flag("answer", "Whether the clip does what the item asks."),
        text("rationale", "Why."),
        text("labelled_by", "The annotator that answered or gave the rationale.", names="annotator"),
        text("prompt", "Prompt file and version that asked."),
        text("request_key", "The request's key in the ledger."),
        text("source", "The source's name in the config.", names="source"),
    ),
    key=("sample_id", "item", "language"),
    exclusive=("sample_id",),
)

JUDGMENTS = Table(
    name="judgments",
    description="One row an answer of the judge that hears, or of a reader: does an instruction fit a clip, and why.",
    schema=columns(
        text("clip_sha256", "The clip.", names="clip"),
        text("instruction_id", "The instruction.", names="instruction"),
        integer("pass", "1, or 2 for the second pass over generated audio."),
        text("question", "verify: does it fit? mismatch, read: is it wrong?", unit="verify, mismatch or read"),
        _SPLIT,
        text("subset", "Subset of the clip."),
        flag("answer", "The answer to the question."),
        text("evidence", "What the judge heard, or the reader compared."),
        text("judge", "The annotator.", names="annotator"),
        text("prompt", "Prompt file and version that asked."),
        text("request_key", "The request's key in the ledger."),
        number("similarity", "Cosine similarity of clip and instruction.", unit="-1 to 1", optional=True),
        text("source", "The source's name in the config.", names="source"),
    ),
    key=("clip_sha256", "instruction_id", "pass", "question"),
)

CLIPS = Table(
    name="clips",
    description="One row a clip of the samples.",
    schema=columns(
        text("clip_sha256", "SHA-256 of the clip's file.", names="clip", role="is"),
        _SPLIT,
        text("subset", "Subset."),
        text("domain", "What is heard.", unit="speech, sound, music or mixed"),
        flag("generated", "Whether it was generated from its instruction."),
        text("generator", "What generated it, as its source says.", optional=True),
        text("group_id", "Clips that may not part: same sound, near captions, one origin."),
        number("duration_s", "Length.", unit="s"),
        integer("sample_rate_hz", "Samples a second and channel.", unit="Hz"),
        integer("channels", "Channels."),
        text("file", "Audio file as the list names it."),
        text("source", "The source's name in the config.", names="source"),
        audio_column("The clip's file, where it is embedded."),
    ),
    key=("clip_sha256",),
    exclusive=("clip_sha256", "group_id"),
    rows_per_group=100,
    rows_per_file=100_000,
)
