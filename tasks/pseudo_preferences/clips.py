"""Write rows of the table `clips` for `pseudo-preferences`, for generations from any source."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.pseudo_preferences import PseudoPreferences
from earmark.schemas.reasons import AudioFault
from earmark.tasks.audio.index import Beginning
from earmark.tasks.pipeline.media import loudness_of, with_audio
from earmark.tasks.store.sql import query
from earmark.tasks.store.staging import Stage


def with_loudness(
    stage: Stage, files: Sequence[Path | AudioFault], measured: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Append the gated loudness in LUFS to measurements of clips; None for unusable clips."""
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
    """Yield a split's rows of the table `clips` by a query of this folder, with audio if configured."""
    for batch in connection.sql(query(f"pseudo_preferences/{name}"), params={"split": split}).to_arrow_reader():
        files = [config.clips_folder() / file for file in batch["file"].to_pylist()] if config.clips.embed else None
        yield from with_audio(pa.Table.from_batches([batch]), files)
