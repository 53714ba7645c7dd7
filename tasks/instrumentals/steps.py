"""`instrumentals`: the steps that its flow calls."""

from __future__ import annotations

import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.instrumentals import Instrumentals
from tasks.build.progress import Work
from tasks.instrumentals import sources, tracks
from tasks.instrumentals.separated import separate_shard
from tasks.instrumentals.separators import Separators
from tasks.store.manifest import Step
from tasks.store.staging import Stage

SHARDS_AT_ONCE = 16  # at most; each waits for a device of its own


@task(name="import", cache_policy=NO_CACHE)
def import_tracks(stage: Stage, config: Instrumentals) -> Step:
    """Read the list of tracks."""
    return sources.import_tracks(stage, config)


@task(name="index", cache_policy=NO_CACHE)
def index_audio(stage: Stage, config: Instrumentals) -> Step:
    """Hash and measure every track's audio."""
    return sources.index_audio(stage, config)


def count_tracks(stage: Stage) -> int:
    """How many tracks can be separated."""
    return int(pq.read_metadata(stage.work / "pool.parquet").num_rows)


@task(name="separate", task_run_name="separate-{start:07d}", cache_policy=NO_CACHE)
def separate(
    stage: Stage, config: Instrumentals, separators: Separators, start: int, progress: Work | None = None
) -> None:
    """Remove the voice from one shard of tracks; what was separated before is not done again."""
    separate_shard(stage, config, separators, start, progress)


@task(name="tracks", cache_policy=NO_CACHE)
def write_tracks(stage: Stage, config: Instrumentals) -> Step:
    """Check every result and write the published table `tracks`."""
    return tracks.write_tracks(stage, config)
