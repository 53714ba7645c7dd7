"""Locate the audio files of rated clips for `mos-preferences`."""

from __future__ import annotations

import os
from pathlib import Path

from earmark.schemas.files import Root
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.rating_sources import Source


def root_of(config: MosPreferences, source: Source) -> Root:
    """Return the folder of a source's audio files: `audio_root`, else `root`, else the config's folder."""
    return Root(config.path(source.audio_root or source.root or "."), source.links)


def find_audio(folder: Path, file: str, audio: str | None) -> Path:
    """Return the clip's file: at the list's name, or at its place in the published layout."""
    places = places_of(folder, file, audio)
    # os.path: a name too long for any file is no file; Path.is_file raises for it
    return next((place for place in places if os.path.isfile(place)), places[0])  # noqa: PTH113


def places_of(folder: Path, file: str, audio: str | None) -> list[Path]:
    """List the possible places of a clip's file, likeliest first."""
    return [folder / name for name in (audio, file, f"{file}.wav", f"wav/{file}", f"wav/{file}.wav") if name]
