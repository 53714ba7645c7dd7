"""Where rejects of a corpus that hides it were read: kept in the store beside the versions, in none of them.

A line of a public dump names whoever wrote it, as an id does. So of such a corpus's rejects a version names the source
alone, in an order that tells nothing; the file and line stay here, for the store's owner and `earmark explain`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.tables import REJECTS
from earmark.tasks.store.files import replacing, sync
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version

FOLDER = "places"  # of the corpus's folder, beside its versions
_SHARED = tuple(name for name in REJECTS.schema.names if name not in ("file", "line", "made_from"))


def hide_places(stage: Stage, rejects: pa.Table) -> pa.Table:
    """The rejects without the places that they were read at, which are kept in the store.

    Returns:
        The same rows; `file` is the source's name, `line` is null, and the order is that of the other columns.
    """
    if rejects["line"].null_count < len(rejects):  # else they were hidden before, as when a version is committed anew
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
    """Rejects of a version, all that share an item, with the places that this store knows; others stay as they are."""
    path = _path(version.folder.parent, version.manifest.build_key)
    if not rows or not path.is_file():
        return list(rows)
    items = pa.array(sorted({row["item"] for row in rows}), pa.string())
    known: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for kept in pq.read_table(path, filters=pc.is_in(pc.field("item"), items)).to_pylist():
        known[_shared(kept)].append({"file": kept["file"], "line": kept["line"]})
    return [{**row, **(known[_shared(row)].pop(0) if known[_shared(row)] else {})} for row in rows]


def _shared(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _SHARED)


def _path(folder: Path, build_key: str) -> Path:
    return folder / FOLDER / f"{build_key[:16]}.parquet"
