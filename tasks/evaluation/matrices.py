"""Tabulate preferences between models, one table per board, for cards and reports."""

from __future__ import annotations

from collections import Counter

import duckdb

from earmark.tasks.store.figures import Grid
from earmark.tasks.store.sql import query

MOST_MODELS = 30


def preference_matrices(db: duckdb.DuckDBPyConnection, ranked: str) -> list[Grid]:
    """Return the share of preferences for a row's model over a column's, on each board; a tie is half a preference.

    Make one grid per board, with models by their share over all, at most `MOST_MODELS` with the most comparisons.

    Args:
        db: with a view of each published table, by its name.
        ranked: the query of a corpus's preferences between systems (`Corpus.ranked`).
    """
    counted = db.execute(
        f"""WITH choices AS (
                SELECT board, system_a AS a, system_b AS b,
                       CASE preference WHEN 'a' THEN 1.0 WHEN 'tie' THEN 0.5 ELSE 0.0 END AS won
                FROM ({query(ranked)}))
            SELECT board, a, b, count(*), sum(won)::DOUBLE
            FROM (FROM choices UNION ALL SELECT board, b, a, 1 - won FROM choices) GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    boards: dict[str, dict[tuple[str, str], tuple[int, float]]] = {}
    for board, a, b, compared, won in counted:
        boards.setdefault(board, {})[a, b] = compared, won
    return [_grid(board, pairs) for board, pairs in boards.items()]


def _grid(board: str, pairs: dict[tuple[str, str], tuple[int, float]]) -> Grid:
    total, won_by = Counter[str](), dict.fromkeys((a for a, _ in pairs), 0.0)
    for (a, _), (compared, won) in pairs.items():
        total[a] += compared
        won_by[a] += won
    most = [name for name, _ in sorted(total.items(), key=lambda one: (-one[1], one[0]))[:MOST_MODELS]]
    names = sorted(most, key=lambda name: (-won_by[name] / total[name], name))
    shares = {pair: won / compared for pair, (compared, won) in pairs.items()}
    return Grid(
        f"Which model is preferred: {board}",
        ("model", "preferences", "share", *names),
        tuple((a, total[a], won_by[a] / total[a], *(shares.get((a, b)) for b in names)) for a in names),
        ("share", *names),
        "The share of preferences for a row's model over a column's; a tie is half.",
    )
