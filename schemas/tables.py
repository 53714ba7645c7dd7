"""How a published table is described: its Arrow schema, its key, and what may not cross its splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

SPLITS: tuple[str, ...] = ("train", "validation", "test", "ood")
UNSPLIT = "full"  # the one split of a table without splits; `datasets` keeps the word "all" for itself
SPLIT_ALIASES = {"dev": "validation", "val": "validation", "valid": "validation", "eval": "test"}
Split = Literal["train", "validation", "test", "ood"]


def column(
    name: str,
    type_: pa.DataType,
    description: str,
    *,
    unit: str | None = None,
    source: str | None = None,
    optional: bool = False,
) -> pa.Field:
    """One field of a published table; what a reader must know travels inside the Parquet file as field metadata.

    The Arrow field itself is always nullable, since `datasets` recognises its features only then;
    that a value is required is held at commit through the `required` entry.

    Args:
        name: the column's name, with its unit where it has one (`duration_s`).
        type_: the Arrow type.
        description: one sentence.
        unit: the unit or range of the values.
        source: where the value comes from (a paper's section, an input column, a measurement).
        optional: whether nulls are allowed.
    """
    metadata = {"description": description, "required": "false" if optional else "true"}
    if unit:
        metadata["unit"] = unit
    if source:
        metadata["source"] = source
    return pa.field(name, type_, nullable=True, metadata=metadata)


@dataclass(frozen=True)
class Table:
    """A published table.

    Attributes:
        name: folder of the table in a version, and its config name for `load_dataset`.
        description: one or two sentences for the card.
        schema: Arrow schema made with `column`.
        key: columns that together name a row; unique within a version.
        splits: whether rows are divided by a `split` column. A table without splits has the one named `UNSPLIT`.
        exclusive: columns whose values may not occur in two splits.
        links: columns that name a row of another table: (column, table); that table's key has one column.
        says: sentences with `{column}` in them, by which `earmark explain` tells what was decided for a row.
        rows_per_group: rows in one Parquet row group (aim at 100 to 300 MB in memory).
        rows_per_file: rows in one Parquet file (aim at no more than 500 MB on disk).
    """

    name: str
    description: str
    schema: pa.Schema
    key: tuple[str, ...]
    splits: bool = True
    exclusive: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    says: tuple[str, ...] = ()
    rows_per_group: int = 500_000
    rows_per_file: int = 5_000_000

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that may not be null."""
        return tuple(field.name for field in self.schema if field.metadata[b"required"] == b"true")


REJECTS = Table(
    name="rejects",
    description="Every input row or item that did not become part of the dataset, and why.",
    schema=pa.schema(
        [
            column("table", pa.string(), "The table that the item would have entered."),
            column("item", pa.string(), "The item's id, or the beginning of the line where no id could be read."),
            column("stage", pa.string(), "The step that dropped it."),
            column("reason", pa.string(), "A fixed word for the reason; the card counts rejects by it."),
            column("detail", pa.string(), "What was expected and what was found."),
            column("file", pa.string(), "Input file: source name and path below that source's root.", optional=True),
            column("line", pa.int64(), "Line in that file, counted from 1.", unit="line", optional=True),
        ]
    ),
    key=(),
    splits=False,
    says=("dropped from {table} at step {stage}: {reason}", "{detail}"),
)
