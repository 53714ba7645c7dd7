"""Where versions were published: a receipt for each version and repository, beside the versions, never inside."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from earmark.tasks.store.files import read_record, write_text
from earmark.tasks.store.versions import Store

FOLDER = "published"


class Receipt(BaseModel):
    """One publication.

    Attributes:
        endpoint: the Hub.
        commit: the commit that holds the version.
        manifest: SHA-256 of the version's manifest in the store.
        published_manifest: that of the manifest in the repository; another one if something was held back.
        files: files in the repository.
        bytes: their size.
        held_rows: rows held back by table.
        held_audio: clips held back by table.
        allowed: findings of the scan that a reviewed list let pass, by its marks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    corpus: str
    version: str
    endpoint: str
    repo: str
    private: bool
    commit: str
    tag: str
    manifest: str
    published_manifest: str
    files: int
    bytes: int
    held_rows: dict[str, int] = {}
    held_audio: dict[str, int] = {}
    allowed: tuple[str, ...] = ()
    published: datetime


def save_receipt(store: Store, receipt: Receipt) -> Path:
    """Keep a receipt; the first of a publication stays. Its path."""
    name = f"{receipt.version}--{receipt.repo.replace('/', '--')}.json"
    path = store.folder(receipt.corpus) / FOLDER / name
    first = read_record(Receipt, path, "a receipt") if path.is_file() else None
    if first is None or first.model_copy(update={"published": receipt.published}) != receipt:
        write_text(path, receipt.model_dump_json(indent=1) + "\n")
    return path


def receipts(store: Store, corpus: str) -> list[Receipt]:
    """All receipts of a corpus, by version and repository.

    Raises:
        StoreError: one cannot be read.
    """
    found = [read_record(Receipt, path, "a receipt") for path in (store.folder(corpus) / FOLDER).glob("*.json")]
    return sorted(found, key=lambda receipt: (int(receipt.version[1:]), receipt.repo))
