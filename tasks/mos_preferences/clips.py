"""`mos-preferences`: the rated clips as numbers that SQL draws pairs and triplets from, and their names for the tables.

DuckDB draws and picks on integers; ids are attached last, chunk by chunk, by position: joining them in SQL as strings
took five times as long and three times the memory for 20 million pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.mos_preferences import CATEGORIES, MosPreferences
from earmark.tasks.store.sql import create_table, query

RINGS_OF = {"same_content": (0,), "same_source": (1, 2), "unmatched": (3,)}  # kinds of group, see ring_of.sql
CHUNK = 500_000
NO_GAP = 1e-9  # means that differ by less are the same mean, written with another number of digits


@dataclass
class Cell:
    """One dataset and split."""

    number: int  # the cell's number in SQL
    dataset: str
    split: str
    clips: int  # how many rated clips it holds
    quota: int | None  # pairs wanted, or None for as many as `draws` levels give
    # levels drawn so far, by category
    levels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    # size of the largest group, by category
    largest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    # valid pairs within the limit per clip, by category
    available: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    binned: dict[tuple[str, int], int] = field(default_factory=dict)  # the same by category and bin of gaps

    def exhausted(self, category: str) -> bool:
        """Whether every pair of the category has been met."""
        return self.levels[category] >= self.largest[category] - 1


class RatedClips:
    """The committed order of `ratings`, by its Parquet files of each split: a clip's number is its place in it."""

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
        first_clips = [(name, sum(rows[:i])) for i, name in enumerate(names)]
        create_table(connection, "rating_files", "filename string, first_clip int64", first_clips)
        connection.execute(query("mos_preferences/cells"), {"files": names})
        connection.execute(query("mos_preferences/clips"), {"files": names, "seed": seed})
        for macro in ("ring_of", "normal_tail", "normal_cdf", "order_chance"):
            connection.execute(query(f"mos_preferences/{macro}"))


def read_cells(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> list[Cell]:
    """The cells with their quotas and largest groups, by number."""
    found = connection.execute(
        "SELECT cell, dataset, split, sum(clips)::BIGINT FROM cells GROUP BY ALL ORDER BY cell"
    ).fetchall()
    quotas: Mapping[str, Mapping[str, int]] = config.quotas  # type: ignore[assignment]
    cells = [Cell(n, name, split, clips, quotas.get(name, {}).get(split)) for n, name, split, clips in found]
    for category, rings in RINGS_OF.items():
        for ring in rings:
            for number, size, _ in connection.execute(query("mos_preferences/group_sizes"), {"ring": ring}).fetchall():
                cells[number].largest[category] = max(cells[number].largest[category], size)
    return cells


def choose_cells(connection: duckdb.DuckDBPyConnection, cells: Iterable[Cell]) -> None:
    """Create `asked`, the cells that the next level is drawn in."""
    create_table(connection, "asked", "cell int16", [(cell.number,) for cell in cells])


def cells_of(connection: duckdb.DuckDBPyConnection, split: str) -> list[tuple[int, str]]:
    """Number and dataset of a split's cells, in the order of the published tables."""
    return connection.execute(
        "SELECT DISTINCT cell, dataset FROM cells WHERE split = ? ORDER BY cell", [split]
    ).fetchall()


def attach(clips: RatedClips, batch: pa.RecordBatch, sides: dict[str, str]) -> pa.Table:
    """The clips' ids and MOS beside their numbers, with the facts of the first that name its group."""
    first = next(iter(sides))
    columns = {"ring": batch["ring"]}
    for side in sides:
        columns[f"{side}_id"] = clips.ids["sample_id"].take(batch[side])
        columns[f"{side}_mos"] = clips.ids["mos"].take(batch[side])
    for fact in ("subset", "content_id", "system_id", "speaker_id"):
        columns[fact] = pc.cast(clips.ids[fact].take(batch[first]), pa.string())
    return pa.table(columns)


def named(
    connection: duckdb.DuckDBPyConnection, chunk: pa.Table, name: str, given: Mapping[str, object], schema: pa.Schema
) -> pa.Table:
    """The rows of a published table from a chunk with its ids, in the chunk's order."""
    cursor = connection.cursor()
    cursor.register("chunk", chunk)
    return cursor.sql(query(f"mos_preferences/{name}"), params=given).to_arrow_table().cast(schema)
