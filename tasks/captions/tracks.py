"""`captions`: what a build is made from, and the tracks that can be captioned. No Prefect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.captions import CAPTIONS, CORPUS, Captions
from schemas.errors import ConfigError, InputError
from schemas.files import Root
from schemas.places import without_place
from schemas.tables import REJECTS, SPLITS
from tasks.audio.probe import AudioFault
from tasks.build.fingerprint import file_digests, roots_digest
from tasks.build.media import audio_digest, clip_below, media_index
from tasks.build.plan import Plan, make_plan
from tasks.build.preflight import Peek
from tasks.build.progress import working
from tasks.build.rejects import came_in, rejects_table
from tasks.captions.asking import annotators, prompt_digests, shard_sizes
from tasks.importers.jamendo import MARK, Track, read_tag_map
from tasks.importers.rows import Note, Reject
from tasks.importers.tracks import TRACK_LAYOUTS
from tasks.store.files import replacing
from tasks.store.manifest import Parent, Step
from tasks.store.parquet import write_rows
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage
from tasks.store.versions import Store, Version
from tasks.store.withhold import licences_of
from tasks.text.tag_words import list_files

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


def import_tracks(stage: Stage, config: Captions) -> Step:
    """Read the list; what cannot be read is a reject. Leaves `work/tracks.parquet`.

    Raises:
        InputError: the list or one of its columns is missing.
    """
    rejects: list[tuple[str, Reject]] = []
    notes: list[str] = []
    rows: list[tuple[Any, ...]] = []
    with working(f"import {config.source.name}"):
        for found in listed(config):
            if isinstance(found, Note):
                notes.append(found.text)
            elif isinstance(found, Reject):
                rejects.append((CAPTIONS.name, found))
            elif len(rows) == config.limit:
                break
            else:
                tags = [f"{tag.category}{MARK}{tag.name}" for tag in found.tags]
                place = (found.source_file, found.line)
                rows.append((len(rows), found.track_id, found.artist_id or None, tags, found.path, *place))
    write_rows(stage.work / "tracks.parquet", IMPORTED, rows)
    stage.write_rejects("import", rejects_table("import", rejects), came_in((row[-2] for row in rows), rejects))
    return stage.record(
        Step(
            name="import",
            place=1,
            unit="tracks",
            stage="import",
            entered=len(rows) + len(rejects),
            kept=len(rows),
            rejected=dict(Counter(reject.reason for _, reject in rejects)),
            notes=tuple(notes),
        )
    )


def index_tracks(stage: Stage, config: Captions, *, extract: bool = True) -> Step:
    """Hash and measure what is heard of every track. Leaves `work/pool.parquet`, a row group a shard.

    Args:
        stage: where the build works.
        config: the build config.
        extract: whether embedded instrumentals are written to files, to be heard.
    """
    columns = ["track_id", "audio"]
    tracks = pq.ParquetFile(stage.work / "tracks.parquet").read(columns).to_pylist()
    version = instrumentals_version(config, stage.store)
    separated = instrumentals_of(version)
    extracted = _extract(stage, version) if version and extract else {}
    root = Root(audio_folder(config), config.source.links)
    heard = [_heard(track, separated.get(track["track_id"]), root.folder, extracted) for track in tracks]
    files = [(row, kind, path) for row, (kind, path) in enumerate(heard) if path is not None]
    with working("index audio", len(files)) as work:
        paths = [clip_below(root, path) if kind == "mix" else path for _, kind, path in files]
        found = media_index(stage.store).look(paths, longest_s=config.tracks.longest_s, seen=work.advance)
    rows: list[tuple[Any, ...]] = []
    for (row, kind, path), probe in zip(files, found, strict=True):
        if isinstance(probe, AudioFault):
            rows.append((row, None, None, None, kind, str(path), *probe))
        else:
            measured = (probe.clip_sha256, probe.duration_s, probe.peak_dbfs)
            rows.append((row, *measured, kind, str(path), None, None))
    for row, (kind, file) in enumerate(heard):
        if file is None:  # embedded, and only the plan is asked for: its silence is not known yet
            held = separated[tracks[row]["track_id"]]
            rows.append((row, held.clip_sha256, held.duration_s, 0.0, kind, "", None, None))
    mixes = sum(kind == "mix" for kind, _ in heard)
    write_rows(stage.work / "media.parquet", MEDIA, rows)
    return _write_pool(stage, config, len(rows), len(rows) - mixes)


def _heard(
    track: Mapping[str, Any], held: Instrumental | None, folder: Path, extracted: Mapping[str, Path]
) -> tuple[str, Path | None]:
    """What is heard of a track, and its file; None where the instrumental is embedded and was not taken out."""
    if held is None:
        return "mix", folder / track["audio"]
    return "instrumental", held.file or extracted.get(held.clip_sha256)


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


def _write_pool(stage: Stage, config: Captions, entered: int, instrumentals: int) -> Step:
    with connect(stage.work / "spill") as connection:
        for name in ("tracks", "media"):
            view_parquet(connection, name, [stage.work / f"{name}.parquet"])
        limits = {"shortest_s": config.tracks.shortest_s, "silence_dbfs": config.tracks.silence_dbfs}
        connection.execute(query("importers/refuse_tracks"), limits)
        refused = connection.sql(
            "SELECT 'captions', track_id, 'index', reason, detail, source_file, line FROM refused_tracks ORDER BY row"
        ).to_arrow_table()
        pool = connection.sql(query("captions/pool"), params={"seed": config.seed, **_ends(config)}).to_arrow_table()
        by_file = dict(connection.execute("SELECT source_file, count(*) FROM tracks GROUP BY ALL").fetchall())
    stage.write_rejects("index", refused.rename_columns(REJECTS.schema.names), by_file)
    sizes, at = shard_sizes(config, pool["duration_s"].to_pylist()), 0
    with replacing(stage.work / "pool.parquet") as temporary, pq.ParquetWriter(temporary, pool.schema) as writer:
        for size in sizes:
            writer.write_table(pool.slice(at, size))
            at += size
    heard = f"{instrumentals:,} of {entered:,} tracks are heard without voice"
    return stage.record(
        Step(
            name="index",
            place=2,
            unit="tracks",
            stage="index",
            follows=("import",),
            entered=entered,
            kept=len(pool),
            rejected=dict(Counter(refused.column(3).to_pylist())),
            notes=(heard,) if config.instrumentals else (),
        )
    )


def shards_of(stage: Stage) -> list[int]:
    """The numbers of the shards of tracks."""
    return list(range(pq.read_metadata(stage.work / "pool.parquet").num_row_groups))


def count_tracks(stage: Stage) -> int:
    """How many tracks can be captioned."""
    return int(pq.read_metadata(stage.work / "pool.parquet").num_rows)


def tracks_of(stage: Stage, shard: int, *, heard: bool = True) -> list[dict[str, Any]]:
    """The tracks of a shard: rows of `pool.sql`; `heard` says whether their audio will be read.

    Raises:
        InputError: an instrumental's file is not there.
    """
    with pq.ParquetFile(stage.work / "pool.parquet") as file:
        rows: list[dict[str, Any]] = file.read_row_group(shard).to_pylist()
    for row in rows:
        if heard and row["heard"] == "instrumental" and not Path(row["path"]).is_file():
            raise InputError(f"{row['track_id']}: expected its instrumental's file, found none; build again")
    return rows


def _ends(config: Captions) -> dict[str, float]:
    """Where each split ends on the line from 0 to 1; the last one that has a share takes all that is left."""
    ends, total = {}, 0.0
    for split in SPLITS[:3]:
        total += config.shares.get(split, 0.0)  # type: ignore[call-overload]
        ends[f"{split}_upto"] = 2.0 if total > 1 - 1e-9 else total
    return ends
