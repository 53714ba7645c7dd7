"""What was withdrawn from a store: digests, and a reason in the words of who gave it, for every later commit.

A record lies in `<store>/withdrawals/`; of an object store there, and in the copies of the machines that use it. It
holds SHA-256s of what was withdrawn, so that a build that meets it again in its inputs leaves it out, and the versions
that still hold it, which are never published.

A commit may have read the withdrawals just before one was recorded, and end long after. So a version must show that it
is free of what was withdrawn: the withdrawal looked through it and says so (`Withdrawal.seen`), or its commit had read
the record (`Manifest.applied_withdrawals`). A version that neither speaks for is not published either, however the
two interleaved and whichever of them was killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from earmark.schemas.errors import StoreError
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import MANIFEST, Manifest, Parent, digest_of, read_manifest
from earmark.tasks.store.objects import one_line
from earmark.tasks.store.remote import Remote

FOLDER = "withdrawals"
Kind = Literal["annotator", "clip", "prompt"]


class Mark(BaseModel):
    """Something whose rows are withdrawn, by a digest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # of what is named so (`schemas.tables.column`); `key` in records of an earlier release, which named a column of
    # what other corpora made from a withdrawn row
    kind: str
    digest: str  # SHA-256 of kind and value
    column: str | None = None  # the column of a `key`
    corpus: str | None = None  # the one corpus that it holds for; None for all

    @classmethod
    def of(cls, kind: str, value: str, corpus: str | None = None) -> Mark:
        """The mark of a thing."""
        return cls(kind=kind, digest=digest_of_value(kind, value), corpus=corpus)


class Withdrawal(BaseModel):
    """One withdrawal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # from what was withdrawn; the same again is the same withdrawal
    name: str = Field(validation_alias=AliasChoices("name", "act"), serialization_alias="act")  # as in earlier records
    kind: Kind  # what was withdrawn
    reason: str  # why, as it was said
    withdrawn: datetime  # when
    marks: tuple[Mark, ...]  # what is left out of every later version
    versions: tuple[Parent, ...]  # the versions that hold it, by digest of their manifests; they are not published
    made: tuple[Parent, ...] = ()  # the versions without it that it made
    rows: dict[str, dict[str, int]] = {}  # rows left out of those, by corpus and table
    # digests of the manifests of all versions that were looked through; None in a record of an earlier release
    seen: tuple[str, ...] | None = None

    def holds(self, manifest: Manifest) -> bool:
        """Whether the version with that manifest holds what was withdrawn."""
        digest = manifest.digest()
        return any(held.digest == digest for held in self.versions)

    def name_for(self, corpus: str) -> str | None:
        """Names what is withdrawn from a corpus, in `Manifest.applied_withdrawals`; None if it is nothing."""
        marks = sorted(mark.model_dump_json() for mark in self.marks if mark.corpus in (None, corpus))
        return digest_of(marks) if marks else None

    def has_met(self, manifest: Manifest) -> bool:
        """Whether the version with that manifest was looked through, or made by a commit that had read the record."""
        if self.seen is None or manifest.digest() in self.seen:
            return True
        name = self.name_for(manifest.corpus)
        return name is None or name in manifest.applied_withdrawals


def digest_of_value(kind: str, value: str) -> str:
    """SHA-256 by which a withdrawn value is known."""
    return hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogatepass")).hexdigest()


def withdrawals(root: Path) -> list[Withdrawal]:
    """All withdrawals of the store in that folder, oldest first.

    Raises:
        StoreError: a record cannot be read.
    """
    found = []
    for path in sorted((root / FOLDER).glob("*.json")):
        try:
            found.append(Withdrawal.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            raise StoreError(f"{path} is not a record of a withdrawal: {error.errors()[0]['msg']}") from None
    return sorted(found, key=lambda one: (one.withdrawn, one.name))


def save_withdrawal(root: Path, withdrawal: Withdrawal, remote: Remote | None = None) -> None:
    """Keep a withdrawal: in the object store first, if the folder is a copy of one.

    Raises:
        StoreError: the object store cannot be written.
    """
    text = withdrawal.model_dump_json(indent=1, by_alias=True) + "\n"
    if remote is not None:
        with one_line(remote.url, StoreError):
            remote.files.pipe_file(f"{remote.url}/{FOLDER}/{withdrawal.name}.json", text.encode())
    write_text(root / FOLDER / f"{withdrawal.name}.json", text)


def bring_withdrawals(root: Path, remote: Remote) -> None:
    """Bring the withdrawals of an object store into its copy.

    Raises:
        StoreError: the object store cannot be reached.
    """
    with one_line(remote.url, StoreError):
        for path in remote.files.glob(f"{remote.url}/{FOLDER}/*.json"):
            write_text(root / FOLDER / path.rpartition("/")[2], remote.files.cat_file(path).decode())


def marks_for(known: Sequence[Withdrawal], corpus: str) -> tuple[Mark, ...]:
    """What may not enter a version of a corpus."""
    marks = (mark for one in known for mark in one.marks)
    return tuple(dict.fromkeys(mark for mark in marks if mark.corpus in (None, corpus)))


def names_for(known: Sequence[Withdrawal], corpus: str) -> tuple[str, ...]:
    """What `Manifest.applied_withdrawals` of a corpus's version names: the marks of each withdrawal from the corpus."""
    return tuple(sorted({name for one in known if (name := one.name_for(corpus))}))


def withdrawal_against(root: Path, manifest: Manifest) -> Withdrawal | None:
    """The withdrawal for which a version is not published: it withdrew rows of it, or the version, or one that it was
    made from, has not met it. None if there is none."""
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
