"""`instrumentals`: from a list of tagged tracks to those whose audio can be separated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.files import Root
from earmark.schemas.instrumentals import CORPUS, TRACKS, Instrumentals
from earmark.schemas.places import without_place
from earmark.schemas.tables import SPLITS
from earmark.tasks.audio.probe import AudioFault
from earmark.tasks.build.fingerprint import file_digests, roots_digest
from earmark.tasks.build.media import audio_digest, clip_below, media_index
from earmark.tasks.build.mirror import bring_folder
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.preflight import Peek
from earmark.tasks.build.progress import working
from earmark.tasks.build.rows import Rows, keep_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.importers.cells import shown
from earmark.tasks.importers.jamendo import MARK, Track, read_tag_map
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.tracks import TRACK_LAYOUTS
from earmark.tasks.instrumentals.separators import describe_separator
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

TRACKS_A_SHARD = 256
IMPORTED = pa.schema(
    [
        ("row", pa.int64()),
        ("track_id", pa.string()),
        ("name", pa.string()),
        ("artist_id", pa.string()),
        ("album_id", pa.string()),
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
        ("sample_rate_hz", pa.int64()),
        ("channels", pa.int64()),
        ("peak_dbfs", pa.float64()),
        ("level_dbfs", pa.float64()),
        ("silent_share", pa.float64()),
        ("codec", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)
_FILE_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def plan_build(config: Instrumentals, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a version would be made from; says whether there is anything to build."""
    models = (Path(config.separator.model).name,)
    return make_plan(CORPUS, config, store, partial(digest_inputs, config, store), inputs=inputs, models=models)


def digest_inputs(config: Instrumentals, store: Store) -> dict[str, str]:
    """SHA-256 of the list, of its synonyms, of the audio that it names, and of what decides the separator's output."""
    source = config.source
    written = [name for name in (source.tracks, source.tag_map) if name]
    digests = file_digests((without_place(name), config.path(name)) for name in written)
    digests["separator"] = describe_separator(config.separator, config.path, store).digest  # a wrong one is told first
    lists = [(config.path(source.tracks), audio_folder(config))]
    digests |= roots_digest("paths", lists, partial(listed, config))
    with working(f"hash audio of {source.name}") as work:
        index = media_index(store)
        digests["audio"] = audio_digest(named_audio(config), index, work.advance, config.tracks.longest_s)
        if config.known_leads:
            bring_folder(config.path(config.known_leads), lambda name: name.endswith(".flac"))
            leads = {path.name: path for path in sorted(config.path(config.known_leads).glob("*.flac"))}
            digests["known leads"] = audio_digest(leads, index)
    return digests


def peeks(config: Instrumentals) -> Iterator[Peek]:
    """What is looked at before a build starts: the list, and its first clips."""
    source = config.source
    root = Root(audio_folder(config), source.links)
    lists = tuple(config.path(name) for name in (source.tracks, source.tag_map) if name)
    read = partial(listed, config)
    yield Peek(source.name, read, lambda row: [clip_below(root, root.folder / row.path)], "source.audio_root", lists)


def listed(config: Instrumentals) -> Iterator[Track | Reject | Note]:
    """The rows of the list; a track that cannot have a file of its own in the version is a reject."""
    source = config.source
    synonyms = read_tag_map(config.path(source.tag_map), source.tag_map) if source.tag_map else None
    read = TRACK_LAYOUTS.find(source.format).read
    named: dict[str, Track] = {}
    for row in read(config.path(source.tracks), source.tracks, synonyms, audio_folder(config)):
        if not isinstance(row, Track):
            yield row
        elif fault := _name_fault(config, row, named):
            yield fault
        else:
            named[file_name(config, row)] = row
            yield row


def audio_folder(config: Instrumentals) -> Path:
    """Where the tracks' audio lies."""
    source = config.source
    return config.path(source.audio_root) if source.audio_root else config.path(source.tracks).parent


def named_audio(config: Instrumentals) -> dict[str, Path | AudioFault]:
    """The audio file of every track that is listed."""
    tracks = islice((row for row in listed(config) if isinstance(row, Track)), config.limit)
    root = Root(audio_folder(config), config.source.links)
    return {track.path: clip_below(root, root.folder / track.path) for track in tracks}


def file_name(config: Instrumentals, track: Track) -> str:
    """The id that names a track's files."""
    return TRACK_LAYOUTS.find(config.source.format).file_name(track)


@step("import", unit="tracks", label="")
def import_tracks(stage: Stage, config: Instrumentals) -> Done[Path]:
    """Read the list; what cannot be read is a reject.

    Returns:
        Parquet, columns `IMPORTED`.

    Raises:
        InputError: the list or one of its columns is missing.
    """
    rejects: list[tuple[str, Reject]] = []
    notes: list[str] = []
    rows: list[tuple[object, ...]] = []
    entered: Counter[str] = Counter()
    with working(f"import {config.source.name}"):
        for track in listed(config):
            if isinstance(track, Note):
                notes.append(track.text)
                continue
            if isinstance(track, Track) and len(rows) == config.limit:
                break
            entered[track.source_file] += 1
            if isinstance(track, Reject):
                rejects.append((TRACKS.name, track))
            else:
                tags = [f"{tag.category}{MARK}{tag.name}" for tag in track.tags]
                rows.append(
                    (len(rows), track.track_id, file_name(config, track), track.artist_id or None,
                     track.album_id or None, tags, track.path, track.source_file, track.line)
                )  # fmt: skip
    path = stage.work / "tracks.parquet"
    write_rows(path, IMPORTED, rows)
    return Done(path, Account(entered.total(), len(rows), rejects, sources=entered, notes=notes))


def _name_fault(config: Instrumentals, track: Track, named: dict[str, Track]) -> Reject | None:
    """Why a track cannot have a file of its own in the version, where instrumentals are kept as files."""
    if config.output.keep != "files":
        return None
    name = file_name(config, track)
    if not _FILE_NAME.fullmatch(name):
        detail = f"expected an id of letters, digits, _ and - for the file's name, found '{shown(name)}'"
        return Reject(track.track_id, "bad_file_name", detail, track.source_file, track.line)
    if name in named:
        detail = f"expected a file name of its own, found '{name}' in line {named[name].line} too"
        return Reject(track.track_id, "duplicate_file_name", detail, track.source_file, track.line)
    return None


@step("index", unit="tracks", follows="import", label="")
def index_audio(stage: Stage, config: Instrumentals, tracks: Path) -> Done[Rows]:
    """Hash and measure every track's audio; what cannot be separated is a reject.

    Returns:
        What can be, as `pool.sql` gives it.
    """
    names = pq.ParquetFile(tracks).read(["audio"])["audio"].to_pylist()
    with working("index audio", len(names)) as work:
        root = Root(audio_folder(config), config.source.links)
        files = [clip_below(root, root.folder / name) for name in names]
        probes = media_index(stage.store).look(files, longest_s=config.tracks.longest_s, seen=work.advance)
    rows = [
        (row, *[None] * 8, *probe) if isinstance(probe, AudioFault) else (row, *probe, None, None)
        for row, probe in enumerate(probes)
    ]
    media = stage.work / "media.parquet"
    write_rows(media, MEDIA, rows)
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "tracks", [tracks])
        view_parquet(connection, "media", [media])
        limits = {"shortest_s": config.tracks.shortest_s, "silence_dbfs": config.tracks.silence_dbfs}
        connection.execute(query("importers/refuse_tracks"), limits)
        refused = connection.sql(
            "SELECT 'tracks', track_id, 'index', reason, detail, source_file, line, made_from "
            "FROM refused_tracks ORDER BY row"
        ).to_arrow_table()
        pool = connection.sql(
            query("instrumentals/pool"), params={"seed": config.seed, **_ends(config)}
        ).to_arrow_table()
        entered = dict(connection.execute("SELECT source_file, count(*) FROM tracks GROUP BY ALL").fetchall())
    note = f"{_length(sum(pool['duration_s'].to_pylist()))} of audio can be separated"
    return Done(
        keep_rows(stage, "pool", pool, TRACKS_A_SHARD),
        Account(sum(entered.values()), len(pool), refused, sources=entered, notes=(note,)),
    )


def _length(duration_s: float) -> str:
    return f"{duration_s / 3600:,.1f} h" if duration_s >= 3600 else f"{duration_s:.0f} s"


def _ends(config: Instrumentals) -> dict[str, float]:
    """Where each split ends on the line from 0 to 1; the last one that has a share takes all that is left."""
    ends, total = {}, 0.0
    for split in SPLITS[:3]:
        total += config.shares.get(split, 0.0)  # type: ignore[call-overload]
        ends[f"{split}_upto"] = 2.0 if total > 1 - 1e-9 else total
    return ends
