"""Remove names from threads: later steps see nothing of the dump's people."""

from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.forum import COMMENTS, THREADS
from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.score_questions.forum.dump import set_variables
from earmark.tasks.score_questions.forum.threads import RAW, Answers
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.anonymity import NOBODY, SALT, hint, salt_of, scrub

AT_ONCE = 1000  # texts in memory during scrubbing
SCRUBBED = pa.schema([("submission", pa.string()), ("part", pa.string()), ("text", pa.string())])


class Texts(NamedTuple):
    """Threads and their comments (`schemas/forum.py`): texts scrubbed, ids hashed."""

    threads: Path
    comments: Path


@step("scrub", label="")
def scrub_threads(stage: Stage, config: ScoreQuestions, candidates: Path, answers: Answers) -> Done[Texts]:
    """Remove names, links and addresses from all texts; replace ids by salted hashes.

    SQL picks the texts possibly altered by scrubbing (`suspects.sql`); all others are copied unchanged.
    """
    salt = salt_of(SALT, stage.store.root)
    texts = Texts(stage.work / "threads.parquet", stage.work / "comments.parquet")
    scrubbed = stage.work / RAW / "scrubbed.parquet"
    with connect(stage.work / "spill") as connection:
        for name, path in (("candidates", candidates), ("answers", answers.comments), ("writers", answers.writers)):
            view_parquet(connection, name, [path])
        set_variables(connection, {"salt": salt, "hint": hint(), "nobody": sorted(NOBODY)})
        _scrub_suspects(connection, scrubbed)
        view_parquet(connection, "scrubbed", [scrubbed])
        _write(connection, "comments", COMMENTS, texts.comments)
        _write(connection, "threads", THREADS, texts.threads)
    return Done(texts)


def forget_names(stage: Stage, but: Path | None = None) -> None:
    """Remove files with the dump's names and ids, except the given one, after the last step reading them.

    Files left by a killed build are removed too.
    """
    for path in (stage.work / RAW).glob("*"):
        if but is None or path.name != but.name:
            path.unlink()


def _scrub_suspects(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Scrub the texts picked by SQL, and write them with submission and part."""
    suspects = connection.sql(query("score_questions/suspects")).to_arrow_reader(AT_ONCE)
    with working("scrub texts") as work, replacing(path) as new, pq.ParquetWriter(new, SCRUBBED) as writer:
        for batch in work.watching(suspects):
            rows = [{**row, "text": scrub(row["text"], row["names"])} for row in batch.to_pylist()]
            writer.write_table(pa.Table.from_pylist(rows, SCRUBBED))


def _write(connection: duckdb.DuckDBPyConnection, name: str, schema: pa.Schema, path: Path) -> None:
    rows = connection.sql(query(f"score_questions/scrubbed_{name}")).to_arrow_reader(100 * AT_ONCE)
    with replacing(path) as new, pq.ParquetWriter(new, schema) as writer:
        for batch in rows:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
