"""`pseudo-preferences`: the steps that its flow calls."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.pseudo_preferences import PseudoPreferences
from tasks.annotation.session import Session
from tasks.build.progress import Work, working
from tasks.pseudo_preferences import pairs
from tasks.pseudo_preferences.judging import judge_shard
from tasks.pseudo_preferences.labels import write_judgments, write_labels
from tasks.pseudo_preferences.pairs import import_tables, measure_clips, open_pool
from tasks.store.manifest import Step
from tasks.store.sql import connect
from tasks.store.staging import Stage


@task(name="pool", cache_policy=NO_CACHE)
def read_pool(stage: Stage, config: PseudoPreferences) -> Step:
    """Read the tables, measure every clip, and write `clips`: what can be judged."""
    if not stage.recorded("import"):
        import_tables(stage, config)
    if done := stage.recorded("clips"):
        return done
    measure_clips(stage, config)
    with connect(stage.work / "spill") as connection:
        open_pool(connection, stage, config)
        return pairs.write_clips(stage, connection, config)


@task(name="pairs", cache_policy=NO_CACHE)
def plan_pairs(stage: Stage, config: PseudoPreferences) -> Path:
    """Choose the pairs, write `pairs`, and leave `work/questions.parquet`: one row a pair, with all the judge gets."""
    questions = stage.work / "questions.parquet"
    if stage.recorded("pairs") and questions.is_file():
        return questions
    with working("plan pairs"), connect(stage.work / "spill") as connection:
        open_pool(connection, stage, config)
        pairs.write_pairs(stage, connection, config)
        return pairs.write_questions(stage, connection, config)


def in_shards(questions: Path) -> list[int]:
    """The numbers of the shards of pairs."""
    return list(range(pq.read_metadata(questions).num_row_groups))


def count_rows(questions: Path) -> int:
    """How many pairs there are."""
    return int(pq.read_metadata(questions).num_rows)


@task(name="judge", task_run_name="judge-{shard:04d}", cache_policy=NO_CACHE)
def judge(
    stage: Stage, config: PseudoPreferences, session: Session, questions: Path, shard: int, progress: Work | None = None
) -> None:
    """Ask about one shard of pairs, in both orders; the ledger answers what was asked before."""
    count = judge_shard(stage, config, session, questions, shard)
    if progress is not None:
        progress.advance(count)


@task(name="labels", cache_policy=NO_CACHE)
def keep_consistent(stage: Stage, config: PseudoPreferences) -> Step:
    """Write `judgments`, `labels` and `bias`: a label is what both orders agree on."""
    with working("keep what both orders agree on"), connect(stage.work / "spill") as connection:
        write_judgments(stage, connection, config)
        return write_labels(stage, connection, config)
