"""Make rows of the table `agreement`: annotators' agreement over all, by source, by month, by annotator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from earmark.tasks.evaluation.agreement import Counts, agreement


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
