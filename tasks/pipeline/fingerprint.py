"""Compute a version's build key from its inputs, config, prompts, schemas and code."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from earmark.schemas.places import url_of
from earmark.schemas.tables import Table
from earmark.tasks.importers.cells import absolute_clips
from earmark.tasks.importers.lines import open_list, unreadable
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of, schema_digest

JSON = (".json", ".jsonl", ".ndjson")
_BLOCK = 1 << 24
Value = TypeVar("Value")
_DIGESTED: ContextVar[list[tuple[str, Path]]] = ContextVar("_DIGESTED")
# Other releases may write the same rows as different bytes.
LIBRARIES = ("duckdb", "numpy", "pillow", "pyarrow", "scipy", "soundfile", "soxr")


def build_key(
    config: Mapping[str, Any], inputs: Mapping[str, str], tables: Sequence[Table], code: str, prompts: Mapping[str, str]
) -> str:
    """Return a SHA-256 over everything that decides a version's rows, independent of host, path and time."""
    schemas = {table.name: schema_digest(table) for table in tables}
    return digest_of([dict(config), dict(inputs), schemas, code, dict(prompts)])


def library_versions() -> dict[str, str]:
    """Return the releases of the libraries that write the bytes."""
    return {name: metadata.version(name) for name in LIBRARIES}


def distinct(named: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Map names to values; number repeated names, so that no value hides another."""
    found: dict[str, Value] = {}
    for name, value in named:
        number = 1
        while (key := name if number == 1 else f"{name} ({number})") in found:
            number += 1
        found[key] = value
    return found


def roots_digest(name: str, lists: Iterable[tuple[Path, Path]], read: Callable[[], Iterable[object]]) -> dict[str, str]:
    """Digest the effect of clip folders on the rows of lists, under a name; empty if they have none.

    Read lists only if their bytes can name a clip by a path below its folder.

    Args:
        name: of the digest, among the inputs.
        lists: every list, and the folder required for its clips.
        read: yields the rows of all lists.
    """
    if not any(_can_name(path, root) for path, root in lists):
        return {}
    with absolute_clips() as decided:
        for _ in read():
            pass
    return {name: digest_of(decided)} if decided else {}


def _can_name(path: Path, root: Path) -> bool:
    """Return whether a list may hold a path below a folder, or a URL, as a cell; a quick search of its bytes."""
    name, wanted = path.name.lower().removesuffix(".gz"), [f"{root}/".encode(), b"s3:"]
    if name.endswith(".parquet") or '"' in str(root):
        return True
    if name.endswith(JSON):
        wanted.append(b"\\")  # its texts may be written otherwise
    tail, longest = b"", max(map(len, wanted))
    try:
        with open_list(path) as stream:
            while block := stream.read(_BLOCK):
                text = tail + block
                if any(each in text for each in wanted):
                    return True
                tail = text[-longest:]
    except (OSError, EOFError, zlib.error, UnicodeError):
        return True  # reading it says what is wrong
    return False


@contextmanager
def digested() -> Iterator[list[tuple[str, Path]]]:
    """Collect the input files hashed by `file_digests` during the block."""
    files: list[tuple[str, Path]] = []
    before = _DIGESTED.set(files)
    try:
        yield files
    finally:
        _DIGESTED.reset(before)


def file_digests(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Return the SHA-256 of each named input file, by `distinct` names; fetch files behind URLs first.

    Raises:
        InputError: a file is missing, a folder, or cannot be read.
    """
    named = list(files)
    _DIGESTED.get([]).extend(named)
    bring((path for _, path in named), stream=True)
    return distinct((name, _file_digest(name, path)) for name, path in named)


def _file_digest(name: str, path: Path) -> str:
    try:
        return sha256_file(path)
    except (OSError, ValueError) as error:
        url = url_of(path)
        raise unreadable(f"{name} ({url})" if url and url not in name else name, error) from None
