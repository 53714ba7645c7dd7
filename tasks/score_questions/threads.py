"""Join threads with their best comments and the image of a score."""

from pathlib import Path

from earmark.schemas.score_questions import ScoreQuestions
from earmark.schemas.tables import split_ends
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.score_questions.forum.images import image_folder
from earmark.tasks.score_questions.forum.scrubbing import Texts
from earmark.tasks.score_questions.rows import PooledThread
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

THREADS_A_SHARD = 50
LONGEST_COMMENT = 10_000  # characters shown to models; the forum's own limit


@step("pool", label="")
def gather_threads(stage: Stage, config: ScoreQuestions, texts: Texts, images: Path) -> Done[Rows[PooledThread]]:
    """Join threads with a score, their comments and images, sorted by key."""
    with connect(stage.work / "spill") as connection:
        for name, path in (("threads", texts.threads), ("comments", texts.comments), ("images", images)):
            view_parquet(connection, name, [path])
        values = {
            "comments": config.questions.comments,
            "longest_comment": LONGEST_COMMENT,
            "seed": config.seed,
            "folder": str(image_folder(stage)),
            **split_ends(config.shares),
        }
        pool = connection.sql(query("score_questions/pool"), params=values).to_arrow_table()
    batch = config.writer.batch_requests if config.writer.batch else 0
    return Done(keep_rows(stage, "pool", pool, max(THREADS_A_SHARD, batch)))
