"""`music-prompts`: the steps that its flow calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.music_prompts import MusicPrompts
from tasks.annotation.session import Session
from tasks.build.progress import Work, working
from tasks.music_prompts import tags, writing
from tasks.music_prompts.drawing import forget_rounds, next_round
from tasks.music_prompts.sources import import_lists
from tasks.music_prompts.tags import open_lists
from tasks.music_prompts.writing import check_round, draw, write_shard
from tasks.store.manifest import Step
from tasks.store.sql import connect
from tasks.store.staging import Stage


@task(name="import", cache_policy=NO_CACHE)
def read_lists(stage: Stage, config: MusicPrompts) -> Step:
    """Read the track list and the caption sets, and count which captions name which tags."""
    return stage.recorded("import") or import_lists(stage, config)


@task(name="verify", cache_policy=NO_CACHE)
def verify_tags(stage: Stage, config: MusicPrompts, session: Session) -> Step:
    """Ask a judge whether it hears tags on tracks that carry them."""
    if done := stage.recorded("verify"):
        return done
    with connect(stage.work / "spill") as connection:
        open_lists(connection, stage)
        return tags.verify(stage, connection, config, session)


@task(name="tags", cache_policy=NO_CACHE)
def choose_tags(stage: Stage, config: MusicPrompts) -> Step:
    """Write `tags` and `cooccurrence`: which tags prompts may use, and which of them occur together."""
    if done := stage.recorded("tags"):
        return done
    with working("choose tags"), connect(stage.work / "spill") as connection:
        open_lists(connection, stage)
        return tags.write_tags(stage, connection, config)


@task(name="triplets", cache_policy=NO_CACHE)
def draw_triplets(stage: Stage, config: MusicPrompts) -> None:
    """Draw triplets of each stratum, in the order in which they will be tried."""
    with working("draw triplets"):
        forget_rounds(stage)
        draw(stage, config)


@task(name="round", task_run_name="round-{number}", cache_policy=NO_CACHE)
def plan_round(stage: Stage, config: MusicPrompts, number: int) -> Path | None:
    """The triplets that still lack a prompt, or others in place of those that were given up; None when all is done."""
    check_round(stage, config)
    return next_round(stage, number)


def in_shards(drawn: Path) -> list[int]:
    """The numbers of a round's shards."""
    return list(range(pq.read_metadata(drawn).num_row_groups))


@task(name="write", task_run_name="write-{shard:04d}", cache_policy=NO_CACHE)
def write(
    stage: Stage, config: MusicPrompts, session: Session, drawn: Path, shard: int, progress: Work | None = None
) -> None:
    """Have prompts written for one shard of a round; the ledger answers what was asked before."""
    count = write_shard(stage, config, session, drawn, shard)
    if progress is not None:
        progress.advance(count)


@task(name="prompts", cache_policy=NO_CACHE)
def keep_prompts(stage: Stage, config: MusicPrompts) -> Step:
    """Write `prompts`, `triplets` and `shots`."""
    with working("keep prompts that passed"), connect(stage.work / "spill") as connection:
        return writing.write_prompts(stage, connection, config)
