"""Read, check and split tagged tracks: the first steps of every corpus from a track list."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import pyarrow as pa

from earmark.schemas.files import Root, source_root
from earmark.schemas.places import without_place
from earmark.schemas.reasons import AudioFault, Note, Reject
from earmark.schemas.tables import split_ends
from earmark.schemas.tracks import NOT_STATED, Track, TracksConfig, file_of
from earmark.tasks.audio.probe import SILENCE_DBFS
from earmark.tasks.importers.tracks import TRACK_LAYOUTS, read_licences, read_tag_map
from earmark.tasks.pipeline.inputs import Input
from earmark.tasks.pipeline.references import Intake
from earmark.tasks.pipeline.step import Account, Done
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

Entries = Iterable[Track | Reject | Note]
IMPORTED = row_schema(
    "row int64, track_id string, name string, artist_id string, album_id string, tags string[], audio string, "
    "source_file string, line int64, licence string"
)


class PooledTrack(TypedDict):
    """A row of `track_pool.sql`: a track with fit audio."""

    row: int
    track_id: str
    name: str
    artist_id: str | None
    album_id: str | None
    tags: list[str]
    audio: str
    source_file: str
    line: int
    licence: str | None
    clip_sha256: str
    duration_s: float
    sample_rate_hz: int
    channels: int
    split: str


def read_list(config: TracksConfig) -> Iterator[Track | Reject | Note]:
    """Yield the rows of the list, with licences if the config names a file of them."""
    source = config.source
    listed = source.audio_licences
    licences = read_licences(config.path(listed), listed) if listed else None
    synonyms = read_tag_map(config.path(source.tag_map), source.tag_map) if source.tag_map else None
    read = TRACK_LAYOUTS.find(source.format).read
    for row in read(config.path(source.tracks), source.tracks, synonyms, audio_root(config).folder):
        if isinstance(row, Track) and licences is not None and row.licence in ("", NOT_STATED):
            row = row._replace(licence=licences.get(row.path, NOT_STATED))
        yield row


def audio_root(config: TracksConfig) -> Root:
    """Return the folder of the tracks' audio."""
    source = config.source
    folder = source.audio_place[0]
    return source_root(config.path(source.tracks).parent if folder is None else config.path(folder))


def audio_name(config: TracksConfig, path: str) -> str:
    """Return the file of a track below the folder of the audio, from its path in the list."""
    return file_of(config.source.audio_place[1], path)


def file_name(config: TracksConfig, track: Track) -> str:
    """Return the id in a track's file names."""
    return TRACK_LAYOUTS.find(config.source.format).file_name(track)


def list_input(
    config: TracksConfig, read: Callable[[], Entries], audio: Callable[[Store], Mapping[str, Path | AudioFault]] | None
) -> Input:
    """Return a list of tracks, its synonyms and its licences as an input.

    Args:
        config: names the list.
        read: yields the rows of the list.
        audio: returns the audio to hash in place of the tracks' own.
    """
    source, root = config.source, audio_root(config)
    named = (source.tracks, source.tag_map, source.audio_licences)
    files = [(without_place(name), config.path(name), root.folder) for name in named if name]
    return Input(
        name=source.name,
        files=lambda: files,
        read=read,
        root=root,
        clips=None if audio else lambda track: [audio_name(config, track.path)],
        option="source.audio_root",
        limit=config.limit,
        longest_s=config.length_s[1],
        audio=audio,
    )


def audio_file(config: TracksConfig, path: str) -> Path:
    """Return the place of a track's audio, from its path in the list."""
    return audio_root(config).folder / audio_name(config, path)


def import_list(stage: Stage, config: TracksConfig, entries: Entries, table: str) -> Done[Path]:
    """Write the tracks of a list, columns `IMPORTED`; reject unreadable entries for the table.

    Raises:
        InputError: the list or one of its columns is missing.
    """
    intake = Intake()
    rows: list[tuple[object, ...]] = []
    for track in intake.take(entries, table, config.limit):
        tags = [tag.marked for tag in track.tags]
        ids = (track.track_id, file_name(config, track), track.artist_id or None, track.album_id or None)
        rows.append((len(rows), *ids, tags, track.path, track.source_file, track.line, track.licence or None))
    path = stage.work / "tracks.parquet"
    write_rows(path, IMPORTED, rows)
    account, counts = intake.account(), Counter(licence for *_, licence in rows if licence)
    told = ", ".join(f"{licence} {count:,}" for licence, count in sorted(counts.items()))
    return Done(path, replace(account, notes=(*account.notes, f"tracks by licence: {told}")) if counts else account)


def choose_pool(stage: Stage, config: TracksConfig, tracks: Path, media: Path, table: str) -> tuple[pa.Table, Account]:
    """Select tracks with fit audio, as rows of `track_pool.sql`; reject the others for the table.

    Args:
        stage: the build.
        config: sets the limits of fit audio and the shares of the splits.
        tracks: from `import_list`.
        media: Parquet with `row` and the measures of its audio.
        table: the table that lacks refused tracks.
    """
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "tracks", [tracks])
        view_parquet(connection, "media", [media])
        limits = {"shortest_s": config.length_s[0], "silence_dbfs": SILENCE_DBFS}
        connection.execute(query("pipeline/refuse_tracks"), limits)
        refused = connection.sql(
            "SELECT $table, track_id, 'index', reason, detail, source_file, line, made_from "
            "FROM refused_tracks ORDER BY row",
            params={"table": table},
        ).to_arrow_table()
        given = {"seed": config.seed, **split_ends(config.shares)}
        pool = connection.sql(query("pipeline/track_pool"), params=given).to_arrow_table()
        sources = dict(connection.execute("SELECT source_file, count(*) FROM tracks GROUP BY ALL").fetchall())
    return pool, Account(sum(sources.values()), len(pool), refused, sources=sources)
