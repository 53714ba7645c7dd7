"""`captions`: what a build is made from, and the tracks that can be captioned. No Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.captions import CAPTIONS, CORPUS, Captions
from earmark.schemas.errors import ConfigError
from earmark.schemas.files import Root
from earmark.schemas.places import without_place
from earmark.schemas.tables import SPLITS
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.build.fingerprint import file_digests, roots_digest
from earmark.tasks.build.media import audio_digest, clip_below, media_index
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.preflight import Peek
from earmark.tasks.build.progress import working
from earmark.tasks.build.rejects import came_in
from earmark.tasks.build.rows import Rows, keep_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.captions.asking import annotators, prompt_digests, shard_sizes
from earmark.tasks.importers.jamendo import MARK, Track, read_tag_map
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.tracks import TRACK_LAYOUTS
from earmark.tasks.store.files import replacing
from earmark.tasks.store.licences import licences_of
from earmark.tasks.store.manifest import Parent
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.text.tag_words import list_files

IMPORTED = pa.schema(
    [
        ("row", pa.int64()),
        ("track_id", pa.string()),
        ("artist_id", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("audio", pa.string()),
        ("source_file", pa.string()),
        ("line", pa.int64()),
    ]
)
MEDIA = pa.schema(
    [
        ("row", pa.int64()),
        ("clip_sha256", pa.string()),
        ("duration_s", pa.float64()),
        ("peak_dbfs", pa.float64()),
        ("heard", pa.string()),
        ("path", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


class Instrumental(NamedTuple):
    """A track's instrumental in a version: its hash, its length, and its file; None where the table embeds it."""

    clip_sha256: str
    duration_s: float
    file: Path | None


def plan_build(config: Captions, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; says whether there is anything to build.

    Raises:
        ConfigError: `instrumentals` names another corpus, or one whose licence would not be known by the source's name.
        StoreError: the version that it names is not in the store.
    """
    version = instrumentals_version(config, store)
    if version is not None:
        _check_terms(config, version, store)
    parents = [Parent(corpus=v.corpus, version=v.name, digest=v.manifest.digest()) for v in [version] if v]
    return make_plan(
        CORPUS,
        config,
        store,
        partial(digest_inputs, config, store),
        inputs=inputs,
        prompts=prompt_digests(config),
        models=annotators(config),
        parents=tuple(parents),
    )


def instrumentals_version(config: Captions, store: Store) -> Version | None:
    """The version of `instrumentals` whose audio is heard, if the config names one."""
    if config.instrumentals is None:
        return None
    if config.instrumentals.partition("@")[0] != "instrumentals":
        found = config.instrumentals
        raise ConfigError(f"instrumentals: expected 'instrumentals' or 'instrumentals@vN', found '{found}'")
    return store.find(config.instrumentals)


def _check_terms(config: Captions, version: Version, store: Store) -> None:
    """Captions of tracks of which nothing may be passed on are held back by the name that those have."""
    name = version.manifest.config.get("source", {}).get("name")
    terms = licences_of(version, store).get(name)
    if terms is not None and terms.redistribute == "none" and config.source.name != name:
        raise ConfigError(
            f"source.name: expected '{name}', by which {version.corpus} {version.name} forbids to pass these tracks on "
            f"(licences), found '{config.source.name}'"
        )


def instrumentals_of(version: Version | None) -> dict[str, Instrumental]:
    """The instrumentals of a version by track id."""
    if version is None:
        return {}
    names = ["track_id", "clip_sha256", "duration_s", "instrumental"]
    rows = [row for path in version.files("tracks") for row in pq.read_table(path, columns=names).to_pylist()]
    return {
        row["track_id"]: Instrumental(
            row["clip_sha256"], row["duration_s"], version.folder / row["instrumental"] if row["instrumental"] else None
        )
        for row in rows
    }


def digest_inputs(config: Captions, store: Store) -> dict[str, str]:
    """SHA-256 of the list, of its synonyms, of the word lists, and of the audio that is heard as the list names it."""
    source = config.source
    written = [name for name in (source.tracks, source.tag_map) if name]
    digests = file_digests([*((without_place(name), config.path(name)) for name in written), *list_files()])
    digests |= roots_digest("paths", [(config.path(source.tracks), audio_folder(config))], partial(listed, config))
    separated = instrumentals_of(instrumentals_version(config, store))
    tracks = islice((row for row in listed(config) if isinstance(row, Track)), config.limit)
    root = Root(audio_folder(config), source.links)
    files = {
        track.path: clip_below(root, root.folder / track.path) for track in tracks if track.track_id not in separated
    }
    with working(f"hash audio of {source.name}", len(files)) as work:
        digests["audio"] = audio_digest(files, media_index(store), work.advance, config.tracks.longest_s)
    return digests


def peeks(config: Captions) -> Iterator[Peek]:
    """What is looked at before a build starts: the list, and its first clips where none is heard without its voice."""
    source = config.source
    root = Root(audio_folder(config), source.links)
    clips = None if config.instrumentals else lambda row: [clip_below(root, root.folder / row.path)]
    lists = tuple(config.path(name) for name in (source.tracks, source.tag_map) if name)
    yield Peek(source.name, partial(listed, config), clips, "source.audio_root", lists)


def listed(config: Captions) -> Iterator[Track | Reject | Note]:
    """The rows of the list."""
    source = config.source
    synonyms = read_tag_map(config.path(source.tag_map), source.tag_map) if source.tag_map else None
    read = TRACK_LAYOUTS.find(source.format).read
    return read(config.path(source.tracks), source.tracks, synonyms, audio_folder(config))


def audio_folder(config: Captions) -> Path:
    """Where the tracks' audio lies."""
    source = config.source
    return config.path(source.audio_root) if source.audio_root else config.path(source.tracks).parent


@step("import", unit="tracks", label="import tracks")
def import_tracks(stage: Stage, config: Captions) -> Done[Path]:
    """Read the list; what cannot be read is a reject.

    Raises:
        InputError: the list or one of its columns is missing.
    """
    rejects: list[tuple[str, Reject]] = []
    notes: list[str] = []
    rows: list[tuple[Any, ...]] = []
    for entry in listed(config):
        if isinstance(entry, Note):
            notes.append(entry.text)
        elif isinstance(entry, Reject):
            rejects.append((CAPTIONS.name, entry))
        elif len(rows) == config.limit:
            break
        else:
            tags = [f"{tag.category}{MARK}{tag.name}" for tag in entry.tags]
            place = (entry.source_file, entry.line)
            rows.append((len(rows), entry.track_id, entry.artist_id or None, tags, entry.path, *place))
    tracks = stage.work / "tracks.parquet"
    write_rows(tracks, IMPORTED, rows)
    sources = came_in((row[-2] for row in rows), rejects)
    return Done(tracks, Account(len(rows) + len(rejects), len(rows), rejects, sources=sources, notes=notes))


@step("index", unit="tracks", follows="import", label="")
def index_tracks(stage: Stage, config: Captions, tracks: Path) -> Done[Rows]:
    """Hash and measure what is heard of every track.

    Returns:
        The tracks that can be captioned, rows of `pool.sql`. In a dry run embedded instrumentals have no file.
    """
    listing = pq.ParquetFile(tracks).read(["track_id", "audio"]).to_pylist()
    version = instrumentals_version(config, stage.store)
    separated = instrumentals_of(version)
    extracted = _extract(stage, version) if version and stage.forecast is None else {}
    root = Root(audio_folder(config), config.source.links)
    sounds = [_sound_of(track, separated.get(track["track_id"]), root.folder, extracted) for track in listing]
    files = [(row, kind, path) for row, (kind, path) in enumerate(sounds) if path is not None]
    with working("index audio", len(files)) as work:
        paths = [clip_below(root, path) if kind == "mix" else path for _, kind, path in files]
        probes = media_index(stage.store).look(paths, longest_s=config.tracks.longest_s, seen=work.advance)
    rows: list[tuple[Any, ...]] = []
    for (row, kind, path), probe in zip(files, probes, strict=True):
        if isinstance(probe, AudioFault):
            rows.append((row, None, None, None, kind, str(path), *probe))
        else:
            measured = (probe.clip_sha256, probe.duration_s, probe.peak_dbfs)
            rows.append((row, *measured, kind, str(path), None, None))
    for row, (kind, file) in enumerate(sounds):
        if file is None:  # embedded, and only the plan is wanted: its silence is not known yet
            instrumental = separated[listing[row]["track_id"]]
            rows.append((row, instrumental.clip_sha256, instrumental.duration_s, 0.0, kind, "", None, None))
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, rows)
    pool, refused, sources = _choose_pool(stage, config, tracks, media)
    instrumentals = sum(kind == "instrumental" for kind, _ in sounds)
    note = f"{instrumentals:,} of {len(rows):,} tracks are heard without voice"
    return Done(
        keep_rows(stage, "pool", pool, shard_sizes(config, pool["duration_s"].to_pylist())),
        Account(len(rows), len(pool), refused, sources=sources, notes=(note,) if config.instrumentals else ()),
    )


def _sound_of(
    track: Mapping[str, Any], instrumental: Instrumental | None, folder: Path, extracted: Mapping[str, Path]
) -> tuple[str, Path | None]:
    """What is heard of a track, and its file; None where the instrumental is embedded and was not taken out."""
    if instrumental is None:
        return "mix", folder / track["audio"]
    return "instrumental", instrumental.file or extracted.get(instrumental.clip_sha256)


def _extract(stage: Stage, version: Version) -> dict[str, Path]:
    """The embedded instrumentals of a version as files, by SHA-256."""
    files: dict[str, Path] = {}
    for path in version.files("tracks"):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=8, columns=["clip_sha256", "audio"]):
                for row in batch.to_pylist():
                    if row["audio"] is None:
                        continue
                    target = stage.work / "instrumentals" / row["audio"]["path"]
                    if not target.is_file():
                        with replacing(target) as temporary:
                            temporary.write_bytes(row["audio"]["bytes"])
                    files[row["clip_sha256"]] = target
    return files


def _choose_pool(
    stage: Stage, config: Captions, tracks: Path, media: Path
) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """The tracks that can be captioned, rejects for the others, and how many there were by file."""
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "tracks", [tracks])
        view_parquet(connection, "media", [media])
        limits = {"shortest_s": config.tracks.shortest_s, "silence_dbfs": config.tracks.silence_dbfs}
        connection.execute(query("importers/refuse_tracks"), limits)
        refused = connection.sql(
            "SELECT 'captions', track_id, 'index', reason, detail, source_file, line, made_from "
            "FROM refused_tracks ORDER BY row"
        ).to_arrow_table()
        pool = connection.sql(query("captions/pool"), params={"seed": config.seed, **_ends(config)}).to_arrow_table()
        by_file = connection.execute("SELECT source_file, count(*) FROM tracks GROUP BY ALL").fetchall()
    return pool, refused, dict(by_file)


def _ends(config: Captions) -> dict[str, float]:
    """Where each split ends on the line from 0 to 1; the last one that has a share takes all that is left."""
    ends, total = {}, 0.0
    for split in SPLITS[:3]:
        total += config.shares.get(split, 0.0)  # type: ignore[call-overload]
        ends[f"{split}_upto"] = 2.0 if total > 1 - 1e-9 else total
    return ends
