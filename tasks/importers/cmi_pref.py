"""CMI-Pref (CMI-RewardBench): JSON lines of single votes, in the two spellings of its releases.

One spells `audio-path, audio2, prompt, "prompt id", "user id", preference-musicality, …`, the other `audio-a, audio-b,
text, ref-audio, user_id, feedback, total_listening_time_a, …`. Absent values are empty texts; confidences are texts
from 1.0 to 5.0 by half steps. Each name is looked for in both spellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from earmark.schemas.errors import InputError
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.table import named_rows
from earmark.tasks.importers.votes import Named, Voted, VoteLayout, each, to_votes, unread_rows

CLIPS = (("audio-path", "audio2"), ("audio-a", "audio-b"))
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
    "listened_a_s": ("total_listening_time_a",),
    "listened_b_s": ("total_listening_time_b",),
    "split": ("split",),
}
SPELT = tuple(dict.fromkeys(chain.from_iterable((*CLIPS, *NAMES.values()))))


def read(file: ListFile, root: str) -> Voted:
    """Yield the votes of one file.

    Raises:
        InputError: the file cannot be read, or has the clips' columns in neither spelling.
    """
    rows = unread_rows(_spelt(file))
    named = ((line, row if isinstance(row, Reject | Note) else _named(row)) for line, row in rows)
    yield from to_votes(file, named, root)


def _spelt(file: ListFile) -> Iterator[tuple[int, Named]]:
    """Rows by the names in `SPELT`; the clips' columns must be there in one spelling."""
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
    def first(names: tuple[str, ...]) -> Any:
        return next((row[name] for name in names if row[name] not in (None, "")), None)

    sides = {field: first(names) for field, names in zip(("audio_a", "audio_b"), zip(*CLIPS, strict=True), strict=True)}
    return {**sides, **{field: first(names) for field, names in NAMES.items()}}


LAYOUT = VoteLayout(each(read), task="cmi-pref")
