"""Tell where models of several names answered for one annotator, such as a gateway's fallback beside the model asked.

The draws of a walk's shard keep the names that its replies report in their file's metadata, also of answers from the
ledger: a resumed build counts them all.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.tasks.pipeline.progress import say
from earmark.tasks.store.staging import Stage

Names = Counter[tuple[str, str]]  # answers by annotator and reported name
KEY = b"earmark.replied"


def with_names(schema: pa.Schema, names: Iterable[Names]) -> pa.Schema:
    """Return the schema of a shard's draws with the names that its replies report."""
    counts = sorted(sum(names, Names()).items())
    return schema.with_metadata({KEY: json.dumps(counts)}) if counts else schema


def _sentences(folder: Path) -> list[str]:
    """Return a sentence for each annotator that several names answered for, in all draws below a folder."""
    names = Names()
    for path in folder.glob("**/draws/*.parquet"):
        held = (pq.read_schema(path).metadata or {}).get(KEY, b"[]")
        names.update({(annotator, name): count for (annotator, name), count in json.loads(held)})
    told = []
    for annotator in sorted({annotator for annotator, _ in names}):
        mine = sorted(((-count, name) for (one, name), count in names.items() if one == annotator))
        if len(mine) > 1:
            counts = ", ".join(f"{name} ({-count:,})" for count, name in mine)
            told.append(f"{annotator}: models of {len(mine)} names answered, such as a gateway's fallbacks: {counts}")
    return told


def tell_names(folder: Path) -> None:
    """Say at a walk's end which annotators models of several names answered for."""
    for sentence in _sentences(folder):
        say(sentence)


def note_names(stage: Stage) -> None:
    """Note it in the build's last step, for the card and the report."""
    if steps := stage.steps():
        last = steps[-1]
        notes = (*last.notes, *(one for one in _sentences(stage.work) if one not in last.notes))
        stage.record(last.model_copy(update={"notes": notes}))
