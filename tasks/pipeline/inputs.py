"""Declare a corpus's inputs: their digests, the check before a build, and `earmark init` derive from them.

A corpus names its inputs by a function `inputs(config)`, which reads nothing itself and yields an `Input` for each.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.files import Root
from earmark.schemas.machine import uncollected
from earmark.schemas.places import url_of
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.registry import load
from earmark.schemas.tables import Table
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.importers.cells import absolute_clips
from earmark.tasks.importers.lines import open_list, unreadable
from earmark.tasks.pipeline.media import audio_digest, clip_below
from earmark.tasks.pipeline.mirror import bring, bring_folder
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.manifest import digest_of, schema_digest
from earmark.tasks.store.versions import Store
from earmark.tasks.text.anonymity import SALT, salt_digest, salt_of

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


SOUND_ENDINGS = {".aac", ".aif", ".aiff", ".flac", ".m4a", ".mp3", ".mp4", ".oga", ".ogg", ".opus", ".wav", ".wma"}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*\.\w{1,8})"')
_BETWEEN = re.compile(r"[\x00-\x1f\"',;|{}\[\]<>]+")
_ENDING = re.compile(r".\.\w{1,8}", re.DOTALL)
_LONGEST = 4096  # characters of a path
_ROWS = 10_000


def named_digests(store: Store, base: Path, lists: Iterable[tuple[str, Path]]) -> dict[str, str]:
    """Return a SHA-256 over names and contents of the files in each list; omit lists that name no file.

    A name counts if a file exists at it, relative to the list's folder or the config's. Audio names count even without
    a file, since a later file would change rows. Links out of these folders are not followed.

    Our own corpora list the clips they read. A package's reads are unknown, so every file in its lists counts: a
    surplus file causes an unneeded build, a missed file leaves a version stale unnoticed.

    Args:
        store: its media index holds the hashes of audio.
        base: the folder of the config.
        lists: the input files, with their names.
    """
    digests: dict[str, str] = {}
    for name, path in lists:
        roots = [Root(folder) for folder in dict.fromkeys((path.parent, base))]
        sounds, others = {}, []
        for word in names_in(path):
            root = next((root for root in roots if _lies(root.folder / word)), roots[0])
            place = clip_below(root, word)
            if Path(word).suffix.lower() in SOUND_ENDINGS:
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
    return bool(ends) and len(word) < _LONGEST and not word.startswith(("/", "~")) and ".." not in Path(word).parts


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


def _lies(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


ListPlace = tuple[str, Path, Path | None]
"""A list: its name in rows and digests, its path, and the folder that its clips may not leave, if it names clips."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """Lists with their rows and the audio that these name, or another input of a build."""

    name: str  # in messages
    key: str = ""  # begins the names of its digests of folders and audio
    # folders to fetch from URLs, and the files wanted of each
    folders: tuple[tuple[Path, Callable[[str], bool]], ...] = ()
    files: Callable[[], Sequence[ListPlace]] = tuple  # the lists, once the folders are here
    # yields its rows, `Reject`s and `Note`s; raises an `EarmarkError` if it cannot be read
    read: Callable[[], Iterable[Any]] | None = None
    root: Root | None = None  # the folder of the clips
    clips: Callable[[Any], Iterable[str]] | None = None  # a row's clips, by their names below the root; None to skip
    option: str = "audio_root"  # the config keys of the clips' folder
    limit: int | None = None  # rows of which audio is hashed
    longest_s: float = LONGEST_S  # longer audio is not hashed
    parts: tuple[Input, ...] = ()  # checked before a build one by one, in place of the whole
    may_be_empty: bool = False  # whether a build makes sense without rows of it
    # in place of the files' own digests, the root's audio, and the places of a row's clips
    digest_files: Callable[[], Mapping[str, str]] | None = None
    audio: Callable[[Store], Mapping[str, Path | AudioFault]] | None = None
    places: Callable[[Any], Iterable[Path | AudioFault]] | None = None
    more: Callable[[Store], Mapping[str, str]] | None = None  # further digests

    def fetch(self) -> None:
        """Fetch its folders and lists from URLs."""
        for folder, wanted in self.folders:
            bring_folder(folder, wanted)
        bring((path for _, path, _ in self.files()), stream=True)

    def clips_of(self, row: Any) -> Iterator[Path | AudioFault]:
        """Yield the places of a row's clips."""
        if self.places is not None:
            yield from self.places(row)
        elif self.clips is not None and self.root is not None:
            yield from (clip_below(self.root, name) for name in self.clips(row))

    def digests(self, store: Store) -> Iterator[tuple[str, str]]:
        """Yield the SHA-256 of its files, of the effect of clip folders on rows, and of its audio.

        Raises:
            InputError: a file is missing or cannot be read.
        """
        for folder, wanted in self.folders:
            bring_folder(folder, wanted)
        files = self.files()
        named = ((name, path) for name, path, _ in files)
        yield from (self.digest_files() if self.digest_files else file_digests(named)).items()
        if self.more is not None:
            yield from self.more(store).items()
        roots = [(path, folder) for _, path, folder in files if folder is not None]
        if self.read is not None:
            yield from roots_digest(f"{self.key}paths", roots, self.read).items()
        if self.audio is not None or self.clips is not None:
            audio = self.audio(store) if self.audio else self.named_audio()
            yield f"{self.key}audio", audio_digest(store, f"hash audio of {self.name}", audio, self.longest_s)

    @uncollected()
    def named_audio(self) -> dict[str, Path | AudioFault]:
        """Return the place of each clip in the rows, by its name."""
        assert self.read is not None
        assert self.clips is not None
        assert self.root is not None
        rows = islice((row for row in self.read() if not isinstance(row, Reject | Note)), self.limit)
        names = dict.fromkeys(name for row in rows for name in self.clips(row))
        return {name: clip_below(self.root, name) for name in names}


def salt_input() -> Input:
    """Return the salt of people's keys as an input: its digest stands in the build key."""
    return Input(name="salt", more=lambda store: {"salt": salt_digest(salt_of(SALT, store.root))})


def inputs_of(corpus: Corpus, config: BuildConfig) -> list[Input]:
    """Return the inputs that a corpus declares for a config."""
    return list(load(corpus.inputs)(config)) if corpus.inputs else []


def checked_inputs(corpus: Corpus, config: BuildConfig) -> list[Input]:
    """Return the inputs that are checked one by one: each that has rows, or its parts."""
    return [part for one in inputs_of(corpus, config) for part in one.parts or [one] if part.read is not None]


def digest_inputs(corpus: Corpus, config: BuildConfig, store: Store) -> dict[str, str]:
    """Return the SHA-256 of every input of a build, by its name."""
    return distinct(digest for one in inputs_of(corpus, config) for digest in one.digests(store))


def rows_of(corpus: Corpus, config: BuildConfig, file: Path) -> Iterator[Any]:
    """Yield the rows, `Reject`s and `Note`s of the first input that reads a file."""
    for one in checked_inputs(corpus, config):
        if one.read is not None and file.resolve() in (path.resolve() for _, path, _ in one.files()):
            yield from one.read()
            return


def require_folder(option: str, folder: Path) -> list[Path]:
    """Return the folder of a config's option; a folder behind a URL is not checked.

    Raises:
        InputError: it does not exist.
    """
    if url_of(folder) is None and not folder.is_dir():
        raise InputError(f"{option}: expected a folder, found none at {folder}")
    return [folder]
