"""Derive tables from published votes and ratings, in a build and after a withdrawal.

Only published tables are read, so that withdrawn votes have no part in the results.
"""

from collections.abc import Iterable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.tables import UNSPLIT, Table
from earmark.schemas.vote_tables import (
    AGREEMENT,
    BENCHMARK,
    CLIPS,
    COMPARISONS,
    DIMENSIONS,
    PREFERENCES,
    RATINGS,
    TRAINING,
    VOTES,
)
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.agreement import Counts, agreement
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import by_split, connect, create_table, query, view_parquet
from earmark.tasks.store.staging import Stage


def agreement_rows(votes: Iterable[dict[str, Any]], draws: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of the table `agreement`.

    Args:
        votes: a dict for each vote and dimension: scope values (source, month), comparison_id, annotator, dimension,
            choice (0 for a, 1 for b, 2 for tie).
    """
    by_dimension: dict[str, list[dict[str, Any]]] = {}
    for vote in votes:
        by_dimension.setdefault(vote["dimension"], []).append(vote)
    rows = []
    for dimension, held in sorted(by_dimension.items()):
        for scope, value, counts, own in _scopes(held):
            found = agreement(counts, own, draws=draws, seed=seed)
            if found is not None and found.vote_pairs:
                rows.append({"scope": scope, "value": value, "dimension": dimension, **found.__dict__})
    return rows


def _scopes(votes: list[dict[str, Any]]) -> Iterable[tuple[str, str, Counts, Counts | None]]:
    """Yield votes by comparison and choice: of all, of each source, of each month, of each annotator's comparisons."""
    ids = {name: place for place, name in enumerate(sorted({vote["comparison_id"] for vote in votes}))}
    at = np.array([ids[vote["comparison_id"]] for vote in votes])
    choices = np.array([vote["choice"] for vote in votes])
    counts = np.zeros((len(ids), 3))
    np.add.at(counts, (at, choices), 1)
    yield "all", "all", counts, None
    for scope in ("source", "month"):
        values = np.array([vote[scope] or "" for vote in votes])
        for value in sorted(set(values) - {""}):
            yield scope, str(value), counts[np.unique(at[values == value])], None
    people = np.array([vote["annotator"] or "" for vote in votes])
    for person in sorted(set(people) - {""}):
        mine = people == person
        own = np.zeros_like(counts)
        np.add.at(own, (at[mine], choices[mine]), 1)
        here = own.sum(axis=1) > 0
        yield "annotator", str(person), counts[here], own[here]


RESAMPLES = 1000  # of comparisons: ends of an interval of 95 % stay within its third digit


@step("derived", unit="preferences", label="measure agreement")
def derive_tables(stage: Stage, config: HumanPreferences) -> Done[None]:
    """Write the votes' preferences, the training table, the benchmark, and the annotators' agreement."""
    return Done(None, write_derived(stage, config))


def write_derived(stage: Stage, config: HumanPreferences, unit: str | None = None) -> Account:
    """Write `preferences`, `training`, `benchmark`, `agreement` and `dimensions`; `unit` overrides the config's."""
    table: Table
    with connect(stage.work / "spill") as connection:
        for table in (CLIPS, COMPARISONS, VOTES, RATINGS):
            _view(stage, connection, table)
        for name in ("published_choices", "weighed"):
            connection.execute(query(f"human_preferences/{name}"))
        _write(stage, connection, PREFERENCES)
        _view(stage, connection, PREFERENCES)
        connection.execute(query("human_preferences/samples"), {"unit": unit or config.unit})
        untrained = [(source.name, name) for source in config.sources for name in source.untrained]
        create_table(connection, "untrained", "source string, dimension string", untrained)
        _write(stage, connection, TRAINING)
        stage.write(BENCHMARK, "test", connection.sql(query("human_preferences/benchmark")).to_arrow_reader(100_000))
        twice = connection.sql(query("human_preferences/voted_twice")).to_arrow_table().to_pylist()
        agreement = agreement_rows(twice, RESAMPLES, config.seed)
        stage.write(AGREEMENT, UNSPLIT, [pa.Table.from_pylist(agreement, AGREEMENT.schema)])
        stage.write(DIMENSIONS, UNSPLIT, connection.sql(query("human_preferences/dimensions")).to_arrow_reader())
        for table in (BENCHMARK, AGREEMENT, DIMENSIONS):
            stage.drop_empty_splits(table)
        counts = "SELECT count(*), count(*) FILTER (preference = 'tie') FROM preferences"
        pairs, ties = connection.execute(counts).fetchall()[0]
    note = f"{pairs - ties} preferences can be learnt from; {ties} are ties"
    return Account(pairs, pairs - ties, filtered={"ties": ties}, notes=(note,))


def recount(stage: Stage, config: HumanPreferences) -> tuple[Step, ...]:
    """Count comparisons and the tables derived from them again, after some votes were withdrawn."""
    with connect(stage.work / "spill") as connection:
        _view(stage, connection, VOTES)
        counts = connection.sql(
            "SELECT comparison_id, min(left(date, 7)) AS month, count(*) AS votes FROM votes GROUP BY comparison_id"
        )
        of = {row["comparison_id"]: row for row in counts.to_arrow_table().to_pylist()}
    counted = [row | of[row["comparison_id"]] for row in stage.rows(COMPARISONS)]
    rows = pa.Table.from_pylist(counted, COMPARISONS.schema)
    stage.write_splits(COMPARISONS, lambda split: [rows.filter(pc.equal(rows["split"], split))])
    files = [*stage.files(TRAINING.name), *stage.files(BENCHMARK.name)]
    by_vote = any("vote_id" in pq.read_schema(path).names for path in files)  # before that, comparisons were samples
    account = write_derived(stage, config, None if by_vote else "comparison")
    return (derive_tables.entry(account, derive_tables.name),)


def _view(stage: Stage, connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    view_parquet(connection, table.name, stage.files(table.name), table.schema)


def _write(stage: Stage, connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    stage.write_splits(table, by_split(connection, query(f"human_preferences/{table.name}")))
