"""Write files durably: hash, sync, rename into place, link instead of copy."""

import errno
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from earmark.schemas.errors import StoreError
from earmark.schemas.files import open_regular
from earmark.schemas.toml import first_fault

if TYPE_CHECKING:
    from earmark.schemas.tables import WholeFile

Kept = TypeVar("Kept", bound=BaseModel)


DESKTOPS = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))  # file managers write them into folders they show


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path; after the block succeeds, sync the file (if `durable`) and rename it to `path`.

    A reader sees the old file or the whole new one, never a part. After an exception the temporary file is removed;
    after a kill it stays under a name with a leading dot and is removed with its folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
        if durable:
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_record(kind: type[Kept], path: Path, what: str) -> Kept:
    """Read one of the store's JSON records; `what` names its kind for the message."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoreError(f"{path} is not {what}: {first_fault(error)[1]}; remove it to go on") from None


def no_link(folder: Path, below: str) -> Path:
    """Return the path of a version's file after checking that no part below the version's folder is a link.

    Raises:
        StoreError: a part is a link, and versions hold none.
    """
    path = folder / below
    for part in (path, *path.parents):
        if part == folder:
            return path
        if part.is_symlink():
            raise StoreError(
                f"{part}: expected a file or folder of the version, found a link; put the file in its place"
            )
    raise StoreError(f"{path}: expected a path below {folder}")


def write_embedded(held: "WholeFile", sha256: str, folder: Path, *, durable: bool = True) -> Path:
    """Write a file that a table embeds to a folder, once, named by its hash: its own path may lead anywhere.

    Raises:
        StoreError: its bytes have another hash than its row says.
    """
    if (found := hashlib.sha256(held["bytes"]).hexdigest()) != sha256:
        raise StoreError(f"expected an embedded file of SHA-256 {sha256[:64]}, found other bytes of {found}")
    path = folder / f"{sha256}{PurePosixPath(held['path']).suffix}"
    if not path.is_file():
        with replacing(path, durable=durable) as temporary:
            temporary.write_bytes(held["bytes"])
    return path


def try_lock(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, unless another process holds its lock; return whether it is locked."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def sync(path: Path) -> None:
    """Force a file's or folder's content to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link_over(existing: Path, duplicate: Path) -> None:
    """Replace `duplicate` by a hard link to `existing`, of the same bytes; without links keep the copy."""
    temporary = _temporary(duplicate)
    try:
        os.link(existing, temporary)
    except OSError:
        return
    temporary.replace(duplicate)
    temporary.unlink(missing_ok=True)  # a rename between two links of one file leaves both


def place(existing: Path, target: Path, *, durable: bool = True) -> None:
    """Put a finished file of the store into a version: by hard link if the disk allows, else by copy.

    Args:
        existing: the file.
        target: its place.
        durable: whether a link's name is on the disk at once; else the caller syncs the folders of its links.

    Raises:
        StoreError: the file is missing.
    """
    with replacing(target, durable=durable) as temporary:
        temporary.unlink(missing_ok=True)
        try:
            os.link(existing, temporary)
        except FileNotFoundError:
            raise StoreError(f"{existing.name}: expected what this build made, found none; build again") from None
        except OSError:
            shutil.copyfile(existing, temporary)
            sync(temporary)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
