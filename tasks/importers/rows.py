"""Define the items yielded by importers: rated rows, rejects, and notes about missing parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from earmark.schemas.rejects import Note, Reject


class Rating(NamedTuple):
    """A rating or a mean of a clip, as a list states it.

    Rows of the same file are averaged later: over listeners if they carry a `listener_id`, else over rows.
    """

    file: str  # the audio file as the list names it
    score: float  # a listener's rating or the published mean, within the source's scale
    source_file: str  # "<source name>/<path below its root>" of the list
    line: int  # line in that list, from 1
    split: str | None = None  # the publisher's split in Earmark's words; None without one
    subset: str | None = None  # listening test within the dataset (a track, a NISQA database)
    system_id: str | None = None
    speaker_id: str | None = None
    content_id: str | None = None
    condition_id: str | None = None
    listener_id: str | None = None
    votes: int | None = None  # ratings behind a published mean
    mos_std: float | None = None  # their sample standard deviation
    audio: str | None = None  # the clip's path below the source's root, if not at `file`


Imported = Iterator[Rating | Reject | Note]
