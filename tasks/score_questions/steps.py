"""`score-questions`: the steps that its flow calls."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.score_questions import ScoreQuestions
from tasks.annotation.session import Session
from tasks.build.progress import Work, working
from tasks.score_questions import tables, threads, writing
from tasks.score_questions.forum import scrubbing
from tasks.score_questions.forum import threads as forum_threads
from tasks.score_questions.forum.images import read_images
from tasks.score_questions.forum.measuring import keep_measure
from tasks.store.manifest import Step
from tasks.store.staging import Stage

SHARDS_AT_ONCE = 4  # their requests share one pace; more shards would only hold more of them in memory


@task(name="submissions", cache_policy=NO_CACHE)
def read_submissions(stage: Stage, config: ScoreQuestions) -> Step:
    """Read the dump's submissions and keep those that are fit."""
    return forum_threads.read_submissions(stage, config)


@task(name="comments", cache_policy=NO_CACHE)
def read_comments(stage: Stage, config: ScoreQuestions) -> Step:
    """Read the dump's comments, and keep the threads with enough of them."""
    return forum_threads.read_comments(stage, config)


@task(name="scrub", cache_policy=NO_CACHE)
def scrub_threads(stage: Stage, config: ScoreQuestions) -> None:
    """Take names, links and addresses out of all texts; ids become salted hashes."""
    scrubbing.scrub_threads(stage, config)


@task(name="images", cache_policy=NO_CACHE)
def find_scores(stage: Stage, config: ScoreQuestions) -> Step:
    """Get the threads' images, and keep the threads with a score among them."""
    return read_images(stage, config)


@task(name="detector", cache_policy=NO_CACHE)
def measure_detector(stage: Stage, config: ScoreQuestions) -> None:
    """Measure on drawings how well the detector tells scores; report and card say so."""
    keep_measure(stage, config)


@task(name="pool", cache_policy=NO_CACHE)
def gather_threads(stage: Stage, config: ScoreQuestions) -> list[int]:
    """Bring threads, comments and images together; gives the shards."""
    threads.write_pool(stage, config)
    return threads.shards_of(stage)


@task(name="rewrite", task_run_name="rewrite-{shard:04d}", cache_policy=NO_CACHE)
def rewrite(stage: Stage, config: ScoreQuestions, session: Session, shard: int, progress: Work | None = None) -> None:
    """Have one shard of threads rewritten as questions; the ledger answers what was asked before."""
    _advance(progress, writing.rewrite_shard(stage, config, session, shard))


@task(name="settle", task_run_name="settle-{shard:04d}", cache_policy=NO_CACHE)
def settle(stage: Stage, config: ScoreQuestions, session: Session, shard: int, progress: Work | None = None) -> None:
    """Find the right options of one shard: by votes, and by a judge where votes tie."""
    _advance(progress, writing.settle_shard(stage, config, session, shard))


@task(name="distract", task_run_name="distract-{shard:04d}", cache_policy=NO_CACHE)
def distract(stage: Stage, config: ScoreQuestions, session: Session, shard: int, progress: Work | None = None) -> None:
    """Have wrong options written for the questions of one shard that lack some."""
    _advance(progress, writing.complete_shard(stage, config, session, shard))


@task(name="label", task_run_name="label-{shard:04d}", cache_policy=NO_CACHE)
def label(stage: Stage, config: ScoreQuestions, session: Session, shard: int, progress: Work | None = None) -> None:
    """Have category, subcategory and difficulty told for the questions of one shard."""
    _advance(progress, writing.label_shard(stage, config, session, shard))


@task(name="questions", cache_policy=NO_CACHE)
def write_questions(stage: Stage, config: ScoreQuestions) -> Step:
    """Write the published tables, without what reviewers flag."""
    with working("write questions"):
        return tables.write_questions(stage, config)


def _advance(progress: Work | None, count: int) -> None:
    if progress is not None:
        progress.advance(count)
