"""The store's media index, and the audio that inputs name as one fingerprint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.audio.index import MediaIndex
from tasks.audio.probe import Probe
from tasks.store.manifest import digest_of
from tasks.store.versions import Store


def media_index(store: Store) -> MediaIndex:
    """What was measured of audio files, shared by all corpora of a store (`<store>/media.sqlite`)."""
    return MediaIndex(store.root / "media.sqlite")


def audio_digest(files: Mapping[str, Path], index: MediaIndex, seen: Callable[[int], None] = lambda count: None) -> str:
    """One SHA-256 over the names and contents of audio files.

    Files are hashed once and remembered in the index; afterwards this costs a `stat` a file.

    Args:
        files: every audio file that the inputs name, by the name they give it; a missing one counts as missing.
        index: remembers what was measured.
        seen: told how many more files are done, for progress.
    """
    names = sorted(files)
    found = index.look([files[name] for name in names], seen=seen)
    return digest_of(
        [
            [name, probe.clip_sha256 if isinstance(probe, Probe) else probe.reason]
            for name, probe in zip(names, found, strict=True)
        ]
    )
