"""Export questions in WildScore's layout: `data.csv`, and its images in `images/`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pyarrow as pa

COLUMNS = ("image", "question", "final_options", "truth_letter", "category", "subcategory", "difficulty", "preference")


def write_data_csv(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write a row per question: `image` is a file of `images/`, `final_options` JSON text of letter to option.

    The first four columns are the layout's; the others are Earmark's.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for batch in batches:
            for row in batch.to_pylist():
                columns = {name: row[name] for name in COLUMNS}
                writer.writerow({**columns, "image": PurePosixPath(row["image"]).name})
