"""`mos-preferences`: where the audio files of rated clips lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from earmark.schemas.files import Root
from earmark.schemas.mos_preferences import MosPreferences, Source


def audio_folder(config: MosPreferences, source: Source) -> Path:
    """Where a source's audio files lie: `audio_root`, else `root`, else the config's folder."""
    return config.path(source.audio_root or source.root or ".")


def root_of(config: MosPreferences, source: Source) -> Root:
    """That folder, and whether links may lead out of it."""
    return Root(audio_folder(config, source), source.links)


def find_audio(config: MosPreferences, source: Source, file: str, audio: str | None) -> Path:
    """The clip's file: at the name that the list gives, or where the published layout keeps it."""
    return find_in(audio_folder(config, source), file, audio)


def find_in(folder: Path, file: str, audio: str | None) -> Path:
    """`find_audio`, in a folder that is known already."""
    # os.path: a name too long for any file is no file; Path.is_file raises for it
    there = (place for place in _places(folder, file, audio) if os.path.isfile(place))  # noqa: PTH113
    return next(there, None) or next(_places(folder, file, audio))


def candidates(config: MosPreferences, source: Source, file: str, audio: str | None) -> list[Path]:
    """Where a clip's file may lie, likeliest first."""
    return list(_places(audio_folder(config, source), file, audio))


def _places(folder: Path, file: str, audio: str | None) -> Iterator[Path]:
    return (folder / name for name in (audio, file, f"{file}.wav", f"wav/{file}", f"wav/{file}.wav") if name)
