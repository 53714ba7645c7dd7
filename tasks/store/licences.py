"""What licences hold back of a version: rows of a source that may not be passed on, what was made from them, audio.

Where a row has a track's own licence (`track_licence`), its audio was changed: a voice taken out, a segment cut. It is
held back where that licence allows no derivatives, or the list of licences names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.config import Licence
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.tables import REJECTS, WORDS, Table
from earmark.schemas.tracks import NOT_STATED, TRACK_LICENCE
from earmark.tasks.store.lineage import Mask, lineage, missing_column
from earmark.tasks.store.model_terms import names_of, terms_of
from earmark.tasks.store.parquet import write_shards
from earmark.tasks.store.redaction import by_split, mentions, staying
from earmark.tasks.store.versions import Store, Version

_STRICTEST = ("none", "rows", "all")


@dataclass
class Loss:
    """What one table loses."""

    rows: dict[str, int] = field(default_factory=dict)  # rows held back, by split
    audio: dict[str, int] = field(default_factory=dict)  # clips held back from rows that stay, by split

    def touches(self, split: str) -> bool:
        """Whether a split loses anything."""
        return bool(self.rows.get(split) or self.audio.get(split))


@dataclass(frozen=True)
class Terms:
    """What may leave."""

    licences: Mapping[str, Licence]  # by source
    audio: bool = True  # whether any audio may
    # SHA-256 of clips that tracks' own licences hold back in what a version was made from (`unheard`)
    unheard: frozenset[str] = frozenset()

    @property
    def closed(self) -> set[str]:
        """Sources of which nothing may leave."""
        return {name for name, terms in self.licences.items() if terms.redistribute == "none"}

    @property
    def audible(self) -> set[str]:
        """Sources whose audio may leave."""
        return {name for name, terms in self.licences.items() if self.audio and terms.redistribute == "all"}


def require_terms(version: Version, store: Store, name: str, key: str) -> None:
    """What is made from a source of which nothing may be passed on is held back by the name that the source has.

    Args:
        name: what the build's rows call their source.
        key: of the config, that says so.

    Raises:
        ConfigError: the version's source is closed, and the rows' name another.
    """
    own = version.manifest.config.get("source", {}).get("name")
    terms = licences_of(version, store).get(own)
    if terms is not None and terms.redistribute == "none" and name != own:
        raise ConfigError(
            f"{key}: expected '{own}', by which {version.corpus} {version.name} forbids to pass its clips on "
            f"(licences), found '{name}'"
        )


def licences_of(version: Version, store: Store) -> dict[str, Licence]:
    """The licences that a version's config states, and those of the versions it was made from; the stricter holds.

    Raises:
        StoreError: a version that it was made from is not in the store.
    """
    licences = {name: Licence(**terms) for name, terms in version.manifest.config.get("licences", {}).items()}
    for made_from in _parents(version, store):
        for name, terms in licences_of(made_from, store).items():
            own = licences.get(name)
            if own is None or _STRICTEST.index(terms.redistribute) < _STRICTEST.index(own.redistribute):
                licences[name] = terms
    return licences


def unheard(version: Version, store: Store) -> frozenset[str]:
    """SHA-256 of the clips that tracks' own licences hold back in the versions that one was made from.

    Raises:
        StoreError: a version that it was made from is not in the store, or not whole.
    """
    clips: set[str] = set()
    for made_from in _parents(version, store):
        clips |= unheard(made_from, store)
        store.fetch(made_from, tables_only=True)
        files = {name: made_from.files(name) for name in made_from.manifest.rows}
        if lost := next((path for paths in files.values() for path in paths if not path.is_file()), None):
            raise StoreError(
                f"{lost} is not there, and {version.corpus} {version.name} was made from it; the licences of its "
                "tracks are not known"
            )
        _held_by_tracks(files, clips)
    return frozenset(clips)


def model_terms(version: Version, store: Store) -> dict[str, str]:
    """The terms of the models that made a version and what it was made from.

    Raises:
        StoreError: a version that it was made from is not in the store.
    """
    manifest, found = version.manifest, dict[str, str]()
    for made_from in _parents(version, store):
        found |= model_terms(made_from, store)
    return found | terms_of(manifest.models, manifest.config.get("licences") or {})


def _parents(version: Version, store: Store) -> Iterator[Version]:
    """The versions of other corpora that one was made from."""
    for parent in version.manifest.parents:
        if parent.corpus == version.corpus:
            continue
        made_from = {v.name: v for v in store.versions(parent.corpus)}.get(parent.version)
        if made_from is None or made_from.manifest.digest() != parent.digest:
            raise StoreError(
                f"{version.corpus} {version.name} was made from {parent.corpus} {parent.version}, which is not in "
                f"{store.root}; its licences are not known"
            )
        yield made_from


def _held_by_tracks(files: Mapping[str, Sequence[Path]], clips: set[str]) -> dict[str, Mask]:
    """Which rows of each table may not be heard: by their track's licence, or since they name one of the clips.

    Adds the clips that such rows name, and looks again until there are no more, since any table may name them.
    """
    while True:
        before = len(clips)
        masks = {name: _held_rows(paths, clips) for name, paths in files.items()}
        if len(clips) == before:
            return masks


def _held_rows(paths: Sequence[Path], clips: set[str]) -> Mask:
    masks = [np.zeros(0, bool)]
    for path in paths:
        with pq.ParquetFile(path) as file:
            texts = [field for field in file.schema_arrow if field.type in (pa.string(), WORDS)]
            names = [one.name for one in texts if b"clip" in (one.metadata or {}).get(b"names", b"").split()]
            own = [TRACK_LICENCE.name] if TRACK_LICENCE.name in file.schema_arrow.names else []
            if not own and not clips:
                masks.append(np.zeros(file.metadata.num_rows, bool))
                continue
            for batch in file.iter_batches(columns=[*own, *names]):
                named = [set(_words(row)) for row in zip(*(batch[name].to_pylist() for name in names), strict=True)]
                named = named or [set()] * len(batch)
                licences = batch[own[0]].to_pylist() if own else [None] * len(batch)
                gone = [
                    not clips.isdisjoint(words) or _forbids(licence)
                    for words, licence in zip(named, licences, strict=True)
                ]
                clips.update(*(words for words, is_gone in zip(named, gone, strict=True) if is_gone))
                masks.append(np.array(gone, bool))
    return np.concatenate(masks)


def _words(values: Iterable[Any]) -> Iterator[str]:
    """The texts among values that are texts, lists of them, or null."""
    for value in values:
        yield from value if isinstance(value, list) else [] if value is None else [value]


def _forbids(licence: str | None) -> bool:
    """Whether a track's licence forbids to pass on audio that was changed."""
    words = re.split(r"[^a-z]+", (licence or "").lower())
    return licence == NOT_STATED or "nd" in words or any(word.startswith("noderiv") for word in words)


class Redaction:
    """What of a version may leave.

    Raises:
        StoreError: an earlier release wrote a table without its source, and something may not leave.
    """

    def __init__(self, version: Version, tables: Sequence[Table], terms: Terms) -> None:
        self.tables = {table.name: table for table in tables if table.name in version.manifest.rows}
        self._files = version.table_files()
        if terms.closed and (missing := missing_column(tables, self._files, {"source"})):
            raise StoreError(
                f"{version.corpus} {version.name}: an earlier release wrote the table {missing}, so what licences hold "
                "back of it cannot be told; build it again"
            )
        with lineage(tables, self._files) as rows:
            named = rows.sources()
            models = {names_of(model)[1] for model in version.manifest.models}  # their licences speak of no audio
            known = named | set(terms.licences).difference(models)
            self._gone = rows.without({("source", name) for name in terms.closed})
            if terms.closed and REJECTS.name in self.tables:  # a reject of a source that nobody knows may be of any
                self._gone.rows[REJECTS.name] |= rows.not_of(REJECTS.name, known - terms.closed)
            self._silent = {name: rows.not_of(name, terms.audible) for name in self.tables}
        files = {name: [path for paths in self._files[name].values() for path in paths] for name in self.tables}
        masks = _held_by_tracks(files, set(terms.unheard))
        by_tracks = any(bool(mask.any()) for mask in masks.values())
        for name, mask in masks.items():
            self._silent[name] |= mask
        # whether the audio of every source, known to the config or not, may leave
        self.all_audible = terms.audio and bool(known) and known <= terms.audible and not by_tracks
        self.files: set[str] = set()  # audio files within the version that may leave
        self.lost = {name: self._weighed(table) for name, table in self.tables.items()}

    def touches(self, table: str, split: str) -> bool:
        """Whether a split is not published as it is."""
        return self.lost[table].touches(split) or bool(mentions(self.tables[table], self._gone))

    def write(self, folder: Path, table: Table, split: str) -> list[Path]:
        """Write what may leave of one split; its files. None where no row may."""
        for (name, paths, leaving), (_, _, silent) in zip(*self._splits(table), strict=True):
            if name == split and not leaving.all():
                rows = staying(table, paths, leaving, self._gone, silent)
                return write_shards(folder / table.name, table, split, rows)
        return []

    def _splits(self, table: Table) -> tuple[Iterator[tuple[str, Sequence[Path], Mask]], ...]:
        """The splits with the rows that leave, and with those that stay without audio."""
        return by_split(table, self._files, self._gone.rows), by_split(table, self._files, self._silent)

    def _weighed(self, table: Table) -> Loss:
        """What a table loses; notes the files that its rows let leave."""
        loss = Loss()
        for (split, paths, leaving), (_, _, silent) in zip(*self._splits(table), strict=True):
            loss.rows[split] = int(leaving.sum())
            if not (names := [*table.files, *(f"{name}.path" for name in table.embedded)]):
                continue
            media = pa.concat_tables([pq.ParquetFile(path).read(columns=names) for path in paths])
            muted, audible = media.filter(pa.array(silent & ~leaving)), media.filter(pa.array(~silent & ~leaving))
            loss.audio[split] = sum(len(column) - column.null_count for column in muted.columns)
            self.files.update(value for name in table.files for value in audible[name].to_pylist() if value)
        return loss
