"""Read votes on pairs of clips from any export: a vote or a reject for each row.

An importer maps its columns to the names below; `to_vote` checks their values.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.human_preferences import VoteSource
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import Registry, register, registered
from earmark.tasks.importers.cells import BadRow, clip, given, identifier, number, same_name, split_name
from earmark.tasks.importers.lists import ListFile, by_its_header
from earmark.tasks.importers.machines import KINDS, ORIGINS, require_person
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import named_rows

DIMENSIONS = ("musicality", "alignment", "overall")
CHOICES = {
    **dict.fromkeys(("a", "model_a", "audio_a", "left", "first"), "a"),
    **dict.fromkeys(("b", "model_b", "audio_b", "right", "second"), "b"),
    **dict.fromkeys(("tie", "equal", "neither", "both", "same", "no_preference", "draw"), "tie"),
    **dict.fromkeys(("both_bad", "bothbad", "tie_(bothbad)"), "both_bad"),
}
SPLIT_WORDS = ("", "all", "full")  # of an undivided list
LEAST_SECONDS = 1e9  # since 1970, in September 2001: smaller numbers are dates, or count days as Excel does
FIELDS = (
    *("audio_a", "audio_b", "vote_id", "annotator", "prompt_id", "text", "lyrics", "reference", "model_a", "model_b"),
    *(name for dimension in DIMENSIONS for name in (dimension, f"confidence_{dimension}")),
    *("date", "feedback", "listened_a_s", "listened_b_s", "instrumental", "split"),
)


class Vote(NamedTuple):
    """A person's vote on two clips, as its export states it."""

    vote_id: str | None
    annotator: str | None  # as the export names the person: it never leaves the build
    prompt_id: str | None
    text: str | None
    lyrics: str | None
    reference: str | None  # path of the prompt's audio
    audio_a: str | None  # None if the source withholds it
    audio_b: str | None
    model_a: str | None
    model_b: str | None
    musicality: str | None  # a, b, tie or both_bad, as they were shown
    confidence_musicality: float | None
    alignment: str | None
    confidence_alignment: float | None
    overall: str | None
    confidence_overall: float | None
    date: str | None  # 2025-08-31
    feedback: str | None
    listened_a_s: float | None
    listened_b_s: float | None
    vocals: str | None  # vocal or instrumental
    split: str | None
    fault: str | None  # a known fault of a generation
    source_file: str
    line: int


Voted = Iterator[Vote | Reject | Note]
Named = Mapping[str, Any] | Reject | Note


@dataclass(frozen=True)
class VoteLayout:
    """A layout of votes, or of rated clips."""

    # yields the content of a source's files, in order; takes the source, its files and the clips' folder
    read: Callable[[VoteSource, Sequence[ListFile], str], Iterator[Any]]
    rated: bool = False  # whether it holds `MusicRating`s rather than `Vote`s
    # the files, by the source's name and root, of a layout without files in the config
    find: Callable[[str, Path], list[ListFile]] | None = None
    documents: bool = False  # whether each file is one JSON document, whatever its ending
    task: str = "votes"  # the benchmark's task of its rows
    split: Literal["draw", "native", "test"] = "draw"  # source of splits if the config gives none
    drops_ties: bool = False  # whether votes for neither clip are rejects if the config does not say


def each(read: Callable[[ListFile, str], Voted]) -> Callable[[VoteSource, Sequence[ListFile], str], Voted]:
    """Read the files of a source one after the other."""
    return lambda source, files, root: chain.from_iterable(read(file, root) for file in files)


def to_vote(row: Mapping[str, Any], file: ListFile, line: int, root: str, *, withheld: bool = False) -> Vote:
    """Parse a vote from cells by the names in `FIELDS`; treat absent cells as empty.

    Args:
        root: folder of the clips, absolute.
        withheld: whether the source leaves audio out, so that a vote may name none.

    Raises:
        BadRow: an invalid value.
    """
    get = row.get
    require_person(get("annotator") or get("judge"), {kind: row[kind] for kind in KINDS if kind in row}, "")
    origins = {kind: row[kind] for kind in sorted(ORIGINS) if kind in row}
    require_person(None, origins, "; if it is of clips or prompts, columns.annotator_type names another column")
    sides = [clip(get(name), root) if given(get(name)) or not withheld else None for name in ("audio_a", "audio_b")]
    if sides[0] is not None and sides[1] is not None and same_name(sides[0], sides[1]):
        raise BadRow("same_clip", f"expected two clips, found '{shown(sides[0])}' twice")
    chosen: dict[str, Any] = {name: choice(get(name)) for name in DIMENSIONS}
    if not any(chosen.values()):
        raise BadRow("no_preference", "expected a preference in one dimension or more, found none")
    for name, word in [(name, f"confidence_{name}") for name in DIMENSIONS]:
        chosen[word] = confidence(get(word)) if chosen[name] else None
    lyrics = words(get("lyrics"))
    return Vote(
        vote_id=_name(get("vote_id"), "vote"),
        annotator=_annotator(get("annotator")),
        prompt_id=_name(get("prompt_id"), "prompt"),
        text=words(get("text")),
        lyrics=lyrics,
        reference=clip(get("reference"), root) if given(get("reference")) else None,
        audio_a=sides[0],
        audio_b=sides[1],
        model_a=_name(get("model_a"), "model"),
        model_b=_name(get("model_b"), "model"),
        **chosen,
        date=day(get("date")),
        feedback=words(get("feedback")),
        listened_a_s=_seconds(get("listened_a_s")),
        listened_b_s=_seconds(get("listened_b_s")),
        vocals=_vocals(get("instrumental"), lyrics),
        split=_split(get("split")),
        fault=words(get("fault")),
        source_file=file.name,
        line=line,
    )


def to_votes(file: ListFile, rows: Iterator[tuple[int, Named]], root: str, **how: bool) -> Voted:
    """Turn each row of cells by name into exactly one vote or one reject."""
    for line, row in rows:
        if isinstance(row, Reject | Note):
            yield row
            continue
        try:
            yield to_vote(row, file, line, root, **how)
        except BadRow as bad:
            item = row.get("vote_id") or row.get("audio_a") or f"line {line}"
            yield Reject(shown(item), bad.reason, bad.detail, file.name, line, author_of(row.get("annotator")))


def table_votes(file: ListFile, columns: Mapping[str, str], root: str, positive: str | None = None) -> Voted:
    """Yield the votes of a table: the columns of `FIELDS` by the config's names, else by Earmark's own.

    Args:
        positive: the clip preferred by a number above 0, a or b, for comparisons rated from -3 to 3.
    """
    wanted = {"audio_a": "audio_a", "audio_b": "audio_b", **columns}
    may_tell = (*KINDS, *(() if "annotator_type" in columns else ORIGINS))  # a source may be of clips or prompts
    optional = {field: field for field in (*FIELDS, "judge", *may_tell) if field not in wanted}
    rows = unread_rows(named_rows(by_its_header(file), wanted, optional))
    yield from to_votes(file, ((line, _chosen(file, line, row, positive)) for line, row in rows), root)


def _chosen(file: ListFile, line: int, row: Named, positive: str | None) -> Named:
    """Return a row with choices in words, converted from numbers and from names of clips or models."""
    if isinstance(row, Reject | Note):
        return row
    named: dict[str, str] = {}
    for what in ("model", "audio"):
        one, other = (_plain(row.get(f"{what}_{side}")) for side in "ab")
        named |= {one: "a", other: "b"} if one != other else {}
    changed: dict[str, Any] = {}
    for dimension in DIMENSIONS:
        cell = row.get(dimension)
        if not given(cell):
            continue
        value, side = number(cell), named.get(_plain(cell))
        if value == value and (positive or side is None):
            changed |= _rated(file, line, value, positive, dimension, signed=str(cell).strip().startswith("+"))
        elif side is not None:
            said = {1.0: "a", 2.0: "b"}.get(value, said_choice(cell))
            if said not in (None, side):
                raise InputError(
                    f"{file.name}, line {line}: '{shown(cell)}' names the model or clip of {side}, and says {said}: "
                    f"write a or b in columns.{dimension}"
                )
            changed[dimension] = side
    sizes = {key: value for key, value in changed.items() if key.startswith("confidence_") and given(row.get(key))}
    return {**row, **{key: value for key, value in changed.items() if key not in sizes}}


def _rated(
    file: ListFile, line: int, value: float, positive: str | None, dimension: str, *, signed: bool
) -> dict[str, Any]:
    """Return a number's choice and its confidence.

    A comparison category rating (ITU-T P.800, annex E) from -3 to 3 gives by its sign the better clip and by its
    size the difference; 1, 2 and 3 become the confidences 1, 3 and 5.
    """
    if positive is None:
        if value in (1, 2) and not signed:
            return {dimension: "a" if value == 1 else "b"}
        raise InputError(
            f"{file.name}, line {line}: expected a choice (a, b, 1, 2, first, second, left, right, tie), found "
            f'{value:g}; comparisons rated from -3 to 3 need positive = "a" or "b": the clip that a number above 0 '
            "prefers"
        )
    if abs(value) > 3 or not (2 * value).is_integer():
        return {}  # no choice: a reject
    other = "b" if positive == "a" else "a"
    side = "tie" if value == 0 else positive if value > 0 else other
    return {dimension: side, f"confidence_{dimension}": max(1.0, 2 * abs(value) - 1) if value else None}


def _plain(cell: Any) -> str:
    """Return a name's or choice's one spelling: `2` and `2.0`, `B` and `b` are the same."""
    value = number(cell)
    return str(value) if value == value else str(cell or "").strip().lower()


def said_choice(cell: Any) -> str | None:
    """Return the choice that a word says; None for another word."""
    return CHOICES.get(str(cell).strip().lower().replace(" ", "_").replace("-", "_"))


def choice(cell: Any) -> str | None:
    """Parse a choice as a, b, tie or both_bad; return None for an empty cell."""
    if not given(cell):
        return None
    chosen = said_choice(cell)
    if chosen is None:
        raise BadRow("bad_value", f"expected a, b or tie as preference, found '{shown(cell)}'")
    return chosen


def confidence(cell: Any) -> float | None:
    """Parse a confidence from 1 to 5 in half steps; return None for an empty cell."""
    if not given(cell):
        return None
    value = number(cell)
    if not (1 <= value <= 5 and (2 * value).is_integer()):
        raise BadRow("bad_value", f"expected a confidence from 1 to 5 in half steps, found '{shown(cell)}'")
    return value


def day(cell: Any) -> str | None:
    """Return the day of an ISO date (also 20250831), a date and time (taken to UTC if it has a zone), or seconds."""
    if not given(cell):
        return None
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif math.isfinite(seconds := number(cell)):
            is_date = seconds < LEAST_SECONDS
            moment = datetime.fromisoformat(f"{seconds:.15g}") if is_date else datetime.fromtimestamp(seconds, UTC)
        else:
            moment = datetime.fromisoformat(str(cell).strip())
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise BadRow("bad_value", f"expected a date such as 2025-08-31, found '{shown(cell)}'") from None


def _annotator(cell: Any) -> str | None:
    """Return an annotator's id; keep an invalid id out of the error message."""
    try:
        return _name(cell, "annotator")
    except BadRow as bad:
        raise BadRow(bad.reason, "expected an annotator's id of a line of text, found something else") from None


def author_of(cell: Any) -> str | None:
    """Return the author of an unusable vote, or None if unreadable."""
    try:
        return _annotator(cell)
    except BadRow:
        return None


def unread_rows(rows: Iterator[tuple[int, Named]]) -> Iterator[tuple[int, Named]]:
    """Yield rows; name unreadable rows by their line, since their words may name a person."""
    for line, row in rows:
        yield line, row._replace(item=f"line {row.line}") if isinstance(row, Reject) else row


def _name(cell: Any, word: str) -> str | None:
    return identifier(cell, word) if given(cell) else None


def _seconds(cell: Any) -> float | None:
    if not given(cell):
        return None
    value = number(cell)
    if not 0 <= value < math.inf:
        raise BadRow("bad_value", f"expected a duration in seconds from 0, found '{shown(cell)}'")
    return value


def _vocals(instrumental: Any, lyrics: str | None) -> str | None:
    """Return vocal, instrumental or None; lyrics mean a voice unless the row says otherwise."""
    if not given(instrumental):
        return "vocal" if lyrics else None
    word = str(instrumental).strip().lower()
    if word not in ("true", "false", "0", "1"):
        raise BadRow("bad_value", f"expected true or false for instrumental, found '{shown(instrumental)}'")
    return "instrumental" if word in ("true", "1") else "vocal"


def _split(cell: Any) -> str | None:
    return split_name(cell) if given(cell) and str(cell).strip().lower() not in SPLIT_WORDS else None


LAYOUT = register("votes.votes")(
    VoteLayout(
        lambda source, files, root: chain.from_iterable(
            table_votes(file, source.columns, root, source.positive) for file in files
        )
    )
)
VOTE_LAYOUTS = Registry(
    "layout of votes", "earmark.importers", VoteLayout, registered("earmark.tasks.importers"), prefix="votes."
)
