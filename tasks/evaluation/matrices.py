"""Which model is preferred to which: a table a board, for cards and reports."""

from __future__ import annotations

from collections import Counter

import duckdb

from earmark.tasks.store.figures import Grid
from earmark.tasks.store.sql import query

MOST_MODELS = 30


def preference_matrices(db: duckdb.DuckDBPyConnection, ranked: str) -> list[Grid]:
    """The share of preferences for a row's model over a column's, on each board; a tie is half a preference.

    Args:
        db: has a view of each published table by its name.
        ranked: the query of a corpus's preferences between systems (`Corpus.ranked`).

    Returns:
        One grid a board, models by their share over all, at most `MOST_MODELS`: those compared most.
    """
    counted = db.execute(
        f"""SELECT board, system_a, system_b, count(*),
                   sum(CASE preference WHEN 'a' THEN 1.0 WHEN 'tie' THEN 0.5 ELSE 0.0 END)::DOUBLE
            FROM ({query(ranked)}) GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    boards: dict[str, list[tuple[str, str, int, float]]] = {}
    for board, *row in counted:
        boards.setdefault(board, []).append((row[0], row[1], row[2], row[3]))
    return [_grid(board, rows) for board, rows in boards.items()]


def _grid(board: str, rows: list[tuple[str, str, int, float]]) -> Grid:
    count: Counter[tuple[str, str]] = Counter()
    wins: dict[tuple[str, str], float] = {}
    for a, b, compared, for_a in rows:
        for pair, won in (((a, b), for_a), ((b, a), compared - for_a)):
            count[pair] += compared
            wins[pair] = wins.get(pair, 0.0) + won
    total, won_by = Counter[str](), dict.fromkeys((a for a, _ in count), 0.0)
    for pair, compared in count.items():
        total[pair[0]] += compared
        won_by[pair[0]] += wins[pair]
    most = [name for name, _ in sorted(total.items(), key=lambda one: (-one[1], one[0]))[:MOST_MODELS]]
    names = sorted(most, key=lambda name: (-won_by[name] / total[name], name))
    return Grid(
        f"Which model is preferred: {board}",
        ("model", "preferences", "share", *names),
        tuple(
            (a, total[a], won_by[a] / total[a], *(wins[a, b] / count[a, b] if (a, b) in count else None for b in names))
            for a in names
        ),
        ("share", *names),
        "The share of preferences for a row's model over a column's; a tie is half.",
    )
