"""Declare rejects and every reason of one, for all corpora. No other can be written, but those that packages add."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel


@dataclass(frozen=True)
class Reason:
    """A reason's kind and options."""

    kind: Literal["fault", "rule"]  # `fault` or `rule`
    # the ends of the config keys that can mend it (`clips.shortest_s`); none where only the input can
    options: tuple[str, ...]


FAULTS: dict[str, str] = {
    # reading lists
    "columns": "missing_value same_clip conflicting_facts",
    "columns format": "bad_value bad_line",
    "sources.encoding": "bad_encoding",
    "columns not_a_rating": "score_missing score_not_a_number",
    "scale not_a_rating": "score_out_of_scale",
    "sources.split": "bad_split conflicting_split",
    "prompts": "unknown_prompt",
    "reference_captions": "condition_missing",
    # finding and reading files; the detail names the role of a reference
    "audio_root generations": "path_outside_root",
    "audio_root generations images.folder": "file_missing",
    "": "duplicate_id link_outside_root file_unreadable file_empty file_truncated file_corrupt file_odd_format "
    "download_failed "
    # answers of models: none, or none that can be used
    "unanswered bad_answer empty truncated refused bad_request over_limit bad_media "
    "wrong_change basis_not_found repeated_item not_translated no_items no_question wrong_comments option_count "
    "option_length speaks_of_options options_alike longer_is_right other_category wrong_tags "
    "wrong_instruments repeats_example",
    "least_share": "low_share",
    "look_for": "too_long not_english repeated_phrases mentions_vocals mentions_duration boilerplate",
    "sources.language": "not_in_language",
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
    "pool.exclude": "excluded vocal unnatural_words",
    "pool.mentions": "rarely_mentioned",
    "pool.recall": "low_recall",
    "verification.audio similarity": "not_verified",
    "describes": "not_known",
    "similarity.least": "low_similarity",
    "similarity.most": "partners_too_similar",
    "disjoint.captions": "near_bench",
    "bench_share": "in_bench",
    "jury.combine": "jury_undecided",
    "decontaminate.against": "decontaminated",
    "require": "inconsistent",
    "filter.languages": "other_language",
    "repeats": "near_duplicate",
    "detector.least": "no_score",
    "review.flagged_by": "flagged option_deleted",
    "reader": "may_be_right",
    "separator": "separation_too_short separation_needs_stereo",
    "": "clean_reference mean_beside_ratings duplicate duplicate_audio generation_failed skipped no_preference removed "
    "automatic not_an_answer no_image image_gone unusable passes_disagree no_partner fits_too mismatch_not_heard "
    "contradiction_not_found unsupported redundant inaudible scores_disagree implies_vocals audio_silent adult "
    "image_too_small image_too_large too_many_words too_few_comments link_refused too_few_options low_score",
}
"""The rules by the options that set them."""

MERGED: dict[str, str] = {
    "missing_value": "missing_file missing_subset missing_system missing_speaker missing_content missing_condition "
    "missing_listener missing_item missing_group missing_model missing_generation missing_prompt missing_text "
    "missing_caption missing_track missing_artist missing_album missing_tag missing_duration missing_votes "
    "missing_mos_std missing_id missing_title missing_parent missing_body no_question_id no_content_sha256 no_reviewer",
    "bad_value": "bad_votes bad_mos_std bad_duration bad_preference bad_confidence bad_date bad_flag bad_condition "
    "bad_text bad_id bad_tag bad_count bad_time bad_score bad_truth bad_file_name text_too_long unknown_source "
    "not_yes_or_no no_such_option reviewer_is_an_address",
    "bad_line": "bad_json ragged_row line_too_long bad_quoting unterminated_quote",
    "bad_encoding": "nul_byte",
    "bad_split": "missing_split unknown_split",
    "conflicting_split": "split_conflict",
    "conflicting_facts": "conflicting_system",
    "duplicate_id": "duplicate_file_name reviewed_twice",
    "file_missing": "audio_missing reference_audio_missing image_missing",
    "link_outside_root": "audio_outside_root reference_audio_outside_root image_outside_root",
    "file_empty": "audio_empty reference_audio_empty",
    "file_truncated": "audio_truncated reference_audio_truncated",
    "file_odd_format": "audio_odd_format audio_no_length reference_audio_odd_format reference_audio_no_length",
    "file_unreadable": "audio_unreadable audio_not_a_file reference_audio_unreadable "
    "reference_audio_not_a_file image_not_a_file bad_image not_an_image not_a_file",
    "file_corrupt": "audio_corrupt audio_not_finite reference_audio_corrupt reference_audio_not_finite",
    "audio_too_long": "reference_audio_too_long",
    "unanswered": "error redirected rate_limited server_error connection_failed timed_out wrong_content_type "
    "malformed_response batch_failed interrupted stopped auth_failed model_missing unsupported_option all_alike "
    "server_gone kept_refused batch_unreachable quota_exhausted budget_exhausted",
    "bad_answer": "schema_mismatch too_large scores_unreadable part_missing items_do_not_match texts_do_not_match",
    "wrong_change": "unchanged span_not_found rest_changed other_attribute",
    "wrong_comments": "no_such_comment comment_twice best_missing",
    "no_question": "names_forum",
    "option_count": "too_many_options too_few",
    "option_length": "distractor_length",
    "options_alike": "repeats_truth",
    "wrong_tags": "tag_missing other_tag",
    "wrong_instruments": "no_instrument_added too_many_instruments",
    "decontaminated": "reference_decontaminated",
    "inconsistent": "inconsistent_musicality inconsistent_alignment",
    "repeated_vote": "voted_before",
    "removed": "deleted",
    "duplicate": "duplicate_caption",
}
"""The words of 1.0.0 by the reason that took their place. Versions of before, and kinds of faults in a ledger, have
them; a plug-in may go on giving them."""

REASONS: dict[str, Reason] = {
    word: Reason("fault" if declared is FAULTS else "rule", tuple(options.split()))
    for declared in (FAULTS, RULES)
    for options, words in declared.items()
    for word in words.split()
}
CURRENT = {old: new for new, words in MERGED.items() for old in words.split()}
"""The reason in place of each word of 1.0.0."""


def current_word(word: str) -> str:
    """Return the reason that took the place of a word of 1.0.0; other words unchanged."""
    return CURRENT.get(word, word)


def count_reasons(counts: Mapping[str, int]) -> Counter[str]:
    """Add the counts of words of 1.0.0 to those of the reasons in their place."""
    current = Counter[str]()
    for word, count in counts.items():
        current[current_word(word)] += count
    return current


def add_reasons(reasons: Mapping[str, Reason]) -> None:
    """Declare reasons of a package, where it declares its corpus or layout.

    Raises:
        LookupError: a word has another meaning already.
    """
    for word, reason in reasons.items():
        if word in CURRENT or REASONS.setdefault(word, reason) != reason:
            raise LookupError(f"reject reason '{word}' is declared already, with another meaning; choose another word")


def find_reason(word: str) -> Reason:
    """Return the reason of a word, also of 1.0.0; of a package that is not loaded, a fault without options."""
    return REASONS.get(current_word(word), Reason("fault", ()))


def check_reasons(reasons: Iterable[str]) -> None:
    """Refuse reasons that are not declared here.

    Raises:
        LookupError: the first of them; the code that gives it must be mended.
    """
    for reason in reasons:
        if reason not in REASONS:
            raise LookupError(f"reject reason '{reason}' is not declared; a package declares its own by add_reasons")


def options_of(reason: str, config: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the options of a corpus's config that can mend a reason: each one's dotted key and description."""
    keys = dict(_keys(config))
    ends = find_reason(reason).options
    return [(key, keys[key]) for end in ends for key in keys if f".{key}".endswith(f".{end}")]


def _keys(model: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            yield before + name, field.description or ""
            yield from _keys(field.annotation, f"{before}{name}.")
    else:
        for inner in getattr(model, "__args__", ()):
            yield from _keys(inner, before)


SHOWN = 80  # characters of a value repeated in messages


class Reject(NamedTuple):
    """A line without a valid rating."""

    item: str  # the id if readable, else the first 80 characters of the line
    reason: str  # a fixed word, snake_case
    detail: str  # the expected and the found value
    source_file: str  # "" if no file names it
    line: int | None
    author: str | None = None  # the line's author, as the export names the person: it never leaves the build
    made_from: tuple[tuple[str, str], ...] = ()  # kinds and ids (`earmark.schemas.tables.Ref`) beside source and item


class Note(NamedTuple):
    """A remark about no single row, such as a missing part of the layout."""

    text: str


class AudioFault(NamedTuple):
    """A fault of an audio file: a fixed word, and the detail."""

    reason: str
    detail: str


def shown(value: object) -> str:
    """Return the beginning of a value on a single line, free of control characters and lone surrogates."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text[:SHOWN])
