"""Plan `captions` builds, and import and index their tracks; no Prefect."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from earmark.schemas.captions import CAPTIONS, CORPUS, Captions
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.files import Root
from earmark.schemas.reasons import AudioFault
from earmark.schemas.tables import WholeFile
from earmark.schemas.tracks import Track
from earmark.tasks.captions.asking import JUDGE, LISTEN, REFINE, HeardTrack, shard_sizes
from earmark.tasks.pipeline.inputs import Input, file_digests
from earmark.tasks.pipeline.media import MEASURED, clip_below
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.references import measure_apart
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.pipeline.tracks import audio_name, audio_root, choose_pool, import_list, list_input, read_list
from earmark.tasks.store.files import write_embedded
from earmark.tasks.store.licences import require_terms
from earmark.tasks.store.parquet import row_schema, tuples_of, write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.text.tag_words import list_files

MEDIA = row_schema(f"row int64, heard string, path string, {MEASURED}")


class Instrumental(NamedTuple):
    """A track's instrumental in a version: hash, length, and file; None if the table embeds it."""

    clip_sha256: str
    duration_s: float
    file: Path | None


def plan_build(config: Captions, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build.

    Raises:
        ConfigError: `instrumentals` names another corpus, or a version of unknown licence by the source's name.
        StoreError: its version is not in the store.
    """
    version = instrumentals_version(config, store)
    if version is not None:
        require_terms(version, store, config.source.name, "source.name")
    return make_plan(CORPUS, config, store, inputs=inputs, asks=[LISTEN, REFINE, JUDGE])


def instrumentals_version(config: Captions, store: Store) -> Version | None:
    """Return the configured version of `instrumentals` to hear, if any."""
    if config.instrumentals is None:
        return None
    if config.instrumentals.partition("@")[0] != "instrumentals":
        found = config.instrumentals
        raise ConfigError(f"instrumentals: expected 'instrumentals' or 'instrumentals@vN', found '{found}'")
    return store.find(config.instrumentals)


def instrumentals_of(version: Version | None) -> dict[str, Instrumental]:
    """Return the instrumentals of a version by track id."""
    if version is None:
        return {}
    root = Root(version.folder)

    def below(file: str) -> Path:
        if root.leads_out(path := root.folder / file):
            raise StoreError(f"{version.corpus} {version.name}: expected an instrumental in its folder, found '{file}'")
        return path

    names = ["track_id", "clip_sha256", "duration_s", "instrumental"]
    tables = (pq.read_table(path, columns=names) for path in version.files("tracks"))
    return {
        track_id: Instrumental(sha256, duration_s, below(file) if file else None)
        for table in tables
        for track_id, sha256, duration_s, file in tuples_of(table, *names)
    }


def inputs(config: Captions) -> Iterator[Input]:
    """Yield the word lists, and the list with its synonyms and the audio to hear."""

    def mixes(store: Store) -> dict[str, Path | AudioFault]:
        separated, root = instrumentals_of(instrumentals_version(config, store)), audio_root(config)
        tracks = islice((row for row in read_list(config) if isinstance(row, Track)), config.limit)
        names = {one.path: audio_name(config, one.path) for one in tracks if one.track_id not in separated}
        return {path: clip_below(root, name) for path, name in names.items()}

    yield Input(name="word lists", more=lambda store: file_digests(list_files()))
    yield list_input(config, partial(read_list, config), mixes if config.instrumentals else None)


@step("import", unit="tracks", label="import tracks")
def import_tracks(stage: Stage, config: Captions) -> Done[Path]:
    """Read the list; reject unreadable rows."""
    return import_list(stage, config, read_list(config), CAPTIONS.name)


@step("index", unit="tracks", follows="import", label="")
def index_tracks(stage: Stage, config: Captions, tracks: Path) -> Done[Rows[HeardTrack]]:
    """Hash and measure the audio to hear of every track; keep usable tracks, rows of `track_pool.sql`.

    In a dry run embedded instrumentals have no file.
    """
    listing = [*tuples_of(pq.ParquetFile(tracks).read(["track_id", "audio"]), "track_id", "audio")]
    version = instrumentals_version(config, stage.store)
    separated = instrumentals_of(version)
    extracted = _extract(stage, version) if version and stage.forecast is None else {}
    root = audio_root(config)
    sounds = [
        ("instrumental", one.file or extracted.get(one.clip_sha256))
        if (one := separated.get(track_id))
        else ("mix", root.folder / audio_name(config, audio))
        for track_id, audio in listing
    ]
    files = [(row, kind, path) for row, (kind, path) in enumerate(sounds) if path is not None]
    paths = [clip_below(root, path) if kind == "mix" else path for _, kind, path in files]
    measured = measure_apart(stage, config, "index audio", paths, config.length_s[1])
    rows = [(row, kind, str(path), *each) for (row, kind, path), each in zip(files, measured, strict=True)]
    for row, (kind, file) in enumerate(sounds):
        if file is None:  # embedded, and a dry run: its silence is not known yet
            instrumental = separated[listing[row][0]]
            known = (instrumental.clip_sha256, instrumental.duration_s, None, None, 0.0, None, None, None, None, None)
            rows.append((row, kind, "", *known))
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, rows)
    pool, account = choose_pool(stage, config, tracks, media, CAPTIONS.name)
    instrumentals = sum(kind == "instrumental" for kind, _ in sounds)
    note = f"{instrumentals:,} of {len(rows):,} tracks are heard without voice"
    return Done(
        keep_rows(stage, "pool", pool, shard_sizes(config, pool["duration_s"].to_pylist())),
        replace(account, notes=(note,) if config.instrumentals else ()),
    )


def _extract(stage: Stage, version: Version) -> dict[str, Path]:
    """Extract the embedded instrumentals of a version to files, by SHA-256."""
    files: dict[str, Path] = {}
    for path in version.files("tracks"):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=8, columns=["clip_sha256", "audio"]):
                clip: WholeFile | None
                for sha256, clip in tuples_of(batch, "clip_sha256", "audio"):
                    if clip is not None:
                        files[sha256] = write_embedded(clip, sha256, stage.work / "instrumentals")
    return files
