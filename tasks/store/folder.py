"""Write a folder whole or not at all."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import StoreError
from earmark.schemas.results import VersionFacts
from earmark.tasks.store.files import DESKTOPS, sync, try_lock
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.versions import Store, Version

RECORD = "export.json"  # marks a folder as an export
# marks a folder of sheets, images or questions for people or detectors; earlier releases marked it by `export.json`
PREPARED = "prepared.json"
_CLIP = re.compile(r"(audio/[0-9a-f]{2}|images)/[0-9a-f]{64}\.[a-z0-9]{1,5}")  # as an export names clips
KeptRows = tuple[pa.Schema, Sequence[tuple[Any, ...]]]


@contextmanager
def building(
    folder: Path, *, force: bool | None, record: str = RECORD, check: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """Yield a folder beside `folder`; rename it to `folder` after the block succeeds.

    After an exception nothing is left; remains of a kill (`.<name>.export`) are removed by the next export.

    Args:
        folder: absolute; its parents are made.
        force: whether to replace an earlier export; None if never allowed. Other folders are never replaced.
        record: the file that marks such a folder.
        check: refuses a folder that must not be replaced, before and after the block.

    Raises:
        StoreError: the folder is not free, or another export to it is running.
    """
    _check_free(folder, force, record, check)
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = folder.with_name(f".{folder.name}.export")
    with _locked(place):
        shutil.rmtree(folder.with_name(f".{folder.name}.replaced"), ignore_errors=True)  # left by a killed export
        try:
            for entry in place.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            yield place
            _settle(place, folder, force, record, check)
        finally:
            if place.exists():
                shutil.rmtree(place)


def write_facts(place: Path, record: str, facts: Mapping[str, Any], pages: Mapping[str, str] | None = None) -> None:
    """Write a folder's record as JSON, and pages beside it, by file name."""
    for name, text in {record: json.dumps(facts, indent=1, ensure_ascii=False) + "\n", **(pages or {})}.items():
        (place / name).write_text(text, encoding="utf-8", newline="\n")


def write_record(
    folder: Path, record: str, facts: Mapping[str, Any], pages: Mapping[str, str] | None = None, **tables: KeptRows
) -> Path:
    """Write a folder of facts, pages and tables (`<name>.parquet`) in place of one of its kind; return its path."""
    with building(folder.absolute(), force=True, record=record) as place:
        for name, (schema, rows) in tables.items():
            write_rows(place / f"{name}.parquet", schema, rows)
        write_facts(place, record, facts, pages)
    return folder.absolute()


def version_facts(version: Version) -> VersionFacts:
    """Return the facts identifying a record's version."""
    return {"corpus": version.corpus, "version": version.name, "manifest_sha256": version.manifest.digest()}


def records_of(store: Store, version: Version) -> Path:
    """Return the folder of records about a version."""
    return store.root / "evaluations" / version.corpus / version.name


def file_word(*parts: str) -> str:
    """Return a file name made of words, without empty ones."""
    words = (re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-.") for part in parts if part)
    return "-".join(words)


def named_word(name: str, empty: str = "") -> str:
    """Return a file name for a name; one changed for the file system gets a digest of the original."""
    word = file_word(name) or empty
    return word if word == name else file_word(word, hashlib.sha256(name.encode()).hexdigest()[:8])


def _check_free(folder: Path, force: bool | None, record: str, check: Callable[[Path], None] | None) -> None:
    if folder.is_file():
        raise StoreError(f"--out: expected a folder, found a file: {folder}")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    older = record == PREPARED and (folder / RECORD).is_file() and listed_files(folder) is None
    if not (folder / record).is_file() and not older:
        raise StoreError(f"--out: expected an empty folder or an earlier export, found other files in {folder}")
    if force is None:
        raise StoreError(f"--out: {folder} holds one already, with what people answered; choose another folder")
    if not force:
        raise StoreError(f"--out: {folder} has an export already; replace it with --force, or choose another folder")
    if record == RECORD and (others := _of_others(folder)):
        raise StoreError(
            f"--out: --force replaces what an export wrote, and {folder} holds {others[0]} too"
            f"{f' and {len(others) - 1:,} more' if others[1:] else ''}; move it away, or choose another folder"
        )
    if check is not None:
        check(folder)


def _of_others(folder: Path) -> list[str]:
    """Return the files of a folder that its export did not write, such as a training's checkpoints."""
    listed = listed_files(folder)
    if listed is None:
        raise StoreError(f"--out: {folder / RECORD} is not the record of an export; choose another folder")
    ours = {RECORD, "README.md", *listed}
    there = [path for path in folder.rglob("*") if not path.is_dir() and path.name not in DESKTOPS]
    found = sorted(path.relative_to(folder).as_posix() for path in there)
    return [name for name in found if name not in ours and not _CLIP.fullmatch(name)]


def listed_files(folder: Path, record: str = RECORD, key: str = "files") -> dict[str, Any] | None:
    """Return the files listed in a folder's record; None without such a list, as where no export wrote it."""
    try:
        listed = json.loads((folder / record).read_bytes()).get(key)
    except (OSError, ValueError, AttributeError):
        return None
    return listed if isinstance(listed, dict) else None


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Lock a folder, made if missing, during the block; the folder is the lock itself and may be renamed."""
    place.mkdir(exist_ok=True)
    handle = os.open(place, os.O_RDONLY)
    if not try_lock(handle) or not place.exists() or place.stat().st_ino != os.fstat(handle).st_ino:
        os.close(handle)
        raise StoreError(f"another export to {place.with_name(place.name[1:-7])} is running; wait for its end")
    try:
        yield
    finally:
        os.close(handle)


def _settle(place: Path, folder: Path, force: bool | None, record: str, check: Callable[[Path], None] | None) -> None:
    for path in sorted(place.iterdir()):  # the lists of clips; a clip's name is its hash and proves its content
        sync(path)
    _check_free(folder, force, record, check)
    old = folder.with_name(f".{folder.name}.replaced")
    if folder.is_dir():
        folder.rename(old)
    place.rename(folder)
    if old.is_dir():
        shutil.rmtree(old)
    sync(folder.parent)
