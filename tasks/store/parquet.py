"""Parquet files as the store keeps them: the same rows give the same bytes, in shards that every reader loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import StoreError
from schemas.tables import Table
from tasks.store.files import sync


def write_shards(folder: Path, table: Table, split: str, batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Path]:
    """Write one split of a table as `<split>-00000-of-0000N.parquet` below `folder`.

    Row groups and files are cut at fixed row counts, so the bytes do not depend on how the rows came in batches.
    Zstandard, content-defined chunking and a page index make a changed version cheap to upload and quick to browse.

    Returns:
        The files, in order. No rows give one empty file, so that the split can still be loaded.

    Raises:
        StoreError: a batch has other columns than the table's schema, or values that do not fit it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    writer: pq.ParquetWriter | None = None
    in_file = 0
    for group in _in_groups(table, batches):
        if writer is None or in_file + len(group) > table.rows_per_file:
            if writer is not None:
                writer.close()
            written.append(folder / f".{split}-{len(written):05d}.tmp")
            writer, in_file = _open(written[-1], table.schema), 0
        writer.write_table(group, row_group_size=table.rows_per_group)
        in_file += len(group)
    if writer is None:
        written.append(folder / f".{split}-00000.tmp")
        writer = _open(written[-1], table.schema)
    writer.close()
    return [_settle(path, split, index, len(written)) for index, path in enumerate(written)]


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path, schema, compression="zstd", use_content_defined_chunking=True, write_page_index=True, store_schema=True
    )


def _settle(path: Path, split: str, index: int, count: int) -> Path:
    final = path.with_name(f"{split}-{index:05d}-of-{count:05d}.parquet")
    sync(path)
    path.replace(final)
    return final


def _in_groups(table: Table, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """Regroup batches into tables of exactly `rows_per_group` rows (the last may be shorter)."""
    held: list[pa.Table] = []
    rows = 0
    for batch in batches:
        part = _fit(table, batch)
        while part.num_rows:
            room = table.rows_per_group - rows
            held.append(part.slice(0, room))
            rows += held[-1].num_rows
            part = part.slice(room)
            if rows == table.rows_per_group:
                yield pa.concat_tables(held).combine_chunks()
                held, rows = [], 0
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _fit(table: Table, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    part = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if part.column_names != table.schema.names:
        raise StoreError(f"table {table.name}: expected columns {table.schema.names}, found {part.column_names}")
    try:
        return part.cast(table.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StoreError(f"table {table.name}: values do not fit the schema: {error}") from None
