"""Keep rows between steps in a Parquet file below `work`, one row group per shard."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise, repeat
from pathlib import Path
from typing import Any, Generic, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.tables import R
from earmark.tasks.store.files import replacing
from earmark.tasks.store.staging import Stage

A_SHARD = 200
DATA = pa.schema([("data", pa.string())])
"""Rows of any shape, as JSON."""


class Rows(NamedTuple, Generic[R]):
    """File of rows of one type."""

    path: Path  # Parquet, one row group per shard
    total: int  # number of rows


class Shard(NamedTuple):
    """Rows processed together."""

    number: int  # index of the row group, from 0
    start: int  # number of its first row
    rows: int  # number of rows

    @property
    def name(self) -> str:
        """Return the name for its files and its task; it sorts like its number."""
        return f"{self.number:06d}"


def keep_rows(stage: Stage, name: str, rows: pa.Table | Iterable[R], a_shard: int | Sequence[int] = A_SHARD) -> Rows[R]:
    """Write `work/<name>.parquet`.

    Args:
        stage: the build.
        name: of the file.
        rows: a table, or values of any shape, stored as JSON.
        a_shard: rows per shard, or the sizes of all shards.
    """
    path, total = stage.work / f"{name}.parquet", 0
    parts = _sliced(rows, a_shard) if isinstance(rows, pa.Table) else _as_json(rows, a_shard)
    schema = rows.schema if isinstance(rows, pa.Table) else DATA
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for part in parts:
            writer.write_table(part, row_group_size=max(1, len(part)))
            total += len(part)
    return Rows(path, total)


def _sliced(rows: pa.Table, a_shard: int | Sequence[int]) -> Iterator[pa.Table]:
    sizes = repeat(a_shard, -(-len(rows) // a_shard)) if isinstance(a_shard, int) else a_shard
    for start, end in pairwise(accumulate(sizes, initial=0)):
        yield rows.slice(start, end - start)


def _as_json(rows: Iterable[Any], a_shard: int | Sequence[int]) -> Iterator[pa.Table]:
    """Yield the rows as tables of JSON texts, a shard at a time: all texts at once take as much memory as the rows."""
    texts = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    for size in repeat(a_shard) if isinstance(a_shard, int) else a_shard:
        part = list(islice(texts, size))
        if not part and size:
            return
        yield pa.table([pa.array(part, pa.string())], DATA)


def shards_of(rows: Rows[Any]) -> list[Shard]:
    """Return a file's shards; none without rows."""
    metadata = pq.read_metadata(rows.path)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    starts = accumulate(sizes, initial=0)
    return [Shard(number, start, size) for number, (start, size) in enumerate(zip(starts, sizes, strict=False)) if size]


def read_shard(rows: Rows[R], shard: Shard) -> list[R]:
    """Read the rows of a shard."""
    with pq.ParquetFile(rows.path) as file:
        return _values(file.read_row_group(shard.number))


def read_rows(rows: Rows[R]) -> list[R]:
    """Read all rows of a file."""
    with pq.ParquetFile(rows.path) as file:
        return [value for number in range(file.num_row_groups) for value in _values(file.read_row_group(number))]


def _values(table: pa.Table) -> list[Any]:
    if table.schema.names == DATA.names:
        return [json.loads(text) for text in table["data"].to_pylist()]
    values: list[Any] = table.to_pylist()
    return values
