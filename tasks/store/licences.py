"""Hold back rows of closed sources, rows made from them, and audio, as licences demand.

A row with a track's own licence (`track_licence`) has changed audio: a voice taken out, a segment cut. It is held back
if the licence allows no derivatives, or if other tracks have one and this track has none.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.config import Licence
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.tables import REJECTS, WORDS, Table
from earmark.schemas.toml import nearest
from earmark.schemas.tracks import NOT_STATED, TRACK_LICENCE
from earmark.tasks.store.lineage import Files, Mask, by_split, lineage, mentions, missing_column, staying
from earmark.tasks.store.parquet import write_shards
from earmark.tasks.store.versions import Store, Version

UNKNOWN = "unknown; say it in [licences]"
_OF_OURS = ("builtin:", "centre-removal")  # these measure the signal, without a model and its terms
_NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research[- ]only", re.IGNORECASE)


def names_of(model: str) -> tuple[str, ...]:
    """Return a model's possible names in `[licences]`: as annotator (`openai:org/model`), without the backend, and a
    checkpoint's file name."""
    return model, model.partition(":")[2] or model, *([PurePath(model).name] if model.endswith(".pt") else [])


def terms_of(models: Iterable[str], licences: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the terms of models by name; `UNKNOWN` if neither the config nor the table has them.

    `schemas/model_terms.json` has terms by model, each with its page and the day of reading. The page may differ today;
    the config's terms have precedence.
    """
    terms = {}
    for model in (model for model in models if not model.startswith(_OF_OURS)):
        stated = (licences.get(name, {}).get("licence") for name in names_of(model))
        known = (_known().get(name, (None,))[0] for name in names_of(model))
        terms[model] = next((str(one) for one in (*stated, *known) if one), UNKNOWN)
    return terms


def new_terms(made: Any, before: Any) -> list[str]:
    """Return a line for each model of a build (`Made`) not yet named by the corpus's newest version."""
    known = before.manifest.models if before else ()
    terms = terms_of(made.models, made.config.get("licences") or {})
    return [
        f"terms of {model}: unknown; write them in the config:\n"
        f"  [licences.{json.dumps(model)}]\n"
        '  licence = "…"  # such as "CC-BY-NC-4.0"'
        if stated == UNKNOWN
        else f"terms of {model}: {stated}"
        for model, stated in terms.items()
        if model not in known
    ]


def warnings_of(terms: Mapping[str, str]) -> list[str]:
    """Return warnings to heed before passing on output of these models."""
    bound = [
        f"terms of {model}: {stated}; its output may be bound by them"
        for model, stated in terms.items()
        if _NON_COMMERCIAL.search(stated)
    ]
    return [*bound, *(f"terms of {model}: {UNKNOWN}" for model, stated in terms.items() if stated == UNKNOWN)]


@cache
def _known() -> dict[str, list[str]]:
    text = resources.files("earmark.schemas").joinpath("model_terms.json").read_text("utf-8")
    models: dict[str, list[str]] = json.loads(text)["models"]
    return models


_STRICTEST = ("none", "rows", "all")


@dataclass
class TableLoss:
    """Losses of one table."""

    rows: dict[str, int] = field(default_factory=dict)  # rows held back, by split
    audio: dict[str, int] = field(default_factory=dict)  # clips held back from rows that stay, by split

    def touches(self, split: str) -> bool:
        """Return whether a split loses anything."""
        return bool(self.rows.get(split) or self.audio.get(split))


@dataclass(frozen=True)
class Terms:
    """Rules for passing on rows and audio."""

    licences: Mapping[str, Licence]  # by source
    audio: bool = True  # whether any audio may leave
    # SHA-256 of clips held back in parent versions by tracks' own licences (`unheard`)
    unheard: frozenset[str] = frozenset()

    @property
    def closed(self) -> set[str]:
        """Return the sources closed to any passing on."""
        return {name for name, terms in self.licences.items() if terms.redistribute == "none"}

    @property
    def audible(self) -> set[str]:
        """Return the sources with audio free to pass on."""
        return {name for name, terms in self.licences.items() if self.audio and terms.redistribute == "all"}


def require_terms(version: Version, store: Store, name: str, key: str) -> None:
    """Check that a build keeps the name of a closed source: licences hold rows back by this name.

    Args:
        name: name of the source in the build's rows.
        key: key of this name in the config.

    Raises:
        ConfigError: the version's source is closed, and the rows name it otherwise.
    """
    own = version.manifest.config.get("source", {}).get("name")
    terms = licences_of(version, store).get(own)
    if terms is not None and terms.redistribute == "none" and name != own:
        raise ConfigError(
            f"{key}: expected '{own}', by which {version.corpus} {version.name} forbids to pass its clips on "
            f"(licences), found '{name}'"
        )


def licences_of(version: Version, store: Store) -> dict[str, Licence]:
    """Return the licences that a version's config and its parents state, by source.

    Of a source stated twice the stricter permission holds, and both licences are named.
    """
    licences = stated_in(version.manifest.config)
    for made_from in _parents(version, store):
        for name, terms in licences_of(made_from, store).items():
            own = licences.setdefault(name, terms)
            stated = f"{own.licence or ''} and {terms.licence or ''}".split(" and ")
            both = " and ".join(filter(None, dict.fromkeys(stated))) or None
            may = min(own.redistribute, terms.redistribute, key=_STRICTEST.index)
            licences[name] = Licence(licence=both, redistribute=may)
    return licences


def stated_in(config: Mapping[str, Any]) -> dict[str, Licence]:
    """Return the licences that a config states, by source."""
    return {name: Licence(**terms) for name, terms in (config.get("licences") or {}).items()}


def sources_of(config: Mapping[str, Any]) -> set[str]:
    """Return the names of a config's sources."""
    listed = config.get("sources")  # a plug-in's may be of another kind
    every = [*(listed if isinstance(listed, list | tuple) else ()), config.get("source")]
    return {str(one["name"]) for one in every if isinstance(one, Mapping) and "name" in one}


class UnmetLicence(NamedTuple):
    """A licence by a name that no row, source or model has: it holds nothing back."""

    line: str  # for the reader
    closed: bool  # whether somebody meant to hold rows back


def unmet_licences(
    config: Mapping[str, Any], models: Iterable[str], behind: Set[str], tables: Sequence[Table], files: Files
) -> list[UnmetLicence]:
    """Return the licences of a version's own config that fit nothing; read its rows only if the config does not fit.

    Args:
        models: models of the version and its parents.
        behind: names of sources of the version's parents.
    """
    held = [one for value in config.values() for one in (value if isinstance(value, list | tuple) else [value])]
    sources = behind | {str(one["name"]) for one in held if isinstance(one, Mapping) and "name" in one}
    stated, known = stated_in(config), {name for model in models for name in names_of(model)}
    if stated.keys() <= sources | known:
        return []
    with lineage(tables, files) as rows:
        sources |= rows.sources(rejects=True)
    return [
        UnmetLicence(
            f"[licences.{json.dumps(name, ensure_ascii=False)}] holds nothing back: expected the name of a source or "
            f"model, found one that no row has{nearest(name, sources)}",
            terms.redistribute == "none",
        )
        for name, terms in stated.items()
        if name not in sources | known
    ]


def sources_behind(version: Version, store: Store) -> set[str]:
    """Return the names of the sources of a version and its parents."""
    behind = (sources_behind(made_from, store) for made_from in _parents(version, store))
    return sources_of(version.manifest.config).union(*behind)


def unheard(version: Version, store: Store) -> frozenset[str]:
    """Return the SHA-256 of clips held back in a version's parents by tracks' own licences.

    Raises:
        StoreError: a parent version is missing from the store or incomplete.
    """
    clips: set[str] = set()
    for made_from in _parents(version, store):
        clips |= unheard(made_from, store)
        store.fetch(made_from, tables_only=True)
        files = {name: made_from.files(name) for name in made_from.manifest.rows}
        _held_by_tracks(files, clips)
    return frozenset(clips)


def model_terms(version: Version, store: Store) -> dict[str, str]:
    """Return the terms of the models behind a version and its parents.

    Raises:
        StoreError: a parent version is missing from the store.
    """
    manifest, found = version.manifest, dict[str, str]()
    for made_from in _parents(version, store):
        found |= model_terms(made_from, store)
    return found | terms_of(manifest.models, manifest.config.get("licences") or {})


def _parents(version: Version, store: Store) -> Iterator[Version]:
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
    """Return masks of rows held back by their track's licence or for naming one of `clips`. Add the clips of such rows
    to `clips` and repeat until there are no more, since any table may name them."""
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
            own = [TRACK_LICENCE] if TRACK_LICENCE in file.schema_arrow.names else []
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
    for value in values:
        yield from value if isinstance(value, list) else [] if value is None else [value]


def _forbids(licence: str | None) -> bool:
    """Return whether a track's licence forbids to pass on changed audio."""
    words = re.split(r"[^a-z]+", (licence or "").lower())
    return licence == NOT_STATED or "nd" in words or any(word.startswith("noderiv") for word in words)


class Redaction:
    """Parts of a version free to leave.

    Raises:
        StoreError: an earlier release wrote a table without its source, and a source is closed.
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
            models = {names_of(model)[1] for model in version.manifest.models}  # their licences do not concern audio
            known = named | set(terms.licences).difference(models)
            self._gone = rows.without({("source", name) for name in terms.closed})
            if terms.closed and REJECTS.name in self.tables:  # a reject of an unknown source may be of any source
                self._gone.rows[REJECTS.name] |= rows.not_of(REJECTS.name, known - terms.closed)
            # whether a closed source went into figures: their rows name no source of what was counted
            self.figures_held = bool(known & terms.closed)
            for name, table in self.tables.items() if self.figures_held else ():
                if table.counted and not table.splits:
                    self._gone.rows[name][:] = True
            self._silent = {name: rows.not_of(name, terms.audible) for name in self.tables}
        files = {name: [path for paths in self._files[name].values() for path in paths] for name in self.tables}
        self._audible, self._held = terms.audible, set(terms.unheard)
        masks = _held_by_tracks(files, self._held)
        by_tracks = any(bool(mask.any()) for mask in masks.values())
        for name, mask in masks.items():
            self._silent[name] |= mask
        # whether audio of all sources, known to the config or not, may leave
        self.all_audible = terms.audio and bool(known) and known <= terms.audible and not by_tracks
        self.files: set[str] = set()  # the version's audio files free to leave
        self.lost = {name: self._weighed(table) for name, table in self.tables.items()}

    def free_clips(self) -> set[str]:
        """Return the SHA-256 of clips free to leave: all sources of the rows naming them allow it, and no track's own
        licence forbids it."""
        with lineage([*self.tables.values()], self._files) as rows:
            return rows.clips_of(self._audible) - self._held

    def touches(self, table: str, split: str) -> bool:
        """Return whether a split is published with changes."""
        return self.lost[table].touches(split) or bool(mentions(self.tables[table], self._gone))

    def write(self, folder: Path, table: Table, split: str) -> list[Path]:
        """Write the permitted rows of one split; return the files, none without rows."""
        for (name, paths, leaving), (_, _, silent) in zip(*self._splits(table), strict=True):
            if name == split and not leaving.all():
                rows = staying(table, paths, leaving, self._gone, silent)
                return write_shards(folder / table.name, table, split, rows)
        return []

    def _splits(self, table: Table) -> tuple[Iterator[tuple[str, Sequence[Path], Mask]], ...]:
        """Return the splits with masks of leaving rows, and with masks of rows without audio."""
        return by_split(table, self._files, self._gone.rows), by_split(table, self._files, self._silent)

    def _weighed(self, table: Table) -> TableLoss:
        """Return a table's losses; add the audio files free to leave to `files`."""
        loss = TableLoss()
        for (split, paths, leaving), (_, _, silent) in zip(*self._splits(table), strict=True):
            loss.rows[split] = int(leaving.sum())
            if not (names := [*table.files, *(f"{name}.path" for name in table.embedded)]):
                continue
            media = pa.concat_tables([pq.ParquetFile(path).read(columns=names) for path in paths])
            muted, audible = media.filter(pa.array(silent & ~leaving)), media.filter(pa.array(~silent & ~leaving))
            loss.audio[split] = sum(len(column) - column.null_count for column in muted.columns)
            self.files.update(value for name in table.files for value in audible[name].to_pylist() if value)
        return loss
