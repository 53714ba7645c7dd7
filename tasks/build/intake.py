"""What importers yield, taken in by the first step of a corpus: rows go on, rejects and notes wait for the account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from earmark.tasks.build.references import References, reject_of
from earmark.tasks.build.step import Account
from earmark.tasks.importers.rows import Note, Reject


class Intake:
    """Counts and sorts entries of importers, of one list or of several.

    Args:
        references: texts that are kept out.

    Attributes:
        kept: how many rows went on.
        rejects: what could not be read, with the table that lacks it.
        notes: sentences for the reader.
        sources: how many rows and rejects each file had.
        kept_out: ids of the rows whose text is kept out.
    """

    def __init__(self, references: References | None = None) -> None:
        self._references = references
        self.kept_out: set[str] = set()
        self.kept = 0
        self.rejects: list[tuple[str, Reject]] = []
        self.notes: list[str] = []
        self.sources: Counter[str] = Counter()

    def take(self, entries: Iterable[Any], table: str, limit: int | None = None) -> Iterator[Any]:
        """The rows among the entries: no more than `limit`, and nothing is read after the one beyond it."""
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
        """What became of all that was taken."""
        entered = self.kept + len(self.rejects)
        return Account(entered, self.kept, self.rejects, sources=self.sources, notes=self.notes)
