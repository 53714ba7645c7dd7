"""`human-preferences`: the steps that its flow calls."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.human_preferences import HumanPreferences
from tasks.build.progress import working
from tasks.human_preferences.clips import measure_clips
from tasks.human_preferences.counting import count_votes, open_votes, split_comparisons, write_tables
from tasks.human_preferences.derived import derive_tables
from tasks.human_preferences.sources import import_sources
from tasks.store.manifest import Step
from tasks.store.sql import connect
from tasks.store.staging import Stage


@task(name="import", cache_policy=NO_CACHE)
def read_votes(stage: Stage, config: HumanPreferences) -> None:
    """Read every export and rated set, and measure the clips that they name."""
    import_sources(stage, config)
    measure_clips(stage, config)


@task(name="comparisons", cache_policy=NO_CACHE)
def compare(stage: Stage, config: HumanPreferences) -> Step:
    """Turn votes into comparisons, place these in splits, and write clips, comparisons, votes, ratings."""
    if done := stage.recorded("comparisons"):
        return done
    with working("count votes"), connect(stage.work / "spill") as connection:
        open_votes(connection, stage, config)
        count_votes(stage, connection, config)
        notes = split_comparisons(connection, config)
        return write_tables(stage, connection, config, notes)


@task(name="agreement", cache_policy=NO_CACHE)
def derive(stage: Stage, config: HumanPreferences) -> Step:
    """Write what votes say together, the training table, the benchmark, and how far annotators and dimensions agree."""
    if done := stage.recorded("derived"):
        return done
    with working("measure agreement"):
        return stage.record(derive_tables(stage, config))
