"""The store's media index, and the audio below a folder as one fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tasks.audio.index import MediaIndex
from tasks.audio.probe import Probe
from tasks.store.manifest import digest_of
from tasks.store.versions import Store

AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"})


def media_index(store: Store) -> MediaIndex:
    """What was measured of audio files, shared by all corpora of a store (`<store>/media.sqlite`)."""
    return MediaIndex(store.root / "media.sqlite")


def audio_digest(folder: Path, index: MediaIndex, seen: Callable[[int], None] = lambda count: None) -> str:
    """One SHA-256 over the names and contents of all audio files below a folder.

    Files are hashed once and remembered in the index; afterwards this costs a `stat` a file.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file())
    found = index.look(paths, seen=seen)
    return digest_of(
        [
            [path.relative_to(folder).as_posix(), probe.clip_sha256 if isinstance(probe, Probe) else probe.reason]
            for path, probe in zip(paths, found, strict=True)
        ]
    )
