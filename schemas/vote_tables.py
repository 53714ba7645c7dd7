"""Tables of `human-preferences`."""

from __future__ import annotations

import pyarrow as pa

from earmark.schemas.tables import REJECTS, Table, audio_column, column

_CHOICE = "a, b or tie"
_CONFIDENCE = "1 to 5 in half steps"
_SPLIT = column("split", pa.string(), "train, validation or test.")
_SOURCE = column("source", pa.string(), "The export or rated set, by its name in the config.", names="source")
_TASK = column("task", pa.string(), "The kind of source: cmi-pref, music-arena, votes, musiceval or pam.")
_DIMENSION = column("dimension", pa.string(), "musicality, alignment or overall.")

CLIPS = Table(
    name="clips",
    description="One row a clip that was voted on, rated, or given as a reference.",
    schema=pa.schema(
        [
            column(
                "clip_id", pa.string(), "Source and file; for audio that the source withholds, source and row.",
                names="heard_clip", role="is",
            ),
            _SPLIT,
            column("source", pa.string(), "The export or rated set, by its name in the config."),
            column(
                "terms", pa.string(), "Whose terms hold: the model's where the config names it, else the source's.",
                names="source",
            ),
            column("licence", pa.string(), "The licence that the config names for it.", optional=True),
            column("model", pa.string(), "The model that made it; null for references.", optional=True),
            column("file", pa.string(), "Audio file as the source names it; null if withheld.", optional=True),
            column(
                "clip_sha256", pa.string(), "SHA-256 of the file's bytes; null if not measured.", optional=True,
                names="clip", role="is",
            ),
            column("duration_s", pa.float64(), "Length of the clip.", unit="s", optional=True),
            column("sample_rate_hz", pa.int64(), "Sample rate of the file.", unit="Hz", optional=True),
            column("channels", pa.int64(), "Channels of the file.", optional=True),
            audio_column('The audio file itself; null unless the config says `audio = "embed"`.'),
        ]
    ),
    key=("clip_id",),
    exclusive=("clip_sha256",),
    says=("{file} of {source}, made by {model}",),
)  # fmt: skip

COMPARISONS = Table(
    name="comparisons",
    description="One row two clips of one prompt that people compared.",
    schema=pa.schema(
        [
            column(
                "comparison_id", pa.string(), "Sixteen hexadecimal digits from prompt and clips, in either order.",
                names="comparison", role="is",
            ),
            _SPLIT,
            _SOURCE,
            _TASK,
            column("prompt_id", pa.string(), "Sixteen hexadecimal digits of what the prompt says.", names="prompt"),
            column("source_prompt_id", pa.string(), "The prompt's id in the source.", optional=True, names="prompt"),
            column("modality", pa.string(), "What the prompt holds: text, lyrics, audio, joined by +; or none."),
            column("vocals", pa.string(), "vocal (lyrics, or said so) or instrumental (said so).", optional=True),
            column("text", pa.string(), "The prompt's text.", optional=True),
            column("lyrics", pa.string(), "The prompt's lyrics.", optional=True),
            column(
                "reference_clip", pa.string(), "The prompt's reference clip.", optional=True,
                names="heard_clip", role="keeps",
            ),
            column(
                "clip_a", pa.string(), "The clip that the first vote was shown as a.",
                names="heard_clip", role="keeps",
            ),
            column("clip_b", pa.string(), "The other clip.", names="heard_clip", role="keeps"),
            column("model_a", pa.string(), "The model of clip a.", optional=True),
            column("model_b", pa.string(), "The model of clip b.", optional=True),
            column("month", pa.string(), "Month of the first vote, as 2025-08.", optional=True),
            column("votes", pa.int64(), "Votes on it."),
        ]
    ),
    key=("comparison_id",),
    exclusive=("prompt_id",),
    says=("{votes} votes on {clip_a} against {clip_b}, prompt {prompt_id} ({modality})",),
)  # fmt: skip

VOTES = Table(
    name="votes",
    description="One row a vote, in the letters of its comparison.",
    schema=pa.schema(
        [
            column(
                "vote_id", pa.string(), "Source and the vote's id there; without one, source, file and line.",
                names="vote", role="is",
            ),
            _SPLIT,
            column("comparison_id", pa.string(), "The comparison.", names="comparison", role="keeps"),
            _SOURCE,
            column(
                "annotator", pa.string(), "Salted hash of source and annotator's id.", optional=True,
                names="annotator",
            ),
            column("shown", pa.string(), "ab, or ba where clip b was shown as the first."),
            column("musicality", pa.string(), "Which sounds better as music.", unit=_CHOICE, optional=True),
            column("confidence_musicality", pa.float64(), "How sure.", unit=_CONFIDENCE, optional=True),
            column("alignment", pa.string(), "Which follows the prompt better.", unit=_CHOICE, optional=True),
            column("confidence_alignment", pa.float64(), "How sure.", unit=_CONFIDENCE, optional=True),
            column("overall", pa.string(), "Which is preferred, all in all.", unit=_CHOICE, optional=True),
            column("confidence_overall", pa.float64(), "How sure.", unit=_CONFIDENCE, optional=True),
            column("date", pa.string(), "Day of the vote, as 2025-08-31.", optional=True),
            column("listened_a_s", pa.float64(), "How long clip a was played.", unit="s", optional=True),
            column("listened_b_s", pa.float64(), "How long clip b was played.", unit="s", optional=True),
            column("feedback", pa.string(), "The annotator's own words, scrubbed.", optional=True),
            column("source_file", pa.string(), "The file that the vote came from."),
            column("source_line", pa.int64(), "Line in that file, counted from 1."),
        ]
    ),
    key=("vote_id",),
    exclusive=("comparison_id",),
    says=("read from {source_file}, line {source_line}; shown {shown}",),
)  # fmt: skip

PREFERENCES = Table(
    name="preferences",
    description="One row a comparison and dimension: what its votes say together.",
    schema=pa.schema(
        [
            column("preference_id", pa.string(), "Comparison and dimension.", names="label", role="is"),
            _SPLIT,
            column("comparison_id", pa.string(), "The comparison.", names="comparison"),
            _DIMENSION,
            column("preference", pa.string(), "The choice of greatest weight; equal weights make a tie.", unit=_CHOICE),
            column("confidence", pa.float64(), "Mean confidence of its votes.", unit="1 to 5", optional=True),
            column("votes", pa.int64(), "Votes on this dimension."),
            column("weight_a", pa.float64(), "Weight of the votes for a: their confidences, 3 where none is given."),
            column("weight_b", pa.float64(), "Weight of the votes for b."),
            column("weight_tie", pa.float64(), "Weight of the votes for neither."),
            column("unanimous", pa.bool_(), "Whether all votes say the same."),
        ]
    ),
    key=("preference_id",),
    exclusive=("comparison_id",),
    counted=True,
    says=("on {dimension}, {votes} votes weigh {weight_a} to {weight_b}: {preference}",),
)

RATINGS = Table(
    name="ratings",
    description="One row a rated clip and dimension.",
    schema=pa.schema(
        [
            column("rating_id", pa.string(), "Clip and dimension.", names="label", role="is"),
            _SPLIT,
            _SOURCE,
            _TASK,
            column("clip_id", pa.string(), "The clip.", names="heard_clip", role="keeps"),
            column("system", pa.string(), "The model that made it."),
            column(
                "prompt_id",
                pa.string(),
                "Sixteen hexadecimal digits of what the prompt says.",
                optional=True,
                names="prompt",
            ),
            column("source_prompt_id", pa.string(), "The prompt's id in the source.", optional=True, names="prompt"),
            column("text", pa.string(), "The prompt's text.", optional=True),
            _DIMENSION,
            column("score", pa.float64(), "Mean rating, on the source's scale."),
            column("rating", pa.float64(), "The same, brought to a scale from 1 to 5.", unit="1 to 5"),
            column("votes", pa.int64(), "Rows of the set that the score is the mean of; null for one.", optional=True),
            column("score_std", pa.float64(), "Sample standard deviation of these rows.", optional=True),
            column("source_file", pa.string(), "The file that the rating came from."),
            column("source_line", pa.int64(), "Line in that file, from 1; the first, where ratings were averaged."),
        ]
    ),
    key=("rating_id",),
    optional=True,
    exclusive=("clip_id",),
    says=("rated {score} for {dimension} in {source_file}, line {source_line}",),
)

TRAINING = Table(
    name="training",
    description=(
        "One row a pair with a preferred clip, or a rating: what a reward model learns from with a Bradley-Terry loss "
        "for the one and a squared error for the other."
    ),
    schema=pa.schema(
        [
            column("row_id", pa.string(), "The preference or the rating.", names="label"),
            _SPLIT,
            column("kind", pa.string(), "pair or rating."),
            _SOURCE,
            _DIMENSION,
            column("text", pa.string(), "The prompt's text.", optional=True),
            column("lyrics", pa.string(), "The prompt's lyrics.", optional=True),
            column("reference_clip", pa.string(), "The prompt's reference clip.", optional=True, names="heard_clip"),
            column("clip", pa.string(), "The preferred clip of a pair; the rated clip.", names="heard_clip"),
            column(
                "other_clip",
                pa.string(),
                "The clip that was not preferred; null for ratings.",
                optional=True,
                names="heard_clip",
            ),
            column("rating", pa.float64(), "The rating; null for pairs.", unit="1 to 5", optional=True),
            column("confidence", pa.float64(), "Mean confidence of a pair's votes.", unit="1 to 5", optional=True),
        ]
    ),
    key=("row_id",),
    optional=True,
    counted=True,
)

BENCHMARK = Table(
    name="benchmark",
    description="CMI-RewardBench's tasks in one form: one row a tested pair or a tested clip, and a dimension.",
    schema=pa.schema(
        [
            column("sample_id", pa.string(), "The preference or the rating.", names="label"),
            _SPLIT,
            _TASK,
            _SOURCE,
            _DIMENSION,
            column("text", pa.string(), "The prompt's text.", optional=True),
            column("lyrics", pa.string(), "The prompt's lyrics.", optional=True),
            column("reference_clip", pa.string(), "The prompt's reference clip.", optional=True, names="heard_clip"),
            column("clip_a", pa.string(), "Clip a of a pair; the rated clip.", names="heard_clip"),
            column("clip_b", pa.string(), "Clip b of a pair; null for ratings.", optional=True, names="heard_clip"),
            column("preference", pa.string(), "The preferred clip; null for ratings.", unit="a or b", optional=True),
            column("score", pa.float64(), "Mean rating on the source's scale; null for pairs.", optional=True),
            column("system", pa.string(), "The model of a rated clip.", optional=True),
            column("modality", pa.string(), "What the prompt holds.", optional=True),
            column("vocals", pa.string(), "vocal or instrumental, where known.", optional=True),
            column("confidence_band", pa.string(), "Mean confidence of the votes: <3, 3 or >3.", optional=True),
            column("month", pa.string(), "Month of the first vote, as 2025-08.", optional=True),
        ]
    ),
    key=("sample_id",),
    optional=True,
    counted=True,
)

_INTERVAL = "bound of the interval that covers 95 %, by bootstrap over comparisons"
AGREEMENT = Table(
    name="agreement",
    description="How far annotators agree where several voted on one comparison: one row a scope and dimension.",
    schema=pa.schema(
        [
            column("scope", pa.string(), "all, source, annotator or month: which comparisons the row speaks of."),
            column("value", pa.string(), "The source, annotator or month; `all` for all.", names="annotator"),
            _DIMENSION,
            column("comparisons", pa.int64(), "Comparisons with two votes or more."),
            column("votes", pa.int64(), "Votes on them."),
            column("vote_pairs", pa.int64(), "Pairs of votes on one comparison; for an annotator, those with theirs."),
            column("agree", pa.int64(), "Those that say the same."),
            column("rate", pa.float64(), "Share that says the same.", unit="0 to 1"),
            column("rate_low", pa.float64(), f"Lower {_INTERVAL}.", optional=True),
            column("rate_high", pa.float64(), f"Upper {_INTERVAL}.", optional=True),
            column(
                "alpha", pa.float64(), "Krippendorff's alpha, nominal; null where all votes are equal.",
                unit="at most 1; 0 is chance", source="Krippendorff (2011)", optional=True,
            ),
            column("alpha_low", pa.float64(), f"Lower {_INTERVAL}.", optional=True),
            column("alpha_high", pa.float64(), f"Upper {_INTERVAL}.", optional=True),
        ]
    ),
    key=("scope", "value", "dimension"),
    splits=False,
    optional=True,
    counted=True,
)  # fmt: skip

DIMENSIONS = Table(
    name="dimensions",
    description="Votes on both dimensions: how often they prefer one clip in both, and how sure they are.",
    schema=pa.schema(
        [
            column("source", pa.string(), "The source; `all` for all."),
            column("preferred", pa.string(), "same: one choice in both dimensions; different: two."),
            column("votes", pa.int64(), "Votes."),
            column("share", pa.float64(), "Share of the source's votes on both dimensions.", unit="0 to 1"),
            column("confidence_musicality", pa.float64(), "Mean confidence.", unit="1 to 5", optional=True),
            column("confidence_alignment", pa.float64(), "Mean confidence.", unit="1 to 5", optional=True),
        ]
    ),
    key=("source", "preferred"),
    splits=False,
    optional=True,
    counted=True,
)

TABLES = (
    CLIPS, COMPARISONS, VOTES, PREFERENCES, RATINGS, TRAINING, BENCHMARK, AGREEMENT, DIMENSIONS, REJECTS,
)  # fmt: skip
