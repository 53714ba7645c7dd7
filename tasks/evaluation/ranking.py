"""Rank systems by Bradley and Terry's model over a version's preferences: `earmark eval rank`.

The rule is that of Music Arena's leaderboard: logistic regression on the compared pairs, with a penalty of half the
squared strengths; a tie is half a win for each; a system is ranked from 30 votes on; strengths are shown on Elo's scale
around 1000. Intervals are percentiles of 1,000 resamples, which draw all votes on a prompt together (Music Arena draws
votes, and takes 1.96 standard deviations).
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.tasks.evaluation.matrices import preference_matrix
from earmark.tasks.evaluation.statistics import COVERS
from earmark.tasks.exports.rows import opened
from earmark.tasks.store.folder import records_of, version_facts, write_record
from earmark.tasks.store.result_table import ResultColumn, ResultPage, ResultTable, interval, percent
from earmark.tasks.store.sql import query
from earmark.tasks.store.versions import Store, Version

RECORD = "ranking.json"
DRAWS = 1000
LEAST_VOTES = 30
CENTRE, SCALE = 1000.0, 400 / np.log(10)  # Elo's scale: 400 points more mean ten wins per loss
COLUMNS = ("board", "modality", "system_a", "system_b", "preference", "cluster")

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]


def rank_systems(version: Version, corpus: Corpus, store: Store, out: Path | None) -> tuple[dict[str, Any], Path]:
    """Rank the systems of a version on each board (a source or dimension) and by modality, and write a folder.

    Raises:
        StoreError: the corpus holds no preferences between systems, or the version none.
    """
    if corpus.ranked is None:
        raise StoreError(f"{corpus.name} holds no preferences between systems: name scored systems, or say `all`")
    with (
        tempfile.TemporaryDirectory(prefix="earmark-") as temporary,
        opened(version, corpus, Path(temporary)) as connection,
    ):
        asked = f"SELECT {', '.join(COLUMNS)} FROM ({query(corpus.ranked)}) ORDER BY ALL"
        rows = connection.sql(asked).to_arrow_table().to_pylist()
    if not rows:
        raise StoreError(f"{version.corpus}@{version.name} has no vote on two clips of different, named systems")
    facts = {
        **version_facts(version),
        "boards": [{"board": name, "modality": part, **board_of(held)} for name, part, held in _boards(rows)],
    }
    folder = out or records_of(store, version) / "ranking"
    return facts, write_record(folder, RECORD, facts, ranking_page(facts).files())


def _boards(rows: Sequence[Row]) -> Iterator[tuple[str, str | None, list[Row]]]:
    """Yield the votes of each board: all of them, then by modality if there are several."""
    for name in dict.fromkeys(row["board"] for row in rows):
        of_board = [row for row in rows if row["board"] == name]
        yield name, None, of_board
        parts = sorted({row["modality"] for row in of_board})
        if len(parts) > 1:
            for part in parts:
                yield name, part, [row for row in of_board if row["modality"] == part]


def board_of(rows: Sequence[Row], *, draws: int = DRAWS) -> dict[str, Any]:
    """Make a leaderboard.

    Args:
        rows: `system_a`, `system_b`, `preference` (a, b or tie), `cluster`.

    Returns:
        `votes`, `ties`, `parts` (number of groups of systems without votes between them), `systems` from the best on
        (score and interval on Elo's scale; `rank` is None below 30 votes), and `wins`: each system's wins over each, in
        that order, ties counting one half.
    """
    codes, systems = pd.factorize(np.array([row[name] for name in ("system_a", "system_b") for row in rows]), sort=True)
    a, b = codes[: len(rows)], codes[len(rows) :]
    size = len(systems)
    half = np.array([{"a": 1.0, "b": 0.0, "tie": 0.5}[row["preference"]] for row in rows])
    which = pd.factorize(np.array([row["cluster"] for row in rows]))[0]
    cells = np.concatenate([a * size + b, b * size + a])
    shape = (int(which.max()) + 1, size * size)
    by_cluster = coo_array((np.concatenate([half, 1 - half]), (np.tile(which, 2), cells)), shape=shape).tocsr()
    wins = np.asarray(by_cluster.sum(axis=0)).reshape(size, size)
    source = np.random.default_rng(0)
    resampled = np.empty((draws, size, size))
    for place in range(draws):  # one at a time: a thousand resamples of many prompts would fill the memory
        drawn = np.bincount(source.integers(shape[0], size=shape[0]), minlength=shape[0])
        resampled[place] = (by_cluster.T @ drawn).reshape(size, size)
    scores, spread = (CENTRE + SCALE * found for found in (strengths(wins), strengths(resampled)))
    spread[(resampled + np.swapaxes(resampled, 1, 2)).sum(axis=2) == 0] = np.nan  # a system missing from the resample
    low, high = np.nanquantile(spread, [(1 - COVERS) / 2, (1 + COVERS) / 2], axis=0)
    votes = (wins + wins.T).sum(axis=1)
    order = sorted(range(size), key=lambda place: (-scores[place], systems[place]))
    ranked = [place for place in order if votes[place] >= LEAST_VOTES]
    parts, _ = connected_components(wins + wins.T > 0, directed=False)
    return {
        "votes": len(rows),
        "ties": int((half == 0.5).sum()),
        "parts": int(parts),
        "systems": [
            {
                "system": str(systems[place]),
                "rank": ranked.index(place) + 1 if place in ranked else None,
                "value": float(scores[place]),
                "low": float(low[place]) if shape[0] > 1 else None,
                "high": float(high[place]) if shape[0] > 1 else None,
                "votes": int(votes[place]),
                "win_share": float(wins[place].sum() / votes[place]),
            }
            for place in order
        ],
        "wins": wins[np.ix_(order, order)].tolist(),
    }


def strengths(wins: Floats, penalty: float = 1.0) -> Floats:
    """Fit Bradley and Terry's strengths, with mean 0: i beats j with the probability 1 / (1 + exp(s[j] - s[i])).

    Maximize the likelihood less `penalty` times half the sum of squares, by Newton's method; without a penalty they are
    finite only if each system is preferred, over some steps, to each other (Ford 1957).

    Args:
        wins: wins of the row's system over the column's, (…, systems, systems).
        penalty: from 0.

    Raises:
        ValueError: they are not finite.
    """
    size = wins.shape[-1]
    met = wins + np.swapaxes(wins, -1, -2)
    found = np.zeros(wins.shape[:-1])
    # the likelihood is invariant to a shift of all strengths: the matrix of ones holds their mean at 0
    ground = np.eye(size) * penalty + np.ones((size, size)) / size
    for _ in range(200):
        expected = 1 / (1 + np.exp(found[..., None, :] - found[..., :, None]))
        slope = (wins - met * expected).sum(axis=-1) - penalty * found
        bend = met * expected * (1 - expected)
        hessian = ground - bend + bend.sum(axis=-1)[..., None] * np.eye(size)
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        longest = np.abs(step).max(initial=0.0)
        found += step * min(1.0, 2 / max(longest, 1e-300))
        if longest < 1e-11:
            return found
    raise ValueError("the strengths are not finite: a system, or a group of them, never lost")


# -- for a reader -------------------------------------------------------------------------------------------------


def ranking_page(facts: Mapping[str, Any], *, pairs: bool = True) -> ResultPage:
    """Return the page of a ranking: each board, and the shares of wins by pair."""
    tables = []
    for board in facts["boards"]:
        title = board["board"] + (f", {board['modality']}" if board["modality"] else "")
        columns = ("rank", "system", ResultColumn("score", decimals=0), "votes", percent("wins, a tie ½"))
        rows = [(one["rank"], one["system"], interval(one), one["votes"], one["win_share"]) for one in board["systems"]]
        tables.append(
            ResultTable(f"{title}: {board['votes']:,} votes, {board['ties']:,} of them ties", columns, tuple(rows))
        )
        if pairs:
            names = [one["system"] for one in board["systems"]]
            tables.append(preference_matrix(title, names, np.array(board["wins"])))
    return ResultPage(f"{facts['corpus']} {facts['version']}: systems ranked", tuple(tables), tuple(notes(facts)))


def notes(facts: Mapping[str, Any]) -> list[str]:
    """Return notes for readers of the boards, a sentence each."""
    lines = [
        "score: Bradley and Terry's model on Elo's scale around 1000, a tie half a win for each, with an L2 penalty as "
        "on Music Arena's leaderboard; in brackets, intervals of 95 % by bootstrap over prompts",
        f"without rank: systems of fewer than {LEAST_VOTES} votes",
    ]
    if torn := [f"{one['board']}, {one['modality'] or 'all'}" for one in facts["boards"] if one["parts"] > 1]:
        lines.append(f"groups of systems that no vote joins cannot be compared with each other: {'; '.join(torn)}")
    return lines
