"""Find the files, such as clips, that the input lists of a package's corpus name.

Our own corpora list the clips they read. A package's reads are unknown, so every file in its lists counts: a surplus
file causes an unneeded build, a missed file leaves a version stale unnoticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from earmark.schemas.files import Root
from earmark.tasks.importers.lines import open_list
from earmark.tasks.pipeline.media import audio_digest, clip_below
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store

SOUND = {".aac", ".aif", ".aiff", ".flac", ".m4a", ".mp3", ".mp4", ".oga", ".ogg", ".opus", ".wav", ".wma"}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*\.\w{1,8})"')
_BETWEEN = re.compile(r"[\x00-\x1f\"',;|{}\[\]<>]+")
_ENDING = re.compile(r".\.\w{1,8}", re.DOTALL)
_LONGEST = 4096  # characters of a path
_ROWS = 10_000


def named_digests(store: Store, base: Path, lists: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Return a SHA-256 over names and contents of the files in each list; omit lists that name no file.

    A name counts if a file exists at it, relative to the list's folder or the config's. Audio names count even without
    a file, since a later file would change rows. Links out of these folders are not followed.

    Args:
        store: its media index holds the hashes of audio.
        base: the folder of the config.
        lists: the input files, with their names.
    """
    digests: dict[str, str] = {}
    for name, path in lists:
        roots = [Root(folder, "refuse") for folder in dict.fromkeys((path.parent, base))]
        sounds, others = {}, []
        for word in names_in(path):
            root = next((root for root in roots if _lies(root.folder / word)), roots[0])
            place = clip_below(root, word)
            if Path(word).suffix.lower() in SOUND:
                sounds[word] = place
            elif isinstance(place, Path) and place != path and _lies(place):
                others.append([word, sha256_file(place)])
        if sounds:
            digests[f"{name}/audio"] = audio_digest(store, f"hash audio of {name}", sounds)
        if others:
            digests[f"{name}/files"] = digest_of(sorted(others))
    return digests


def names_in(path: Path) -> set[str]:
    """Return possible relative file names in a list, with an ending: quoted texts, cells, and words of cells."""
    found: set[str] = set()
    for text in _texts(path):
        for word in _QUOTED.findall(text):
            found.add(json.loads(f'"{word}"') if "\\" in word and _is_json(word) else word)
        for cell in _BETWEEN.split(text):
            found |= {cell.strip(), *cell.split()}
    return set(filter(_is_name, found))


def _is_name(word: str) -> bool:
    ends = _ENDING.fullmatch(word[max(word.rfind(".") - 1, 0) :])
    return bool(ends) and len(word) < _LONGEST and not _climbs(word)


def _texts(path: Path) -> Iterator[str]:
    if path.name.lower().endswith(".parquet"):
        for batch in pq.ParquetFile(path).iter_batches(_ROWS):
            yield from (json.dumps(row, ensure_ascii=False, default=str) for row in batch.to_pylist())
        return
    with open_list(path) as lines:
        yield from (line.decode("utf-8", "replace") for line in lines)


def _is_json(word: str) -> bool:
    try:
        json.loads(f'"{word}"')
    except ValueError:
        return False
    return True


def _climbs(word: str) -> bool:
    return word.startswith(("/", "~")) or ".." in Path(word).parts


def _lies(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
