"""Tabulate which model is preferred over which."""

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt

from earmark.tasks.store.result_table import ResultTable, percent
from earmark.tasks.store.sql import query

MOST_MODELS = 30


def preference_matrices(db: duckdb.DuckDBPyConnection, ranked: str) -> list[ResultTable]:
    """Return the share of preferences for a row's model over a column's, on each board; a tie is half a preference.

    Args:
        db: with a view of each published table, by its name.
        ranked: the query of a corpus's preferences between systems (`Corpus.ranked`).
    """
    counted = db.execute(
        f"""SELECT board, system_a, system_b,
                   sum(CASE preference WHEN 'a' THEN 1 WHEN 'tie' THEN 0.5 ELSE 0 END)::DOUBLE, count(*)
            FROM ({query(ranked)}) GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    matrices = []
    for board in dict.fromkeys(row[0] for row in counted):
        pairs = [row[1:] for row in counted if row[0] == board]
        names = sorted({name for a, b, *_ in pairs for name in (a, b)})
        wins = np.zeros((len(names), len(names)))
        for a, b, won, compared in pairs:
            i, j = names.index(a), names.index(b)
            wins[i, j] += won
            wins[j, i] += compared - won
        matrices.append(preference_matrix(board, names, wins))
    return matrices


def preference_matrix(board: str, names: Sequence[str], wins: npt.NDArray[np.float64]) -> ResultTable:
    """Tabulate the wins of each model over each, models by their share over all: at most `MOST_MODELS` with the most
    comparisons."""
    met = wins + wins.T
    total, shares = met.sum(axis=1), wins.sum(axis=1) / met.sum(axis=1)
    most = sorted(range(len(names)), key=lambda at: (-total[at], names[at]))[:MOST_MODELS]
    left_out = len(names) - len(most)
    order = sorted(most, key=lambda at: (-shares[at], names[at]))
    return ResultTable(
        f"Which model is preferred: {board}",
        ("model", "preferences", percent("share"), *(percent(names[at]) for at in order)),
        tuple(
            (
                *(names[a], int(total[a]), float(shares[a])),
                *(float(wins[a, b] / met[a, b]) if met[a, b] else None for b in order),
            )
            for a in order
        ),
        "The share of preferences for a row's model over a column's; a tie is half."
        + (f" {left_out} models with fewer comparisons are left out." if left_out else ""),
    )
