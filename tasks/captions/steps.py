"""`captions`: the steps that its flow calls."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.captions import Captions
from tasks.audio.encode import SharedEncoder
from tasks.build.progress import Work, working
from tasks.captions import captioning, tracks, writing
from tasks.captions.captioning import Sessions
from tasks.store.manifest import Step
from tasks.store.staging import Stage

SHARDS_AT_ONCE = 4  # their requests share one pace; more shards would only hold more of them in memory


@task(name="import", cache_policy=NO_CACHE)
def import_tracks(stage: Stage, config: Captions) -> Step:
    """Read the list of tracks."""
    return stage.recorded("import") or tracks.import_tracks(stage, config)


@task(name="index", cache_policy=NO_CACHE)
def index_tracks(stage: Stage, config: Captions) -> Step:
    """Hash and measure what is heard of every track."""
    return stage.recorded("index") or tracks.index_tracks(stage, config)


@task(name="listen", task_run_name="listen-{shard:04d}", cache_policy=NO_CACHE)
def listen(
    stage: Stage,
    config: Captions,
    sessions: Sessions,
    encoder: SharedEncoder,
    shard: int,
    progress: Work | None = None,
) -> None:
    """Have one shard of tracks heard by every pipeline; the ledger answers what was asked before."""
    count = captioning.listen_shard(stage, config, sessions, encoder, shard)
    if progress is not None:
        progress.advance(count)


@task(name="refine", task_run_name="refine-{shard:04d}", cache_policy=NO_CACHE)
def refine(stage: Stage, config: Captions, sessions: Sessions, shard: int, progress: Work | None = None) -> None:
    """Have what was heard of one shard refined; the ledger answers what was asked before."""
    count = captioning.refine_shard(stage, config, sessions, shard)
    if progress is not None:
        progress.advance(count)


@task(name="judge", task_run_name="judge-{shard:04d}", cache_policy=NO_CACHE)
def judge(stage: Stage, config: Captions, sessions: Sessions, shard: int, progress: Work | None = None) -> None:
    """Have what was written of one shard judged; the ledger answers what was asked before."""
    count = captioning.judge_shard(stage, config, sessions, shard)
    if progress is not None:
        progress.advance(count)


@task(name="captions", cache_policy=NO_CACHE)
def write_captions(stage: Stage, config: Captions) -> Step:
    """Write the published tables `captions`, `raw` and `tag_coverage`."""
    with working("write captions"):
        return writing.write_captions(stage, config)
