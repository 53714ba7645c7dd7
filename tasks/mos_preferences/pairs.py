"""`mos-preferences`: pairs from rated clips (MOS-RMBench, construction of preference pairs).

Clips are paired within a listening test and split, in three categories: same content, same source, unmatched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pyarrow as pa

from earmark.schemas.mos_preferences import CATEGORIES, PAIRS, RATINGS, MosPreferences
from earmark.tasks.build.progress import working
from earmark.tasks.build.quotas import share_out
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.mos_preferences.clips import (
    NO_GAP,
    RINGS_OF,
    Cell,
    RatedClips,
    choose_cells,
    published_rows,
    read_cells,
)
from earmark.tasks.mos_preferences.triplets import write_triplets
from earmark.tasks.store.sql import connect, create_table, query
from earmark.tasks.store.staging import Stage


@step("pairs", unit="candidate pairs", table=PAIRS.name, label="")
def pair_clips(stage: Stage, config: MosPreferences) -> Done[None]:
    """Write the published tables `pairs` and `triplets` from the staged `ratings`."""
    files = stage.tables()[RATINGS.name]
    clips = RatedClips(files)
    with connect(stage.work / "spill") as connection:
        with working("draw pairs"):
            clips.open(connection, config.seed)
            triplets = write_triplets(stage, connection, clips, config, files)
            drawn = draw_and_pick(connection, config)
            connection.execute("DROP TABLE clips")
        with working("write pairs", drawn.kept) as work:
            connection.execute(query("mos_preferences/gap_scale"))
            kept = stage.write_splits(
                PAIRS, lambda split: work.watching(pair_rows(connection, clips, split)), splits=files
            )
    return Done(None, replace(drawn, kept=kept), triplets)


def draw_and_pick(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> Account:
    """Fill the table `picked`; the account says what became of each pair of clips that was met.

    Each cell starts with the levels that its quota needs at least (`pairs.draws` without a quota). While a quota is
    short and a category has pairs that were not yet met, the category's levels are doubled, up to `pairs.most_draws`.
    """
    connection.execute(query("mos_preferences/candidates"))
    connection.execute("CREATE TABLE beyond (pair BIGINT)")
    connection.execute(query("mos_preferences/allowed"))
    cells = read_cells(connection, config)
    wanted = {(cell.number, category): first_level(cell, category, config) for cell in cells for category in CATEGORIES}
    met = 0
    while any(wanted.values()):
        met += _draw(connection, cells, wanted, config)
        _cap(connection, cells, config)
        _count(connection, cells)
        wanted = {
            (cell.number, category): next_level(cell, category, config) for cell in cells for category in CATEGORIES
        }
    takes = [
        (cell.number, CATEGORIES.index(category), number, take)
        for cell in cells
        for category, share in _takes(cell, config).items()
        for number, take in over_bins(cell, category, share, config).items()
    ]
    create_table(connection, "takes", "cell int16, category int8, bin int8, take int64", takes)
    connection.execute(query("mos_preferences/pick_pairs"))
    fit = connection.execute("SELECT count(*) FROM candidates").fetchall()[0][0]
    connection.execute("DROP VIEW allowed")
    connection.execute("DROP TABLE candidates")
    allowed, picked = sum(sum(cell.available.values()) for cell in cells), sum(take for *_, take in takes)
    return Account(
        entered=met,
        kept=picked,
        filtered={
            "gap or chance below pairs.min_gap and min_probability, or category off": met - fit,
            "over pairs.per_clip": fit - allowed,
            "beyond the quota": allowed - picked,
        },
        notes=(
            *(note for cell in cells for note in shortfall(cell, config)),
            *without_clips(cells, config),
            *without_groups(connection),
        ),
    )


def first_level(cell: Cell, category: str, config: MosPreferences) -> int:
    """Levels to draw at first: a power of two, so that a slightly larger quota seldom changes it."""
    weights = config.pairs.balance
    if cell.quota == 0 or not weights.get(category) or cell.largest[category] < 2:  # type: ignore[call-overload]
        return 0
    if cell.quota is None:
        return config.pairs.draws
    share = cell.quota * weights[category] / sum(weights.values())  # type: ignore[index]
    level = 1
    while level * cell.clips < share:
        level *= 2
    return min(level, config.pairs.most_draws)


def next_level(cell: Cell, category: str, config: MosPreferences) -> int:
    """Levels to draw next, or 0: the quota is met, every pair was met, or a limit is reached."""
    drawn = cell.levels[category]
    if cell.quota is None or not drawn or cell.exhausted(category) or drawn >= config.pairs.most_draws:
        return 0
    endless = cell.quota + 1
    hoped = {
        name: endless if cell.levels[name] and not cell.exhausted(name) else cell.available[name] for name in CATEGORIES
    }
    share = share_out(_reachable(cell, config), hoped, config.pairs.balance)[category]  # type: ignore[arg-type]
    wanted = over_bins(cell, category, share, config, endless=endless)
    short = any(take > cell.binned.get((category, number), 0) for number, take in wanted.items())
    return min(2 * drawn, config.pairs.most_draws) if short else 0


def over_bins(cell: Cell, category: str, share: int, config: MosPreferences, endless: int = 0) -> dict[int, int]:
    """A category's share over the bins of gaps, evenly as far as there are pairs; `endless` more may still be drawn."""
    bins = range(len(config.pairs.gap_edges) + 1)
    available = {str(number): endless + cell.binned.get((category, number), 0) for number in bins}
    shares = share_out(share, available, dict.fromkeys(available, 1.0))
    return {number: shares[str(number)] for number in bins}


def shortfall(cell: Cell, config: MosPreferences) -> list[str]:
    """A sentence if the cell's quota could not be met, with the reason."""
    kept = sum(_takes(cell, config).values())
    if cell.quota is None or kept >= cell.quota:
        return []
    if all(cell.exhausted(name) for name in CATEGORIES if cell.levels[name]):
        limit = config.pairs.per_clip
        within = f" within {limit} pairs a clip (pairs.per_clip)" if limit else ""
        why = f"every possible pair was tried{within}"
    elif _reachable(cell, config) <= kept:
        why = f"{cell.clips} clips in {config.pairs.per_clip} pairs each (pairs.per_clip) give no more"
    else:
        why = f"{config.pairs.most_draws} neighbours a clip were tried (pairs.most_draws)"
    return [f"{cell.dataset} {cell.split}: {kept} of {cell.quota} pairs; {why}"]


def without_clips(cells: list[Cell], config: MosPreferences) -> list[str]:
    """A sentence for each quota of a dataset and split in which no clip could be used."""
    cells_with_clips = {(cell.dataset, cell.split) for cell in cells}
    return [
        f"{dataset} {split}: 0 of {quota} pairs; it holds no usable clip"
        for dataset, quotas in config.quotas.items()
        for split, quota in quotas.items()
        if quota and (dataset, split) not in cells_with_clips
    ]


def without_groups(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Sentences for datasets and splits that name no contents or no sources, so that some pairs cannot be."""
    notes = []
    for dataset, split, no_contents, no_sources in connection.execute(
        query("mos_preferences/without_groups")
    ).fetchall():
        if no_contents:
            notes.append(
                f"{dataset} {split}: no contents are known (columns.content), so no same_content pairs; clips of one "
                "system are taken to differ in content"
            )
        if no_sources:
            notes.append(
                f"{dataset} {split}: no systems and no speakers are known (columns.system, columns.speaker, or "
                "file_name), so all pairs are unmatched"
            )
    return notes


def _takes(cell: Cell, config: MosPreferences) -> dict[str, int]:
    if cell.quota is None:
        return dict(cell.available)
    return share_out(cell.quota, cell.available, config.pairs.balance)  # type: ignore[arg-type]


def _reachable(cell: Cell, config: MosPreferences) -> int:
    """The quota, or what the limit per clip leaves of it."""
    assert cell.quota is not None
    limit = config.pairs.per_clip
    return cell.quota if limit is None else min(cell.quota, cell.clips * limit // 2)


def _draw(
    connection: duckdb.DuckDBPyConnection, cells: list[Cell], wanted: dict[tuple[int, str], int], config: MosPreferences
) -> int:
    """Draw the levels that are wanted and not yet drawn; returns how many pairs of clips were met."""
    met = 0
    for category, rings in RINGS_OF.items():
        for level in range(1, max(wanted[cell.number, category] for cell in cells) + 1):
            chosen = [c for c in cells if c.levels[category] < level <= wanted[c.number, category]]
            chosen = [c for c in chosen if level < c.largest[category]]
            if not chosen:
                continue
            choose_cells(connection, chosen)
            for ring in rings:
                rules = config.pairs
                values = {"ring": ring, "level": level, "min_gap": max(rules.min_gap - NO_GAP, NO_GAP)}
                chance = {"min_chance": rules.min_probability, "edges": list(rules.gap_edges)}
                connection.execute(query("mos_preferences/draw_pairs"), values | chance)
                met += _met(connection, ring, level)
        for cell in cells:
            cell.levels[category] = max(cell.levels[category], wanted[cell.number, category])
    return met


def _met(connection: duckdb.DuckDBPyConnection, ring: int, level: int) -> int:
    """How many pairs stand `level` places apart in groups of a kind, in the asked cells."""
    sizes = f"""SELECT coalesce(sum((size - $level) * groups), 0)::BIGINT
                FROM ({query("mos_preferences/group_sizes")}) WHERE size > $level AND cell IN (FROM asked)"""
    return int(connection.execute(sizes, {"ring": ring, "level": level}).fetchall()[0][0])


def _cap(connection: duckdb.DuckDBPyConnection, cells: list[Cell], config: MosPreferences) -> None:
    limit = config.pairs.per_clip
    connection.execute("DELETE FROM beyond")
    most = max(sum(2 * cell.levels[name] * len(RINGS_OF[name]) for name in CATEGORIES) for cell in cells)
    if limit is not None and most > limit:  # else no clip can be in more pairs than the limit
        connection.execute(query("mos_preferences/cap_per_clip"), {"per_clip": limit})


def _count(connection: duckdb.DuckDBPyConnection, cells: list[Cell]) -> None:
    counts = connection.execute("SELECT cell, category, bin, count(*) FROM allowed GROUP BY ALL").fetchall()
    for cell in cells:
        cell.available, cell.binned = dict.fromkeys(CATEGORIES, 0), {}
    for number, category, bin_, count in counts:
        cells[number].available[CATEGORIES[category]] += count
        cells[number].binned[CATEGORIES[category], bin_] = count


def pair_rows(connection: duckdb.DuckDBPyConnection, clips: RatedClips, split: str) -> Iterator[pa.Table]:
    """The picked pairs of a split as rows of the published table, in a stable order."""
    deciles = dict(connection.execute("SELECT dataset, deciles FROM gap_scale").fetchall())
    return published_rows(connection, clips, split, PAIRS, ("chosen", "rejected"), deciles)
