"""Preview a build by running its first steps in a temporary folder, without asking models or keeping anything."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from earmark.schemas.config import BuildConfig
from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import TooManyRejects
from earmark.schemas.reasons import find_reason
from earmark.schemas.registry import load
from earmark.tasks.pipeline.forecast import GROUPS, ImaginedSessions, Story, run_dry
from earmark.tasks.pipeline.losses import check_inputs, check_main_table, losses_of
from earmark.tasks.pipeline.sessions import clip_media
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

EXAMPLES = 3  # examples of rejects per reason

FACTS = ("name", "unit", "entered", "kept", "rejected", "dropped", "notes")

Lines = Callable[[Stage, Any], list[str]]
"""The corpus's own part of the preview (`Corpus.preview`): lines of 80 columns about the rows of its steps."""


def preview(corpus: Corpus, story: Story, config: BuildConfig, store: Store, ledger: str | Path) -> dict[str, Any]:
    """Run a build's steps up to the first one that needs all answers, with at least one try per question, and count.

    Args:
        corpus: the corpus.
        story: of its flow.
        config: the build config.
        store: of `scratch_store`.
        ledger: the address of the build's ledger; it is only read.

    Raises:
        InputError: an input is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        counting = ImaginedSessions(config.for_forecast(), ledger, clip_media(store))
        stage = run_dry(corpus, story, store, Path(folder), counting)
        asks = counting.facts() or None
        return {
            "asks": asks,
            "steps": [
                {**{key: getattr(one, key) for key in FACTS}, "sure": _is_sure(one, counting)} for one in stage.steps()
            ],
            "rejects": [one for one in _rejects(stage) if counting.sure is None or one["step"] in counting.sure],
            "clips": store.looked.counts(),
            "not_embedded": len(store.looked.unheard),
            "tables": _tables(stage),
            "main_table": corpus.story.main_table,
            "about": load(corpus.preview)(stage, config) if corpus.preview else [],
            "would_stop": _stop(stage, config, corpus, asks),
        }


def _is_sure(step: Step, counting: ImaginedSessions) -> bool:
    return counting.sure is None or step.name in counting.sure


def _rejects(stage: Stage) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in losses_of(stage):
        row = found.setdefault(
            (one.step, one.reason),
            {"step": one.step, "reason": one.reason, "kind": find_reason(one.reason).kind, "items": 0, "examples": []},
        )
        row["items"] += one.items
        room = EXAMPLES - len(row["examples"])
        row["examples"] += [{"file": one.file, **example} for example in one.examples[:room]]
    return sorted(found.values(), key=lambda row: (-row["items"], row["step"], row["reason"]))


def _tables(stage: Stage) -> dict[str, dict[str, Any]]:
    """Count the rows of published tables by split, and by split and category if rows have both."""
    tables: dict[str, dict[str, Any]] = {}
    for name, splits in stage.tables().items():
        rows = {split: sum(pq.read_metadata(path).num_rows for path in paths) for split, paths in splits.items()}
        files = [str(path) for paths in splits.values() for path in paths]
        by: dict[str, int] = {}
        if {*GROUPS} <= {*pq.read_schema(files[0]).names}:
            counts = (
                f"SELECT {', '.join(GROUPS)}, count(*) FROM read_parquet(?, hive_partitioning = false) GROUP BY ALL"
            )
            with closing(duckdb.connect()) as connection:
                counted = connection.execute(f"{counts} ORDER BY ALL", [files]).fetchall()
            by = {" ".join(map(str, group)): count for *group, count in counted}
        tables[name] = {"rows": rows, "by": by}
    return tables


def _stop(stage: Stage, config: BuildConfig, corpus: Corpus, asks: Mapping[str, Any] | None) -> str | None:
    """Return the reason for a build to stop before its commit, judged by the finished steps."""
    built = replace(stage, forecast=None)
    try:
        check_inputs(built, config)
        if corpus.story.main_table in stage.tables() or (config.asked() and asks is None):
            check_main_table(built, config, corpus)
    except TooManyRejects as stop:
        return str(stop)
    return None
