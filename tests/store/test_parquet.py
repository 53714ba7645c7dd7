"""Parquet files as the store writes them: bytes that depend on the rows alone, and audio that `datasets` knows."""

from __future__ import annotations

from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.tables import AUDIO, Table, column
from earmark.tasks.store import parquet

CLIPS = Table(
    name="clips",
    description="Clips.",
    schema=pa.schema(
        [
            column("clip", pa.string(), "A name."),
            column("tags", pa.list_(pa.string()), "Words."),
            column("mos", pa.float64(), "A number."),
            column("spans", pa.struct([("start_s", pa.float64()), ("ids", pa.list_(pa.int64()))]), "A struct."),
            column("audio", AUDIO, "The clip.", optional=True),
        ]
    ),
    key=("clip",),
    splits=False,
    rows_per_group=7,
    rows_per_file=20,
)


def rows_of(sizes: list[int | None]) -> pa.Table:
    """A table whose rows hold audio of these sizes."""
    rows = [
        {
            "clip": f"{i}",
            "tags": ["calm"],
            "mos": 3.0,
            "spans": {"start_s": 0.0, "ids": [i]},
            "audio": None if size is None else {"bytes": bytes([i % 256]) * size, "path": f"{i}.wav"},
        }
        for i, size in enumerate(sizes)
    ]
    return pa.Table.from_pylist(rows, CLIPS.schema)


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "EMBEDDED_BYTES_PER_GROUP", 1_000)
    monkeypatch.setattr(parquet, "EMBEDDED_BYTES_PER_FILE", 3_000)


@pytest.mark.slow
@given(st.lists(st.none() | st.integers(0, 1_500), max_size=50), st.integers(1, 50))
def test_files_depend_on_the_rows_alone_and_keep_the_bounds(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int | None], cut: int
) -> None:
    folder, whole = tmp_path_factory.mktemp("shards"), rows_of(sizes)
    parts = [whole.slice(start, cut) for start in range(0, len(sizes), cut)]
    written = parquet.write_shards(folder / "cut", CLIPS, "full", parts)
    again = parquet.write_shards(folder / "whole", CLIPS, "full", [whole])
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]
    assert pa.concat_tables([pq.read_table(path) for path in written]).equals(whole)
    for path in written:
        file = pq.ParquetFile(path)
        assert file.metadata.num_rows <= CLIPS.rows_per_file
        groups = [file.read_row_group(n)["audio"].to_pylist() for n in range(file.num_row_groups)]
        held = [[len(audio["bytes"]) for audio in group if audio] for group in groups]
        assert all(len(group) <= CLIPS.rows_per_group for group in groups)
        assert all(sum(group) <= 1_000 or len(group) == 1 for group in held)
        assert sum(map(sum, held)) <= 3_000


def test_datasets_reads_the_audio_and_its_features(tmp_path: Path) -> None:
    whole = rows_of([10, None, 2_000])
    written = parquet.write_shards(tmp_path, CLIPS, "full", [whole])
    loaded = datasets.load_dataset(
        "parquet", data_files=[str(path) for path in written], split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.features["audio"] == datasets.Audio(decode=False)
    assert datasets.Features.from_arrow_schema(CLIPS.schema).arrow_schema.metadata == CLIPS.schema.metadata
    assert loaded[:] == whole.to_pydict()


def test_audio_is_stored_as_it_is_and_the_rest_packed(tmp_path: Path) -> None:
    (path,) = parquet.write_shards(tmp_path, CLIPS, "full", [rows_of([10])])
    group = pq.read_metadata(path).row_group(0)
    packed = {group.column(n).path_in_schema: group.column(n).compression for n in range(group.num_columns)}
    assert {name for name, how in packed.items() if how == "UNCOMPRESSED"} == {"audio.bytes"}
    assert set(packed.values()) == {"UNCOMPRESSED", "ZSTD"}


def test_datasets_reads_images_as_images(tmp_path: Path) -> None:
    pictures = Table(
        name="pictures",
        description="Pictures.",
        schema=pa.schema(
            [
                column("name", pa.string(), "The name."),
                column("image", AUDIO, "The picture.", optional=True, feature="Image"),
            ]
        ),
        key=("name",),
    )
    held = {"bytes": b"a picture", "path": "a.png"}
    whole = pa.Table.from_pylist([{"name": "a", "image": held}, {"name": "b", "image": None}], pictures.schema)
    (path,) = parquet.write_shards(tmp_path, pictures, "full", [whole])
    loaded = datasets.load_dataset("parquet", data_files=[str(path)], split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.features["image"] == datasets.Image()
    assert datasets.Features.from_arrow_schema(pictures.schema).arrow_schema.metadata == pictures.schema.metadata
    assert loaded.cast_column("image", datasets.Image(decode=False))[:] == whole.to_pydict()
