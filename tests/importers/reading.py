"""How the importers' tests read a source and sort what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Note, Reject
from earmark.tasks.importers.lists import Rating, input_files, read_source


class Reading(NamedTuple):
    """Everything that a source gave."""

    ratings: list[Rating]
    rejects: list[Reject]
    notes: list[str]

    @property
    def rows(self) -> int:
        """Rows that came out, in whichever way."""
        return len(self.ratings) + len(self.rejects)

    @property
    def reasons(self) -> list[tuple[str, int | None]]:
        """Reason and line of each reject."""
        return [(reject.reason, reject.line) for reject in self.rejects]


def read(base: Path, **source: Any) -> Reading:
    """Read a source whose paths start from a folder."""
    source.setdefault("name", source["format"])
    items = list(read_source(Source(**source), lambda written: base / written))
    return Reading(
        [item for item in items if isinstance(item, Rating)],
        [item for item in items if isinstance(item, Reject)],
        [item.text for item in items if isinstance(item, Note)],
    )


def files(base: Path, **source: Any) -> list[str]:
    """The names of the lists that a source consists of."""
    source.setdefault("name", source["format"])
    return [name for name, _ in input_files(Source(**source), lambda written: base / written)]
