"""Tables of `human-preferences`."""

from typing import Annotated, TypedDict

from earmark.schemas.tables import REJECTS, Column, Table, WholeFile

_CHOICE = "a, b or tie"
_CONFIDENCE = "1 to 5 in half steps"
SplitName = Annotated[str, "train, validation or test."]
SourceName = Annotated[str, Column("The export or rated set, by its name in the config.", names="source")]
TaskName = Annotated[str, "The kind of source: cmi-pref, music-arena, votes, musiceval or pam."]
DimensionName = Annotated[str, "musicality, alignment or overall."]


class VotedClip(TypedDict):
    """One row a clip that was voted on, rated, or given as a reference."""

    clip_id: Annotated[
        str,
        Column("Source and file; for audio that the source withholds, source and row.", names="heard_clip", role="is"),
    ]
    split: SplitName
    source: Annotated[str, "The export or rated set, by its name in the config."]
    terms: Annotated[
        str, Column("Whose terms hold: the model's where the config names it, else the source's.", names="source")
    ]
    licence: Annotated[str | None, "The licence that the config names for it."]
    model: Annotated[str | None, "The model that made it; null for references."]
    file: Annotated[str | None, "Audio file as the source names it; null if withheld."]
    clip_sha256: Annotated[
        str | None, Column("SHA-256 of the file's bytes; null if not measured.", names="clip", role="is")
    ]
    duration_s: Annotated[float | None, Column("Length of the clip.", unit="s")]
    sample_rate_hz: Annotated[int | None, Column("Sample rate of the file.", unit="Hz")]
    channels: Annotated[int | None, "Channels of the file."]
    audio: Annotated[WholeFile | None, 'The audio file itself; null unless the config says `audio = "embed"`.']


class Comparison(TypedDict):
    """One row two clips of one prompt that people compared."""

    comparison_id: Annotated[
        str, Column("Sixteen hexadecimal digits from prompt and clips, in either order.", names="comparison", role="is")
    ]
    split: SplitName
    source: SourceName
    task: TaskName
    prompt_id: Annotated[str, Column("Sixteen hexadecimal digits of what the prompt says.", names="prompt")]
    source_prompt_id: Annotated[str | None, Column("The prompt's id in the source.", names="prompt")]
    modality: Annotated[str, "What the prompt holds: text, lyrics, audio, joined by +; or none."]
    vocals: Annotated[str | None, "vocal (lyrics, or said so) or instrumental (said so; no lyrics in CMI-Pref)."]
    text: Annotated[str | None, "The prompt's text."]
    lyrics: Annotated[str | None, "The prompt's lyrics."]
    reference_clip: Annotated[str | None, Column("The prompt's reference clip.", names="heard_clip", role="keeps")]
    clip_a: Annotated[str, Column("The clip that the first vote was shown as a.", names="heard_clip", role="keeps")]
    clip_b: Annotated[str, Column("The other clip.", names="heard_clip", role="keeps")]
    model_a: Annotated[str | None, "The model of clip a."]
    model_b: Annotated[str | None, "The model of clip b."]
    month: Annotated[str | None, "Month of the first vote, as 2025-08."]
    votes: Annotated[int, "Votes on it."]


class VoteRow(TypedDict):
    """One row a vote, in the letters of its comparison."""

    vote_id: Annotated[
        str, Column("Source and the vote's id there; without one, source, file and line.", names="vote", role="is")
    ]
    split: SplitName
    comparison_id: Annotated[str, Column("The comparison.", names="comparison", role="keeps")]
    source: SourceName
    annotator: Annotated[str | None, Column("Salted hash of source and annotator's id.", names="annotator")]
    shown: Annotated[str, "ab, or ba where clip b was shown as the first."]
    musicality: Annotated[str | None, Column("Which sounds better as music.", unit=_CHOICE)]
    confidence_musicality: Annotated[float | None, Column("How sure.", unit=_CONFIDENCE)]
    alignment: Annotated[str | None, Column("Which follows the prompt better.", unit=_CHOICE)]
    confidence_alignment: Annotated[float | None, Column("How sure.", unit=_CONFIDENCE)]
    overall: Annotated[str | None, Column("Which is preferred, all in all.", unit=_CHOICE)]
    confidence_overall: Annotated[float | None, Column("How sure.", unit=_CONFIDENCE)]
    date: Annotated[str | None, "Day of the vote, as 2025-08-31."]
    listened_a_s: Annotated[float | None, Column("How long clip a was played.", unit="s")]
    listened_b_s: Annotated[float | None, Column("How long clip b was played.", unit="s")]
    feedback: Annotated[str | None, "The annotator's own words, scrubbed."]
    source_file: Annotated[str, "The file that the vote came from."]
    source_line: Annotated[int, "Line in that file, counted from 1."]
    model_a: Annotated[str | None, "The model of clip a as this vote names it; a clip may be the pick of several."]
    model_b: Annotated[str | None, "The model of clip b as this vote names it."]


class Preference(TypedDict):
    """One row a comparison and dimension: what its votes say together."""

    preference_id: Annotated[str, Column("Comparison and dimension.", names="label", role="is")]
    split: SplitName
    comparison_id: Annotated[str, Column("The comparison.", names="comparison")]
    dimension: DimensionName
    preference: Annotated[str, Column("The choice of greatest weight; equal weights make a tie.", unit=_CHOICE)]
    confidence: Annotated[float | None, Column("Mean confidence of its votes.", unit="1 to 5")]
    votes: Annotated[int, "Votes on this dimension."]
    weight_a: Annotated[float, "Weight of the votes for a: their confidences, 3 where none is given."]
    weight_b: Annotated[float, "Weight of the votes for b."]
    weight_tie: Annotated[float, "Weight of the votes for neither."]
    unanimous: Annotated[bool, "Whether all votes say the same."]


class VotedRating(TypedDict):
    """One row a rated clip and dimension."""

    rating_id: Annotated[str, Column("Clip and dimension.", names="label", role="is")]
    split: SplitName
    source: SourceName
    task: TaskName
    clip_id: Annotated[str, Column("The clip.", names="heard_clip", role="keeps")]
    system: Annotated[str, "The model that made it."]
    prompt_id: Annotated[str | None, Column("Sixteen hexadecimal digits of what the prompt says.", names="prompt")]
    source_prompt_id: Annotated[str | None, Column("The prompt's id in the source.", names="prompt")]
    text: Annotated[str | None, "The prompt's text."]
    dimension: DimensionName
    score: Annotated[float, "Mean rating, on the source's scale."]
    rating: Annotated[float, Column("The same, brought to a scale from 1 to 5.", unit="1 to 5")]
    votes: Annotated[int | None, "Rows of the set that the score is the mean of; null for one."]
    score_std: Annotated[float | None, "Sample standard deviation of these rows."]
    source_file: Annotated[str, "The file that the rating came from."]
    source_line: Annotated[int, "Line in that file, from 1; the first, where ratings were averaged."]


class TrainingRow(TypedDict):
    """One row a pair with a preferred clip, or a rating: what a reward model learns from with a Bradley-Terry
    loss for the one and a squared error for the other.
    """

    row_id: Annotated[str, Column("Vote and dimension, the preference, or the rating.", names="label")]
    split: SplitName
    comparison_id: Annotated[str | None, Column("The pair's comparison; null for ratings.", names="comparison")]
    vote_id: Annotated[str | None, Column("The vote, where a sample is one.", names="vote")]
    kind: Annotated[str, "pair or rating."]
    source: SourceName
    dimension: DimensionName
    text: Annotated[str | None, "The prompt's text."]
    lyrics: Annotated[str | None, "The prompt's lyrics."]
    reference_clip: Annotated[str | None, Column("The prompt's reference clip.", names="heard_clip")]
    clip: Annotated[str, Column("The preferred clip of a pair; the rated clip.", names="heard_clip")]
    other_clip: Annotated[str | None, Column("The clip that was not preferred; null for ratings.", names="heard_clip")]
    rating: Annotated[float | None, Column("The rating; null for pairs.", unit="1 to 5")]
    confidence: Annotated[float | None, Column("Confidence of the vote; of a comparison, their mean.", unit="1 to 5")]


class BenchmarkRow(TypedDict):
    """CMI-RewardBench's tasks in one form: one row a tested pair or a tested clip, and a dimension."""

    sample_id: Annotated[str, Column("Vote and dimension, the preference, or the rating.", names="label")]
    split: SplitName
    comparison_id: Annotated[str | None, Column("The pair's comparison; null for ratings.", names="comparison")]
    vote_id: Annotated[str | None, Column("The vote, where a sample is one.", names="vote")]
    task: TaskName
    source: SourceName
    dimension: DimensionName
    text: Annotated[str | None, "The prompt's text."]
    lyrics: Annotated[str | None, "The prompt's lyrics."]
    reference_clip: Annotated[str | None, Column("The prompt's reference clip.", names="heard_clip")]
    clip_a: Annotated[str, Column("Clip a of a pair; the rated clip.", names="heard_clip")]
    clip_b: Annotated[str | None, Column("Clip b of a pair; null for ratings.", names="heard_clip")]
    preference: Annotated[str | None, Column("The preferred clip; null for ratings.", unit="a or b")]
    score: Annotated[float | None, "Mean rating on the source's scale; null for pairs."]
    system: Annotated[str | None, "The model of a rated clip."]
    modality: Annotated[str | None, "What the prompt holds."]
    vocals: Annotated[str | None, "vocal or instrumental, where known."]
    confidence: Annotated[float | None, Column("Confidence of the vote; of a comparison, their mean.", unit="1 to 5")]
    confidence_band: Annotated[str | None, "Confidence: <3, 3 or >3."]
    month: Annotated[str | None, "Month of the first vote, as 2025-08."]


_INTERVAL = "bound of the interval that covers 95 %, by bootstrap over comparisons"


class AgreementRow(TypedDict):
    """Measure the agreement of annotators where several voted on one comparison: one row a scope and dimension."""

    scope: Annotated[str, "all, source, annotator or month: which comparisons the row speaks of."]
    value: Annotated[str, Column("The source, annotator or month; `all` for all.", names="annotator")]
    dimension: DimensionName
    comparisons: Annotated[int, "Comparisons with two votes or more."]
    votes: Annotated[int, "Votes on them."]
    vote_pairs: Annotated[int, "Pairs of votes on one comparison; for an annotator, those with theirs."]
    agree: Annotated[int, "Those that say the same."]
    rate: Annotated[float, Column("Share that says the same.", unit="0 to 1")]
    rate_low: Annotated[float | None, f"Lower {_INTERVAL}."]
    rate_high: Annotated[float | None, f"Upper {_INTERVAL}."]
    alpha: Annotated[
        float | None,
        Column(
            "Krippendorff's alpha, nominal; null where all votes are equal.",
            unit="at most 1; 0 is chance",
            source="Krippendorff (2011)",
        ),
    ]
    alpha_low: Annotated[float | None, f"Lower {_INTERVAL}."]
    alpha_high: Annotated[float | None, f"Upper {_INTERVAL}."]


class DimensionRow(TypedDict):
    """Votes on both dimensions: how often they prefer one clip in both, and how sure they are."""

    source: Annotated[str, "The source; `all` for all."]
    preferred: Annotated[str, "same: one choice in both dimensions; different: two."]
    votes: Annotated[int, "Votes."]
    share: Annotated[float, Column("Share of the source's votes on both dimensions.", unit="0 to 1")]
    confidence_musicality: Annotated[float | None, Column("Mean confidence.", unit="1 to 5")]
    confidence_alignment: Annotated[float | None, Column("Mean confidence.", unit="1 to 5")]


CLIPS = Table(
    "clips", row=VotedClip, key=("clip_id",), exclusive=("clip_sha256",), says=("{file} of {source}, made by {model}",)
)
COMPARISONS = Table(
    "comparisons",
    row=Comparison,
    key=("comparison_id",),
    exclusive=("prompt_id",),
    says=("{votes} votes on {clip_a} against {clip_b}, prompt {prompt_id} ({modality})",),
)
VOTES = Table(
    "votes",
    row=VoteRow,
    key=("vote_id",),
    exclusive=("comparison_id",),
    says=("read from {source_file}, line {source_line}; shown {shown}",),
)
PREFERENCES = Table(
    "preferences",
    row=Preference,
    key=("preference_id",),
    exclusive=("comparison_id",),
    counted=True,
    says=("on {dimension}, {votes} votes weigh {weight_a} to {weight_b}: {preference}",),
)
RATINGS = Table(
    "ratings",
    row=VotedRating,
    key=("rating_id",),
    optional=True,
    exclusive=("clip_id",),
    says=("rated {score} for {dimension} in {source_file}, line {source_line}",),
)
TRAINING = Table(
    "training", row=TrainingRow, key=("row_id",), exclusive=("comparison_id",), optional=True, counted=True
)
BENCHMARK = Table("benchmark", row=BenchmarkRow, key=("sample_id",), optional=True, counted=True)
AGREEMENT = Table(
    "agreement", row=AgreementRow, key=("scope", "value", "dimension"), splits=False, optional=True, counted=True
)
DIMENSIONS = Table(
    "dimensions", row=DimensionRow, key=("source", "preferred"), splits=False, optional=True, counted=True
)

TABLES = (
    CLIPS, COMPARISONS, VOTES, PREFERENCES, RATINGS, TRAINING, BENCHMARK, AGREEMENT, DIMENSIONS, REJECTS,
)  # fmt: skip
