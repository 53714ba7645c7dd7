"""Take in entries of importers in a corpus's first step: pass rows on, keep rejects and notes for the account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from earmark.schemas.rejects import Note, Reject
from earmark.tasks.pipeline.references import References, reject_of
from earmark.tasks.pipeline.step import Account


class Intake:
    """Intake of importer entries, of one list or several, with counts.

    Args:
        references: texts to keep out.

    Attributes:
        kept: number of rows passed on.
        rejects: unreadable entries, with the table that lacks them.
        notes: sentences for the reader.
        sources: rows and rejects per file.
        kept_out: ids of rows with a text to keep out.
    """

    def __init__(self, references: References | None = None) -> None:
        self._references = references
        self.kept_out: set[str] = set()
        self.kept = 0
        self.rejects: list[tuple[str, Reject]] = []
        self.notes: list[str] = []
        self.sources: Counter[str] = Counter()

    def take(self, entries: Iterable[Any], table: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the rows among the entries, at most `limit`; stop reading at the first row beyond it."""
        before = self.kept
        for entry in entries:
            if isinstance(entry, Note):
                self.notes.append(entry.text)
                continue
            if reject := reject_of(self._references, entry):
                self.kept_out.add(reject.item)
                entry = reject
            if isinstance(entry, Reject):
                self.rejects.append((table, entry))
            elif self.kept - before == limit:
                return
            else:
                self.kept += 1
                yield entry
            self.sources[entry.source_file] += 1

    def account(self) -> Account:
        """Return the account of all entries."""
        entered = self.kept + len(self.rejects)
        return Account(entered, self.kept, self.rejects, sources=self.sources, notes=self.notes)
