"""Captions in the two forms that the text-to-music baseline reads; `tasks/importers/captions.py` reads both back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from schemas.errors import StoreError

_BREAK = re.compile(r"\s+")


def write_json(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """One array of `{"path", "caption"}`, with the path of the audio as the list names it.

    Raises:
        StoreError: a track has several captions.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, (_, name, caption) in enumerate(_captions(batches)):
            file.write("," if number else "")
            file.write("\n" + json.dumps({"path": name, "caption": caption}, ensure_ascii=False))
        file.write("\n]\n")


def write_tsv(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """`id<tab>caption` lines below that header, without quoting: breaks within a caption become spaces.

    Raises:
        StoreError: a track has several captions.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tcaption\n")
        for item, _, caption in _captions(batches):
            file.write(f"{item}\t{_BREAK.sub(' ', caption).strip()}\n")


def _captions(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, str]]:
    """Id, path and caption; a track must have one caption alone."""
    seen: set[str] = set()
    for batch in batches:
        for row in batch.to_pylist():
            if row["clip_id"] in seen:
                raise StoreError(
                    f"{row['clip_id']}: expected one caption a track, found several (pipelines or segments); "
                    "export with --for jsonl, which names the pipeline"
                )
            seen.add(row["clip_id"])
            yield row["clip_id"], row["path"], row["caption"]
