"""What importers could not read, as rows of the published table `rejects`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from earmark.schemas.tables import REJECTS
from earmark.tasks.importers.rows import Reject


def came_in(kept: Iterable[str], rejects: Iterable[tuple[str, Reject]]) -> Counter[str]:
    """How many rows were read of each file, from the files of those that are kept and from rejects."""
    return Counter(kept) + Counter(reject.source_file for _, reject in rejects)


def rejects_table(stage: str, rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """Rejects as rows of the `rejects` table; `file` is null where a reject names no source file."""

    def things(reject: Reject) -> list[dict[str, str]]:
        return [{"kind": kind, "id": id_} for kind, id_ in reject.made_from]

    rows = [(t, r.item, stage, r.reason, r.detail, r.source_file or None, r.line, things(r)) for t, r in rejects]
    return pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=True)) for row in rows], REJECTS.schema)
