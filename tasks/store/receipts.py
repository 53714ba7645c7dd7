"""Record publications: a receipt for each version and repository, beside the versions, never inside."""

import hashlib
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from earmark.schemas.places import CorpusName, VersionName
from earmark.tasks.store.files import read_record, write_text
from earmark.tasks.store.versions import Store

FOLDER = "published"
IDENTITY = ("commit", "tag", "private", "manifest", "published_manifest")  # of equal publications


class Receipt(BaseModel):
    """A publication."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    corpus: CorpusName
    version: VersionName
    endpoint: str  # the Hub
    repo: str
    private: bool
    commit: str  # the version's commit in the repository
    tag: str | None  # None for a branch beside main
    branch: str | None = None  # the branch, if it is not main
    manifest: str  # SHA-256 of the version's manifest in the store
    published_manifest: str  # SHA-256 of the repository's manifest; differs after rows or audio were held back
    files: int  # files in the repository
    bytes: int  # their size
    held_rows: dict[str, int] = {}  # rows held back by table
    held_audio: dict[str, int] = {}  # clips held back by table
    allowed: tuple[str, ...] = ()  # marks of findings allowed by a reviewed list
    published: datetime


class SentVersion(Receipt):
    """A receipt with facts of the call that sent the version."""

    uploaded: int  # files sent
    url: str
    collection: str | None


def save_receipt(store: Store, receipt: Receipt) -> Path:
    """Save a receipt, keeping the first of equal publications; return its path.

    A store in a bucket gets it too, with the receipts that an earlier release kept on this machine alone.

    Raises:
        StoreError: a receipt cannot be read, or the bucket cannot be written.
    """
    branch = f"--{hashlib.sha256(receipt.branch.encode()).hexdigest()[:12]}" if receipt.branch else ""
    name = f"{receipt.version}--{receipt.repo.replace('/', '--')}{branch}.json"
    path = store.folder(receipt.corpus) / FOLDER / name
    there = _bring(store, receipt.corpus)
    first = read_record(Receipt, path, "a receipt") if path.is_file() else None
    if first is None or any(getattr(first, name) != getattr(receipt, name) for name in IDENTITY):
        write_text(path, receipt.model_dump_json(indent=1) + "\n")
        there.discard(name)
    if store.remote is not None:
        for one in path.parent.glob("*.json"):
            if one.name not in there:
                store.remote.files.write(f"{store.remote.url}/{receipt.corpus}/{FOLDER}/{one.name}", one.read_bytes())
    return path


def receipts(store: Store, corpus: str) -> list[Receipt]:
    """Return all receipts of a corpus, by version and repository; of a store in a bucket, every machine's.

    Raises:
        StoreError: a receipt cannot be read.
    """
    _bring(store, corpus)
    records = [read_record(Receipt, path, "a receipt") for path in (store.folder(corpus) / FOLDER).glob("*.json")]
    return sorted(records, key=lambda receipt: (int(receipt.version[1:]), receipt.repo, receipt.branch or ""))


def _bring(store: Store, corpus: str) -> set[str]:
    return store.remote.bring(store.root, f"{corpus}/{FOLDER}") if store.remote is not None else set()
