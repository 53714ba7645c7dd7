"""Declare every reason of a reject, for all corpora, once. No other can be written.

A `fault` is an input, or a model's answer, that is not as expected. A `rule` is what the method or the config leaves
out of inputs that are as they should be. `most_rejected` counts the faults of reading and indexing, and answers of no
right form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel


@dataclass(frozen=True)
class Reason:
    """A reason's kind and options."""

    kind: Literal["fault", "rule"]  # `fault` or `rule`
    # the ends of the config keys that can mend it (`clips.shortest_s`); none where only the input can
    options: tuple[str, ...]


_FILE = "not_a_file unreadable empty truncated corrupt not_finite no_length odd_format"
_AUDIO = " ".join(f"audio_{word}" for word in _FILE.split())
_REFERENCE = " ".join(f"reference_audio_{word}" for word in _FILE.split())
_LINES = "line_too_long bad_quoting unterminated_quote"

FAULTS: dict[str, str] = {
    # reading lists
    "columns": "missing_file missing_subset missing_system missing_speaker missing_content missing_condition "
    "missing_listener missing_item missing_group missing_model missing_generation missing_prompt missing_text "
    "missing_caption missing_track missing_artist missing_album missing_tag missing_duration missing_votes "
    "missing_mos_std bad_votes bad_mos_std bad_duration bad_preference bad_confidence "
    "bad_date bad_flag bad_condition bad_text text_too_long same_clip conflicting_facts",
    "format": "bad_id bad_json ragged_row bad_tag conflicting_system",
    "sources.encoding": "bad_encoding nul_byte",
    "columns not_a_rating": "score_missing score_not_a_number",
    "scale not_a_rating": "score_out_of_scale",
    "sources.split": "missing_split unknown_split conflicting_split split_conflict",
    "prompts": "unknown_prompt reference_audio_missing",
    "": f"{_LINES} unknown_source duplicate_id bad_count bad_file_name duplicate_file_name "
    # dumps of forums
    "missing_id bad_time missing_title missing_parent missing_body bad_score "
    # files of reviews
    # gold for a judge
    "bad_truth "
    "no_question_id no_content_sha256 no_reviewer not_yes_or_no no_such_option reviewer_is_an_address reviewed_twice "
    # files that are damaged, or that this machine cannot read
    f"{_AUDIO} {_REFERENCE} reference_audio_too_long bad_image image_not_a_file not_a_file not_an_image "
    "download_failed "
    # answers of models: none, or none that can be used
    "error redirected rate_limited server_error connection_failed timed_out wrong_content_type malformed_response "
    "too_large bad_answer schema_mismatch empty truncated refused bad_request over_limit bad_media batch_failed "
    "auth_failed model_missing batch_unreachable quota_exhausted budget_exhausted unanswered "
    "unsupported_option all_alike server_gone interrupted stopped kept_refused "
    "scores_unreadable part_missing unchanged span_not_found rest_changed basis_not_found repeated_item "
    "other_attribute items_do_not_match texts_do_not_match not_translated no_items no_question names_forum "
    "no_such_comment "
    "comment_twice best_missing too_many_options option_length speaks_of_options options_alike distractor_length "
    "repeats_truth too_few longer_is_right other_category tag_missing other_tag no_instrument_added "
    "too_many_instruments repeats_example",
    "least_share": "low_share",
    "look_for": "too_long not_english repeated_phrases mentions_vocals mentions_duration boilerplate",
    "sources.language": "not_in_language",
    # finding files
    "audio_root generations": "audio_missing path_outside_root",
    "reference_captions": "condition_missing",
    "links": "audio_outside_root reference_audio_outside_root image_outside_root",
    "images.folder": "image_missing",
}
"""The faults by the options that can mend them."""

RULES: dict[str, str] = {
    "shortest_s": "audio_too_short",
    "clips.longest_s tracks.longest_s": "audio_too_long",
    "repeat_votes": "repeated_vote",
    "not_a_rating": "not_a_rating",
    "where": "not_selected",
    "segments.longest_silence_s": "segment_silent segment_fades",
    "segments.least_s": "segment_too_short",
    "ties": "tie both_bad",
    "pool.popularity": "unpopular",
    "pool.instrumental": "vocal",
    "pool.exclude": "excluded unnatural_words",
    "pool.mentions": "rarely_mentioned",
    "pool.recall": "low_recall",
    "verification.audio similarity": "not_verified",
    "negatives.undecided": "not_known",
    "similarity.least": "low_similarity",
    "similarity.most": "partners_too_similar",
    "disjoint.captions": "near_bench",
    "bench_share": "in_bench",
    "jury.combine": "jury_undecided",
    "decontaminate.against": "decontaminated reference_decontaminated",
    "require": "inconsistent inconsistent_musicality inconsistent_alignment",
    "filter.languages": "other_language",
    "repeats": "near_duplicate",
    "detector.least": "no_score",
    "review.flagged_by": "flagged option_deleted",
    "reader": "may_be_right",
    "separator": "separation_too_short separation_needs_stereo",
    "": "clean_reference mean_beside_ratings duplicate duplicate_audio duplicate_caption generation_failed skipped "
    "no_preference voted_before removed deleted automatic not_an_answer no_image image_gone "
    "unusable passes_disagree no_partner fits_too mismatch_not_heard contradiction_not_found unsupported "
    "redundant inaudible "
    "scores_disagree implies_vocals audio_silent adult image_too_small image_too_large too_many_words too_few_comments "
    "link_refused too_few_options",
}
"""The rules by the options that set them."""


REASONS: dict[str, Reason] = {
    word: Reason("fault" if declared is FAULTS else "rule", tuple(options.split()))
    for declared in (FAULTS, RULES)
    for options, words in declared.items()
    for word in words.split()
}


def check_reasons(reasons: Iterable[str]) -> None:
    """Refuse reasons that are not declared here.

    Raises:
        LookupError: the first of them; the code that gives it must be mended.
    """
    for reason in reasons:
        if reason not in REASONS:
            raise LookupError(f"reject reason '{reason}' is not declared in schemas/reasons.py")


def options_of(reason: str, config: type[BaseModel]) -> list[tuple[str, str]]:
    """The options of a corpus's config that can mend a reason: each one's dotted key and description."""
    keys = dict(_keys(config))
    ends = REASONS[reason].options
    return [(key, keys[key]) for end in ends for key in keys if f".{key}".endswith(f".{end}")]


def _keys(model: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Every key of a config's model, also those of the models in it, with its description."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            yield before + name, field.description or ""
            yield from _keys(field.annotation, f"{before}{name}.")
    else:
        for inner in getattr(model, "__args__", ()):
            yield from _keys(inner, before)
