"""Write trainers' rows as Parquet, JSON lines or tar shards; the same rows give the same bytes."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.tasks.exports.shapes import clips_of

BYTES_PER_TAR = 500_000_000
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

_json = json.JSONEncoder(ensure_ascii=False, default=str).encode

Row = dict[str, Any]
Batch = tuple[pa.Schema, list[Row]]  # shaped rows, and the schema of their unshaped columns


def write_parquet(path: Path, batches: Iterable[Batch]) -> None:
    """Write batches of rows, a few thousand each, as a Parquet file, with the schema of their unshaped columns."""
    writer: pq.ParquetWriter | None = None
    for source, rows in batches:
        if writer is None:
            schema = pa.schema([(name, _type(value, name, source)) for name, value in rows[0].items()])
            writer = pq.ParquetWriter(path, schema, compression="zstd")
        writer.write_table(pa.Table.from_pylist(rows, writer.schema))
    if writer is not None:
        writer.close()


def write_columns(batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """Write batches unchanged, at least one, as a Parquet file."""
    rest = iter(batches)
    first = next(rest)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for batch in chain([first], rest):
            writer.write_batch(batch)


def _type(value: Any, name: str, schema: pa.Schema) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(key, _type(one, key, schema)) for key, one in value.items()])
    if isinstance(value, list) and value and isinstance(value[0], dict) and "role" in value[0]:
        return MESSAGES
    usual = pa.list_(pa.string()) if isinstance(value, list) else pa.string()
    return schema.field(name).type if name in schema.names else usual


def write_lines(path: Path, batches: Iterable[Batch]) -> None:
    """Write a file of JSON lines."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for _, rows in batches:
            file.writelines(f"{_json(row)}\n" for row in rows)


def write_tars(folder: Path, split: str, batches: Iterable[Batch], clips: Path) -> list[Path]:
    """Write WebDataset shards, `<split>-000000.tar`, …, of rows with clips as paths below `clips`. A sample is
    `<number>.json` and its clips, such as `<number>.chosen.flac`."""
    shards: list[Path] = []
    with ExitStack() as shard:
        size = BYTES_PER_TAR
        for number, row in enumerate(row for _, rows in batches for row in rows):
            if size >= BYTES_PER_TAR:
                shard.close()
                shards.append(folder / f"{split}-{len(shards):06d}.tar")
                archive = shard.enter_context(tarfile.open(shards[-1], "w", format=tarfile.USTAR_FORMAT))
                size = 0
            for name, content in _members(f"{number:09d}", row, clips):
                header = tarfile.TarInfo(name)  # no time or owner of this machine
                header.size = len(content)
                archive.addfile(header, io.BytesIO(content))
                size += len(content)
    return shards


def _members(key: str, row: Row, clips: Path) -> Iterator[tuple[str, bytes]]:
    yield f"{key}.json", _json(row).encode()
    for name, path in clips_of(row).items():
        yield f"{key}.{name}{Path(path).suffix}", (clips / path).read_bytes()
