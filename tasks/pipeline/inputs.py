"""Declare a corpus's inputs: their digests, the check before a build, and `earmark init` derive from them.

A corpus names its inputs by a function `inputs(config)`, which reads nothing itself and yields an `Input` for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.files import Root
from earmark.schemas.places import url_of
from earmark.schemas.registry import load
from earmark.schemas.rejects import AudioFault, Note, Reject
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.pipeline.fingerprint import distinct, file_digests, roots_digest
from earmark.tasks.pipeline.media import audio_digest, clip_below
from earmark.tasks.pipeline.mirror import bring, bring_folder
from earmark.tasks.store.versions import Store

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

    def named_audio(self) -> dict[str, Path | AudioFault]:
        """Return the place of each clip in the rows, by its name."""
        assert self.read is not None
        assert self.clips is not None
        assert self.root is not None
        rows = islice((row for row in self.read() if not isinstance(row, Reject | Note)), self.limit)
        names = dict.fromkeys(name for row in rows for name in self.clips(row))
        return {name: clip_below(self.root, name) for name in names}


def inputs_of(corpus: Corpus, config: BuildConfig) -> list[Input]:
    """Return the inputs that a corpus declares for a config."""
    return list(load(corpus.inputs)(config)) if corpus.inputs else []


def checked_inputs(corpus: Corpus, config: BuildConfig) -> list[Input]:
    """Return the inputs that are checked one by one: each that has rows, or its parts."""
    return [part for one in inputs_of(corpus, config) for part in one.parts or [one] if part.read is not None]


def digest_inputs(corpus: Corpus, config: BuildConfig, store: Store) -> dict[str, str]:
    """Return the SHA-256 of every input of a build, by its name.

    Raises:
        InputError: an input is missing or cannot be read.
    """
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
