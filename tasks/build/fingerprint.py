"""What a version is made from, as one build key: inputs, config, prompts, schemas and code."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from earmark.schemas.places import url_of
from earmark.schemas.tables import Table
from earmark.tasks.build.mirror import bring
from earmark.tasks.importers.cells import absolute_clips
from earmark.tasks.importers.lines import open_list, unreadable
from earmark.tasks.store.commit import schema_digest
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of

JSON = (".json", ".jsonl", ".ndjson")
_BLOCK = 1 << 24
Value = TypeVar("Value")
# Their releases may write the same rows as other bytes.
LIBRARIES = ("duckdb", "numpy", "pillow", "pyarrow", "scipy", "soundfile", "soxr")


def build_key(
    config: Mapping[str, Any], inputs: Mapping[str, str], tables: Sequence[Table], code: str, prompts: Mapping[str, str]
) -> str:
    """SHA-256 that names everything which decides a version's rows. It knows no host, path or time."""
    schemas = {table.name: schema_digest(table) for table in tables}
    return digest_of([dict(config), dict(inputs), schemas, code, dict(prompts)])


def library_versions() -> dict[str, str]:
    """Releases of the libraries that write the bytes."""
    return {name: metadata.version(name) for name in LIBRARIES}


def distinct(named: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """What is named, by its name; a name that comes again gets a number, so that nothing hides behind another."""
    found: dict[str, Value] = {}
    for name, value in named:
        number = 1
        while (key := name if number == 1 else f"{name} ({number})") in found:
            number += 1
        found[key] = value
    return found


def roots_digest(name: str, lists: Iterable[tuple[Path, Path]], read: Callable[[], Iterable[object]]) -> dict[str, str]:
    """What the folders of clips decide about the rows of lists, as a digest under a name; none where they decide none.

    Lists are read only if their bytes can name a clip by a path below its folder.

    Args:
        name: of the digest, among the inputs.
        lists: every list, and the folder that its clips must lie in.
        read: yields the rows of all of them.
    """
    if not any(_can_name(path, root) for path, root in lists):
        return {}
    with absolute_clips() as decided:
        for _ in read():
            pass
    return {name: digest_of(decided)} if decided else {}


def _can_name(path: Path, root: Path) -> bool:
    """Whether a list may hold a path below a folder, or a URL, as a cell; told by its bytes, in a moment."""
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
    except (OSError, EOFError, zlib.error):
        return True  # reading it says what is wrong
    return False


def file_digests(files: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """SHA-256 of each named input file, by `distinct` names; those behind URLs are brought here first.

    Raises:
        InputError: a file is missing, a folder, or cannot be read.
    """
    named = list(files)
    bring((path for _, path in named), stream=True)
    return distinct((name, _file_digest(name, path)) for name, path in named)


def _file_digest(name: str, path: Path) -> str:
    try:
        return sha256_file(path)
    except (OSError, ValueError) as error:
        url = url_of(path)
        raise unreadable(f"{name} ({url})" if url and url not in name else name, error) from None
