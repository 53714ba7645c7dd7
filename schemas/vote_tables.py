"""Tables of `human-preferences`."""

from __future__ import annotations

from earmark.schemas.tables import REJECTS, Table, audio_column, columns, flag, integer, number, text

_CHOICE = "a, b or tie"
_CONFIDENCE = "1 to 5 in half steps"
_SPLIT = text("split", "train, validation or test.")
_SOURCE = text("source", "The export or rated set, by its name in the config.", names="source")
_TASK = text("task", "The kind of source: cmi-pref, music-arena, votes, musiceval or pam.")
_DIMENSION = text("dimension", "musicality, alignment or overall.")

CLIPS = Table(
    name="clips",
    description="One row a clip that was voted on, rated, or given as a reference.",
    schema=columns(
        text(
            "clip_id",
            "Source and file; for audio that the source withholds, source and row.",
            names="heard_clip",
            role="is",
        ),
        _SPLIT,
        text("source", "The export or rated set, by its name in the config."),
        text("terms", "Whose terms hold: the model's where the config names it, else the source's.", names="source"),
        text("licence", "The licence that the config names for it.", optional=True),
        text("model", "The model that made it; null for references.", optional=True),
        text("file", "Audio file as the source names it; null if withheld.", optional=True),
        text(
            "clip_sha256", "SHA-256 of the file's bytes; null if not measured.", optional=True, names="clip", role="is"
        ),
        number("duration_s", "Length of the clip.", unit="s", optional=True),
        integer("sample_rate_hz", "Sample rate of the file.", unit="Hz", optional=True),
        integer("channels", "Channels of the file.", optional=True),
        audio_column('The audio file itself; null unless the config says `audio = "embed"`.'),
    ),
    key=("clip_id",),
    exclusive=("clip_sha256",),
    says=("{file} of {source}, made by {model}",),
)

COMPARISONS = Table(
    name="comparisons",
    description="One row two clips of one prompt that people compared.",
    schema=columns(
        text(
            "comparison_id",
            "Sixteen hexadecimal digits from prompt and clips, in either order.",
            names="comparison",
            role="is",
        ),
        _SPLIT,
        _SOURCE,
        _TASK,
        text("prompt_id", "Sixteen hexadecimal digits of what the prompt says.", names="prompt"),
        text("source_prompt_id", "The prompt's id in the source.", optional=True, names="prompt"),
        text("modality", "What the prompt holds: text, lyrics, audio, joined by +; or none."),
        text("vocals", "vocal (lyrics, or said so) or instrumental (said so; no lyrics in CMI-Pref).", optional=True),
        text("text", "The prompt's text.", optional=True),
        text("lyrics", "The prompt's lyrics.", optional=True),
        text("reference_clip", "The prompt's reference clip.", optional=True, names="heard_clip", role="keeps"),
        text("clip_a", "The clip that the first vote was shown as a.", names="heard_clip", role="keeps"),
        text("clip_b", "The other clip.", names="heard_clip", role="keeps"),
        text("model_a", "The model of clip a.", optional=True),
        text("model_b", "The model of clip b.", optional=True),
        text("month", "Month of the first vote, as 2025-08.", optional=True),
        integer("votes", "Votes on it."),
    ),
    key=("comparison_id",),
    exclusive=("prompt_id",),
    says=("{votes} votes on {clip_a} against {clip_b}, prompt {prompt_id} ({modality})",),
)

VOTES = Table(
    name="votes",
    description="One row a vote, in the letters of its comparison.",
    schema=columns(
        text("vote_id", "Source and the vote's id there; without one, source, file and line.", names="vote", role="is"),
        _SPLIT,
        text("comparison_id", "The comparison.", names="comparison", role="keeps"),
        _SOURCE,
        text("annotator", "Salted hash of source and annotator's id.", optional=True, names="annotator"),
        text("shown", "ab, or ba where clip b was shown as the first."),
        text("musicality", "Which sounds better as music.", unit=_CHOICE, optional=True),
        number("confidence_musicality", "How sure.", unit=_CONFIDENCE, optional=True),
        text("alignment", "Which follows the prompt better.", unit=_CHOICE, optional=True),
        number("confidence_alignment", "How sure.", unit=_CONFIDENCE, optional=True),
        text("overall", "Which is preferred, all in all.", unit=_CHOICE, optional=True),
        number("confidence_overall", "How sure.", unit=_CONFIDENCE, optional=True),
        text("date", "Day of the vote, as 2025-08-31.", optional=True),
        number("listened_a_s", "How long clip a was played.", unit="s", optional=True),
        number("listened_b_s", "How long clip b was played.", unit="s", optional=True),
        text("feedback", "The annotator's own words, scrubbed.", optional=True),
        text("source_file", "The file that the vote came from."),
        integer("source_line", "Line in that file, counted from 1."),
    ),
    key=("vote_id",),
    exclusive=("comparison_id",),
    says=("read from {source_file}, line {source_line}; shown {shown}",),
)

PREFERENCES = Table(
    name="preferences",
    description="One row a comparison and dimension: what its votes say together.",
    schema=columns(
        text("preference_id", "Comparison and dimension.", names="label", role="is"),
        _SPLIT,
        text("comparison_id", "The comparison.", names="comparison"),
        _DIMENSION,
        text("preference", "The choice of greatest weight; equal weights make a tie.", unit=_CHOICE),
        number("confidence", "Mean confidence of its votes.", unit="1 to 5", optional=True),
        integer("votes", "Votes on this dimension."),
        number("weight_a", "Weight of the votes for a: their confidences, 3 where none is given."),
        number("weight_b", "Weight of the votes for b."),
        number("weight_tie", "Weight of the votes for neither."),
        flag("unanimous", "Whether all votes say the same."),
    ),
    key=("preference_id",),
    exclusive=("comparison_id",),
    counted=True,
    says=("on {dimension}, {votes} votes weigh {weight_a} to {weight_b}: {preference}",),
)

RATINGS = Table(
    name="ratings",
    description="One row a rated clip and dimension.",
    schema=columns(
        text("rating_id", "Clip and dimension.", names="label", role="is"),
        _SPLIT,
        _SOURCE,
        _TASK,
        text("clip_id", "The clip.", names="heard_clip", role="keeps"),
        text("system", "The model that made it."),
        text("prompt_id", "Sixteen hexadecimal digits of what the prompt says.", optional=True, names="prompt"),
        text("source_prompt_id", "The prompt's id in the source.", optional=True, names="prompt"),
        text("text", "The prompt's text.", optional=True),
        _DIMENSION,
        number("score", "Mean rating, on the source's scale."),
        number("rating", "The same, brought to a scale from 1 to 5.", unit="1 to 5"),
        integer("votes", "Rows of the set that the score is the mean of; null for one.", optional=True),
        number("score_std", "Sample standard deviation of these rows.", optional=True),
        text("source_file", "The file that the rating came from."),
        integer("source_line", "Line in that file, from 1; the first, where ratings were averaged."),
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
    schema=columns(
        text("row_id", "Vote and dimension, the preference, or the rating.", names="label"),
        _SPLIT,
        text("comparison_id", "The pair's comparison; null for ratings.", optional=True, names="comparison"),
        text("vote_id", "The vote, where a sample is one.", optional=True, names="vote"),
        text("kind", "pair or rating."),
        _SOURCE,
        _DIMENSION,
        text("text", "The prompt's text.", optional=True),
        text("lyrics", "The prompt's lyrics.", optional=True),
        text("reference_clip", "The prompt's reference clip.", optional=True, names="heard_clip"),
        text("clip", "The preferred clip of a pair; the rated clip.", names="heard_clip"),
        text("other_clip", "The clip that was not preferred; null for ratings.", optional=True, names="heard_clip"),
        number("rating", "The rating; null for pairs.", unit="1 to 5", optional=True),
        number("confidence", "Confidence of the vote; of a comparison, their mean.", unit="1 to 5", optional=True),
    ),
    key=("row_id",),
    exclusive=("comparison_id",),
    optional=True,
    counted=True,
)

BENCHMARK = Table(
    name="benchmark",
    description="CMI-RewardBench's tasks in one form: one row a tested pair or a tested clip, and a dimension.",
    schema=columns(
        text("sample_id", "Vote and dimension, the preference, or the rating.", names="label"),
        _SPLIT,
        text("comparison_id", "The pair's comparison; null for ratings.", optional=True, names="comparison"),
        text("vote_id", "The vote, where a sample is one.", optional=True, names="vote"),
        _TASK,
        _SOURCE,
        _DIMENSION,
        text("text", "The prompt's text.", optional=True),
        text("lyrics", "The prompt's lyrics.", optional=True),
        text("reference_clip", "The prompt's reference clip.", optional=True, names="heard_clip"),
        text("clip_a", "Clip a of a pair; the rated clip.", names="heard_clip"),
        text("clip_b", "Clip b of a pair; null for ratings.", optional=True, names="heard_clip"),
        text("preference", "The preferred clip; null for ratings.", unit="a or b", optional=True),
        number("score", "Mean rating on the source's scale; null for pairs.", optional=True),
        text("system", "The model of a rated clip.", optional=True),
        text("modality", "What the prompt holds.", optional=True),
        text("vocals", "vocal or instrumental, where known.", optional=True),
        number("confidence", "Confidence of the vote; of a comparison, their mean.", unit="1 to 5", optional=True),
        text("confidence_band", "Confidence: <3, 3 or >3.", optional=True),
        text("month", "Month of the first vote, as 2025-08.", optional=True),
    ),
    key=("sample_id",),
    optional=True,
    counted=True,
)

_INTERVAL = "bound of the interval that covers 95 %, by bootstrap over comparisons"
AGREEMENT = Table(
    name="agreement",
    description="How far annotators agree where several voted on one comparison: one row a scope and dimension.",
    schema=columns(
        text("scope", "all, source, annotator or month: which comparisons the row speaks of."),
        text("value", "The source, annotator or month; `all` for all.", names="annotator"),
        _DIMENSION,
        integer("comparisons", "Comparisons with two votes or more."),
        integer("votes", "Votes on them."),
        integer("vote_pairs", "Pairs of votes on one comparison; for an annotator, those with theirs."),
        integer("agree", "Those that say the same."),
        number("rate", "Share that says the same.", unit="0 to 1"),
        number("rate_low", f"Lower {_INTERVAL}.", optional=True),
        number("rate_high", f"Upper {_INTERVAL}.", optional=True),
        number(
            "alpha",
            "Krippendorff's alpha, nominal; null where all votes are equal.",
            unit="at most 1; 0 is chance",
            source="Krippendorff (2011)",
            optional=True,
        ),
        number("alpha_low", f"Lower {_INTERVAL}.", optional=True),
        number("alpha_high", f"Upper {_INTERVAL}.", optional=True),
    ),
    key=("scope", "value", "dimension"),
    splits=False,
    optional=True,
    counted=True,
)

DIMENSIONS = Table(
    name="dimensions",
    description="Votes on both dimensions: how often they prefer one clip in both, and how sure they are.",
    schema=columns(
        text("source", "The source; `all` for all."),
        text("preferred", "same: one choice in both dimensions; different: two."),
        integer("votes", "Votes."),
        number("share", "Share of the source's votes on both dimensions.", unit="0 to 1"),
        number("confidence_musicality", "Mean confidence.", unit="1 to 5", optional=True),
        number("confidence_alignment", "Mean confidence.", unit="1 to 5", optional=True),
    ),
    key=("source", "preferred"),
    splits=False,
    optional=True,
    counted=True,
)

TABLES = (
    CLIPS, COMPARISONS, VOTES, PREFERENCES, RATINGS, TRAINING, BENCHMARK, AGREEMENT, DIMENSIONS, REJECTS,
)  # fmt: skip
