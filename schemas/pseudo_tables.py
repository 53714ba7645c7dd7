"""Tables of `pseudo-preferences`."""

from __future__ import annotations

from typing import Literal

from earmark.schemas.tables import WORDS, Table, audio_column, column, columns, integer, number, text

Dimension = Literal["musicality", "alignment"]
DIMENSIONS: tuple[Dimension, ...] = ("musicality", "alignment")

_METHOD = "CMI-RewardBench, appendix on CMI-Pref-Pseudo"
_CHOICES = "a, b or tie"
_VOTES = "what each judge votes, in the order of `judge`: what both its orders agree on, or none."

CLIPS = Table(
    name="clips",
    description="One row a generation that could be judged.",
    schema=columns(
        text(
            "generation_id",
            "The generation's id in the input; of a release, a hash of prompt, model and clip.",
            names="generation",
            role="is",
        ),
        text("split", "Split of its prompt."),
        text("prompt_id", "The prompt that it was made from.", names="prompt"),
        text("model", "The model that made it.", names="source"),
        text("file", "Audio file as the table of generations, or the release, names it."),
        text("clip_sha256", "SHA-256 of the audio file's bytes.", names="clip", role="is"),
        number("duration_s", "Length of the clip.", unit="s"),
        integer("sample_rate_hz", "Sample rate of the file.", unit="Hz"),
        integer("channels", "Channels of the file."),
        number("peak_dbfs", "Peak.", unit="dB of full scale", optional=True),
        number(
            "loudness_lufs",
            "Gated loudness of the mix-down, of its first three minutes.",
            unit="LUFS",
            source="ITU-R BS.1770-4",
            optional=True,
        ),
        text("source_file", "The table that the row came from."),
        integer("source_line", "Line in that table, counted from 1."),
        audio_column("The audio file as it was judged; null unless the config says `clips.embed`."),
    ),
    key=("generation_id",),
    exclusive=("prompt_id", "clip_sha256"),
    says=(
        "read from {source_file}, line {source_line}",
        "made by {model} from prompt {prompt_id}; {duration_s} s at {sample_rate_hz} Hz, peak {peak_dbfs} dBFS",
    ),
)

PAIRS = Table(
    name="pairs",
    description="One row two generations of one prompt that were given to the judge in both orders.",
    schema=columns(
        text(
            "pair_id",
            "Sixteen hexadecimal digits from the two generation ids, in either order; or a release's own id.",
            names="pair",
            role="is",
        ),
        text("split", "Split of the prompt."),
        text("prompt_id", "The prompt of both generations.", names="prompt"),
        text("modality", "What the generations were given: text, text+lyrics, text+audio, text+lyrics+audio."),
        text("text", "The prompt's text, and a caption of its reference, as far as the generations were given them."),
        text("lyrics", "The prompt's lyrics, if they were.", optional=True),
        text(
            "vocals",
            "vocal (there are lyrics) or instrumental (lyrics that say so; in a release, no lyrics), where known.",
            optional=True,
        ),
        text("reference_sha256", "SHA-256 of the prompt's reference audio, if it was.", optional=True, names="clip"),
        text(
            "conditioned_on",
            "What both generations were given: text, lyrics, reference, caption (of the reference), joined by +.",
            optional=True,
        ),
        text("generation_a", "Generation shown first in the forward pass.", names="generation"),
        text("generation_b", "Generation shown second in the forward pass.", names="generation"),
        text("model_a", "Model of generation a."),
        text("model_b", "Model of generation b."),
    ),
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("two generations of prompt {prompt_id} ({modality}), by {model_a} and {model_b}",),
)

JUDGMENTS = Table(
    name="judgments",
    description="One row an answer of the judge: a pair, in one order, on one dimension.",
    schema=columns(
        text("pair_id", "The pair.", names="pair"),
        text("split", "Split of the prompt."),
        text("order", "forward shows (a, b), reverse (b, a)."),
        text("dimension", "musicality or alignment."),
        text("choice", "The preferred generation, in the pair's own letters.", unit=_CHOICES),
        text("position", "What the judge said, by place in its prompt.", unit="A, B or tie"),
        number("confidence", "How sure the judge is.", unit="1 to 5", optional=True),
        number("score_a", "The judge's score of generation a in this dimension.", unit="0 to 10", optional=True),
        number("score_b", "That of generation b.", unit="0 to 10", optional=True),
        text("reason", "The judge's reason, as it gave it."),
        text("judge", "The judge: backend and model, and its name if it has one.", names="annotator"),
        text("prompt", "Prompt file and version that asked."),
        text("request_key", "The request's key in the ledger."),
        text("notes", "What was done to fit the model's limits, such as cut audio.", optional=True),
    ),
    key=("pair_id", "order", "dimension", "judge"),
    says=("judged {order} on {dimension}: {position} of the prompt, that is {choice}; request {request_key}",),
)

LABELS = Table(
    name="labels",
    description="One row a pair on which both orders agree in every required dimension; of several judges, the jury.",
    schema=columns(
        text("pair_id", "The pair.", names="pair"),
        text("split", "Split of the prompt."),
        text("prompt_id", "The prompt of both generations.", names="prompt"),
        text("modality", "What the prompt holds."),
        text("generation_a", "The pair's generation a.", names="generation"),
        text("generation_b", "The pair's generation b.", names="generation"),
        text("model_a", "Model of generation a."),
        text("model_b", "Model of generation b."),
        text(
            "musicality",
            "Which sounds better as music; null if not agreed, or not asked.",
            unit=_CHOICES,
            source=_METHOD,
            optional=True,
        ),
        text(
            "alignment",
            "Which follows the prompt better; null if not agreed, or not asked.",
            unit=_CHOICES,
            source=_METHOD,
            optional=True,
        ),
        *(
            number(
                f"confidence_{name}",
                "How sure the judge is: mean of all passes, where it gives scores.",
                unit="1 to 5 in half steps",
                optional=True,
            )
            for name in DIMENSIONS
        ),
        *(
            number(
                f"{of}_{side}",
                f"Score of generation {side}: {what}; mean of all passes.",
                unit="0 to 10 in half steps",
                optional=True,
            )
            for of, what in (("mq", "music quality"), ("if", "instruction following"))
            for side in "ab"
        ),
        text(
            "judge",
            "The annotator whose two passes agreed; a jury's, joined by +; a release's `source`.",
            names="annotator",
        ),
        column("musicality_votes", WORDS, f"Of a jury, {_VOTES}", unit="a, b, tie or none", optional=True),
        column("alignment_votes", WORDS, f"The same, {_VOTES}", unit="a, b, tie or none", optional=True),
    ),
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("both orders agree: musicality {musicality}, alignment {alignment}",),
)

BIAS = Table(
    name="bias",
    description=(
        "How the judge's choices are shared out before and after the consistency filter, in the pair's own letters: "
        "one row a scope, dimension and set of judgments."
    ),
    schema=columns(
        text("scope", "all, modality, model_pair or judge: which pairs the row speaks of."),
        text("value", "The modality, the two models, or the judge; `all` for all.", names="annotator"),
        text("dimension", "musicality or alignment."),
        text("set", "original (forward pass), reversed (reverse pass), agreed, or jury (what several judges come to)."),
        integer("pairs", "Pairs counted, once a judge: answered in both orders; for agreed, those of equal choice."),
        number("share_a", "Share that prefers a.", unit="0 to 1"),
        number("share_b", "Share that prefers b.", unit="0 to 1"),
        number("share_tie", "Share of ties.", unit="0 to 1"),
        number("share_first", "Share for what was shown first.", unit="0 to 1", optional=True),
        number("consistency", "Share of the pairs on which both orders agree.", unit="0 to 1"),
        number(
            "alpha",
            "Krippendorff's alpha of the judges' votes: 1 is agreement, 0 is chance; of a jury alone.",
            unit="-1 to 1",
            optional=True,
        ),
        number(
            "same_as_other",
            "Of pairs agreed in both dimensions, the share with one choice in both.",
            unit="0 to 1",
            optional=True,
        ),
    ),
    key=("scope", "value", "dimension", "set"),
    splits=False,
    counted=True,
)

CONFOUNDS = Table(
    name="confounds",
    description="What choices follow besides what was asked: how often the clip with more of something won.",
    schema=columns(
        text("set", "answers (of every pass, before any filter) or labels."),
        text("judge", "The judge, where there are several, or all.", names="annotator"),
        text("dimension", "musicality or alignment."),
        text(
            "feature",
            "louder (gated loudness of the whole clip), longer, higher_rate (of the file), later (played second), or "
            "together: a logistic regression on their differences.",
        ),
        text("matched", "In what a pair's clips were made alike before a judge heard them.", optional=True),
        integer("choices", "Choices between clips that differ in it; ties are not counted."),
        number("share", "Share of these that it won; of together, predicted right by a fit on other prompts.",
            unit="0 to 1", optional=True),
        number("low", "Lower end of its interval of 95 %, by prompt.", unit="0 to 1", optional=True),
        number("high", "Upper end of its interval of 95 %.", unit="0 to 1", optional=True),
        number("majority", "Beside together: share of the more frequent letter.", unit="0 to 1", optional=True),
    ),
    key=("set", "judge", "dimension", "feature"),
    splits=False,
    counted=True,
    optional=True,
)  # fmt: skip

PEOPLE = Table(
    name="people",
    description="How the judge's choices compare with people's votes on the same clips; only with `[validation]`.",
    schema=columns(
        text("dimension", "musicality or alignment."),
        text(
            "measure",
            "accuracy, confidence (of what both passes agree on, by people's own), confusion, calibration, or "
            "calibration error.",
        ),
        text("value", "The pass or set, band, choices, or how sure both passes together are."),
        integer("pairs", "Pairs that the row counts."),
        number("share", "Share that is right; of a confusion, of what people chose.", unit="0 to 1"),
        number("low", "Lower end of its interval of 95 %.", unit="0 to 1", optional=True),
        number("high", "Upper end of its interval of 95 %.", unit="0 to 1", optional=True),
        number("expected", "What a calibrated judge would reach.", unit="0 to 1", optional=True),
    ),
    key=("dimension", "measure", "value"),
    splits=False,
    counted=True,
    optional=True,
)
