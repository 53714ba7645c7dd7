"""Write triplets A > B > C of a group, for measuring cycles in a model's preferences (MOS-RMBench)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

from earmark.schemas.mos_preferences import CATEGORIES, TRIPLETS, MosPreferences
from earmark.tasks.mos_preferences.clips import (
    MOST_DRAWS,
    NO_GAP,
    RINGS_OF,
    DatasetSplit,
    RatedClips,
    choose_cells,
    published_rows,
    read_cells,
)
from earmark.tasks.pipeline.quotas import share_out
from earmark.tasks.pipeline.step import Account
from earmark.tasks.store.sql import create_table, query
from earmark.tasks.store.staging import Stage


def write_triplets(
    stage: Stage,
    connection: duckdb.DuckDBPyConnection,
    clips: RatedClips,
    config: MosPreferences,
    splits: Iterable[str],
) -> Account:
    """Draw, pick and write the published table `triplets`."""
    met, picked, notes = draw_and_pick_triplets(connection, config)
    return Account(
        entered=met,
        kept=stage.write_splits(
            TRIPLETS, lambda split: published_rows(connection, clips, split, TRIPLETS, "abc"), splits
        ),
        filtered={"beyond the count": met - picked},
        notes=notes,
        name="triplets",
        unit="candidate triplets",
        table=TRIPLETS.name,
    )


def draw_and_pick_triplets(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> tuple[int, int, list[str]]:
    """Fill `picked_triplets`; return the candidates' and picked triplets' numbers, and notes on unmet counts."""
    connection.execute(query("mos_preferences/triplet_candidates"))
    cells = [cell for cell in read_cells(connection, config) if cell.split in config.triplets.splits]
    names = [source.name for source in config.sources] if config.triplets.splits else []
    counts = {name: config.triplets.datasets.get(name, config.triplets.count) for name in names}
    for level in range(1, MOST_DRAWS + 1):
        available = _triplets_available(connection)
        short = {
            (dataset, category)
            for dataset, count in counts.items()
            if dataset in available
            for category in _short_of(count, available[dataset], config)
        }
        if not _draw_triplets(connection, cells, short, level, counts, config):
            break
    notes, takes = [], []
    available = _triplets_available(connection)
    for dataset, count in counts.items():
        share = share_out(count, available.get(dataset, {}), config.pairs.balance)  # type: ignore[arg-type]
        takes += [(dataset, CATEGORIES.index(name), n) for name, n in share.items()]
        if sum(share.values()) < count:
            clips = sum(cell.clips for cell in cells if cell.dataset == dataset)
            splits = " or ".join(config.triplets.splits)
            why = (
                "of those that were tried no more differ in MOS"
                if clips
                else f"they are drawn from {splits} (triplets.splits), which holds no usable clip"
            )
            notes.append(f"{dataset}: {sum(share.values())} of {count} triplets; {why}")
    create_table(connection, "triplet_takes", "dataset string, category int8, take int64", takes)
    connection.execute(query("mos_preferences/pick_triplets"))
    met = connection.execute("SELECT count(*) FROM triplet_candidates").fetchall()[0][0]
    return met, sum(n for _, _, n in takes), notes


def _short_of(count: int, available: Mapping[str, int], config: MosPreferences) -> list[str]:
    """Return the categories with fewer triplets than their share."""
    share = share_out(count, dict.fromkeys(CATEGORIES, count), config.pairs.balance)  # type: ignore[arg-type]
    return [category for category in CATEGORIES if share[category] > available[category]]


def _draw_triplets(
    connection: duckdb.DuckDBPyConnection,
    cells: list[DatasetSplit],
    short: set[tuple[str, str]],
    level: int,
    counts: Mapping[str, int],
    config: MosPreferences,
) -> bool:
    """Draw a level of the short categories, in cells with large enough groups; return whether any was drawn."""
    drew = False
    for category, rings in RINGS_OF.items():
        chosen = [c for c in cells if (c.dataset, category) in short and 2 * level < c.largest[category]]
        if not chosen:
            continue
        choose_cells(connection, chosen)
        most = max(counts[cell.dataset] for cell in chosen)
        for ring in rings:
            given = {"ring": ring, "level": level, "count": most, "min_gap": max(config.pairs.min_gap - NO_GAP, NO_GAP)}
            connection.execute(query("mos_preferences/draw_triplets"), given)
        drew = True
    return drew


def _triplets_available(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    names = [name for (name,) in connection.execute("SELECT DISTINCT dataset FROM cells ORDER BY 1").fetchall()]
    available = {name: dict.fromkeys(CATEGORIES, 0) for name in names}
    counted = """SELECT dataset, category, count(*) FROM triplet_candidates
                 JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell) GROUP BY ALL"""
    for dataset, category, count in connection.execute(counted).fetchall():
        available[dataset][CATEGORIES[category]] = count
    return available
