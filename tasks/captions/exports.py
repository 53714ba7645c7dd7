"""Export captions in both forms of the text-to-music baseline; `tasks/importers/caption_sets.py` reads both back.

The baseline finds a caption's audio by its file: `00/1085700.mp3` in JSON; `1085700` as the id in a TSV, beside which
it has `audios/1085700.mp3`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pyarrow as pa

from earmark.schemas.errors import StoreError

_BREAK = re.compile(r"\s+")


def write_json(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write an array of `{"path", "caption"}`, with the path of the audio as the list names it.

    Raises:
        StoreError: a track has several captions.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, (name, caption) in enumerate(_captions(batches)):
            file.write("," if number else "")
            file.write("\n" + json.dumps({"path": name, "caption": caption}, ensure_ascii=False))
        file.write("\n]\n")


def write_tsv(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """Write `id<tab>caption` lines below this header, without quoting: breaks within a caption become spaces.

    The id is the audio file's name without folder and ending.

    Raises:
        StoreError: a track has several captions, or two tracks have files of one name.
    """
    files: dict[str, str] = {}
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("id\tcaption\n")
        for name, caption in _captions(batches):
            item = PurePosixPath(name).stem
            if (first := files.setdefault(item, name)) != name:
                raise StoreError(f"expected files of different names, found {first} and {name}; export with attm-json")
            file.write(f"{item}\t{_BREAK.sub(' ', caption).strip()}\n")


def _captions(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str]]:
    """Yield path and caption; require a single caption per track."""
    seen: set[str] = set()
    for batch in batches:
        for row in batch.to_pylist():
            if row["clip_id"] in seen:
                raise StoreError(
                    f"{row['clip_id']}: expected one caption a track, found several (pipelines or segments); "
                    "export with --for jsonl, which names the pipeline"
                )
            seen.add(row["clip_id"])
            yield row["path"], row["caption"]
