"""Takes the names out of threads: what the dump says of people ends here, and nothing behind this step has seen it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.forum import COMMENTS, THREADS
from schemas.score_questions import ScoreQuestions
from tasks.build.progress import working
from tasks.score_questions.forum.dump import set_variables
from tasks.score_questions.forum.threads import RAW
from tasks.store.files import replacing
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage
from tasks.text.anonymity import NOBODY, hint, salt_of, scrub

AT_ONCE = 1000  # texts that are in memory while they are scrubbed
READ = ("answers", "writers")  # what is removed when it has been read; the images still need the candidates
TABLES = (("comments", COMMENTS), ("threads", THREADS))  # that of threads last, since it tells that all is done
SCRUBBED = pa.schema([("submission", pa.string()), ("part", pa.string()), ("text", pa.string())])


def scrub_threads(stage: Stage, config: ScoreQuestions) -> None:
    """Leave `threads.parquet` and `comments.parquet` (`schemas/forum.py`) in `work`: texts scrubbed, ids hashed.

    SQL picks the texts that scrubbing may alter (`suspects.sql`); all others go from file to file as they are.
    """
    raw = stage.work / RAW
    if not (stage.work / "threads.parquet").is_file():
        salt = salt_of(config.source.salt_env, stage.store.root)
        with connect(stage.work / "spill") as connection:
            for name in ("candidates", *READ):
                view_parquet(connection, name, [raw / f"{name}.parquet"])
            set_variables(connection, {"salt": salt, "hint": hint(), "nobody": sorted(NOBODY)})
            _scrub_suspects(connection, raw / "scrubbed.parquet")
            view_parquet(connection, "scrubbed", [raw / "scrubbed.parquet"])
            for name, schema in TABLES:
                _write(connection, name, schema, stage.work / f"{name}.parquet")
    for name in (*READ, "scrubbed"):
        (raw / f"{name}.parquet").unlink(missing_ok=True)


def _scrub_suspects(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Scrub what SQL picked, and write it with its submission and part."""
    suspects = connection.sql(query("score_questions/suspects")).to_arrow_reader(AT_ONCE)
    with (
        working("scrub texts") as work,
        replacing(path) as new,
        pq.ParquetWriter(new, SCRUBBED) as writer,
    ):
        for batch in work.watching(suspects):
            rows = [{**row, "text": scrub(row["text"], row["names"])} for row in batch.to_pylist()]
            writer.write_table(pa.Table.from_pylist(rows, SCRUBBED))


def _write(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, path: Path) -> None:
    rows = connection.sql(query(f"score_questions/scrubbed_{name}")).to_arrow_reader(100 * AT_ONCE)
    with replacing(path) as new, pq.ParquetWriter(new, schema) as writer:
        for batch in rows:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
