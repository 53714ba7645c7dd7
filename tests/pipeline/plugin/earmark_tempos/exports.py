"""An export format: the ids of rows, a line each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from earmark.plugins import Format, plain


def write_ids(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write one split."""
    with path.open("w") as file:
        file.writelines(f"{name}\n" for batch in batches for name in batch["id"].to_pylist())


IDS = Format(
    "ids", "who wants names", {"preference": plain, "clips": plain, "rows": plain}, "own", False, {},
    "ids are for pairs", write=write_ids, suffix=".txt",
)  # fmt: skip
