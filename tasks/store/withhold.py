"""What a licence keeps back: rows of a source that may not be passed on, rows made from them, audio and images.

The rest is written anew by the store's own writer, so that the same version and licences give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.config import Licence
from schemas.errors import StoreError
from schemas.tables import REJECTS, Table
from tasks.store.parquet import write_shards
from tasks.store.versions import Store, Version

FILE_ROWS = 16  # rows that are read at once where they embed files
ROWS = 65_536


@dataclass
class Held:
    """What is held back of one table.

    Attributes:
        rows: rows held back, by split.
        audio: clips held back from rows that stay, by split.
    """

    rows: dict[str, int] = field(default_factory=dict)
    audio: dict[str, int] = field(default_factory=dict)

    def touches(self, split: str) -> bool:
        """Whether a split loses anything."""
        return bool(self.rows.get(split) or self.audio.get(split))


@dataclass(frozen=True)
class Terms:
    """What may leave.

    Attributes:
        licences: by source.
        audio: whether any audio may.
    """

    licences: Mapping[str, Licence]
    audio: bool = True

    @property
    def closed(self) -> pa.Array:
        """Sources of which nothing may leave."""
        return _names(name for name, terms in self.licences.items() if terms.redistribute == "none")

    @property
    def audible(self) -> pa.Array:
        """Sources whose audio may leave."""
        return _names(name for name, terms in self.licences.items() if self.audio and terms.redistribute == "all")


_STRICTEST = ("none", "rows", "all")


def licences_of(version: Version, store: Store) -> dict[str, Licence]:
    """The licences that a version's config states, and those of the versions it was made from; the stricter holds.

    Raises:
        StoreError: a version that it was made from is not in the store.
    """
    found = {name: Licence(**terms) for name, terms in version.manifest.config.get("licences", {}).items()}
    for parent in version.manifest.parents:
        if parent.corpus == version.corpus:
            continue
        held = {v.name: v for v in store.versions(parent.corpus)}.get(parent.version)
        if held is None or held.manifest.digest() != parent.digest:
            raise StoreError(
                f"{version.corpus} {version.name} was made from {parent.corpus} {parent.version}, which is not in "
                f"{store.root}; its licences are not known"
            )
        for name, terms in licences_of(held, store).items():
            own = found.get(name)
            if own is None or _STRICTEST.index(terms.redistribute) < _STRICTEST.index(own.redistribute):
                found[name] = terms
    return found


class Sieve:
    """Decides for every row of a version whether it may leave, and whether with its audio.

    Args:
        version: the version.
        tables: its corpus's tables.
        terms: what may leave.
    """

    def __init__(self, version: Version, tables: Sequence[Table], terms: Terms) -> None:
        self.version, self.terms = version, terms
        self.tables = {table.name: table for table in tables if table.name in version.manifest.rows}
        self.held: dict[str, Held] = {}
        self._gone: dict[str, pa.Array] = {}  # keys of the rows that may not leave, by table
        self._mute: dict[str, pa.Array] = {}
        self._made: dict[str, set[str]] = {}  # keys of rows that were made of such rows of other tables
        self.files: set[str] = set()  # audio files within the version that may leave
        self._open_sources: set[str] = set(terms.licences)
        self._sources = {name: self._source_columns(table) for name, table in self.tables.items()}
        while True:
            before = sum(map(len, self._made.values()))
            self.held, self.files = {name: Held() for name in self.tables}, set()
            for name in self._in_order():
                self._weigh(self.tables[name])
            if sum(map(len, self._made.values())) == before:
                break

    @property
    def all_audible(self) -> bool:
        """Whether the audio of every source, known to the config or not, may leave."""
        return (
            self.terms.audio and bool(self._open_sources) and self._open_sources <= set(self.terms.audible.to_pylist())
        )

    def splits(self, table: str) -> list[str]:
        """The splits of a table."""
        return list(self.version.manifest.rows[table])

    def write(self, folder: Path, table: Table, split: str) -> list[Path]:
        """Write what may leave of one split; its files. None where no row may."""
        if self.held[table.name].rows.get(split, 0) == self.version.manifest.rows[table.name][split]:
            return []
        return write_shards(folder / table.name, table, split, self._sifted(table, split))

    def _in_order(self) -> list[str]:
        """Tables after those that they link to; rejects last, when all sources are known."""
        graph = {
            name: {target for _, target in table.links if target in self.tables and target != name}
            for name, table in self.tables.items()
        }
        ordered = list(TopologicalSorter(graph).static_order())
        return sorted(ordered, key=lambda name: name == REJECTS.name)

    def _source_columns(self, table: Table) -> list[str]:
        """The columns that name what a table's rows come from.

        Raises:
            StoreError: an earlier release wrote it without one, and something may not leave.
        """
        paths = [path for split in self.splits(table.name) for path in self.version.files(table.name, split)]
        held = set(pq.read_schema(paths[0]).names) if paths else set(table.sources)
        missing = [name for name in table.sources if name not in held]
        if missing and len(self.terms.closed):
            raise StoreError(
                f"{self.version.corpus} {self.version.name}: an earlier release wrote the table {table.name} without "
                f"{missing[0]}, so what licences hold back of it cannot be told; build it again"
            )
        return [name for name in table.sources if name in held]

    def _weigh(self, table: Table) -> None:
        """Count what a table loses, and remember the keys of the rows that lose something."""
        makes = self._makes(table)
        named = {*table.key[:1], *(column for column, _ in table.links), *self._sources[table.name]}
        named |= {*table.files, *({"file"} if table.name == REJECTS.name else ()), *(column for _, column in makes)}
        columns = [*sorted(named), *(f"{name}.path" for name in table.embedded)]
        held, keys = self.held[table.name], table.key[0] if len(table.key) == 1 else None
        gone_keys, mute_keys = [], []
        for split in self.splits(table.name):
            for batch in self._batches(table, split, columns, ROWS):
                gone, mute = self._gone_rows(table, batch), self._mute_rows(table, batch)
                for name in self._sources[table.name]:
                    self._open_sources.update(filter(None, pc.unique(batch[name]).to_pylist()))
                for name, column in makes:
                    self._made.setdefault(name, set()).update(filter(None, batch[column].filter(gone).to_pylist()))
                if keys:
                    gone_keys.append(batch[keys].filter(gone))
                    mute_keys.append(batch[keys].filter(mute))
                held.rows[split] = held.rows.get(split, 0) + _count(gone)
                for name in (*table.embedded, *table.files):
                    lost = pc.and_(pc.is_valid(batch[name]), pc.and_(mute, pc.invert(gone)))
                    held.audio[split] = held.audio.get(split, 0) + _count(lost)
                for name in table.files:
                    self.files.update(filter(None, batch[name].filter(pc.invert(pc.or_(gone, mute))).to_pylist()))
        if gone_keys:
            self._gone[table.name] = pa.concat_arrays(gone_keys)
            self._mute[table.name] = pa.concat_arrays(mute_keys)

    def _gone_rows(self, table: Table, batch: pa.RecordBatch) -> pa.Array:
        """Which rows may not leave."""
        gone = pa.array([False] * batch.num_rows)
        if not len(self.terms.closed):
            return gone
        if table.name == REJECTS.name:  # a reject belongs to the source that its file's path begins with
            first = pc.list_element(pc.split_pattern(pc.fill_null(batch["file"], "/"), "/"), 0)
            known = _names(self._open_sources - set(self.terms.closed.to_pylist()))
            return pc.invert(pc.is_in(first, known))
        for name in self._sources[table.name]:
            gone = pc.or_(gone, pc.is_in(batch[name], self.terms.closed))
        if made := self._made.get(table.name):
            gone = pc.or_(gone, pc.is_in(batch[table.key[0]], _names(made)))
        return self._linked(table, batch, gone, self._gone)

    def _mute_rows(self, table: Table, batch: pa.RecordBatch) -> pa.Array:
        """Which rows' audio may not leave: all, where no column and no link tells their source."""
        unknown = not self._sources[table.name] and not table.links
        mute = pa.array([unknown or not self.terms.audio] * batch.num_rows)
        for name in self._sources[table.name]:
            mute = pc.or_(mute, pc.invert(pc.is_in(batch[name], self.terms.audible)))
        return self._linked(table, batch, mute, self._mute)

    def _makes(self, table: Table) -> list[tuple[str, str]]:
        """The tables whose rows were made of a table's rows, and the column in which those name them."""
        return [(t.name, column) for t in self.tables.values() for name, column in t.made_of if name == table.name]

    def _linked(self, table: Table, batch: pa.RecordBatch, marked: pa.Array, keys: Mapping[str, pa.Array]) -> pa.Array:
        """Mark the rows too that name a marked row of another table."""
        for column, target in table.links:
            if target != table.name and target in keys:
                marked = pc.or_(marked, pc.is_in(batch[column], keys[target]))
        return marked

    def _sifted(self, table: Table, split: str) -> Iterator[pa.Table]:
        for batch in self._batches(table, split, table.schema.names, FILE_ROWS if table.embedded else ROWS):
            stays, mute = pc.invert(self._gone_rows(table, batch)), self._mute_rows(table, batch)
            part = pa.Table.from_batches([batch])
            for name in (*table.embedded, *table.files):
                none = pa.nulls(batch.num_rows, table.schema.field(name).type)
                at = table.schema.get_field_index(name)
                part = part.set_column(at, table.schema.field(name), pc.if_else(mute, none, batch[name]))
            yield part.filter(stays)

    def _batches(self, table: Table, split: str, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for path in self.version.files(table.name, split):
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(rows, columns=columns)


def _names(names: Iterator[str] | set[str]) -> pa.Array:
    return pa.array(sorted(names), pa.string())


def _count(marked: pa.Array) -> int:
    return int(pc.sum(marked).as_py() or 0)
