"""Read CMI-Pref (CMI-RewardBench): JSON lines of single votes, in the two spellings of its releases.

One spells `audio-path, audio2, prompt, "prompt id", "user id", preference-musicality, …`, the other `audio-a, audio-b,
text, ref-audio, user_id, feedback, total_listening_time_a, …`. Absent values are empty texts; confidences are texts
from 1.0 to 5.0 by half steps. No lyrics mean instrumental music. Each name is looked up in both spellings.

CMI-Pref-Pseudo lacks the annotators' columns and adds a judge's scores of each clip: `mq_a, mq_b` (music quality)
and `if_a, if_b` (instruction following), 0 to 10 in half steps.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import BadRow, given, number
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.music import words
from earmark.tasks.importers.table import named_rows
from earmark.tasks.importers.votes import Named, Vote, Voted, VoteLayout, each, to_vote, to_votes, unread_rows

NAMES: dict[str, tuple[str, ...]] = {
    "vote_id": ("vote_id", "vote id", "id"),
    "annotator": ("user id", "user_id", "user-id"),
    "prompt_id": ("prompt id", "prompt_id", "prompt-id"),
    "text": ("prompt", "text"),
    "lyrics": ("lyrics",),
    "reference": ("ref-audio-path", "ref-audio", "ref_audio"),
    "model_a": ("model_a", "model-a"),
    "model_b": ("model_b", "model-b"),
    "musicality": ("preference-musicality", "preference_musicality"),
    "confidence_musicality": ("confidence_preference-musicality", "confidence-musicality", "confidence_musicality"),
    "alignment": ("preference-alignment", "preference_alignment"),
    "confidence_alignment": ("confidence_preference-alignment", "confidence-alignment", "confidence_alignment"),
    "date": ("date", "timestamp", "created_at"),
    "feedback": ("feedback",),
    "listened_a_s": ("total_listening_time_a", "total listening time a"),
    "listened_b_s": ("total_listening_time_b", "total listening time b"),
    "split": ("split",),
    "audio_a": ("audio-path", "audio-a"),
    "audio_b": ("audio2", "audio-b"),
}
SCORES = ("mq_a", "mq_b", "if_a", "if_b")
CLIPS = tuple(zip(NAMES["audio_a"], NAMES["audio_b"], strict=True))
KEYS = {
    **{field: names[0] for field, names in NAMES.items()},
    **dict(zip(("a_audio", "b_audio"), CLIPS[0], strict=True)),
    "reference_audio": "ref-audio-path", "source": "source",
    "listened_a_s": "total listening time a", "listened_b_s": "total listening time b",
    **{name: name for name in SCORES},
}  # fmt: skip
"""Column of the release by column of a view."""
SPELT = (*dict.fromkeys(chain.from_iterable(NAMES.values())), "source", *SCORES)


class Label(NamedTuple):
    """A judge's label on two clips, as CMI-Pref-Pseudo states it; null for absent values."""

    pair_id: str | None
    prompt_id: str | None
    text: str | None
    lyrics: str | None
    reference: str | None  # path of the prompt's audio
    audio_a: str
    audio_b: str
    model_a: str | None
    model_b: str | None
    musicality: str | None  # a, b or tie
    confidence_musicality: float | None
    alignment: str | None
    confidence_alignment: float | None
    mq_a: float | None
    mq_b: float | None
    if_a: float | None
    if_b: float | None
    judge: str | None
    split: str | None
    source_file: str
    line: int


def read(file: ListFile, root: str) -> Voted:
    """Yield the votes of one file.

    Raises:
        InputError: the file cannot be read, or has the clips' columns in neither spelling.
    """
    rows = unread_rows(_spelt(file))
    named = ((line, row if isinstance(row, Reject | Note) else _named(row)) for line, row in rows)
    yield from to_votes(file, named, root)


def read_labels(file: ListFile, root: str) -> Iterator[Label | Reject | Note]:
    """Yield a label or a reject for each row of a CMI-Pref-Pseudo file. The clips lie below `root`.

    Raises:
        InputError: the file cannot be read, or has the clips' columns in neither spelling.
    """
    for line, row in _spelt(file):
        if isinstance(row, Reject | Note):
            yield row
            continue
        try:
            vote = to_vote(_named(row), file, line, root)
            scores = {name: _score(row[name]) for name in SCORES}
            yield _label(vote, scores, words(row["source"]))
        except BadRow as bad:
            yield Reject(shown(row["id"] or f"line {line}"), bad.reason, bad.detail, file.name, line)


def _label(vote: Vote, scores: Mapping[str, Any], judge: str | None) -> Label:
    if "both_bad" in (vote.musicality, vote.alignment):
        raise BadRow("bad_value", "expected a, b or tie as preference, found both_bad")
    if vote.musicality is None and vote.alignment is None:
        raise BadRow("no_preference", "expected a preference in musicality or alignment, found none")
    cells = {name: getattr(vote, name) for name in Label._fields if name in Vote._fields}
    return Label(pair_id=vote.vote_id, judge=judge, **cells, **scores)


def _score(cell: Any) -> float | None:
    """Return a judge's score of a clip; None for an empty cell."""
    if not given(cell):
        return None
    value = number(cell)
    if not (0 <= value <= 10 and (2 * value).is_integer()):
        raise BadRow("bad_value", f"expected a score from 0 to 10 in half steps, found '{shown(cell)}'")
    return value


def write(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write rows of a view in the release's form: columns of `KEYS`, absent values as empty texts."""
    with path.open("w", encoding="utf-8", newline="\n") as lines:
        for row in (row for batch in batches for row in batch.to_pylist()):
            cells = {key: "" if row[name] is None else row[name] for name, key in KEYS.items() if name in row}
            if str(number := cells["prompt id"]).isdecimal() and str(int(number)) == number:
                cells["prompt id"] = int(number)
            lines.write(json.dumps(cells) + "\n")  # in ASCII as in the release: feedback holds U+2028


def _spelt(file: ListFile) -> Iterator[tuple[int, Named]]:
    """Yield rows by the names in `SPELT`; require the clips' columns in one spelling."""
    errors = []
    for wanted in CLIPS:
        rows = named_rows(file, {n: n for n in wanted}, {n: n for n in SPELT if n not in wanted})
        try:
            first = next(rows)
        except InputError as error:
            errors.append(error)
            continue
        yield from chain((first,), rows)
        return
    raise errors[0]


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    cells = {
        field: next((row[name] for name in names if row[name] not in (None, "")), None)
        for field, names in NAMES.items()
    }
    return {**cells, "instrumental": not given(cells["lyrics"])}


LAYOUT = register("votes.cmi-pref")(VoteLayout(each(read), task="cmi-pref"))
