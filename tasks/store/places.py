"""Write the `rejects` table; hide rejects' input places in versions, and keep them in the store beside the versions.

A line of a public dump identifies its author like an id. So a version names only the source of such a corpus's rejects,
in an uninformative order; file and line stay here, for the store's owner and `earmark inspect explain`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.corpus import Corpus
from earmark.schemas.tables import REJECTS, UNSPLIT
from earmark.tasks.store.files import replacing, sync
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import SPILL, Stage
from earmark.tasks.store.versions import Version

FOLDER = "places"  # of the corpus's folder, beside its versions
SHARED = tuple(name for name in REJECTS.schema.names if name not in ("file", "line", "made_from"))


def write_rejects(stage: Stage, corpus: Corpus) -> None:
    """Write the `rejects` table from the rejects of all steps."""
    parts = [pq.ParquetFile(path).read() for path in stage.rejects()]
    rejects = pa.concat_tables([REJECTS.schema.empty_table(), *parts], promote_options="default")
    keys = [
        {"table": table.name, "kinds": [ref.kind for ref in table.refs if ref.column in table.key]}
        for table in corpus.tables
    ]
    with connect(stage.work / SPILL) as connection:
        connection.register("rejects", rejects.append_column("place", pa.array(range(len(rejects)))))
        connection.register("keys", pa.Table.from_pylist(keys))
        rejects = connection.sql(query("store/made_from")).to_arrow_table().select(REJECTS.schema.names)
    rejects = rejects.cast(REJECTS.schema)
    stage.write(REJECTS, UNSPLIT, [hide_places(stage, rejects) if corpus.hides_places else rejects])


def hide_places(stage: Stage, rejects: pa.Table) -> pa.Table:
    """Return the rejects without their input places; keep these in the store.

    Returns:
        The same rows; `file` is the source's name, `line` is null, sorted by the other columns.
    """
    if rejects["line"].null_count < len(rejects):  # else already hidden, as in a version committed anew
        made = stage.work / f"{FOLDER}.parquet"  # a kill leaves nothing outside the staging folder
        with replacing(made) as temporary:
            pq.write_table(rejects, temporary, compression="zstd")
            temporary.chmod(0o600)
        kept = _path(stage.store.folder(stage.corpus), stage.build_key)
        kept.parent.mkdir(exist_ok=True)
        made.replace(kept)
        sync(kept.parent)
    source = pc.list_element(pc.split_pattern(rejects["file"], "/", max_splits=1), 0)
    hidden = rejects.set_column(rejects.schema.get_field_index("file"), REJECTS.schema.field("file"), source)
    nowhere = pa.nulls(len(rejects), pa.int64())
    hidden = hidden.set_column(rejects.schema.get_field_index("line"), REJECTS.schema.field("line"), nowhere)
    return hidden.sort_by([(name, "ascending") for name in REJECTS.schema.names if name != "made_from"])


def with_places(version: Version, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rejects with their places, where known to this store. `rows` must hold all rejects of an item."""
    path = _path(version.folder.parent, version.manifest.build_key)
    if not rows or not path.is_file():
        return list(rows)
    items = pa.array(sorted({row["item"] for row in rows}), pa.string())
    known: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for kept in pq.read_table(path, filters=pc.is_in(pc.field("item"), items)).to_pylist():
        known[_shared(kept)].append({"file": kept["file"], "line": kept["line"]})
    return [{**row, **(known[_shared(row)].pop(0) if known[_shared(row)] else {})} for row in rows]


def _shared(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that a hidden reject has in common with its place: its file's first part is the source."""
    return *(row[name] for name in SHARED), (row["file"] or "").partition("/")[0]


def _path(folder: Path, build_key: str) -> Path:
    return folder / FOLDER / f"{build_key[:16]}.parquet"
