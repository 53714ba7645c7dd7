"""Files that survive a power cut: hashed, synced, renamed into place, linked instead of copied."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from earmark.schemas.errors import StoreError
from earmark.schemas.files import open_regular

Kept = TypeVar("Kept", bound=BaseModel)


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes as 64 hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path; when the block ends well, sync what was written there and rename it to `path`.

    A reader sees the old file or the whole new one, never a part. After an exception the temporary file is removed;
    after a kill it stays under a name that starts with a dot and is swept away with its folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_record(kind: type[Kept], path: Path, what: str) -> Kept:
    """A record that the store keeps as JSON; `what` it should be is for the message.

    Raises:
        StoreError: it is none.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreError(f"{path} is not {what}: {error.errors()[0]['msg']}; remove it to go on") from None


def sync(path: Path) -> None:
    """Force a file's or folder's content to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link_over(existing: Path, duplicate: Path) -> None:
    """Make `duplicate` a hard link to `existing`, which holds the same bytes. Without links it stays a copy."""
    temporary = _temporary(duplicate)
    try:
        os.link(existing, temporary)
    except OSError:
        return
    temporary.replace(duplicate)
    temporary.unlink(missing_ok=True)  # a rename between two links of one file leaves both


def place(existing: Path, target: Path) -> None:
    """Put a finished file of the store into a version: a hard link where the disk has them, else a copy.

    Raises:
        StoreError: the file is gone.
    """
    with replacing(target) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(existing, temporary)
        except FileNotFoundError:
            raise StoreError(f"{existing.name}: expected what this build made, found none; build again") from None
        except OSError:
            shutil.copyfile(existing, temporary)


def _temporary(path: Path) -> Path:
    """A name beside a file that no other process or thread takes."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
