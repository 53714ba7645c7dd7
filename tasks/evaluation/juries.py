"""Ask several judges about the same rows, one by one, and combine their votes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from earmark.schemas.judges import Jury
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.rows import Rows
from earmark.tasks.pipeline.walk import Walked
from earmark.tasks.store.agreement import alpha
from earmark.tasks.store.parquet import tuples_of
from earmark.tasks.store.sql import query
from earmark.tasks.store.staging import Stage

WEIGHTS = pa.schema([("judge", pa.string()), ("dimension", pa.string()), ("weight", pa.float64())])


def ask_each(walk: Callable[..., Walked], stage: Stage, config: Any, rows: Rows) -> dict[str, Walked]:
    """Lead all rows through a walk for each judge in turn, by the judge's label.

    Judges with a model in this process thus take the GPU one at a time, and a failing judge costs the others nothing.
    The walk asks the role `judge`.
    """
    judges = config.by_judge()
    if len(judges) == 1:
        return {label: walk(stage, one, rows) for label, one in judges.items()}
    return {
        label: walk(stage, one, rows, part=f"judge-{number}", about=label)
        for number, (label, one) in enumerate(judges.items())
    }


def combine_votes(connection: duckdb.DuckDBPyConnection, jury: Jury, judges: int, qualification: Iterable[Row]) -> None:
    """Create `combined` (item, dimension, votes, choice) of the view `votes` (item, dimension, judge, choice).

    Args:
        judges: number of judges, with or without a vote.
        qualification: rows of this table, if votes have weights.
    """
    weights = [row for row in qualification if row["domain"] == row["control"] == "all"]
    connection.register("weights", pa.Table.from_pylist(weights, WEIGHTS))
    given: Mapping[str, Any] = {"combine": jury, "judges": judges}
    connection.execute(query("evaluation/combined"), given)


def alphas(connection: duckdb.DuckDBPyConnection, counts: str) -> pa.Table:
    """Compute Krippendorff's nominal alpha of judges' votes, by group; null if undefined.

    Args:
        counts: a query with the group's columns, then `votes` (a list: votes for each choice) and `items` (number of
            items with these votes).

    Returns:
        The group's columns, and `alpha`.
    """
    table = connection.sql(counts).to_arrow_table()
    names = table.column_names[:-2]
    groups: dict[tuple[Any, ...], list[list[int]]] = {}
    for *group, votes, items in tuples_of(table, *table.column_names):
        groups.setdefault(tuple(group), []).extend([votes] * items)
    rows = [{**dict(zip(names, group, strict=True)), "alpha": alpha(votes)} for group, votes in groups.items()]
    return pa.Table.from_pylist(rows, pa.schema([*map(table.schema.field, names), ("alpha", pa.float64())]))
