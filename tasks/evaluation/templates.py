"""Write files of scores with their rows and empty scores."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.clip_scores import ANY
from earmark.tasks.evaluation.kinds import clip_columns, find_kind
from earmark.tasks.evaluation.samples import Samples
from earmark.tasks.evaluation.scores import format_of
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import literal


def clips_of(samples: Samples) -> pa.Table:
    """Return the clips of an evaluation's samples: `clip`, `file`, `clip_sha256`."""
    assert samples.evaluation.clips is not None
    table, key = samples.evaluation.clips
    columns = clip_columns(samples.evaluation)
    wanted = " UNION ".join(f'SELECT "{name}" AS clip FROM judged.samples' for name in columns)
    return (
        samples.connection.cursor()
        .sql(f'SELECT clip, file, clip_sha256 FROM ({wanted}) JOIN "{table}" ON "{key}" = clip ORDER BY clip')
        .to_arrow_table()
    )


def write_clips_template(path: Path, clips: Sequence[tuple[Evaluation, pa.Table]]) -> int:
    """Write a row per clip, with an empty column per dimension; `score` for a single dimension."""
    dimensions = list(dict.fromkeys(evaluation.dimension for evaluation, _ in clips))
    empty = ", ".join(f'NULL::DOUBLE AS "{name}"' for name in (dimensions if len(dimensions) > 1 else [ANY]))
    with duckdb.connect() as connection:
        connection.register("named_clips", pa.concat_tables(table for _, table in clips))
        return _write(path, connection, f"SELECT *, {empty} FROM (SELECT DISTINCT * FROM named_clips) ORDER BY clip")


def write_samples_template(path: Path, samples: Samples) -> int:
    """Write a row per sample, with the empty columns, and the clips of preferences."""
    evaluation = samples.evaluation
    clips = "".join(f', "{name}"' for name in clip_columns(evaluation))
    empty = find_kind(evaluation.kind).empty_columns(evaluation, path.suffix.lower() in (".csv", ".tsv"))
    query = f"SELECT id{clips}, {empty} FROM judged.samples ORDER BY id"
    return _write(path, samples.connection.cursor(), query)


def _write(path: Path, connection: duckdb.DuckDBPyConnection, query: str) -> int:
    _, form = format_of(path)
    if path.exists():
        raise InputError(f"{path}: the file exists, and its scores with it; name another")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no such folder")
    with replacing(path) as part:
        rows = connection.execute(f"COPY ({query}) TO {literal(part)} ({form})").fetchall()
    return int(rows[0][0])
