"""Convert importers' rejects to rows of the published table `rejects`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from earmark.schemas.reasons import current_word
from earmark.schemas.rejects import Reject
from earmark.schemas.tables import REJECTS


def came_in(kept: Iterable[str], rejects: Iterable[tuple[str, Reject]]) -> Counter[str]:
    """Count the rows of each source file, from the files of kept rows and from rejects."""
    return Counter(kept) + Counter(reject.source_file for _, reject in rejects)


def rejects_table(stage: str, rejects: Iterable[tuple[str, Reject]]) -> pa.Table:
    """Return rejects as rows of the `rejects` table; `file` is null without a source file."""

    def things(reject: Reject) -> list[dict[str, str]]:
        return [{"kind": kind, "id": id_} for kind, id_ in reject.made_from]

    rows = [
        (table, one.item, stage, current_word(one.reason), one.detail, one.source_file or None, one.line, things(one))
        for table, one in rejects
    ]
    return pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=True)) for row in rows], REJECTS.schema)
