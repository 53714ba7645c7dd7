"""Read tables of pairs with known truth, and locate their clips; apart from qualification with its heavy imports."""

from pathlib import Path

from earmark.schemas.errors import InputError
from earmark.schemas.files import source_root
from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.pseudo_tables import DIMENSIONS
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.tasks.importers.music import Gold, read_gold
from earmark.tasks.pipeline.media import clip_below


def gold_audio(config: PseudoPreferences) -> dict[str, Path | AudioFault]:
    """Return the audio files named in tables of gold."""
    return {
        f"gold {file}": clip_at(config, written, file)
        for written in config.golds()
        for row in read_pairs(config, written)
        for file in files_of(row)
    }


def read_pairs(config: PseudoPreferences, written: str) -> list[Gold]:
    """Return the pairs of a table of gold."""
    rows: list[Gold] = []
    for one in read_gold(config.path(written), written, DIMENSIONS):
        if isinstance(one, Reject):
            raise InputError(f"{one.source_file}, line {one.line}: {one.reason}: {one.detail} (judge.qualify.gold)")
        if not isinstance(one, Note):
            rows.append(one)
    return rows


def files_of(row: Gold) -> list[str]:
    """Return the audio files of a pair, as its table names them."""
    return [file for file in (row.audio_a, row.audio_b, row.reference_audio) if file]


def clip_at(config: PseudoPreferences, written: str, file: str) -> Path | AudioFault:
    """Locate a clip of a table of gold."""
    return clip_below(source_root(config.path(written).parent), file)
