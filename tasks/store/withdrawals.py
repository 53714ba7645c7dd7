"""Record withdrawals from a store, as digests with a reason, for all later commits.

A record is kept in `<store>/withdrawals/`; for an object store there, and in its machines' copies. It holds SHA-256s of
withdrawn things, for builds to leave them out, and of versions holding them, never to be published.

A commit may read the withdrawals just before a record appears, and end long after. So a version must be proved free of
withdrawn things: the withdrawal searched it (`Withdrawal.seen`), or its commit had read the record
(`Manifest.applied_withdrawals`). Without either proof a version is not published, in any
order of events and after any kill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from earmark.schemas.errors import StoreError
from earmark.schemas.places import CorpusName, FileName
from earmark.schemas.toml import first_fault
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import MANIFEST, Manifest, Parent, digest_of, read_manifest
from earmark.tasks.store.remote import Remote

FOLDER = "withdrawals"
Kind = Literal["annotator", "clip", "prompt"]


class Mark(BaseModel):
    """A withdrawn thing, by a digest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # as declared by columns (`schemas.tables.column`); `key` in records of an earlier release, with a column of rows
    # made from a withdrawn row by other corpora
    kind: str
    digest: str  # SHA-256 of kind and value
    column: str | None = None  # the column of a `key`
    corpus: CorpusName | None = None  # the only corpus concerned; None for all

    @classmethod
    def of(cls, kind: str, value: str, corpus: str | None = None) -> Mark:
        """Return the mark of a thing."""
        return cls(kind=kind, digest=digest_of_value(kind, value), corpus=corpus)


class Withdrawal(BaseModel):
    """A withdrawal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # derived from the withdrawn things: repeating a withdrawal changes nothing
    name: FileName = Field(
        validation_alias=AliasChoices("name", "act"), serialization_alias="act"
    )  # as in earlier records
    kind: Kind  # the kind of thing withdrawn
    reason: str  # as given by the user
    withdrawn: datetime  # date and time
    marks: tuple[Mark, ...]  # left out of every later version
    versions: tuple[Parent, ...]  # versions containing it, by digest of their manifests; they are not published
    made: tuple[Parent, ...] = ()  # new versions without it, made by the withdrawal
    rows: dict[str, dict[str, int]] = {}  # rows left out of those, by corpus and table
    # digests of the manifests of all searched versions; None in a record of an earlier release
    seen: tuple[str, ...] | None = None

    def holds(self, manifest: Manifest) -> bool:
        """Return whether a manifest's version contains the withdrawn things."""
        digest = manifest.digest()
        return any(held.digest == digest for held in self.versions)

    def name_for(self, corpus: str) -> str | None:
        """Return a digest of a corpus's withdrawn things for `Manifest.applied_withdrawals`; None if there are none."""
        marks = sorted(mark.model_dump_json() for mark in self.marks if mark.corpus in (None, corpus))
        return digest_of(marks) if marks else None

    def has_met(self, manifest: Manifest) -> bool:
        """Return whether a manifest's version was searched, or its commit had read the record."""
        if self.seen is None or manifest.digest() in self.seen:
            return True
        name = self.name_for(manifest.corpus)
        return name is None or name in manifest.applied_withdrawals


def digest_of_value(kind: str, value: str) -> str:
    """Return the SHA-256 of a withdrawn value."""
    return hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogatepass")).hexdigest()


def withdrawals(root: Path) -> list[Withdrawal]:
    """Return all withdrawals of the store at `root`, oldest first.

    Raises:
        StoreError: a record cannot be read.
    """
    found = []
    for path in sorted((root / FOLDER).glob("*.json")):
        try:
            found.append(Withdrawal.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            raise StoreError(f"{path} is not a record of a withdrawal: {first_fault(error)[1]}") from None
    return sorted(found, key=lambda one: (one.withdrawn, one.name))


def save_withdrawal(root: Path, withdrawal: Withdrawal, remote: Remote | None = None) -> None:
    """Save a withdrawal, first in the object store if `root` is a copy.

    Raises:
        StoreError: the object store cannot be written.
    """
    text = withdrawal.model_dump_json(indent=1, by_alias=True) + "\n"
    if remote is not None:
        remote.files.write(f"{remote.url}/{FOLDER}/{withdrawal.name}.json", text.encode())
    write_text(root / FOLDER / f"{withdrawal.name}.json", text)


def bring_withdrawals(root: Path, remote: Remote) -> None:
    """Download the withdrawals of an object store into its copy."""
    remote.bring(root, FOLDER)


def marks_for(known: Sequence[Withdrawal], corpus: str) -> tuple[Mark, ...]:
    """Return the marks of things barred from a corpus's versions."""
    marks = (mark for one in known for mark in one.marks)
    return tuple(dict.fromkeys(mark for mark in marks if mark.corpus in (None, corpus)))


def names_for(known: Sequence[Withdrawal], corpus: str) -> tuple[str, ...]:
    """Return the value of `Manifest.applied_withdrawals` for a corpus: a digest for each of its withdrawals."""
    return tuple(sorted({name for one in known if (name := one.name_for(corpus))}))


def withdrawal_against(root: Path, manifest: Manifest) -> Withdrawal | None:
    """Return the withdrawal barring a version from publication, or None. It withdrew rows of the version, or the
    version or one of its parents has not met it."""
    known = withdrawals(root)
    return next((one for one in known if one.holds(manifest)), None) or _unmet(root, known, manifest)


def _unmet(root: Path, known: Sequence[Withdrawal], manifest: Manifest) -> Withdrawal | None:
    if withdrawal := next((one for one in known if not one.has_met(manifest)), None):
        return withdrawal
    for parent in manifest.parents:
        path = root / parent.corpus / parent.version / MANIFEST
        if (
            known
            and parent.corpus != manifest.corpus
            and path.is_file()
            and (withdrawal := _unmet(root, known, read_manifest(path)))
        ):
            return withdrawal
    return None
