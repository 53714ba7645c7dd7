"""Write Parquet files reproducibly: the same rows give the same bytes, in shards for any reader."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import Table
from earmark.tasks.store.files import replacing, sha256_file, sync
from earmark.tasks.store.manifest import FileEntry

EMBEDDED_BYTES_PER_GROUP = 200_000_000  # a reader holds one row group; the Hub's viewer wants at most 300 MB
EMBEDDED_BYTES_PER_FILE = 500_000_000
_ALIASES = {str: "string", int: "int64", float: "float64", bool: "bool"}


def write_shards(folder: Path, table: Table, split: str, batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Path]:
    """Write one split of a table as `<split>-00000-of-0000N.parquet` below `folder`.

    Row groups and files are cut at fixed row counts, and with audio or images at fixed numbers of bytes too, so the
    files' bytes do not depend on the batches. Zstandard, content-defined chunking and a page index make a changed
    version cheap to upload and quick to browse. Audio and images, compressed already, are stored unchanged.

    Returns:
        The files, in order; a single empty file for a split without rows, so it can still be loaded.

    Raises:
        StoreError: a batch differs from the table's schema in columns or types of values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    writer: pq.ParquetWriter | None = None
    rows = held = 0
    for group in _in_groups(table, batches):
        size = int(_embedded_bytes(table, group).sum())
        if writer is None or rows + len(group) > table.rows_per_file or held + size > EMBEDDED_BYTES_PER_FILE:
            if writer is not None:
                writer.close()
            written.append(folder / f".{split}-{len(written):05d}.tmp")
            writer, rows, held = _open(written[-1], table), 0, 0
        writer.write_table(group, row_group_size=table.rows_per_group)
        rows, held = rows + len(group), held + size
    if writer is None:
        written.append(folder / f".{split}-00000.tmp")
        writer = _open(written[-1], table)
    writer.close()
    files = [path.with_name(f"{split}-{at:05d}-of-{len(written):05d}.parquet") for at, path in enumerate(written)]
    for path, final in zip(written, files, strict=True):
        sync(path)
        path.replace(final)
    return files


def file_entry(path: Path, root: Path, table: str | None = None, split: str | None = None) -> FileEntry:
    """Return the manifest entry of a file below a version's folder."""
    return FileEntry(
        path=path.relative_to(root).as_posix(),
        sha256=sha256_file(path),
        bytes=path.stat().st_size,
        rows=pq.read_metadata(path).num_rows if table else None,
        table=table,
        split=split,
    )


def tuples_of(table: pa.Table | pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of these columns, row by row."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


def row_schema(columns: str) -> pa.Schema:
    """Return the schema of an intermediate file from names and Arrow types: `row int64, name string, tags string[]`."""
    pairs = (column.split() for column in columns.split(","))
    return pa.schema([(name, _type_of(alias)) for name, alias in pairs])


def record_schema(record: type, before: str, after: str = "") -> pa.Schema:
    """Return the schema of an intermediate file of an importer's records (named tuples of texts and numbers).

    Args:
        record: the records' type.
        before: columns before its fields, in `row_schema`'s notation.
        after: columns after them.
    """
    kinds = {
        name: {*get_args(hint)} - {NoneType} if isinstance(hint, UnionType) else {hint}
        for name, hint in get_type_hints(record).items()
    }
    fields = ", ".join(f"{name} {_ALIASES[kind]}" for name, (kind,) in kinds.items())
    return row_schema(", ".join(filter(None, (before, fields, after))))


def _type_of(alias: str) -> pa.DataType:
    return pa.list_(_type_of(alias[:-2])) if alias.endswith("[]") else pa.type_for_alias(alias)


def to_table(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows, each with a value for every column, as a table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def write_rows(path: Path, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> None:
    """Write an intermediate file of a few columns, whole or not at all; published tables go through `Stage.write`."""
    with replacing(path) as temporary:
        pq.write_table(to_table(schema, rows), temporary)


def _open(path: Path, table: Table) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        table.schema,
        compression=_compression(table),
        use_content_defined_chunking=True,
        write_page_index=True,
        store_schema=True,
    )


def _compression(table: Table) -> str | dict[str, str]:
    if not table.embedded:
        return "zstd"
    bare = pa.BufferOutputStream()
    pq.write_table(table.schema.empty_table(), bare)
    leaves = [leaf.path for leaf in pq.ParquetFile(pa.BufferReader(bare.getvalue())).schema]
    return {leaf: "none" if leaf in {f"{name}.bytes" for name in table.embedded} else "zstd" for leaf in leaves}


def _in_groups(table: Table, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.Table]:
    """Regroup batches into tables of `rows_per_group` rows, or fewer if their audio and images exceed the limit."""
    held: list[pa.Table] = []
    rows = size = 0
    for batch in batches:
        part = _fit(table, batch)
        while part.num_rows:
            upto = size + np.cumsum(_embedded_bytes(table, part))
            room = min(table.rows_per_group - rows, int(np.searchsorted(upto, EMBEDDED_BYTES_PER_GROUP, "right")))
            room = max(room, 0 if rows else 1)  # a clip beyond the limit gets its own group
            if taken := min(room, part.num_rows):
                held.append(part.slice(0, taken))
                rows, size = rows + taken, int(upto[taken - 1])
                part = part.slice(taken)
            if part.num_rows or rows == table.rows_per_group:
                yield pa.concat_tables(held).combine_chunks()
                held, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _embedded_bytes(table: Table, part: pa.Table) -> np.ndarray:
    sizes = np.zeros(part.num_rows, np.int64)
    for name in table.embedded:
        lengths = pc.binary_length(pc.struct_field(part[name], "bytes"))
        sizes += pc.fill_null(lengths, 0).to_numpy()
    return sizes


def _fit(table: Table, batch: pa.RecordBatch | pa.Table) -> pa.Table:
    part = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if part.column_names != table.schema.names:
        raise StoreError(f"table {table.name}: expected columns {table.schema.names}, found {part.column_names}")
    try:
        return part.cast(table.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StoreError(f"table {table.name}: values do not fit the schema: {error}") from None
