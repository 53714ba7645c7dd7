"""Read tables of an earlier release in the present schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.tables import Table
from earmark.tasks.store.lineage import mark_kinds, missing_column
from earmark.tasks.store.versions import Version
from earmark.tasks.store.withdrawals import Mark

_ROWS, _AUDIO_ROWS = 16_384, 16  # rows read at once


def is_current(table: Table, paths: Sequence[Path]) -> bool:
    """Return whether files have a table's schema, with its descriptions."""
    return all(pq.read_schema(path).equals(table.schema, check_metadata=True) for path in paths)


def unsearchable(version: Version, tables: Sequence[Table], marks: Sequence[Mark]) -> str | None:
    """Return the reason a version cannot be searched for withdrawn things: a missing column; else None."""
    kinds = {kind for mark in marks for kind in mark_kinds(mark, tables)}
    if missing := missing_column(tables, version.table_files(), kinds):
        return (
            f"{version.corpus} {version.name}: an earlier release wrote the table {missing}, by which withdrawn rows "
            "are found; build the corpus again"
        )
    return None


def restated(table: Table, paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the rows of files in a table's schema: missing columns as null, without obsolete ones.

    Raises:
        StoreError: a required column is missing, or values do not fit the present schema.
    """
    for path in paths:
        with pq.ParquetFile(path) as file:
            held = set(file.schema_arrow.names)
            if missing := [name for name in table.required if name not in held]:
                raise StoreError(
                    f"table {table.name}: an earlier release wrote it without {', '.join(missing)}; build the corpus "
                    "again: the build leaves out what was withdrawn"
                )
            for batch in file.iter_batches(_AUDIO_ROWS if table.embedded else _ROWS):
                columns = [
                    batch[field.name] if field.name in held else pa.nulls(batch.num_rows, field.type)
                    for field in table.schema
                ]
                try:
                    yield pa.table(columns, names=table.schema.names).cast(table.schema)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise StoreError(f"table {table.name}: values of an earlier release do not fit: {error}") from None
