"""`mos-preferences`: where the audio files of rated clips lie."""

from __future__ import annotations

import os
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
    places = candidates(config, source, file, audio)
    # os.path: a name too long for any file is no file; Path.is_file raises for it
    return next((place for place in places if os.path.isfile(place)), places[0])  # noqa: PTH113


def candidates(config: MosPreferences, source: Source, file: str, audio: str | None) -> list[Path]:
    """Where a clip's file may lie, likeliest first."""
    folder = audio_folder(config, source)
    return [folder / name for name in (audio, file, f"{file}.wav", f"wav/{file}", f"wav/{file}.wav") if name]
