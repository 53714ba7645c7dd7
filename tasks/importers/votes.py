"""Votes on pairs of clips, whatever export they come from: one vote, or one reject, a row.

An importer maps its columns to the names below; `to_vote` holds their values to what they may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from earmark.schemas.human_preferences import Source
from earmark.tasks.importers.cells import BadRow, clip, given, identifier, number, shown, split_name
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.music import words
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.table import named_rows

DIMENSIONS = ("musicality", "alignment", "overall")
CHOICES = {
    **dict.fromkeys(("a", "model_a", "audio_a", "left"), "a"),
    **dict.fromkeys(("b", "model_b", "audio_b", "right"), "b"),
    **dict.fromkeys(("tie", "equal", "neither", "both"), "tie"),
    "both_bad": "both_bad",
}
SPLIT_WORDS = ("", "all", "full")  # of a list that is not divided
FIELDS = (
    *("audio_a", "audio_b", "vote_id", "annotator", "prompt_id", "text", "lyrics", "reference", "model_a", "model_b"),
    *(name for dimension in DIMENSIONS for name in (dimension, f"confidence_{dimension}")),
    *("date", "feedback", "listened_a_s", "listened_b_s", "instrumental", "split"),
)


class Vote(NamedTuple):
    """One person's vote on two clips, as its export states it."""

    vote_id: str | None
    annotator: str | None  # as the export names the person: it never leaves the build
    prompt_id: str | None
    text: str | None
    lyrics: str | None
    reference: str | None  # path of the prompt's audio
    audio_a: str | None  # None where the source withholds it
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
    fault: str | None  # what is known to be wrong with a generation
    source_file: str
    line: int


Voted = Iterator[Vote | Reject | Note]
Named = Mapping[str, Any] | Reject | Note


@dataclass(frozen=True)
class VoteLayout:
    """A layout of votes, or of rated clips."""

    # yields what the files of a source hold, in order; gets the source, its files and the clips' folder
    read: Callable[[Source, Sequence[ListFile], str], Iterator[Any]]
    rated: bool = False  # whether it holds `MusicRating`s rather than `Vote`s
    # the files, by the source's name and root, of a layout whose config names none
    find: Callable[[str, Path], list[ListFile]] | None = None
    documents: bool = False  # whether each file is one JSON document, whatever its ending
    task: str = "votes"  # the benchmark's task that its rows belong to
    split: Literal["draw", "native", "test"] = "draw"  # how rows come into splits where the config does not say
    drops_ties: bool = False  # whether votes for neither clip are rejects where the config does not say


def each(read: Callable[[ListFile, str], Voted]) -> Callable[[Source, Sequence[ListFile], str], Voted]:
    """Read the files of a source one after the other."""
    return lambda source, files, root: chain.from_iterable(read(file, root) for file in files)


def to_vote(row: Mapping[str, Any], file: ListFile, line: int, root: str, *, withheld: bool = False) -> Vote:
    """A vote of cells by the names in `FIELDS`; whatever is not there counts as empty.

    Args:
        root: folder of the clips, absolute.
        withheld: whether the source leaves audio out, so that a vote may name none.

    Raises:
        BadRow: a value is not what it may be.
    """
    get = row.get
    sides = [clip(get(name), root) if given(get(name)) or not withheld else None for name in ("audio_a", "audio_b")]
    if sides[0] is not None and sides[0] == sides[1]:
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


def table_votes(file: ListFile, columns: Mapping[str, str], root: str) -> Voted:
    """Votes of a table: the columns of `FIELDS` by the names that the config gives them, else by our own.

    Raises:
        InputError: one of the clips' columns, or one that the config names, is missing.
    """
    wanted = {"audio_a": "audio_a", "audio_b": "audio_b", **columns}
    optional = {field: field for field in FIELDS if field not in wanted}
    yield from to_votes(file, unread_rows(named_rows(file, wanted, optional)), root)


def choice(cell: Any) -> str | None:
    """a, b, tie or both_bad; None for an empty cell."""
    if not given(cell):
        return None
    chosen = CHOICES.get(str(cell).strip().lower().replace(" ", "_").replace("-", "_"))
    if chosen is None:
        raise BadRow("bad_preference", f"expected a, b or tie, found '{shown(cell)}'")
    return chosen


def confidence(cell: Any) -> float | None:
    """A confidence from 1 to 5 in half steps; None for an empty cell."""
    if not given(cell):
        return None
    value = number(cell)
    if not (1 <= value <= 5 and (2 * value).is_integer()):
        raise BadRow("bad_confidence", f"expected a confidence from 1 to 5 in half steps, found '{shown(cell)}'")
    return value


def day(cell: Any) -> str | None:
    """The day of an ISO date, a date and time (taken to UTC where it has a zone), or seconds since 1970."""
    if not given(cell):
        return None
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif math.isfinite(seconds := number(cell)):
            moment = datetime.fromtimestamp(seconds, UTC)
        else:
            moment = datetime.fromisoformat(str(cell).strip())
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise BadRow("bad_date", f"expected a date such as 2025-08-31, found '{shown(cell)}'") from None


def _annotator(cell: Any) -> str | None:
    """An annotator's id; what is said of a bad one does not show it."""
    try:
        return _name(cell, "annotator")
    except BadRow as bad:
        raise BadRow(bad.reason, "expected an annotator's id of a line of text, found something else") from None


def author_of(cell: Any) -> str | None:
    """Who cast a vote that cannot be used, as far as it can be read."""
    try:
        return _annotator(cell)
    except BadRow:
        return None


def unread_rows(rows: Iterator[tuple[int, Named]]) -> Iterator[tuple[int, Named]]:
    """Rows, of which one that cannot be read at all is named by its line: its words may name a person."""
    for line, row in rows:
        yield line, row._replace(item=f"line {row.line}") if isinstance(row, Reject) else row


def _name(cell: Any, word: str) -> str | None:
    return identifier(cell, word) if given(cell) else None


def _seconds(cell: Any) -> float | None:
    if not given(cell):
        return None
    value = number(cell)
    if not 0 <= value < math.inf:
        raise BadRow("bad_duration", f"expected seconds from 0, found '{shown(cell)}'")
    return value


def _vocals(instrumental: Any, lyrics: str | None) -> str | None:
    """What is said of the voice; lyrics mean a voice unless the row says otherwise."""
    if not given(instrumental):
        return "vocal" if lyrics else None
    word = str(instrumental).strip().lower()
    if word not in ("true", "false", "0", "1"):
        raise BadRow("bad_flag", f"expected true or false for instrumental, found '{shown(instrumental)}'")
    return "instrumental" if word in ("true", "1") else "vocal"


def _split(cell: Any) -> str | None:
    return split_name(cell) if given(cell) and str(cell).strip().lower() not in SPLIT_WORDS else None


LAYOUT = VoteLayout(
    lambda source, files, root: chain.from_iterable(table_votes(file, source.columns, root) for file in files)
)
