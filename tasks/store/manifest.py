"""Define and read `manifest.json`, the last file written by a commit. It holds no time, host or absolute path: the same
inputs give the same bytes. The store's run records hold the time and place of a build instead."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from earmark.schemas.errors import StoreError
from earmark.schemas.places import BelowPath, CorpusName, VersionName
from earmark.schemas.tables import Table
from earmark.schemas.toml import first_fault

FORMAT = 1
RULES = 2  # raised after a fault made wrong rows of sound inputs: see tasks/release/known_faults.py
MANIFEST = "manifest.json"
CARD, REPORT = "README.md", "report.html"
PAGES = (CARD, REPORT, "croissant.json")  # the last only in versions of releases before 1.0
"""Pages about a version for people and indexers, rendered from its tables and manifest."""


class Record(BaseModel):
    """A part of a manifest; unknown keys are refused, so that a damaged file does not pass for a sound one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(Record):
    """A file of a version, by its path below the version's folder."""

    path: BelowPath
    sha256: str
    bytes: int
    rows: int | None = None
    table: str | None = None
    split: str | None = None


class Step(Record):
    """Accounts of one step: `entered == kept + sum(rejected) + sum(dropped)`."""

    name: str  # the step, unique in a build
    place: int  # position in the build, from 1; parallel steps share a place
    unit: str  # the counted thing ("lines", "clips", "candidate pairs")
    stage: str = ""  # value of `stage` for its rejects in the `rejects` table
    follows: tuple[str, ...] = ()  # preceding steps of the same unit, the source of its items; empty for a first step
    entered: int
    kept: int
    rejected: dict[str, int] = {}  # items in the `rejects` table by reason
    dropped: dict[str, int] = {}  # candidates filtered out by a rule or quota, by reason; counted, not listed
    table: str | None = None  # the published table of the kept items, if any
    notes: tuple[str, ...] = ()  # sentences for the reader, such as an unmet quota


class Parent(Record):
    """A version used as an input, or the previous version."""

    corpus: CorpusName
    version: VersionName
    digest: str


class Manifest(Record):
    """Record of a version's origin and contents.

    `commits` are the commits of inputs on the Hub, by `hf://datasets/owner/name@revision`; the build key holds the
    inputs' digests instead. `model_terms` are the models' terms known at the build (`tasks/store/licences.py`).
    `rules` is the build's number of rules (0: before they were counted); a version made by a withdrawal keeps the
    number of its base, like its rows. `applied_withdrawals` names the withdrawals left out, by digests
    (`tasks/store/withdrawals.py`). It stays in the store: a published manifest omits it. `views` are the files of a
    publication's further configs; a version in a store has none.
    """

    format: int = FORMAT
    rules: int = 0
    corpus: CorpusName
    version: VersionName
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
    views: tuple[FileEntry, ...] = ()
    applied_withdrawals: tuple[str, ...] = Field(
        default=(), validation_alias=AliasChoices("applied_withdrawals", "obeyed"), serialization_alias="obeyed"
    )  # the key in files stays: a version's digest covers it

    @model_validator(mode="before")
    @classmethod
    def _of_this_format(cls, values: Any) -> Any:
        if isinstance(values, dict) and (found := values.get("format", FORMAT)) != FORMAT:
            expected = {"expected": FORMAT, "found": str(found)}
            line = "expected format {expected}, found {found}: a later release of Earmark reads it"
            raise PydanticCustomError("format", line, expected)
        return values

    def to_json(self) -> str:
        """Return the manifest's text; equal manifests have equal bytes."""
        blank = {
            name
            for name in ("rules", "commits", "model_terms", "views", "applied_withdrawals")
            if not getattr(self, name)
        }  # as manifests were without them
        held = self.model_dump(mode="json", by_alias=True, exclude=blank)
        return json.dumps(held, indent=1, ensure_ascii=False) + "\n"

    def digest(self) -> str:
        """Return the SHA-256 of the manifest's text; it identifies the version's whole content."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def entries(self, table: str, split: str | None = None) -> tuple[FileEntry, ...]:
        """Return the Parquet files of a table, or of a split of it, in reading order."""
        return tuple(f for f in self.files if f.table == table and split in (None, f.split))

    def notes(self) -> list[str]:
        """Return all steps' sentences for the reader."""
        return [note for step in self.steps for note in step.notes]


def read_manifest(path: Path, place: str | None = None) -> Manifest:
    """Read `manifest.json`; `place` is for the message, if the file is a copy."""
    try:
        return parse_manifest(path.read_bytes(), place or str(path))
    except FileNotFoundError:
        raise StoreError(f"no manifest at {path}: not a committed version") from None


def parse_manifest(text: bytes, place: str) -> Manifest:
    """Parse a manifest's text; `place` is for the message.

    Raises:
        StoreError: the text is not a manifest, or names files outside its version.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise StoreError(f"{place} is not a valid manifest: {': '.join(first_fault(error))}") from None


def claimant_of(build_key: str, applied_withdrawals: Sequence[str]) -> str:
    """Return the claimant of a version's name in an object store. Builds share a claimant only for the same content:
    the same key and the same withdrawals."""
    return digest_of([build_key, *applied_withdrawals]) if applied_withdrawals else build_key


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def schema_digest(table: Table) -> str:
    """Return the SHA-256 of a table's schema with descriptions, its key and its sizes of groups and files."""
    schema = hashlib.sha256(table.schema.serialize()).hexdigest()
    return digest_of([schema, list(table.key), list(table.exclusive), table.rows_per_group, table.rows_per_file])
