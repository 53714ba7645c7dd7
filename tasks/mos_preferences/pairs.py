"""Pair rated clips for `mos-preferences` (MOS-RMBench, construction of preference pairs).

Clips are paired within a listening test and split, in three categories: same content, same source, unmatched.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa

from earmark.schemas.mos_preferences import CATEGORIES, PAIRS, TRIPLETS, MosPreferences
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
from earmark.tasks.mos_preferences.preview import said_of
from earmark.tasks.pipeline.grouping import share_out
from earmark.tasks.pipeline.progress import say, working
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.sql import connect, create_table, query
from earmark.tasks.store.staging import SplitFiles, Stage


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
                "no further three clips of different MOS were found"
                if clips
                else f"they are drawn from {splits} (triplets.splits), which holds no usable clip"
            )
            notes.append(f"{dataset}: {sum(share.values())} of {count} triplets; {why}")
    create_table(connection, "triplet_takes", "dataset string, category int8, take int64", takes)
    connection.execute(query("mos_preferences/pick_triplets"))
    met = connection.execute("SELECT count(*) FROM triplet_candidates").fetchall()[0][0]
    return met, sum(n for _, _, n in takes), notes


def _short_of(count: int, available: Mapping[str, int], config: MosPreferences) -> list[str]:
    """Return the categories to draw from: those with fewer triplets than their share, all while the sum is short."""
    weights: dict[str, float] = {**config.pairs.balance}  # type: ignore[dict-item]
    if sum(share_out(count, available, weights).values()) < count:
        return [category for category in CATEGORIES if weights.get(category)]
    share = share_out(count, dict.fromkeys(CATEGORIES, count), weights)
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


WITHOUT_GROUPS = (
    "no contents are known (columns.content), so no same_content pairs; "
    "clips of one system are taken to differ in content",
    "no systems and no speakers are known (columns.system, columns.speaker, or file_name), so all pairs are unmatched",
)
"""Notes on a data set without contents, and on one without systems and speakers."""


@step("pairs", unit="candidate pairs", table=PAIRS.name, label="")
def pair_clips(stage: Stage, config: MosPreferences, ratings: SplitFiles) -> Done[SplitFiles]:
    """Write the published tables `pairs` and `triplets` from the published ratings; return the files of `pairs`."""
    clips = RatedClips(ratings)
    with connect(stage.work / "spill") as connection:
        with working("draw pairs"):
            clips.open(connection, config.seed)
            triplets = write_triplets(stage, connection, clips, config, ratings)
            drawn = draw_and_pick(connection, config)
            connection.execute(query("mos_preferences/narrow_clips"))
            connection.execute("DROP TABLE clips")
        with working("write pairs", drawn.kept) as work:
            connection.execute(query("mos_preferences/gap_scale"))
            kept = stage.write_splits(
                PAIRS, lambda split: work.watching(pair_rows(connection, clips, split)), splits=ratings
            )
    if stage.forecast is None:
        for line in said_of(stage, config):
            say(line)
    return Done(stage.split_files(PAIRS), replace(drawn, kept=kept), triplets)


def draw_and_pick(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> Account:
    """Fill the table `picked`; account for each pair of clips met.

    Each cell starts with the least levels for its quota (`pairs.draws` without a quota). While a quota is
    short and a category has unmet pairs, the category's levels are doubled, up to `MOST_DRAWS`.
    """
    connection.execute(query("mos_preferences/candidates"))
    connection.execute("CREATE TABLE beyond (pair BIGINT)")
    connection.execute(query("mos_preferences/allowed"))
    cells = read_cells(connection, config)
    wanted = {(cell.number, category): first_level(cell, category, config) for cell in cells for category in CATEGORIES}
    met = equal = 0
    while any(wanted.values()):
        newly_met, newly_equal = _draw(connection, cells, wanted, config)
        met, equal = met + newly_met, equal + newly_equal
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
            "equal MOS": equal,
            _other_reason(config): met - equal - fit,
            "over pairs.per_clip": fit - allowed,
            "beyond the quota": allowed - picked,
        },
        notes=(
            *in_five(config),
            *(note for cell in cells for note in shortfall(cell, config)),
            *without_clips(cells, config),
            *without_groups(connection),
        ),
    )


def in_five(config: MosPreferences) -> list[str]:
    """State the config's gap thresholds on each scale other than 1 to 5."""
    rules = config.pairs
    words = {"pairs.min_gap": [rules.min_gap] if rules.min_gap else [], "pairs.gap_edges": list(rules.gap_edges)}
    notes = []
    for source in config.sources:
        for test, (low, high) in source.scales().items():
            named = f"{source.name} {test or ''}".strip()
            for key, values in words.items():
                own = ", ".join(f"{value * (high - low) / 4:g}" for value in values)
                if own and high - low != 4:
                    said = ", ".join(f"{value:g}" for value in values)
                    notes.append(f"{named}: {key} {said} of a 1-to-5 scale are {own} of its points")
    return notes


def _other_reason(config: MosPreferences) -> str:
    """Name the reason for omitting pairs of unequal MOS: the config's limits, or another category."""
    return "below pairs.min_gap or of another category" if config.pairs.min_gap > 0 else "of another category"


def first_level(cell: DatasetSplit, category: str, config: MosPreferences) -> int:
    """Return the first levels to draw: a power of two, so that a slightly larger quota seldom changes it."""
    weights = config.pairs.balance
    if cell.quota == 0 or not weights.get(category) or cell.largest[category] < 2:  # type: ignore[call-overload]
        return 0
    if cell.quota is None:
        return config.pairs.draws
    share = cell.quota * weights[category] / sum(weights.values())  # type: ignore[index]
    level = 1
    while level * cell.clips < share:
        level *= 2
    return min(level, MOST_DRAWS)


def next_level(cell: DatasetSplit, category: str, config: MosPreferences) -> int:
    """Return the next levels to draw, or 0: the quota is met, every pair was met, or a limit is reached."""
    drawn = cell.levels[category]
    if cell.quota is None or not drawn or cell.exhausted(category) or drawn >= MOST_DRAWS:
        return 0
    endless = cell.quota + 1
    hoped = {
        name: endless if cell.levels[name] and not cell.exhausted(name) else cell.available[name] for name in CATEGORIES
    }
    share = share_out(_reachable(cell, config), hoped, config.pairs.balance)[category]  # type: ignore[arg-type]
    wanted = over_bins(cell, category, share, config, endless=endless)
    short = any(take > cell.binned.get((category, number), 0) for number, take in wanted.items())
    return min(2 * drawn, MOST_DRAWS) if short else 0


def over_bins(
    cell: DatasetSplit, category: str, share: int, config: MosPreferences, endless: int = 0
) -> dict[int, int]:
    """Share a category's pairs evenly over the bins of gaps, as far as available; `endless` more may still be drawn."""
    bins = range(len(config.pairs.gap_edges) + 1)
    available = {str(number): endless + cell.binned.get((category, number), 0) for number in bins}
    shares = share_out(share, available, dict.fromkeys(available, 1.0))
    return {number: shares[str(number)] for number in bins}


def shortfall(cell: DatasetSplit, config: MosPreferences) -> list[str]:
    """Explain an unmet quota of the cell in a sentence."""
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
        why = f"{MOST_DRAWS} neighbours a clip were tried"
    return [f"{cell.dataset} {cell.split}: {kept} of {cell.quota} pairs; {why}"]


def without_clips(cells: list[DatasetSplit], config: MosPreferences) -> list[str]:
    """Report each quota of a dataset and split without usable clips."""
    cells_with_clips = {(cell.dataset, cell.split) for cell in cells}
    return [
        f"{dataset} {split}: 0 of {quota} pairs; it holds no usable clip"
        for dataset, quotas in config.quotas.items()
        for split, quota in quotas.items()
        if quota and (dataset, split) not in cells_with_clips
    ]


def without_groups(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Report datasets and splits without contents or sources: some categories of pairs are then impossible."""
    lacks: dict[tuple[str, str], list[str]] = {}
    for dataset, split, *missing in connection.execute(query("mos_preferences/without_groups")).fetchall():
        for words, lacking in zip(WITHOUT_GROUPS, missing, strict=True):
            if lacking:
                lacks.setdefault((dataset, words), []).append(split)
    return [f"{dataset} {', '.join(splits)}: {words}" for (dataset, words), splits in lacks.items()]


def _takes(cell: DatasetSplit, config: MosPreferences) -> dict[str, int]:
    if cell.quota is None:
        return dict(cell.available)
    return share_out(cell.quota, cell.available, config.pairs.balance)  # type: ignore[arg-type]


def _reachable(cell: DatasetSplit, config: MosPreferences) -> int:
    """Return the quota, or the part allowed by the limit per clip."""
    assert cell.quota is not None
    limit = config.pairs.per_clip
    return cell.quota if limit is None else min(cell.quota, cell.clips * limit // 2)


def _draw(
    connection: duckdb.DuckDBPyConnection,
    cells: list[DatasetSplit],
    wanted: dict[tuple[int, str], int],
    config: MosPreferences,
) -> tuple[int, int]:
    """Draw the wanted levels not yet drawn; return the number of pairs met, and of pairs of equal MOS."""
    met = equal = 0
    for category, rings in RINGS_OF.items():
        for level in range(1, max(wanted[cell.number, category] for cell in cells) + 1):
            chosen = [c for c in cells if c.levels[category] < level <= wanted[c.number, category]]
            chosen = [c for c in chosen if level < c.largest[category]]
            if not chosen:
                continue
            choose_cells(connection, chosen)
            for ring in rings:
                rules = config.pairs
                place, least = {"ring": ring, "level": level}, max(rules.min_gap - NO_GAP, NO_GAP)
                limits = {"min_gap": least, "edges": list(rules.gap_edges)}
                connection.execute(query("mos_preferences/meet_pairs"), place)
                connection.execute(query("mos_preferences/draw_pairs"), place | limits)
                met += _met(connection, ring, level)
                equal += int(connection.execute(query("mos_preferences/equal_pairs"), {"ring": ring}).fetchall()[0][0])
        for cell in cells:
            cell.levels[category] = max(cell.levels[category], wanted[cell.number, category])
    return met, equal


def _met(connection: duckdb.DuckDBPyConnection, ring: int, level: int) -> int:
    """Count pairs `level` places apart in groups of a kind, in the asked cells."""
    sizes = f"""SELECT coalesce(sum((size - $level) * groups), 0)::BIGINT
                FROM ({query("mos_preferences/group_sizes")}) WHERE size > $level AND cell IN (FROM asked)"""
    return int(connection.execute(sizes, {"ring": ring, "level": level}).fetchall()[0][0])


def _cap(connection: duckdb.DuckDBPyConnection, cells: list[DatasetSplit], config: MosPreferences) -> None:
    limit = config.pairs.per_clip
    connection.execute("DELETE FROM beyond")
    most = max(sum(2 * cell.levels[name] * len(RINGS_OF[name]) for name in CATEGORIES) for cell in cells)
    if limit is not None and most > limit:  # else no clip can be in more pairs than the limit
        connection.execute(query("mos_preferences/cap_per_clip"), {"per_clip": limit})


def _count(connection: duckdb.DuckDBPyConnection, cells: list[DatasetSplit]) -> None:
    counts = connection.execute("SELECT cell, category, bin, count(*) FROM allowed GROUP BY ALL").fetchall()
    for cell in cells:
        cell.available, cell.binned = dict.fromkeys(CATEGORIES, 0), {}
    for number, category, bin_, count in counts:
        cells[number].available[CATEGORIES[category]] += count
        cells[number].binned[CATEGORIES[category], bin_] = count


def pair_rows(connection: duckdb.DuckDBPyConnection, clips: RatedClips, split: str) -> Iterator[pa.Table]:
    """Yield the picked pairs of a split as rows of the published table, in a stable order."""
    widest = dict(connection.execute("SELECT dataset, widest_gap FROM gap_scale").fetchall())
    return published_rows(connection, clips, split, PAIRS, ("chosen", "rejected"), widest)
