"""Differences of tables between two versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.instrumentals import TRACKS
from earmark.tasks.store import sql
from earmark.tasks.store.diff import diff_tables


def write_audio(path: Path, changed: int) -> Path:
    """Three hundred tracks of 400 kB, the first of them changed."""
    with pq.ParquetWriter(path, TRACKS.schema, compression="none") as writer:
        for first in range(0, 300, 20):
            names = [field.name for field in TRACKS.schema if pa.types.is_string(field.type) and field.name != "split"]
            rows = [
                {name: f"{name}{number}" for name in names}
                | {"split": "train", "audio": {"bytes": bytes([number < changed]) * 400_000, "path": f"{number}.flac"}}
                for number in range(first, first + 20)
            ]
            writer.write_table(pa.Table.from_pylist(rows, TRACKS.schema))
    return path


def test_audio_of_more_bytes_than_memory_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MEMORY_LIMIT", "60MB")
    old, new = ({TRACKS.name: {"train": [write_audio(tmp_path / f"{n}.parquet", n)]}} for n in (0, 7))
    (change,) = diff_tables([TRACKS], old, new, tmp_path / "spill")
    assert (change.added, change.removed, change.changed, change.same) == (0, 0, 7, 293)
