"""`pseudo-preferences`: rows of the table `clips`, whatever the generations come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.tables import AUDIO
from earmark.tasks.audio.index import Beginning
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.build.media import EMBEDDED_AT_ONCE, embed, loudness_of
from earmark.tasks.store.sql import query
from earmark.tasks.store.staging import Stage


def with_loudness(
    stage: Stage, files: Sequence[Path | AudioFault], measured: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """What was measured of clips, and after it their gated loudness in LUFS; none of clips that cannot be used."""
    usable = [
        Beginning(row[0], file, row[1])
        for file, row in zip(files, measured, strict=True)
        if isinstance(file, Path) and row[0] is not None
    ]
    loudness = {one.clip_sha256: lufs for one, lufs in zip(usable, loudness_of(stage.store, usable), strict=True)}
    return [(*row, loudness.get(row[0])) for row in measured]


def clip_rows(
    connection: duckdb.DuckDBPyConnection, config: PseudoPreferences, split: str, name: str = "clips"
) -> Iterator[pa.Table]:
    """A split's rows of the table `clips` by a query of this folder, with their audio where the config says so."""
    for batch in connection.sql(query(f"pseudo_preferences/{name}"), params={"split": split}).to_arrow_reader():
        for start in range(0, len(batch), EMBEDDED_AT_ONCE):
            clips = pa.Table.from_batches([batch.slice(start, EMBEDDED_AT_ONCE)])
            if config.clips.embed:
                files = [config.clips_folder() / file for file in clips["file"].to_pylist()]
                yield embed(clips, files, clips["clip_sha256"].to_pylist())
            else:
                yield clips.append_column("audio", pa.nulls(len(clips), AUDIO))
