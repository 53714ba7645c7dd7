"""Keep clips, recordings and texts of other versions and of released benchmarks out of a build (`decontaminate`).

One rule for all corpora: clips leave at the measuring of audio, texts at the intake of lists, and a last check compares
the tables before the commit. No Prefect.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.config import BuildConfig, Decontaminate
from earmark.schemas.errors import ConfigError, InputError, StoreError
from earmark.schemas.files import Root
from earmark.schemas.machine import processors
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.registry import load
from earmark.schemas.tables import Table
from earmark.schemas.toml import nearest
from earmark.tasks.audio.faults import LONGEST_S, BadAudio
from earmark.tasks.audio.probe import Probe
from earmark.tasks.audio.recordings import Print, alike, fingerprint
from earmark.tasks.audio.similarity import DECIMALS
from earmark.tasks.pipeline.media import (
    clap_at,
    clap_digest,
    clip_below,
    embeddings_of,
    fault_row,
    measure,
    media_index,
)
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.registry import all_corpora
from earmark.tasks.pipeline.scoring import drop_by_score
from earmark.tasks.pipeline.step import Account
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.text.anonymity import SALT, annotator_key, salt_of, scrub
from earmark.tasks.text.near_texts import NearTexts, near_any


@dataclass(frozen=True)
class Side:
    """One of two sets to compare."""

    name: str  # in messages, such as `test`
    clips: Sequence[str]  # SHA-256 of its clips, without duplicates
    texts: Sequence[str]  # its captions and instructions
    prints: Sequence[Print] = ()  # acoustic fingerprints of `clips`, in order; empty to skip recordings


@dataclass(frozen=True)
class Crossing:
    """Item of one set that the other set shares."""

    kind: str  # `clip`, `recording` or `text`
    here: int  # here, there: places in `clips` or `texts` of the first and the second set
    there: int
    likeness: float | None = None  # of two recordings, 0 to 1; None for the rest


def crossings(here: Side, there: Side, *, recording: float, text: float) -> Iterator[Crossing]:
    """Yield everything shared by two sets: clips, then recordings, then texts, each by its place in the first set.

    Args:
        here: the first set.
        there: the second set.
        recording: least likeness of fingerprints of one recording, 0.5 to 1.
        text: least Jaccard similarity of near-duplicate texts, 0.5 to 1.
    """
    places = {clip: at for at, clip in enumerate(there.clips)}
    for at, clip in enumerate(here.clips):
        if clip in places:
            yield Crossing("clip", at, places[clip])
    for pair in alike([*here.prints, *there.prints], recording):
        if pair.first < len(here.prints) <= pair.second:
            yield Crossing("recording", pair.first, pair.second - len(here.prints), pair.likeness)
    for at, other in enumerate(near_any(here.texts, there.texts, text)):
        if other is not None:
            yield Crossing("text", at, other)


def check_disjoint(here: Side, there: Side, *, recording: float, text: float) -> None:
    """Check that two sets have nothing in common. Arguments as `crossings`.

    Raises:
        StoreError: they share items; with their number and the first example.
    """
    shared = list(crossings(here, there, recording=recording, text=text))
    if not shared:
        return
    first = shared[0]
    if first.kind == "text":
        example = f"'{here.texts[first.here][:80]}' and '{there.texts[first.there][:80]}'"
    else:
        example = f"{here.clips[first.here][:16]} and {there.clips[first.there][:16]}"
        example += "" if first.likeness is None else f", fingerprints alike by {first.likeness:.3f}"
    raise StoreError(
        f"expected '{here.name}' and '{there.name}' to share no clip, recording or near-duplicate text, "
        f"found {len(shared)} in common; the first is a {first.kind}: {example}"
    )


NO_PRINT: Print = np.zeros(0, dtype=np.uint32)
TEXTS = ("text", "instruction", "caption", "lyrics")
"""Columns with a clip's description: its request, its lyrics, or its caption."""
NOT_SUNG = frozenset({"instrumental", "none", "n/a", "no", "lyrics", "vocals"})
"""Words of lyrics without singing: generators write `[Instrumental]` or `no vocals` for many songs."""
_MARK = re.compile(r"\[[^\]\n]*\]|\([^)\n]*\)")


NEAR = 0.8  # Jaccard similarity from which texts are near-duplicates


@dataclass(frozen=True)
class References:
    """Clips and texts to keep out of a version."""

    side: Side  # clips, their fingerprints, and texts; its name lists their sources
    rule: Decontaminate  # thresholds of similarity
    # embeddings of the clips with a stored one, (clips, dimensions), each of length 1
    vectors: npt.NDArray[np.float32] | None = None

    @cached_property
    def near(self) -> NearTexts:
        """Return the index of the texts, for near-duplicate search."""
        return NearTexts(self.side.texts, NEAR)

    def fault_of(self, text: str | None) -> str | None:
        """Return the reason to keep out a text; None if it may stay."""
        if not text or self.near.find(text) is None:
            return None
        return f"expected a text apart from {self.side.name}, found one that nearly repeats one of these"


def tells_apart(column: str, value: str) -> bool:
    """Return whether a text is distinctive: any but lyrics without a sung word, such as `[Chorus]`."""
    return column != "lyrics" or not NOT_SUNG.issuperset(_MARK.sub(" ", value).lower().split())


def reject_of(references: References | None, entry: Any) -> Reject | None:
    """Return a reject for an importer's entry whose `text` or `lyrics` must stay out; None if it may stay."""
    if references is None or isinstance(entry, Reject | Note):
        return None
    texts = ((name, getattr(entry, name, None)) for name in ("text", "lyrics"))
    faults = (references.fault_of(text) for name, text in texts if text and tells_apart(name, text))
    if (fault := next(filter(None, faults), None)) is None:
        return None
    author = getattr(entry, "annotator", None)
    return Reject(str(entry[0] or ""), "decontaminated", fault, entry.source_file, entry.line, author)


def references_of(config: BuildConfig, store: Store) -> References | None:
    """Return the clips and texts that the config keeps out; None if it keeps out nothing. Cached per process.

    Raises:
        ConfigError: an unknown layout, or a version with none of the splits.
        InputError: a released benchmark, or a clip of one, cannot be read.
        StoreError: a version is missing.
    """
    if config.decontaminate is None:
        return None
    releases = tuple((layout, config.path(path)) for layout, path in config.decontaminate.releases)
    versions = tuple((one.corpus, one.name) for one in map(store.find, config.decontaminate.versions))
    roots = tuple(map(config.path, config.decontaminate.audio_roots or ()))
    model = _model_of(config)
    places = dict.fromkeys((*(path for _, path in releases), *roots, *([Path(model)] if model else [])))
    files = (file for path in places for file in (sorted(path.rglob("*")) if path.is_dir() else [path]))
    stamps = tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file())
    return _read(config.decontaminate, releases, roots, versions, str(store.root), model, stamps)


def _model_of(config: BuildConfig) -> str | None:
    """Return the embedding model: its folder, relative to the config's own, or its name on the Hub."""
    embedding = config.decontaminate and config.decontaminate.embedding
    return clap_at(config, embedding[0]) if embedding else None


def release_digests(config: BuildConfig, store: Store) -> dict[str, str]:
    """Return digests of released benchmarks and of a local embedding model, as inputs.

    Versions are among the parents; the config names a model on the Hub.
    """
    digests = clap_digest(store, "decontaminate.embedding", _model_of(config))
    if config.decontaminate is None or not config.decontaminate.releases:
        return digests
    references = references_of(config, store)
    assert references is not None
    return digests | {
        "decontaminate": digest_of([sorted(set(references.side.clips)), sorted(set(references.side.texts))])
    }


def measure_apart(
    stage: Stage, config: BuildConfig, label: str, files: Sequence[Path | AudioFault], longest_s: float = LONGEST_S
) -> list[tuple[Any, ...]]:
    """Measure audio files as `measure` does, and mark clips to keep out or with too low a score as unusable."""
    rows = _without_references(stage, config, files, measure(stage.store, label, files, longest_s), longest_s)
    return drop_by_score(stage, config, files, rows)


def _without_references(
    stage: Stage,
    config: BuildConfig,
    files: Sequence[Path | AudioFault],
    rows: list[tuple[Any, ...]],
    longest_s: float,
) -> list[tuple[Any, ...]]:
    references = references_of(config, stage.store)
    if references is None:
        return rows
    paths = {str(row[0]): file for row, file in zip(rows, files, strict=True) if row[0] and isinstance(file, Path)}
    prints = fingerprints(paths, longest_s) if references.rule.fingerprint else ()
    clips = list(paths)
    kinds = {
        clips[one.here]: one.kind
        for one in crossings(
            Side("new", clips, (), prints), replace(references.side, texts=()),
            recording=references.rule.fingerprint or 1.0, text=1.0,
        )
    }  # fmt: skip
    expected = f"expected a clip apart from {references.side.name}"
    faults = {clip: AudioFault("decontaminated", f"{expected}, found the same {kind}") for clip, kind in kinds.items()}
    faults = _near_by_embedding(stage.store, config, references, paths) | faults
    return [fault_row(*faults[row[0]]) if row[0] in faults else row for row in rows]


def _near_by_embedding(
    store: Store, config: BuildConfig, references: References, paths: Mapping[str, Path]
) -> dict[str, AudioFault]:
    model, embedding = _model_of(config), references.rule.embedding
    if model is None or embedding is None or references.vectors is None or not len(references.vectors):
        return {}
    faults, least = {}, embedding[1]
    for clip, vector in embeddings_of(store, model, paths).items():
        cosine = round(float(np.max(references.vectors @ vector)), DECIMALS)
        if cosine >= least:
            faults[clip] = AudioFault(
                "decontaminated",
                f"expected a clip apart from {references.side.name}, found an embedding of cosine {cosine:g} with one "
                f"of these, from {least:g} on a near-duplicate",
            )
    return faults


def check_apart(stage: Stage, config: BuildConfig, tables: Sequence[Table]) -> None:
    """Check that no staged table holds a clip or a text to keep out."""
    references = references_of(config, stage.store)
    if references is None:
        return
    clips = set(references.side.clips)
    for table in tables:
        paths = stage.files(table.name)
        for column in (*_clip_columns(table), *_text_columns(table)):
            for value in _values(paths, column):
                told = column in TEXTS and tells_apart(column, value) and references.fault_of(value)
                if told or (column not in TEXTS and value in clips):
                    raise StoreError(
                        f"{table.name}.{column}: expected nothing of {references.side.name} (decontaminate.against), "
                        f"found '{value[:60]}'"
                    )


@lru_cache(maxsize=4)
def _read(
    rule: Decontaminate,
    releases: tuple[tuple[str, Path], ...],
    roots: tuple[Path, ...],
    versions: tuple[tuple[str, str], ...],
    root: str,
    model: str | None,
    stamps: tuple[tuple[int, int], ...],  # part of the cache key: changed files are read again
) -> References:
    store = Store(Path(root))
    clips: dict[str, Path | None] = {}
    texts: dict[str, None] = {}
    prints: dict[str, Print] = {}
    for corpus, name in versions:
        _add_version(store, f"{corpus}@{name}", clips, texts)
    known = {layout: one for one in all_corpora()[0].values() for layout in one.layouts}
    for layout, path in releases:
        if layout not in known:
            raise ConfigError(f"decontaminate.against: no layout '{layout}'{nearest(layout, known)}")
        with tempfile.TemporaryDirectory(prefix="earmark-") as temporary:
            rows = load(known[layout].layouts[layout])(path, Path(temporary))
            homes = roots or ((path if path.is_dir() else path.parent).absolute(),)
            paths = (
                {} if rule.audio_roots is False else _clips_of(rows, store, f"{layout}:{path}", homes, Path(temporary))
            )
            if rule.fingerprint:
                prints |= dict(zip(paths, fingerprints(paths), strict=True))
            if model is not None:
                embeddings_of(store, model, paths)  # keep them in the store now; the files may be temporary
            clips |= dict.fromkeys(paths)
        clips |= {row["image_sha256"]: None for held in rows.values() for row in held if row.get("image_sha256")}
        values = ((name, row.get(name)) for held in rows.values() for row in held for name in TEXTS)
        texts |= {value: None for name, value in values if value and tells_apart(name, value)}
    there = {clip: path for clip, path in clips.items() if path is not None and path.is_file()}
    if rule.fingerprint:
        prints |= dict(zip(there, fingerprints(there), strict=True))
    side = Side(" and ".join(rule.against), list(clips), list(texts))
    prints_of = [prints.get(clip, NO_PRINT) for clip in clips] if rule.fingerprint else ()
    vectors = None
    if model is not None:
        held = embeddings_of(store, model, {clip: there.get(clip) for clip in clips})
        vectors = np.stack([*held.values()]) if held else None
    return References(replace(side, prints=prints_of), rule, vectors)


def kept_splits(version: Version) -> tuple[str, ...]:
    """Return the splits of a version that are kept out: `test`, else all."""
    splits = {split for rows in version.manifest.rows.values() for split in rows}
    return ("test",) if "test" in splits else tuple(sorted(splits))


def _add_version(store: Store, spec: str, clips: dict[str, Path | None], texts: dict[str, None]) -> None:
    """Add the clips and texts of a version's test data; a clip's file is its first known place in the store."""
    version, added = store.find(spec), dict[str, None]()
    splits, tables = kept_splits(version), all_corpora()[0][version.corpus].tables
    files = {(t.name, split): version.manifest.entries(t.name, split) for t in tables for split in splits}
    for table in tables:
        paths = [version.folder / one.path for split in splits for one in files[table.name, split]]
        for column in _clip_columns(table):
            added |= dict.fromkeys(_values(paths, column))
        for column in _text_columns(table):
            texts |= {value: None for value in _values(paths, column) if tells_apart(column, value)}
    places = media_index(store).places(set(added))
    clips |= {clip: next(iter(places.get(clip, ())), None) for clip in added}


def _clips_of(
    tables: Mapping[str, list[dict[str, Any]]], store: Store, about: str, homes: Sequence[Path], embedded: Path
) -> dict[str, Path]:
    """Return the clips of a released benchmark: embedded ones, and files below one of its folders."""
    roots = [Root(home) for home in homes]
    names = list(dict.fromkeys(row["file"] for rows in tables.values() for row in rows if row.get("file")))
    files = [_place_of(name, roots, embedded) for name in names]
    probes = media_index(store).look(files)
    faults = [(name, one) for name, one in zip(names, probes, strict=True) if isinstance(one, AudioFault)]
    if faults:
        name, fault = faults[0]
        raise InputError(
            f"decontaminate.against: {about}: {len(faults)} of {len(names)} clips cannot be read, first '{name}' "
            f"({fault.reason}: {fault.detail}); set decontaminate.audio_roots to the folder that clips' paths start "
            "from, or to false"
        )
    looked = zip(files, probes, strict=True)
    return {one.clip_sha256: file for file, one in looked if isinstance(one, Probe) and isinstance(file, Path)}


def _place_of(name: str, roots: Sequence[Root], embedded: Path) -> Path | AudioFault:
    """Return the path of a released clip, embedded or below the first root with it; a path out of a root is a fault."""
    if (embedded / name).parent == embedded and os.path.isfile(embedded / name):  # noqa: PTH113  # no name is too long
        return embedded / name
    places = [clip_below(root, name) for root in roots]
    return next((one for one in places if isinstance(one, Path) and os.path.isfile(one)), places[0])  # noqa: PTH113


def _clip_columns(table: Table) -> list[str]:
    return [one.name for one in table.schema if b"clip" in (one.metadata or {}).get(b"names", b"").split()]


def _text_columns(table: Table) -> list[str]:
    return [one.name for one in table.schema if one.name in TEXTS and one.type == pa.string()]


def _values(paths: Sequence[Path], column: str) -> Iterator[str]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                continue
            for batch in file.iter_batches(columns=[column]):
                yield from (value for value in batch[column].unique().to_pylist() if value)


def fingerprints(paths: Mapping[str, Path], longest_s: float = LONGEST_S) -> list[Print]:
    """Compute acoustic fingerprints of clips, empty for undecodable files."""

    def one(path: Path) -> Print:
        try:
            return fingerprint(path, longest_s=longest_s)
        except BadAudio:
            return NO_PRINT

    with working("fingerprint clips", len(paths)) as work, ThreadPoolExecutor(processors()) as pool:
        prints = []
        for each in pool.map(one, paths.values()):
            prints.append(each)
            work.advance()
    return prints


class Intake:
    """Intake of importer entries, of one list or several, with counts.

    Args:
        references: texts to keep out.

    Attributes:
        kept: number of rows passed on.
        rejects: unreadable entries, with the table that lacks them.
        notes: sentences for the reader.
        sources: rows and rejects per file.
        kept_out: ids of rows with a text to keep out.
    """

    def __init__(self, references: References | None = None) -> None:
        self._references = references
        self.kept_out: set[str] = set()
        self.kept = 0
        self.rejects: list[tuple[str, Reject]] = []
        self.notes: list[str] = []
        self.sources: Counter[str] = Counter()

    def take(self, entries: Iterable[Any], table: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the rows among the entries, at most `limit`; stop reading at the first row beyond it."""
        before = self.kept
        for entry in entries:
            if isinstance(entry, Note):
                self.notes.append(entry.text)
                continue
            if reject := reject_of(self._references, entry):
                self.kept_out.add(reject.item)
                entry = reject
            if isinstance(entry, Reject):
                self.rejects.append((table, entry))
            elif self.kept - before == limit:
                return
            else:
                self.kept += 1
                yield entry
            self.sources[entry.source_file] += 1

    def account(self) -> Account:
        """Return the account of all entries."""
        entered = self.kept + len(self.rejects)
        return Account(entered, self.kept, self.rejects, sources=self.sources, notes=self.notes)


class PersonalIntake(Intake):
    """Intake of what people said: salted keys take the place of their names, and texts are scrubbed.

    Args:
        references: texts to keep out.
        store: keeps the salt, unless the environment does.
    """

    def __init__(self, references: References | None, store: Store) -> None:
        super().__init__(references)
        self._salt = salt_of(SALT, store.root)

    def take_from(self, source: str, entries: Iterable[Any], table: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the rows of a source as `take` does, their `annotator` and `feedback` without names; also replace the
        authors of its rejects."""
        key = partial(annotator_key, self._salt, source)
        first = len(self.rejects)
        for row in self.take(entries, table, limit):
            if hasattr(row, "annotator"):
                who, written = row.annotator, row.feedback
                feedback = None if written is None else scrub(written, [who] if who else []) or None
                row = row._replace(annotator=None if who is None else key(who), feedback=feedback)
            yield row
        for at, (name, reject) in enumerate(self.rejects[first:], first):
            if reject.author is not None:  # it is withdrawn with the vote's author
                made_from = (("annotator", key(reject.author)),)
                self.rejects[at] = (name, reject._replace(made_from=made_from, author=None))
