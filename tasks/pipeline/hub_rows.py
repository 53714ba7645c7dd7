"""Read a split of a data set on the Hub as rows, `hf-rows://owner/name@revision/config/split.jsonl`, from any files.

The library `datasets` streams the split at the revision's commit. Its rows go to the URL's place in the cache as JSON
lines; each embedded sound or picture becomes a file beside them, `split/SHA-256.wav`, stored once however many rows
hold it, and its cell names the file.
"""

import fcntl
import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.places import place_of, rows_parts
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.files import replacing, write_text
from earmark.tasks.store.objects import first_words

FORM = "hf-rows://owner/name@revision/config/split.jsonl"
_KINDS = {
    b"RIFF": "wav",
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"\xff\xfb": "mp3",
    b"\xff\xf3": "mp3",
    b"\x89PNG": "png",
    b"\xff\xd8": "jpg",
}
_ENDING = re.compile(r"[a-z0-9]{1,5}")


def bring_rows(urls: Iterable[str]) -> None:
    """Bring the splits of these URLs, or of the files they name, at their current commits.

    Stream a split again after a new commit, or if files of it are missing.
    """
    from earmark.tasks.store.hub import HubObjects

    hub = HubObjects()
    splits = {}
    for url in urls:
        parts = rows_parts(url)
        if parts is None:
            raise InputError(
                f"{url}: expected {FORM}; `root` ends with the configuration, often `default`, and `files` names the "
                'split, as in train = "train.jsonl"'
            )
        splits[_rows_of(place_of(url), parts[3])] = parts
    for rows, (repo, revision, config, split) in splits.items():
        commit = hub.commit(f"hf://datasets/{repo}@{revision}")
        record = rows.with_suffix(".commit")
        with _alone(rows.with_suffix(".lock")):
            files = rows.parent / split
            noted = record.read_text(encoding="utf-8") if rows.is_file() and record.is_file() else None
            if noted != _state(commit, files):
                with _one_line(f"hf-rows://{repo}@{revision}/{config}/{split}.jsonl", config, split):
                    _write(rows, repo, commit, config, split)
                    write_text(record, _state(commit, files))


def _rows_of(path: Path, split: str) -> Path:
    name = f"{split}.jsonl"
    return path if path.name == name else path.parent.with_name(name)


def _state(commit: str, files: Path) -> str:
    """Return a split's record: its commit, and the number of files beside its rows."""
    return f"{commit} {sum(1 for _ in files.iterdir()) if files.is_dir() else 0}"


def _write(rows: Path, repo: str, commit: str, config: str, split: str) -> None:
    from datasets import load_dataset

    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # our messages repeat what it raises
    # by URL: a bare name may also be a local folder
    stream = load_dataset(f"hf://datasets/{repo}", config, split=split, revision=commit, streaming=True)
    if stream.features:  # sounds and pictures as their bytes
        stream = stream.decode(False)
    files = rows.parent / split
    for part in [*rows.parent.glob(f".{rows.name}.*.tmp"), *files.glob(".*.tmp")]:  # of a build that was killed
        part.unlink()
    with (
        working(f"read {repo} {config} {split} (rows)", None) as work,
        replacing(rows) as temporary,
        temporary.open("w", encoding="utf-8") as lines,
    ):
        for row in stream:
            plain = {name: _plain(value, files, f"datasets/{repo}@{commit}/") for name, value in row.items()}
            lines.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")
            work.advance(1)


def _plain(value: Any, files: Path, prefix: str) -> Any:
    """Convert a cell to JSON values; write embedded bytes to a file, and name it by its path from the rows."""
    if isinstance(value, Mapping):
        content, path = value.get("bytes"), value.get("path")
        if value.keys() == {"bytes", "path"} and isinstance(content, bytes | None) and isinstance(path, str | None):
            return _embedded_file(content, path, files, prefix)
        return {name: _plain(cell, files, prefix) for name, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(cell, files, prefix) for cell in value]
    return None if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)) else value


def _embedded_file(content: bytes | None, path: str | None, files: Path, prefix: str) -> str | None:
    """Write a cell's embedded bytes, or its path's file, to a file named by their SHA-256.

    Return None without bytes: rows may name any path, but only files of the data set at its commit are read.
    """
    if content is None and path and _is_inside(path, prefix):
        from datasets.utils.file_utils import xopen

        with xopen(path, "rb") as file:
            content = file.read()
    if content is None:
        return None
    ending = PurePosixPath(path or "").suffix[1:].lower()
    known = next((kind for begin, kind in _KINDS.items() if content.startswith(begin)), None)
    name = f"{hashlib.sha256(content).hexdigest()}.{known or (ending if _ENDING.fullmatch(ending) else 'bin')}"
    target = files / name
    if not target.is_file() or target.stat().st_size != len(content):
        with replacing(target) as temporary:
            temporary.write_bytes(content)
    return f"{files.name}/{name}"


def _is_inside(path: str, prefix: str) -> bool:
    """Return whether a path names a file of the data set under this prefix, or a file in one of its archives."""
    form = rf"((zip|tar|gzip)://[^:]*::)?hf://{re.escape(prefix)}.+"
    return ".." not in path.split("/") and re.fullmatch(form, path) is not None


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_line(where: str, config: str, split: str) -> Iterator[None]:
    """Turn a fault of the library, its readers or the disk into a one-line error."""
    try:
        yield
    except EarmarkError:
        raise
    except ImportError as error:
        raise InputError(f"{where}: this data set needs another Python package: {first_words(error)}") from None
    except Exception as error:  # noqa: BLE001 - readers of a dozen kinds of files, whose errors share no base
        if known := re.match(r"(Bad split|BuilderConfig)\b.*\[([^]]*)", str(error), re.DOTALL):
            lacks = f"configuration '{config}'"
            lacks = f"split '{split}' in {lacks}" if known[1] == "Bad split" else lacks
            there = known[2].replace("'", "")
            raise InputError(f"{where}: no {lacks}; there are: {there}") from None
        raise InputError(
            f"{where}: expected a configuration and split that can be read, found: {first_words(error)}"
        ) from None
