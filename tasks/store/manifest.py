"""What a version says of itself: `manifest.json`, the last file that a commit writes.

It holds no time, host or absolute path: the same inputs give the same bytes. When and where a build ran is kept in
the store's run records instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from earmark.schemas.errors import StoreError

FORMAT = 1
RULES = 1  # goes up when a build made wrong rows of sound inputs before: see tasks/release/known_faults.py
MANIFEST = "manifest.json"


class Record(BaseModel):
    """A part of a manifest; unknown keys are refused, so that a damaged file does not pass for a sound one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(Record):
    """One file of a version, by its path below the version's folder."""

    path: str
    sha256: str
    bytes: int
    rows: int | None = None
    table: str | None = None
    split: str | None = None


class Step(Record):
    """The accounts of one step: `entered == kept + sum(rejected) + sum(dropped)`."""

    name: str  # the step, unique in a build
    place: int  # where it stands in the story, from 1; steps that run side by side share a place
    unit: str  # what is counted ("lines", "clips", "candidate pairs")
    stage: str = ""  # the word under which its rejects stand in the `rejects` table
    follows: tuple[str, ...] = ()  # steps of the same unit whose kept items enter here; empty for a first step
    entered: int
    kept: int
    rejected: dict[str, int] = {}  # items in the `rejects` table by reason
    dropped: dict[str, int] = {}  # candidates that a rule or a quota filtered out, by reason; counted, not listed
    table: str | None = None  # the published table whose rows are the kept items, if there is one
    notes: tuple[str, ...] = ()  # sentences for the reader, such as a quota that could not be met


class Parent(Record):
    """A version that this one was made from or follows."""

    corpus: str
    version: str
    digest: str


class Manifest(Record):
    """Everything about a version that its files do not say.

    `commits` are those that inputs on the Hub were read at, by `hf://datasets/owner/name@revision`; the build key holds
    the inputs' digests and not these.
    `model_terms` are those of the models, as the build knew them (`tasks/store/model_terms.py`).
    `rules` are those of the build (0: before they were counted); a version that a withdrawal makes keeps those of its
    base, whose rows it has. `applied_withdrawals` names what was left out because it was withdrawn, by digests
    (`tasks/store/withdrawals.py`). It stays in the store: a published manifest is without it.
    """

    format: int = FORMAT
    rules: int = 0
    corpus: str
    version: str
    build_key: str
    parents: tuple[Parent, ...] = ()
    inputs: dict[str, str]
    commits: dict[str, str] = {}
    config: dict[str, Any]
    prompts: dict[str, str] = {}
    schemas: dict[str, str] = {}
    models: tuple[str, ...] = ()
    model_terms: dict[str, str] = {}
    code: str
    libraries: dict[str, str]
    steps: tuple[Step, ...]
    rejects: dict[str, int]
    rows: dict[str, dict[str, int]]
    files: tuple[FileEntry, ...]
    applied_withdrawals: tuple[str, ...] = Field(
        default=(), validation_alias=AliasChoices("applied_withdrawals", "obeyed"), serialization_alias="obeyed"
    )  # the key in files stays: a version's digest covers it

    def to_json(self) -> str:
        """The manifest's text; equal manifests have equal bytes."""
        blank = {
            name for name in ("rules", "commits", "model_terms", "applied_withdrawals") if not getattr(self, name)
        }  # as manifests were without them
        held = self.model_dump(mode="json", by_alias=True, exclude=blank)
        return json.dumps(held, indent=1, ensure_ascii=False) + "\n"

    def digest(self) -> str:
        """SHA-256 of the manifest's text: names the version's whole content."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def entries(self, table: str, split: str | None = None) -> tuple[FileEntry, ...]:
        """The Parquet files of a table, or of one of its splits, in reading order."""
        return tuple(f for f in self.files if f.table == table and split in (None, f.split))

    def notes(self) -> list[str]:
        """Every step's sentences for the reader."""
        return [note for step in self.steps for note in step.notes]


def read_manifest(path: Path) -> Manifest:
    """Read `manifest.json`.

    Raises:
        StoreError: it is missing or is not a manifest.
    """
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"no manifest at {path}: not a committed version") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path} is not a valid manifest: {where or 'content'}: {first['msg']}") from None


def claimant_of(build_key: str, applied_withdrawals: Sequence[str]) -> str:
    """Who claims a version's name in an object store. Builds of the same content alone share one: of the same key, and
    without the same that was withdrawn."""
    return digest_of([build_key, *applied_withdrawals]) if applied_withdrawals else build_key


def digest_of(value: Any) -> str:
    """SHA-256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
