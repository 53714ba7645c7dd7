"""Tables of `pseudo-preferences`."""

from typing import Annotated, Literal, TypedDict

from earmark.schemas.tables import Column, Table, WholeFile

Dimension = Literal["musicality", "alignment"]
DIMENSIONS: tuple[Dimension, ...] = ("musicality", "alignment")

_METHOD = "CMI-RewardBench, appendix on CMI-Pref-Pseudo"
_CHOICES = "a, b or tie"
_VOTES = "what each judge votes, in the order of `judge`: what both its orders agree on, or none."


class GeneratedClip(TypedDict):
    """One row a generation that could be judged."""

    generation_id: Annotated[
        str,
        Column(
            "The generation's id in the input; of a release, a hash of prompt, model and clip.",
            names="generation",
            role="is",
        ),
    ]
    split: Annotated[str, "Split of its prompt."]
    prompt_id: Annotated[str, Column("The prompt that it was made from.", names="prompt")]
    model: Annotated[str, Column("The model that made it.", names="source")]
    file: Annotated[str, "Audio file as the table of generations, or the release, names it."]
    clip_sha256: Annotated[str, Column("SHA-256 of the audio file's bytes.", names="clip", role="is")]
    duration_s: Annotated[float, Column("Length of the clip.", unit="s")]
    sample_rate_hz: Annotated[int, Column("Sample rate of the file.", unit="Hz")]
    channels: Annotated[int, "Channels of the file."]
    peak_dbfs: Annotated[float | None, Column("Peak.", unit="dB of full scale")]
    loudness_lufs: Annotated[
        float | None,
        Column("Gated loudness of the mix-down, of its first three minutes.", unit="LUFS", source="ITU-R BS.1770-4"),
    ]
    source_file: Annotated[str, "The table that the row came from."]
    source_line: Annotated[int, "Line in that table, counted from 1."]
    audio: Annotated[WholeFile | None, "The audio file as it was judged; null unless the config says `clips.embed`."]


class GeneratedPair(TypedDict):
    """One row two generations of one prompt that were given to the judge in both orders."""

    pair_id: Annotated[
        str,
        Column(
            "Sixteen hexadecimal digits from the two generation ids, in either order; or a release's own id.",
            names="pair",
            role="is",
        ),
    ]
    split: Annotated[str, "Split of the prompt."]
    prompt_id: Annotated[str, Column("The prompt of both generations.", names="prompt")]
    modality: Annotated[str, "What the generations were given: text, text+lyrics, text+audio, text+lyrics+audio."]
    text: Annotated[
        str, "The prompt's text, and a caption of its reference, as far as the generations were given them."
    ]
    lyrics: Annotated[str | None, "The prompt's lyrics, if they were."]
    vocals: Annotated[
        str | None,
        "vocal (there are lyrics) or instrumental (lyrics that say so; in a release, no lyrics), where known.",
    ]
    reference_sha256: Annotated[str | None, Column("SHA-256 of the prompt's reference audio, if it was.", names="clip")]
    conditioned_on: Annotated[
        str | None,
        "What both generations were given: text, lyrics, reference, caption (of the reference), joined by +.",
    ]
    generation_a: Annotated[str, Column("Generation shown first in the forward pass.", names="generation")]
    generation_b: Annotated[str, Column("Generation shown second in the forward pass.", names="generation")]
    model_a: Annotated[str, "Model of generation a."]
    model_b: Annotated[str, "Model of generation b."]


class PairJudgment(TypedDict):
    """One row an answer of the judge: a pair, in one order, on one dimension."""

    pair_id: Annotated[str, Column("The pair.", names="pair")]
    split: Annotated[str, "Split of the prompt."]
    order: Annotated[str, "forward shows (a, b), reverse (b, a)."]
    dimension: Annotated[str, "musicality or alignment."]
    choice: Annotated[str, Column("The preferred generation, in the pair's own letters.", unit=_CHOICES)]
    position: Annotated[str, Column("What the judge said, by place in its prompt.", unit="A, B or tie")]
    confidence: Annotated[float | None, Column("How sure the judge is.", unit="1 to 5")]
    score_a: Annotated[float | None, Column("The judge's score of generation a in this dimension.", unit="0 to 10")]
    score_b: Annotated[float | None, Column("That of generation b.", unit="0 to 10")]
    reason: Annotated[str, "The judge's reason, as it gave it."]
    judge: Annotated[str, Column("The judge: backend and model, and its name if it has one.", names="annotator")]
    prompt: Annotated[str, "Prompt file and version that asked."]
    request_key: Annotated[str, "The request's key in the ledger."]
    notes: Annotated[str | None, "What was done to fit the model's limits, such as cut audio."]


_HALVES = "0 to 10 in half steps"
Confidence = Annotated[
    float | None,
    Column("How sure the judge is: mean of all passes, where it gives scores.", unit="1 to 5 in half steps"),
]


class PairLabel(TypedDict):
    """One row a pair on which both orders agree in every required dimension; of several judges, the jury."""

    pair_id: Annotated[str, Column("The pair.", names="pair")]
    split: Annotated[str, "Split of the prompt."]
    prompt_id: Annotated[str, Column("The prompt of both generations.", names="prompt")]
    modality: Annotated[str, "What the prompt holds."]
    generation_a: Annotated[str, Column("The pair's generation a.", names="generation")]
    generation_b: Annotated[str, Column("The pair's generation b.", names="generation")]
    model_a: Annotated[str, "Model of generation a."]
    model_b: Annotated[str, "Model of generation b."]
    musicality: Annotated[
        str | None,
        Column("Which sounds better as music; null if not agreed, or not asked.", unit=_CHOICES, source=_METHOD),
    ]
    alignment: Annotated[
        str | None,
        Column("Which follows the prompt better; null if not agreed, or not asked.", unit=_CHOICES, source=_METHOD),
    ]
    confidence_musicality: Confidence
    confidence_alignment: Confidence
    mq_a: Annotated[float | None, Column("Score of generation a: music quality; mean of all passes.", unit=_HALVES)]
    mq_b: Annotated[float | None, Column("Score of generation b: music quality; mean of all passes.", unit=_HALVES)]
    if_a: Annotated[
        float | None, Column("Score of generation a: instruction following; mean of all passes.", unit=_HALVES)
    ]
    if_b: Annotated[
        float | None, Column("Score of generation b: instruction following; mean of all passes.", unit=_HALVES)
    ]
    judge: Annotated[
        str,
        Column(
            "The annotator whose two passes agreed; a jury's, joined by +; a release's `source`.", names="annotator"
        ),
    ]
    musicality_votes: Annotated[list[str] | None, Column(f"Of a jury, {_VOTES}", unit="a, b, tie or none")]
    alignment_votes: Annotated[list[str] | None, Column(f"The same, {_VOTES}", unit="a, b, tie or none")]


class BiasRow(TypedDict):
    """Count the judge's choices by side before and after the consistency filter, in the pair's own letters:
    one row a scope, dimension and set of judgments.
    """

    scope: Annotated[str, "all, modality, model_pair or judge: which pairs the row speaks of."]
    value: Annotated[str, Column("The modality, the two models, or the judge; `all` for all.", names="annotator")]
    dimension: Annotated[str, "musicality or alignment."]
    set: Annotated[
        str, "original (forward pass), reversed (reverse pass), agreed, or jury (what several judges come to)."
    ]
    pairs: Annotated[int, "Pairs counted, once a judge: answered in both orders; for agreed, those of equal choice."]
    share_a: Annotated[float, Column("Share that prefers a.", unit="0 to 1")]
    share_b: Annotated[float, Column("Share that prefers b.", unit="0 to 1")]
    share_tie: Annotated[float, Column("Share of ties.", unit="0 to 1")]
    share_first: Annotated[float | None, Column("Share for what was shown first.", unit="0 to 1")]
    consistency: Annotated[float, Column("Share of the pairs on which both orders agree.", unit="0 to 1")]
    alpha: Annotated[
        float | None,
        Column(
            "Krippendorff's alpha of the judges' votes: 1 is agreement, 0 is chance; of a jury alone.", unit="-1 to 1"
        ),
    ]
    same_as_other: Annotated[
        float | None, Column("Of pairs agreed in both dimensions, the share with one choice in both.", unit="0 to 1")
    ]


class ConfoundRow(TypedDict):
    """Measure what else choices follow: how often the clip with more of something won."""

    set: Annotated[str, "answers (of every pass, before any filter) or labels."]
    judge: Annotated[str, Column("The judge, where there are several, or all.", names="annotator")]
    dimension: Annotated[str, "musicality or alignment."]
    feature: Annotated[
        str,
        "louder (gated loudness of the whole clip), longer, higher_rate (of the file), later (played second), or "
        "together: a logistic regression on their differences.",
    ]
    matched: Annotated[str | None, "In what a pair's clips were made alike before a judge heard them."]
    choices: Annotated[int, "Choices between clips that differ in it; ties are not counted."]
    share: Annotated[
        float | None,
        Column("Share of these that it won; of together, predicted right by a fit on other prompts.", unit="0 to 1"),
    ]
    low: Annotated[float | None, Column("Lower end of its interval of 95 %, by prompt.", unit="0 to 1")]
    high: Annotated[float | None, Column("Upper end of its interval of 95 %.", unit="0 to 1")]
    majority: Annotated[float | None, Column("Beside together: share of the more frequent letter.", unit="0 to 1")]


class PeopleRow(TypedDict):
    """Compare the judge's choices with people's votes on the same clips; only with `validation`."""

    dimension: Annotated[str, "musicality or alignment."]
    measure: Annotated[
        str,
        "accuracy, confidence (of what both passes agree on, by people's own), confusion, calibration, or "
        "calibration error.",
    ]
    value: Annotated[str, "The pass or set, band, choices, or how sure both passes together are."]
    pairs: Annotated[int, "Pairs that the row counts."]
    share: Annotated[float, Column("Share that is right; of a confusion, of what people chose.", unit="0 to 1")]
    low: Annotated[float | None, Column("Lower end of its interval of 95 %.", unit="0 to 1")]
    high: Annotated[float | None, Column("Upper end of its interval of 95 %.", unit="0 to 1")]
    expected: Annotated[float | None, Column("What a calibrated judge would reach.", unit="0 to 1")]


CLIPS = Table(
    "clips",
    row=GeneratedClip,
    key=("generation_id",),
    exclusive=("prompt_id", "clip_sha256"),
    says=(
        "read from {source_file}, line {source_line}",
        "made by {model} from prompt {prompt_id}; {duration_s} s at {sample_rate_hz} Hz, peak {peak_dbfs} dBFS",
    ),
)
PAIRS = Table(
    "pairs",
    row=GeneratedPair,
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("two generations of prompt {prompt_id} ({modality}), by {model_a} and {model_b}",),
)
JUDGMENTS = Table(
    "judgments",
    row=PairJudgment,
    key=("pair_id", "order", "dimension", "judge"),
    says=("judged {order} on {dimension}: {position} of the prompt, that is {choice}; request {request_key}",),
)
LABELS = Table(
    "labels",
    row=PairLabel,
    key=("pair_id",),
    exclusive=("prompt_id",),
    says=("both orders agree: musicality {musicality}, alignment {alignment}",),
)
BIAS = Table("bias", row=BiasRow, key=("scope", "value", "dimension", "set"), splits=False, counted=True)
CONFOUNDS = Table(
    "confounds",
    row=ConfoundRow,
    key=("set", "judge", "dimension", "feature"),
    splits=False,
    counted=True,
    optional=True,
)
PEOPLE = Table(
    "people", row=PeopleRow, key=("dimension", "measure", "value"), splits=False, counted=True, optional=True
)
