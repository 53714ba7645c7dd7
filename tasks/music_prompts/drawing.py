"""`music-prompts`: triplets of tags by stratum, drawn by seeded hash with genres in turn, and their examples."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.music_prompts import STRATA, TRIPLETS, MusicPrompts
from tasks.store.files import replacing
from tasks.store.parquet import write_rows
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage

TRIPLETS_A_SHARD = 500
STRATA_SCHEMA = pa.schema([("stratum", pa.string()), ("wanted", pa.int64()), ("candidates", pa.int64())])
ROUNDS = "rounds"
ANSWERED = pa.schema(
    [
        ("triplet_id", pa.string()),
        ("text", pa.string()),
        ("added", pa.list_(pa.string())),
        ("writer", pa.string()),
        ("prompt", pa.string()),
        ("request_key", pa.string()),
        ("tries", pa.int64()),
    ]
)
FAILED = pa.schema(
    [("triplet_id", pa.string()), ("reason", pa.string()), ("detail", pa.string()), ("final", pa.bool_())]
)


def write_queue(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> None:
    """Leave `work/queue.parquet`, triplets in the order in which they will be tried; `shots` and `strata` beside it.

    Args:
        stage: with the published tables `tags` and `cooccurrence`.
        connection: with views of both, and of `captions`.
        config: the build config.
    """
    wanted = config.prompts.model_dump()
    in_distribution = wanted["strict_id"] + wanted["improvised_id"]
    _open_kept(stage, connection, config)
    connection.execute("CREATE TABLE wanted (stratum VARCHAR, most BIGINT, start DOUBLE)")
    for place, name in enumerate(STRATA):
        start = sum(wanted[before] for before in STRATA[:place]) / max(1, sum(wanted.values()))
        most = round(wanted[name] * (1 + config.synthesis.spare))
        connection.execute("INSERT INTO wanted VALUES (?, ?, ?)", [name, most, start])
    given = {"seed": config.seed, "strict_share": wanted["strict_id"] / in_distribution if in_distribution else 0.0}
    connection.execute(query("music_prompts/candidates"), given)
    queue = connection.sql(query("music_prompts/queue")).to_arrow_table()
    with replacing(stage.work / "queue.parquet") as path:
        pq.write_table(queue, path)
    connection.register("queue", queue)
    held = {"seed": config.seed, "shots": config.synthesis.shots, "longest": LONGEST_SHOT}
    with replacing(stage.work / "shots.parquet") as path:
        pq.write_table(connection.sql(query("music_prompts/shots"), params=held).to_arrow_table(), path)
    counts = dict(connection.execute("SELECT stratum, count(*) FROM candidates GROUP BY stratum").fetchall())
    write_rows(stage.work / "strata.parquet", STRATA_SCHEMA, [(s, wanted[s], counts.get(s, 0)) for s in STRATA])


LONGEST_SHOT = 1000
"""Longer captions are no examples: ten of them would crowd out the question."""


def next_round(stage: Stage, number: int) -> Path | None:
    """The triplets to be written for next: as many of each stratum as still lack a prompt, in the queue's order.

    However often a build is interrupted, the prompts are those of the first triplets in the queue that can be had.

    Returns:
        A file with one row a triplet and its examples, one row group a shard; None when there is nothing to ask.
    """
    with connect(stage.work / "spill") as connection:
        open_written(connection, stage)
        chosen = connection.sql(query("music_prompts/round")).to_arrow_table()
    if chosen.num_rows == 0:
        return None
    path = stage.work / ROUNDS / f"{number:03d}.parquet"
    with replacing(path) as temporary:
        pq.write_table(chosen, temporary, row_group_size=TRIPLETS_A_SHARD)
    return path


def open_written(connection: duckdb.DuckDBPyConnection, stage: Stage) -> None:
    """Make views of the queue, its examples, and what was answered and what failed in all rounds so far."""
    for name in ("queue", "shots", "strata", "captions"):
        view_parquet(connection, name, [stage.work / f"{name}.parquet"])
    view_parquet(connection, "answered", sorted((stage.work / "answered").glob("*.parquet")), ANSWERED)
    view_parquet(connection, "failed", sorted((stage.work / "failed").glob("*.parquet")), FAILED)


def forget_rounds(stage: Stage) -> None:
    """Drop the rounds of an interrupted run: their answers are in the ledger, and what found none is asked again."""
    for name in (ROUNDS, "answered", "failed"):
        if (stage.work / name).is_dir():
            shutil.rmtree(stage.work / name)


def _open_kept(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MusicPrompts) -> None:
    """Make the view `kept`: triplets of the earlier version that the config names, with their strata."""
    if config.keep is None:
        connection.execute("CREATE TABLE kept (triplet_id VARCHAR, stratum VARCHAR)")
    else:
        view_parquet(connection, "kept", stage.store.find(config.keep).files(TRIPLETS.name))
