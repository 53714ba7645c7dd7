"""`mos-preferences`: pairs and triplets from rated clips (MOS-RMBench, construction of preference pairs).

Clips are paired within a listening test and split, in three categories: same content, same source, unmatched. DuckDB
draws and picks on integers; ids are attached last, chunk by chunk, by position: joining them in SQL as strings took
five times as long and three times the memory for 20 million pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.mos_preferences import CATEGORIES, PAIRS, RATINGS, TRIPLETS, MosPreferences
from tasks.progress import working
from tasks.quotas import share_out
from tasks.sql import connect, query
from tasks.store.manifest import Step
from tasks.store.staging import Stage

RINGS_OF = {"same_content": (0,), "same_source": (1, 2), "unmatched": (3,)}  # kinds of group, see ring_of.sql
CHUNK = 500_000
NO_GAP = 1e-9  # means that differ by less are the same mean, written with another number of digits


@dataclass
class Cell:
    """One dataset and split.

    Attributes:
        number: the cell's number in SQL.
        clips: how many rated clips it holds.
        quota: pairs wanted, or None for as many as `draws` levels give.
        levels: levels drawn so far, by category.
        largest: size of the largest group, by category.
        possible: pairs met at the drawn levels, valid or not.
        available: valid pairs within the limit per clip, by category.
    """

    number: int
    dataset: str
    split: str
    clips: int
    quota: int | None
    levels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    largest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    available: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))

    def exhausted(self, category: str) -> bool:
        """Whether every pair of the category has been met."""
        return self.levels[category] >= self.largest[category] - 1


@dataclass(frozen=True)
class Drawn:
    """The accounts of drawing and picking.

    Attributes:
        met: pairs of clips that were looked at.
        fit: of those, pairs that a category allows and whose MOS differ enough.
        allowed: of those, pairs within the limit per clip.
        picked: of those, pairs within the quotas.
        notes: quotas that could not be met, and why.
    """

    met: int
    fit: int
    allowed: int
    picked: int
    notes: tuple[str, ...]


class RatedClips:
    """The committed order of `ratings`: a clip's number is its place in it.

    Args:
        files: the table's Parquet files by split.
    """

    def __init__(self, files: dict[str, list[Path]]) -> None:
        self.paths = [path for split in sorted(files) for path in files[split]]

    @cached_property
    def ids(self) -> pa.Table:
        """The columns that a pair takes over from its clips, all in memory (about 60 bytes a clip)."""
        repeated = ["subset", "content_id", "system_id", "speaker_id"]
        columns = ["sample_id", "mos", "mos_se", *repeated]
        table = pq.read_table(self.paths, columns=columns, read_dictionary=repeated, partitioning=None)
        return table.combine_chunks()

    def open(self, connection: duckdb.DuckDBPyConnection, seed: int) -> None:
        """Create `cells` and `clips` in DuckDB."""
        names = [str(path) for path in self.paths]
        rows = [pq.read_metadata(path).num_rows for path in self.paths]
        connection.execute("CREATE TABLE rating_files (filename VARCHAR, first_clip BIGINT)")
        connection.executemany(
            "INSERT INTO rating_files VALUES (?, ?)", [(name, sum(rows[:i])) for i, name in enumerate(names)]
        )
        connection.execute(query("mos_preferences/cells"), {"files": names})
        connection.execute(query("mos_preferences/clips"), {"files": names, "seed": seed})
        for macro in ("ring_of", "normal_tail", "normal_cdf"):
            connection.execute(query(f"mos_preferences/{macro}"))
        connection.execute("CREATE TABLE asked (cell SMALLINT)")


@task(name="pairs", cache_policy=NO_CACHE)
def pair_clips(stage: Stage, config: MosPreferences) -> Step:
    """Write the published tables `pairs` and `triplets` from the staged `ratings`."""
    if (done := stage.recorded("pairs")) and stage.recorded("triplets"):
        return done
    files = stage.tables()[RATINGS.name]
    clips = RatedClips(files)
    with connect(stage.work / "spill") as connection:
        with working("draw pairs"):
            clips.open(connection, config.seed)
            _write_triplets(stage, connection, clips, config, files)
            drawn = draw_and_pick(connection, config)
            connection.execute("DROP TABLE clips")
        with working("write pairs", drawn.picked) as work:
            connection.execute(query("mos_preferences/gap_scale"))
            for split in files:
                stage.write(PAIRS, split, work.watching(pair_rows(connection, clips, split)))
        stage.drop_empty_splits(PAIRS)
    return stage.record(
        Step(
            name="pairs",
            place=4,
            unit="candidate pairs",
            entered=drawn.met,
            kept=drawn.picked,
            dropped={
                "no category allows it, or the MOS are too near": drawn.met - drawn.fit,
                "beyond the pairs a clip": drawn.fit - drawn.allowed,
                "beyond the quota": drawn.allowed - drawn.picked,
            },
            table=PAIRS.name,
            notes=drawn.notes,
        )
    )


def _write_triplets(
    stage: Stage,
    connection: duckdb.DuckDBPyConnection,
    clips: RatedClips,
    config: MosPreferences,
    splits: Iterable[str],
) -> None:
    met, picked, notes = draw_and_pick_triplets(connection, config)
    for split in splits:
        stage.write(TRIPLETS, split, triplet_rows(connection, clips, split))
    stage.drop_empty_splits(TRIPLETS)
    stage.record(
        Step(
            name="triplets",
            place=5,
            unit="candidate triplets",
            entered=met,
            kept=picked,
            dropped={"beyond the count": met - picked},
            table=TRIPLETS.name,
            notes=tuple(notes),
        )
    )


def read_cells(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> list[Cell]:
    """The cells with their quotas and largest groups, by number."""
    found = connection.execute(
        "SELECT cell, dataset, split, sum(clips)::BIGINT FROM cells GROUP BY ALL ORDER BY cell"
    ).fetchall()
    cells = [Cell(n, dataset, split, clips, quota_of(config, dataset, split)) for n, dataset, split, clips in found]
    for category, rings in RINGS_OF.items():
        for ring in rings:
            for number, size, _ in connection.execute(query("mos_preferences/group_sizes"), {"ring": ring}).fetchall():
                cells[number].largest[category] = max(cells[number].largest[category], size)
    return cells


def quota_of(config: MosPreferences, dataset: str, split: str) -> int | None:
    """The quota of a dataset and split, or None where the config names none."""
    quotas: Mapping[str, int] = config.quotas.get(dataset, {})  # type: ignore[assignment]
    return quotas.get(split)


def draw_and_pick(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> Drawn:
    """Fill the table `picked`.

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
    takes = [(c.number, CATEGORIES.index(name), n) for c in cells for name, n in _takes(c, config).items()]
    connection.execute("CREATE TABLE takes (cell SMALLINT, category TINYINT, take BIGINT)")
    if takes:
        connection.executemany("INSERT INTO takes VALUES (?, ?, ?)", takes)
    connection.execute(query("mos_preferences/pick_pairs"))
    fit = connection.execute("SELECT count(*) FROM candidates").fetchall()[0][0]
    connection.execute("DROP VIEW allowed")
    connection.execute("DROP TABLE candidates")
    return Drawn(
        met=met,
        fit=fit,
        allowed=sum(sum(cell.available.values()) for cell in cells),
        picked=sum(n for _, _, n in takes),
        notes=(*(note for cell in cells for note in shortfall(cell, config)), *without_clips(cells, config)),
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
    return min(2 * drawn, config.pairs.most_draws) if share > cell.available[category] else 0


def shortfall(cell: Cell, config: MosPreferences) -> list[str]:
    """A sentence if the cell's quota could not be met, with the reason."""
    kept = sum(_takes(cell, config).values())
    if cell.quota is None or kept >= cell.quota:
        return []
    if all(cell.exhausted(name) for name in CATEGORIES if cell.levels[name]):
        limit = config.pairs.per_clip
        held = f" within {limit} pairs a clip (pairs.per_clip)" if limit else ""
        why = f"every possible pair was tried{held}"
    elif _reachable(cell, config) <= kept:
        why = f"{cell.clips} clips in {config.pairs.per_clip} pairs each (pairs.per_clip) give no more"
    else:
        why = f"{config.pairs.most_draws} neighbours a clip were tried (pairs.most_draws)"
    return [f"{cell.dataset} {cell.split}: {kept} of {cell.quota} pairs; {why}"]


def without_clips(cells: list[Cell], config: MosPreferences) -> list[str]:
    """A sentence for each quota of a dataset and split in which no clip could be used."""
    held = {(cell.dataset, cell.split) for cell in cells}
    return [
        f"{dataset} {split}: 0 of {quota} pairs; it holds no usable clip"
        for dataset, quotas in config.quotas.items()
        for split, quota in quotas.items()
        if quota and (dataset, split) not in held
    ]


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
            asked = [c for c in cells if c.levels[category] < level <= wanted[c.number, category]]
            asked = [c for c in asked if level < c.largest[category]]
            if not asked:
                continue
            connection.execute("DELETE FROM asked")
            connection.executemany("INSERT INTO asked VALUES (?)", [(cell.number,) for cell in asked])
            for ring in rings:
                given = {"ring": ring, "level": level, "min_gap": max(config.pairs.min_gap - NO_GAP, NO_GAP)}
                connection.execute(query("mos_preferences/draw_pairs"), given)
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
    counts = connection.execute("SELECT cell, category, count(*) FROM allowed GROUP BY ALL").fetchall()
    for number, category, count in counts:
        cells[number].available[CATEGORIES[category]] = count


def pair_rows(connection: duckdb.DuckDBPyConnection, clips: RatedClips, split: str) -> Iterator[pa.Table]:
    """The picked pairs of a split as rows of the published table, in a stable order."""
    deciles = dict(connection.execute("SELECT dataset, deciles FROM gap_scale").fetchall())
    for number, dataset in _cells_of(connection, split):
        given = {"dataset": dataset, "split": split, "deciles": deciles.get(dataset)}
        ordered = connection.cursor().sql(query("mos_preferences/ordered_pairs"), params={"cell": number})
        for batch in ordered.to_arrow_reader(CHUNK):
            chunk = _attach(clips, batch, {"chosen": "chosen", "rejected": "rejected"})
            for side in ("chosen", "rejected"):
                chunk = chunk.append_column(f"{side}_mos_se", clips.ids["mos_se"].take(batch[side]))
            chunk = chunk.append_column("mos_gap", batch["mos_gap"])
            yield _named(connection, chunk, "name_pairs", given, PAIRS.schema)


def triplet_rows(connection: duckdb.DuckDBPyConnection, clips: RatedClips, split: str) -> Iterator[pa.Table]:
    """The picked triplets of a split as rows of the published table, in a stable order."""
    for number, dataset in _cells_of(connection, split):
        ordered = connection.cursor().sql(query("mos_preferences/ordered_triplets"), params={"cell": number})
        for batch in ordered.to_arrow_reader(CHUNK):
            chunk = _attach(clips, batch, {"a": "a", "b": "b", "c": "c"})
            given = {"dataset": dataset, "split": split}
            yield _named(connection, chunk, "name_triplets", given, TRIPLETS.schema)


def _cells_of(connection: duckdb.DuckDBPyConnection, split: str) -> list[tuple[int, str]]:
    return connection.execute(
        "SELECT DISTINCT cell, dataset FROM cells WHERE split = ? ORDER BY cell", [split]
    ).fetchall()


def _attach(clips: RatedClips, batch: pa.RecordBatch, sides: dict[str, str]) -> pa.Table:
    """The clips' ids and MOS beside their numbers, with the facts of the first that name its group."""
    first = next(iter(sides))
    columns = {"ring": batch["ring"]}
    for side in sides:
        columns[f"{side}_id"] = clips.ids["sample_id"].take(batch[side])
        columns[f"{side}_mos"] = clips.ids["mos"].take(batch[side])
    for fact in ("subset", "content_id", "system_id", "speaker_id"):
        columns[fact] = pc.cast(clips.ids[fact].take(batch[first]), pa.string())
    return pa.table(columns)


def _named(
    connection: duckdb.DuckDBPyConnection, chunk: pa.Table, name: str, given: Mapping[str, object], schema: pa.Schema
) -> pa.Table:
    cursor = connection.cursor()
    cursor.register("chunk", chunk)
    return cursor.sql(query(f"mos_preferences/{name}"), params=given).to_arrow_table().cast(schema)


def draw_and_pick_triplets(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> tuple[int, int, list[str]]:
    """Fill the table `picked_triplets`.

    Returns:
        How many candidates there were, how many were picked, and sentences on counts that could not be met.
    """
    connection.execute(query("mos_preferences/triplet_candidates"))
    connection.execute("CREATE TABLE triplet_takes (dataset VARCHAR, category TINYINT, take BIGINT)")
    cells = [cell for cell in read_cells(connection, config) if cell.split in config.triplets.splits]
    names = [source.name for source in config.sources] if config.triplets.splits else []
    counts = {name: config.triplets.datasets.get(name, config.triplets.count) for name in names}
    for level in range(1, config.pairs.most_draws + 1):
        available = _triplets_available(connection)
        short = {
            (dataset, category)
            for dataset, count in counts.items()
            if dataset in available
            for category in _short_of(count, available[dataset], config)
        }
        if not list(_draw_triplets(connection, cells, short, level, counts, config)):
            break
    notes, takes = [], []
    available = _triplets_available(connection)
    for dataset, count in counts.items():
        share = share_out(count, available.get(dataset, {}), config.pairs.balance)  # type: ignore[arg-type]
        takes += [(dataset, CATEGORIES.index(name), n) for name, n in share.items()]
        if sum(share.values()) < count:
            clips = sum(cell.clips for cell in cells if cell.dataset == dataset)
            why = (
                "of those that were tried no more differ in MOS" if clips else "it holds no usable clip in their splits"
            )
            notes.append(f"{dataset}: {sum(share.values())} of {count} triplets; {why}")
    if takes:
        connection.executemany("INSERT INTO triplet_takes VALUES (?, ?, ?)", takes)
    connection.execute(query("mos_preferences/pick_triplets"))
    met = connection.execute("SELECT count(*) FROM triplet_candidates").fetchall()[0][0]
    return met, sum(n for _, _, n in takes), notes


def _short_of(count: int, available: Mapping[str, int], config: MosPreferences) -> list[str]:
    """The categories that hold fewer triplets than their share."""
    share = share_out(count, dict.fromkeys(CATEGORIES, count), config.pairs.balance)  # type: ignore[arg-type]
    return [category for category in CATEGORIES if share[category] > available[category]]


def _draw_triplets(
    connection: duckdb.DuckDBPyConnection,
    cells: list[Cell],
    short: set[tuple[str, str]],
    level: int,
    counts: Mapping[str, int],
    config: MosPreferences,
) -> Iterator[str]:
    """Draw one level of the categories that are short, in cells whose groups are large enough; yields what it drew."""
    for category, rings in RINGS_OF.items():
        asked = [c for c in cells if (c.dataset, category) in short and 2 * level < c.largest[category]]
        if not asked:
            continue
        connection.execute("DELETE FROM asked")
        connection.executemany("INSERT INTO asked VALUES (?)", [(cell.number,) for cell in asked])
        most = max(counts[cell.dataset] for cell in asked)
        for ring in rings:
            given = {"ring": ring, "level": level, "count": most, "min_gap": max(config.pairs.min_gap - NO_GAP, NO_GAP)}
            connection.execute(query("mos_preferences/draw_triplets"), given)
        yield category


def _triplets_available(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int]]:
    names = [name for (name,) in connection.execute("SELECT DISTINCT dataset FROM cells ORDER BY 1").fetchall()]
    available = {name: dict.fromkeys(CATEGORIES, 0) for name in names}
    counted = """SELECT dataset, category, count(*) FROM triplet_candidates
                 JOIN (SELECT DISTINCT cell, dataset FROM cells) USING (cell) GROUP BY ALL"""
    for dataset, category, count in connection.execute(counted).fetchall():
        available[dataset][CATEGORIES[category]] = count
    return available
