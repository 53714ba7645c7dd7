"""A split of a data set on the Hub as rows, `hf-rows://owner/name@revision/config/split.jsonl`, whatever its files are.

The split is streamed by the library `datasets` at the commit that the revision names. Its rows come to the URL's place
in the cache as JSON lines; each sound or picture that a row embeds becomes a file beside them, `split/SHA-256.wav`,
once however many rows hold it, and its cell names this file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.places import place_of, rows_parts
from earmark.tasks.build.progress import working
from earmark.tasks.store.files import replacing, write_text
from earmark.tasks.store.objects import first_words

FORM = "hf-rows://owner/name@revision/config/split.jsonl"
MOST_SHOWN = 300  # signs of what the library says that an error shows
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
    """Make the rows at these URLs, and the files that they name, what the split holds at its commit.

    Raises:
        InputError: a URL names no split; there is none such; or the Hub or the disk refuses.
    """
    from earmark.tasks.store.hub_objects import HubObjects

    hub = HubObjects()
    splits = {}
    for url in urls:
        parts = rows_parts(url)
        if parts is None:
            raise InputError(f"{url}: expected {FORM}")
        splits[_rows_of(place_of(url), parts[3])] = parts
    for rows, (repo, revision, config, split) in splits.items():
        commit = hub.commit(f"hf://datasets/{repo}@{revision}")
        record = rows.with_suffix(".commit")
        with _alone(rows.with_suffix(".lock")):
            if not (rows.is_file() and record.is_file() and record.read_text(encoding="utf-8") == commit):
                with _one_line(f"hf-rows://{repo}@{revision}/{config}/{split}.jsonl"):
                    _write(rows, repo, commit, config, split)
                    write_text(record, commit)


def _rows_of(path: Path, split: str) -> Path:
    """The place of a split's rows, by the place of these or of a file that they name."""
    name = f"{split}.jsonl"
    return path if path.name == name else path.parent.with_name(name)


def _write(rows: Path, repo: str, commit: str, config: str, split: str) -> None:
    from datasets import load_dataset

    stream = load_dataset(repo, config, split=split, revision=commit, streaming=True)
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


def _plain(value: Any, files: Path, own: str) -> Any:
    """A cell as JSON can say it; what is embedded becomes a file, and the path to it from the rows."""
    if isinstance(value, Mapping):
        if value.keys() == {"bytes", "path"}:
            return _kept(value["bytes"], value["path"], files, own)
        return {name: _plain(cell, files, own) for name, cell in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(cell, files, own) for cell in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _kept(content: bytes | None, path: str | None, files: Path, own: str) -> str | None:
    """Write embedded bytes, or those that a path of this data set's own leads to, to a file named by their SHA-256.

    None where there are no bytes: rows may name any path, and only files of the data set at its commit are read.
    """
    if content is None and path and _is_own(path, own):
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


def _is_own(path: str, own: str) -> bool:
    """Whether a path leads to a file of the data set, or into an archive of its."""
    return ".." not in path.split("/") and re.fullmatch(rf"(?:\w+://[^:]*::)?hf://{re.escape(own)}.+", path) is not None


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock that one build at a time has."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_line(where: str) -> Iterator[None]:
    """Faults of the library and of the disk become one line."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield
    except ImportError as error:
        raise InputError(f"{where}: its layout needs a package more: {first_words(error)[:MOST_SHOWN]}") from None
    except (OSError, ValueError, DatasetsError, HfHubHTTPError, HTTPError) as error:
        said = first_words(error)[:MOST_SHOWN]
        raise InputError(f"{where}: expected a configuration and split that can be read, found: {said}") from None
