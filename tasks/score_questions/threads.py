"""What a question is made from: a thread, its best comments, and the image that shows a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from schemas.score_questions import ScoreQuestions
from schemas.tables import SPLITS
from tasks.annotation.request import Image
from tasks.store.files import replacing
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage

THREADS_A_SHARD = 50
LONGEST_COMMENT = 10_000  # characters that models are shown; the forum itself takes no more
MEDIA_TYPES = {"png": "image/png", "jpg": "image/jpeg"}


@dataclass(frozen=True, slots=True)
class Comment:
    """A first-level comment.

    Attributes:
        comment_key: its salted hash.
        text: its words, without names, links and addresses.
        score: ups minus downs.
    """

    comment_key: str
    text: str
    score: int


@dataclass(frozen=True, slots=True)
class Thread:
    """A submission that passed all filters.

    Attributes:
        thread_key: its salted hash.
        title: the title, without names, links and addresses.
        text: the text, likewise; may be empty.
        comments: its best first-level comments, in the order of their keys, which says nothing of them.
        score_image: the first of its images that shows a score.
    """

    thread_key: str
    title: str
    text: str
    comments: tuple[Comment, ...]
    score_image: Image


def best_of(comments: Sequence[Comment]) -> tuple[Comment, ...]:
    """The comments of the highest score: one where people decided, several where they tie (WildScore: S = U - D)."""
    highest = max((comment.score for comment in comments), default=None)
    return tuple(comment for comment in comments if comment.score == highest)


def write_pool(stage: Stage, config: ScoreQuestions) -> int:
    """Gather the threads that have a score. Leaves `work/pool.parquet`, a row group a shard.

    Returns:
        How many there are.
    """
    with connect(stage.work / "spill") as connection:
        for name in ("threads", "comments", "images"):
            view_parquet(connection, name, [stage.work / f"{name}.parquet"])
        given = {"comments": config.questions.comments, "seed": config.seed, **_ends(config)}
        pool = connection.sql(query("score_questions/pool"), params=given).to_arrow_table()
    size = max(THREADS_A_SHARD, config.writer.batch_requests if config.writer.batch else 0)
    with replacing(stage.work / "pool.parquet") as temporary:
        pq.write_table(pool, temporary, row_group_size=size)
    return len(pool)


def _ends(config: ScoreQuestions) -> dict[str, float]:
    """Where each split ends on the line from 0 to 1; the last one that has a share takes all that is left."""
    ends, total = {}, 0.0
    for split in SPLITS[:3]:
        total += config.shares.get(split, 0.0)  # type: ignore[call-overload]
        ends[f"{split}_upto"] = 2.0 if total > 1 - 1e-9 else total
    return ends


def shards_of(stage: Stage) -> list[int]:
    """The numbers of the shards of threads."""
    return list(range(pq.read_metadata(stage.work / "pool.parquet").num_row_groups))


def threads_of(stage: Stage, shard: int) -> list[Thread]:
    """The threads of a shard, by key."""
    return [
        Thread(
            row["thread_key"],
            row["title"],
            row["text"],
            tuple(Comment(**{**held, "text": held["text"][:LONGEST_COMMENT]}) for held in row["best_comments"]),
            Image(row["image_sha256"], str(image_path(stage, row)), MEDIA_TYPES[row["extension"]]),
        )
        for row in pool_of(stage, shard)
    ]


def pool_of(stage: Stage, shard: int) -> list[dict[str, Any]]:
    """The same as rows of `pool.sql`."""
    with pq.ParquetFile(stage.work / "pool.parquet") as file:
        rows: list[dict[str, Any]] = file.read_row_group(shard).to_pylist()
    return rows


def image_path(stage: Stage, row: Mapping[str, Any]) -> Path:
    """Where the image of a row of `pool.sql` lies."""
    return stage.work / "images" / f"{row['image_sha256']}.{row['extension']}"
