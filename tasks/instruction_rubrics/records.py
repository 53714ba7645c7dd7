"""`instruction-rubrics`: what its steps leave for one another: records in shards, and what models said of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import EarmarkError
from tasks.annotation.outcome import Answer, Reject
from tasks.build.asking import Checked, check_failed
from tasks.store.files import replacing
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage

A_SHARD = 200
RECORDS = pa.schema([("at", pa.int64()), ("data", pa.string())])
SAID = pa.schema(
    [
        ("at", pa.int64()),
        ("ask", pa.string()),
        ("number", pa.int64()),
        ("value", pa.string()),
        ("by", pa.string()),
        ("prompt", pa.string()),
        ("request_key", pa.string()),
        ("sample", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("final", pa.bool_()),
    ]
)
Record: TypeAlias = dict[str, Any]
Said: TypeAlias = tuple[Any, ...]


def write_records(stage: Stage, name: str, records: Iterable[Record], a_shard: int = A_SHARD) -> int:
    """Leave `work/<name>.parquet`, a row group a shard; returns how many there are."""
    texts = [json.dumps(record, ensure_ascii=False, sort_keys=True) for record in records]
    table = pa.table([pa.array(range(len(texts)), pa.int64()), pa.array(texts, pa.string())], RECORDS)
    with replacing(stage.work / f"{name}.parquet") as temporary:
        pq.write_table(table, temporary, row_group_size=a_shard)
    return len(texts)


def read_records(stage: Stage, name: str, shard: int | None = None) -> list[Record]:
    """The records of a file or of one of its shards; each knows its place as `at`."""
    with pq.ParquetFile(stage.work / f"{name}.parquet") as file:
        table = file.read() if shard is None else file.read_row_group(shard)
    return [{**json.loads(data), "at": at} for at, data in zip(*table.to_pydict().values(), strict=True)]


def shards_of(stage: Stage, name: str) -> list[int]:
    """The numbers of a file's shards."""
    metadata = pq.read_metadata(stage.work / f"{name}.parquet")
    return list(range(metadata.num_row_groups)) if metadata.num_rows else []


def count_records(stage: Stage, name: str) -> int:
    """How many records a file holds."""
    return int(pq.read_metadata(stage.work / f"{name}.parquet").num_rows)


def said(at: int, ask: str, number: int, one: Checked, by: str, prompt: str) -> Said:
    """How a request about a record ended.

    Args:
        at: the record.
        ask: what was asked.
        number: which of several requests of that ask, from 1.
        one: the outcome.
        by: the annotator.
        prompt: the prompt's name and version.
    """
    reason, detail = one.failure or (None, None)
    if detail and one.tries > 1:
        detail = f"{detail}; asked {one.tries} times"
    value = json.dumps(one.outcome.value, ensure_ascii=False) if isinstance(one.outcome, Answer) else None
    final = one.outcome.final if isinstance(one.outcome, Reject) else True
    return (at, ask, number, value, by, prompt, one.outcome.key, one.sample, reason, detail, final)


def write_said(stage: Stage, name: str, shard: int, rows: Sequence[Said]) -> None:
    """Leave what was said of one shard."""
    write_rows(stage.work / f"{name}-said" / f"{shard:06d}.parquet", SAID, rows)


def read_said(stage: Stage, name: str, most_failed: float) -> Iterator[Record]:
    """All that was said of a file's records, in order; values are read.

    Raises:
        EarmarkError: more requests than allowed have no answer yet.
    """
    paths = [stage.work / f"{name}-said" / f"{shard:06d}.parquet" for shard in shards_of(stage, name)]
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    failed = [row for row in rows if row["reason"] is not None]
    try:
        check_failed(most_failed, len(rows), failed)
    except EarmarkError:
        for path in paths:
            path.unlink()  # a resumed build asks these shards again; the ledger answers what it holds
        raise
    for row in rows:
        row["value"] = None if row["value"] is None else json.loads(row["value"])
        yield row
