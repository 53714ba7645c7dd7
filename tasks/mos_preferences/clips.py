"""Number the rated clips for drawing pairs and triplets in SQL, and attach their ids to the tables.

DuckDB draws and picks on integers; ids are attached last, chunk by chunk, by position: a join on strings in SQL
took five times as long and three times the memory for 20 million pairs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.files import Root, source_root
from earmark.schemas.mos_preferences import CATEGORIES, MosPreferences
from earmark.schemas.rating_sources import Source
from earmark.schemas.tables import Table
from earmark.tasks.importers.cells import other_forms
from earmark.tasks.store.sql import create_table, query


def root_of(config: MosPreferences, source: Source) -> Root:
    """Return the folder of a source's audio files: `audio_root`, else `root`, else the config's folder."""
    return source_root(config.path(source.audio_root or source.root or "."))


def find_audio(folder: Path, file: str, audio: str | None) -> Path:
    """Return the clip's file: at the list's name, or at its place in the published layout."""
    places = _places(folder, file, audio)
    # os.path: a name too long for any file is no file; Path.is_file raises for it. A path costs more than the look
    return Path(next(filter(os.path.isfile, places), places[0]))


def places_of(folder: Path, file: str, audio: str | None) -> list[Path]:
    """List the possible places of a clip's file, likeliest first."""
    return list(map(Path, _places(folder, file, audio)))


def _places(folder: Path, file: str, audio: str | None) -> list[str]:
    names = [name for name in (audio, file, f"{file}.wav", f"wav/{file}", f"wav/{file}.wav") if name]
    names += [form for name in names for form in other_forms(name)] if not file.isascii() else []
    return [os.path.join(folder, name) for name in names]  # noqa: PTH118


RINGS_OF = {"same_content": (0,), "same_source": (1, 2), "unmatched": (3,)}  # kinds of group, see ring_of.sql
CHUNK = 500_000
MOST_DRAWS = 64  # neighbours that a clip meets when a quota is short
NO_GAP = 1e-9  # means differing by less are equal, written with different numbers of digits


@dataclass
class DatasetSplit:
    """A dataset and split."""

    number: int  # the cell's number in SQL
    dataset: str
    split: str
    clips: int  # rated clips in the cell
    quota: int | None  # pairs wanted, or None for all pairs of `draws` levels
    # levels drawn so far, by category
    levels: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    # size of the largest group, by category
    largest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    # valid pairs within the limit per clip, by category
    available: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CATEGORIES, 0))
    binned: dict[tuple[str, int], int] = field(default_factory=dict)  # the same by category and bin of gaps

    def exhausted(self, category: str) -> bool:
        """Return whether every pair of the category has been met."""
        return self.levels[category] >= self.largest[category] - 1


class RatedClips:
    """The committed order of `ratings`, by its Parquet files of each split: a clip's number is its place in it."""

    def __init__(self, files: dict[str, list[Path]]) -> None:
        self.paths = [path for split in sorted(files) for path in files[split]]

    @cached_property
    def ids(self) -> pa.Table:
        """Return the pairs' columns from their clips, all in memory (about 60 bytes a clip)."""
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


def read_cells(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> list[DatasetSplit]:
    """Return the cells with their quotas and largest groups, by number."""
    rows = connection.execute(
        "SELECT cell, dataset, split, sum(clips)::BIGINT FROM cells GROUP BY ALL ORDER BY cell"
    ).fetchall()
    quotas: Mapping[str, Mapping[str, int]] = config.quotas  # type: ignore[assignment]
    cells = [DatasetSplit(n, name, split, clips, quotas.get(name, {}).get(split)) for n, name, split, clips in rows]
    for category, rings in RINGS_OF.items():
        for ring in rings:
            for number, size, _ in connection.execute(query("mos_preferences/group_sizes"), {"ring": ring}).fetchall():
                cells[number].largest[category] = max(cells[number].largest[category], size)
    return cells


def choose_cells(connection: duckdb.DuckDBPyConnection, cells: Iterable[DatasetSplit]) -> None:
    """Create `asked`, the cells of the next level."""
    create_table(connection, "asked", "cell int16", [(cell.number,) for cell in cells])


def published_rows(
    connection: duckdb.DuckDBPyConnection,
    clips: RatedClips,
    split: str,
    table: Table,
    sides: Sequence[str],
    widest: Mapping[str, float] | None = None,
) -> Iterator[pa.Table]:
    """Yield the picked pairs or triplets of a split as rows of the published table, in a stable order.

    Args:
        connection: holds the picked rows.
        clips: the ids, MOS and group of a clip.
        split: of the version.
        table: `pairs` or `triplets`.
        sides: columns naming a clip by its number; the group is taken from the first.
        widest: the 90th percentile of the gaps of pairs, by dataset.
    """
    cells = "SELECT DISTINCT cell, dataset FROM cells WHERE split = ? ORDER BY cell"
    for number, dataset in connection.execute(cells, [split]).fetchall():
        params = {"dataset": dataset, "split": split} | ({} if widest is None else {"widest_gap": widest.get(dataset)})
        ordered = connection.cursor().sql(query(f"mos_preferences/ordered_{table.name}"), params={"cell": number})
        for batch in ordered.to_arrow_reader(CHUNK):
            columns = {name: batch[name] for name in batch.schema.names if name not in sides}
            for side in sides:
                for name, fact in (("id", "sample_id"), ("mos", "mos"), ("mos_se", "mos_se")):
                    columns[f"{side}_{name}"] = clips.ids[fact].take(batch[side])
            for fact in ("subset", "content_id", "system_id", "speaker_id"):
                columns[fact] = pc.cast(clips.ids[fact].take(batch[sides[0]]), pa.string())
            cursor = connection.cursor()
            cursor.register("chunk", pa.table(columns))
            named = cursor.sql(query(f"mos_preferences/name_{table.name}"), params=params)
            yield named.to_arrow_table().cast(table.schema)
