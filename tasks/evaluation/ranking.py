"""Rank systems by Bradley and Terry's model over a version's preferences: `earmark eval rank`.

The rule is that of Music Arena's leaderboard: logistic regression on the compared pairs, with a penalty of half the
squared strengths; a tie is half a win for each; a system is ranked from 30 votes on; strengths are shown on Elo's scale
around 1000. The penalty draws a far better system to the middle, so intervals are those of Firth's estimate (1993,
Biometrika 80), which has almost no bias. They come from influences (`influence.py`); votes on a prompt depend on each
other. Music Arena draws single votes, and takes 1.96 standard deviations. Systems that no vote joins are ranked apart.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
from scipy.sparse.csgraph import connected_components

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.results import MetricFacts, VersionFacts
from earmark.tasks.evaluation.influence import gap
from earmark.tasks.evaluation.statistics import Floats
from earmark.tasks.evaluation.units import Units
from earmark.tasks.exports.rows import opened
from earmark.tasks.pipeline.preferences import preference_matrix
from earmark.tasks.store.folder import records_of, version_facts, write_record
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, interval, percent
from earmark.tasks.store.sql import query
from earmark.tasks.store.versions import Store, Version

RECORD = "ranking.json"
LEAST_VOTES = 30
CENTRE, SCALE = 1000.0, 400 / np.log(10)  # Elo's scale: 400 points more mean ten wins per loss


class SystemVote(TypedDict):
    """A preference between two systems."""

    board: str
    modality: str
    system_a: str
    system_b: str
    preference: str
    cluster: str


class RankedSystem(MetricFacts):
    """A system with its strength on Elo's scale; no interval with votes on one prompt, all won or all lost."""

    system: str
    group: int  # of systems joined by votes, from 1, the one with the most votes first
    rank: int | None  # in its group; None below 30 votes
    votes: int
    win_share: float


class VoteBoard(TypedDict):
    """Systems by group, each from the best on."""

    votes: int
    ties: int
    parts: int  # number of groups of systems without votes between them
    systems: list[RankedSystem]
    wins: list[list[float]]  # of each system over each, ties counting one half


class NamedBoard(VoteBoard):
    """Board of a source or dimension, or of a modality of it."""

    board: str
    modality: str | None


class RankingFacts(VersionFacts):
    """`ranking.json`."""

    boards: list[NamedBoard]


def rank_systems(version: Version, corpus: Corpus, store: Store, out: Path | None) -> tuple[RankingFacts, Path]:
    """Rank the systems of a version on each board (a source or dimension) and by modality, and write a folder.

    Raises:
        StoreError: the corpus holds no preferences between systems, or the version none.
    """
    if corpus.ranked is None:
        raise StoreError(f"{corpus.name} holds no preferences between systems: name scored systems, or say `all`")
    with opened(version, corpus) as connection:
        asked = f"SELECT {', '.join(SystemVote.__annotations__)} FROM ({query(corpus.ranked)}) ORDER BY ALL"
        rows: list[SystemVote] = connection.sql(asked).to_arrow_table().to_pylist()
    if not rows:
        raise StoreError(f"{version.corpus}@{version.name} has no vote on two clips of different, named systems")
    facts: RankingFacts = {
        **version_facts(version),
        "boards": [{"board": name, "modality": part, **board_of(held)} for name, part, held in _boards(rows)],
    }
    folder = out or records_of(store, version) / "ranking"
    return facts, write_record(folder, RECORD, facts, ranking_page(facts).files())


def _boards(rows: Sequence[SystemVote]) -> Iterator[tuple[str, str | None, list[SystemVote]]]:
    """Yield the votes of each board: all of them, then by modality if there are several."""
    for name in dict.fromkeys(row["board"] for row in rows):
        of_board = [row for row in rows if row["board"] == name]
        yield name, None, of_board
        parts = sorted({row["modality"] for row in of_board})
        if len(parts) > 1:
            for part in parts:
                yield name, part, [row for row in of_board if row["modality"] == part]


def board_of(rows: Sequence[SystemVote]) -> VoteBoard:
    """Make a leaderboard."""
    sides = [*(row["system_a"] for row in rows), *(row["system_b"] for row in rows)]
    systems, codes = np.unique(np.array(sides), return_inverse=True)
    a, b = codes[: len(rows)], codes[len(rows) :]
    size = len(systems)
    won = np.array([{"a": 1.0, "b": 0.0, "tie": 0.5}[row["preference"]] for row in rows])
    wins = np.zeros((size, size))
    np.add.at(wins, (a, b), won)
    np.add.at(wins, (b, a), 1 - won)
    groups, labels = connected_components(wins + wins.T > 0, directed=False)
    shown, side = strengths(wins)[0], np.eye(size)
    found, curvature = strengths(wins, firth=True)
    slopes = (won - 1 / (1 + np.exp(found[b] - found[a])))[:, None] * (side[a] - side[b])
    parts = np.asarray(np.linalg.solve(curvature, slopes.T), float).T
    prompts = Units.of([[(row["cluster"],) for row in rows]])
    variances = SCALE**2 * prompts.variance(parts)
    votes = (wins + wins.T).sum(axis=1)
    largest = np.argsort(-np.bincount(labels, weights=votes), kind="stable").tolist()
    group = [largest.index(label) + 1 for label in labels]
    order = sorted(range(size), key=lambda place: (group[place], -shown[place], systems[place]))
    ranked = [place for place in order if votes[place] >= LEAST_VOTES]
    listed: list[RankedSystem] = []
    for place in order:
        # the votes of a system that always wins tell no upper end
        always = wins[place].sum() in (0, votes[place])
        cast = 0.0 if always else prompts.independent((a == place) | (b == place))
        value = CENTRE + SCALE * float(shown[place])
        low, high = gap(CENTRE + SCALE * float(found[place]), float(variances[place]), cast)[1:3]
        rivals = [one for one in ranked if group[one] == group[place]]
        listed.append(
            {
                "system": str(systems[place]),
                "group": group[place],
                "rank": rivals.index(place) + 1 if place in rivals else None,
                "value": value,
                "low": None if low is None else min(low, value),
                "high": None if high is None else max(high, value),
                "votes": int(votes[place]),
                "win_share": float(wins[place].sum() / votes[place]),
            }
        )
    return {
        "votes": len(rows),
        "ties": int((won == 0.5).sum()),
        "parts": int(groups),
        "systems": listed,
        "wins": wins[np.ix_(order, order)].tolist(),
    }


def strengths(wins: Floats, *, firth: bool = False) -> tuple[Floats, Floats]:
    """Fit Bradley and Terry's strengths: i beats j with the probability 1 / (1 + exp(s[j] - s[i])).

    The mean of systems joined by votes is 0. Maximize the likelihood less half the sum of squares, by Newton's method.
    Return the strengths, and the negative curvature there.

    Args:
        wins: wins of the row's system over the column's.
        firth: whether to add half the logarithm of the information's determinant instead of the penalty.
    """
    size = len(wins)
    met = wins + wins.T
    found = np.zeros(size)
    labels = connected_components(met > 0, directed=False)[1]
    # the likelihood is invariant to a shift of all strengths of a group: these blocks hold their mean at 0
    ground = (labels[:, None] == labels) / np.bincount(labels)[labels] + (0 if firth else np.eye(size))
    while True:
        expected = 1 / (1 + np.exp(found - found[:, None]))
        bend = expected * (1 - expected)
        curvature, more = ground + _information(met * bend), np.zeros_like(met)
        if firth:  # as if each pair had more votes by its leverage, half of them wins; so its steps converge as well
            inverse = np.linalg.inv(curvature)
            more = met * bend * (np.add.outer(np.diag(inverse), np.diag(inverse)) - 2 * inverse)
        slope = (wins + more / 2 - (met + more) * expected).sum(axis=1) - (0 if firth else found)
        step = np.linalg.solve(ground + _information((met + more) * bend), slope)
        longest = np.abs(step).max()
        if longest < 1e-11:
            return found, curvature
        found += step * min(1.0, 2 / longest)


def _information(weights: Floats) -> Floats:
    """Return the information on strengths from the weight of each pair."""
    found: Floats = np.diag(weights.sum(axis=1)) - weights
    return found


# -- for a reader -------------------------------------------------------------------------------------------------


def ranking_page(facts: RankingFacts, *, pairs: bool = True) -> ResultPage:
    """Return the page of a ranking: each board, and the shares of wins by pair."""
    tables = []
    for board in facts["boards"]:
        title = board["board"] + (f", {board['modality']}" if board["modality"] else "")
        torn = board["parts"] > 1
        columns = ("rank", "system", ResultColumn("score", decimals=0), "votes", percent("wins, a tie ½"))
        rows = [
            (
                *([one["group"]] if torn else []),
                *(one["rank"], one["system"], interval(one), one["votes"], one["win_share"]),
            )
            for one in board["systems"]
        ]
        tables.append(
            ResultTable(
                f"{title}: {board['votes']:,} votes, {board['ties']:,} of them ties",
                (*(["group"] if torn else []), *columns),
                tuple(rows),
            )
        )
        if pairs:
            names = [one["system"] for one in board["systems"]]
            tables.append(preference_matrix(title, names, np.array(board["wins"])))
    return ResultPage(f"{facts['corpus']} {facts['version']}: systems ranked", tuple(tables), tuple(notes(facts)))


def notes(facts: RankingFacts) -> list[str]:
    """Return notes for readers of the boards, a sentence each."""
    lines = [
        "score: Bradley and Terry's model on Elo's scale around 1000, a tie half a win for each, with an L2 penalty as "
        "on Music Arena's leaderboard; in brackets, intervals of 95 %; votes that share a prompt count as dependent",
        f"without rank: systems of fewer than {LEAST_VOTES} votes",
    ]
    held = {one["win_share"] for board in facts["boards"] for one in board["systems"]}
    if held & {0.0, 1.0}:
        lines.append("without interval: systems that won or lost every vote, whose strength has no bound")
    if any(0.8 < abs(2 * share - 1) < 1 for share in held):
        lines.append(
            "the penalty draws systems that won over 90 % or under 10 % of their votes to the middle; their intervals, "
            "from Firth's estimate, are not drawn, and so lie to one side of the score"
        )
    if any(one["parts"] > 1 for one in facts["boards"]):
        lines.append(
            "systems of different groups cannot be compared, for no vote joins them: each group has its own ranks, and "
            "its own scores around 1000"
        )
    return lines
