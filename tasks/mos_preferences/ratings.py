"""`mos-preferences`: from published lists to rated clips: import, merge votes, place in splits, index audio."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.errors import InputError
from schemas.mos_preferences import RATINGS, MosPreferences, Source
from schemas.places import told
from schemas.tables import AUDIO, REJECTS, SPLITS
from tasks.audio.decode import convert
from tasks.audio.faults import BadAudio
from tasks.audio.probe import AudioFault, Probe
from tasks.build.media import EMBEDDED_AT_ONCE, clip_below, media_index
from tasks.build.progress import working
from tasks.build.rejects import rejects_table
from tasks.importers.ratings import read_source
from tasks.importers.rows import Note, Rating, Reject
from tasks.mos_preferences.sources import find_audio, root_of
from tasks.store.files import replacing
from tasks.store.manifest import Step
from tasks.store.sql import connect, literal, query, view_parquet
from tasks.store.staging import Stage

ROWS_PER_SOURCE = 1 << 40  # a source's rows are numbered from its place times this, so that all rows have one order
BATCH = 100_000
CLIPS_A_SHARD = 5_000
STEPS_AT_ONCE = 4
CONVERTED_RATE_HZ = 16_000

IMPORTED = pa.schema(
    [
        ("file", pa.string()),
        ("score", pa.float64()),
        ("source_file", pa.string()),
        ("line", pa.int64()),
        ("split", pa.string()),
        ("subset", pa.string()),
        ("system_id", pa.string()),
        ("speaker_id", pa.string()),
        ("content_id", pa.string()),
        ("condition_id", pa.string()),
        ("listener_id", pa.string()),
        ("votes", pa.int64()),
        ("mos_std", pa.float64()),
        ("audio", pa.string()),
        ("dataset", pa.string()),
        ("row", pa.int64()),
    ]
)
MEDIA = pa.schema(
    [
        ("row", pa.int64()),
        ("clip_sha256", pa.string()),
        ("duration_s", pa.float64()),
        ("sample_rate_hz", pa.int64()),
        ("channels", pa.int64()),
        ("converted", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


@task(name="import", task_run_name="import-{source.name}", cache_policy=NO_CACHE)
def import_source(stage: Stage, config: MosPreferences, source: Source) -> Step:
    """Read one source's lists into `work/imported/`; what cannot be read is a reject.

    Raises:
        InputError: the source is not there at all, or a file is not what its format says.
    """
    return stage.recorded(f"import-{source.name}") or _import_source(stage, config, source)


def _import_source(stage: Stage, config: MosPreferences, source: Source) -> Step:
    number = config.sources.index(source)
    notes: list[str] = []
    rejects: list[Reject] = []
    kept = 0
    with (
        working(f"import {source.name}") as work,
        replacing(stage.work / "imported" / f"{number:03d}.parquet") as path,
        pq.ParquetWriter(path, IMPORTED, compression="zstd") as writer,
    ):
        ratings = islice(_ratings(read_source(source, config.path), rejects, notes), config.limit)
        while batch := list(islice(ratings, BATCH)):
            first = number * ROWS_PER_SOURCE + kept
            columns = [*zip(*batch, strict=True), [source.name] * len(batch), range(first, first + len(batch))]
            writer.write_table(
                pa.table([pa.array(c, f.type) for c, f in zip(columns, IMPORTED, strict=True)], IMPORTED)
            )
            kept += len(batch)
            work.advance(len(batch))
    name = f"import-{source.name}"
    stage.write_rejects(
        name,
        rejects_table("import", ((RATINGS.name, reject) for reject in rejects)),
        {source.name: kept + len(rejects)},
    )
    return stage.record(
        Step(
            name=name,
            place=1,
            unit="list rows",
            stage="import",
            entered=kept + len(rejects),
            kept=kept,
            rejected=dict(Counter(reject.reason for reject in rejects)),
            notes=tuple(notes),
        )
    )


def _ratings(imported: Iterable[Rating | Reject | Note], rejects: list[Reject], notes: list[str]) -> Iterable[Rating]:
    for found in imported:
        if isinstance(found, Rating):
            yield found
        elif isinstance(found, Reject):
            rejects.append(found)
        else:
            notes.append(found.text)


@task(name="merge", cache_policy=NO_CACHE)
def merge_votes(stage: Stage, config: MosPreferences) -> Step:
    """Average ratings and place each clip in a split; contradicting rows are rejects.

    Leaves `work/placed.parquet`, one row a clip.
    """
    if done := stage.recorded("merge"):
        return done
    with working("merge ratings"), connect(stage.work / "spill") as connection:
        return _merge_votes(stage, connection, config)


def _merge_votes(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> Step:
    view_parquet(connection, "imported", sorted((stage.work / "imported").glob("*.parquet")), IMPORTED)
    average(connection, config)
    notes = [*_averages(connection), *_write_split_rules(connection, config)]
    connection.execute(query("mos_preferences/place_in_splits"), {"seed": config.seed})
    with replacing(stage.work / "placed.parquet") as path:
        connection.execute(f"COPY (SELECT * FROM placed ORDER BY row) TO {literal(path)} (FORMAT parquet)")
    refused = connection.sql(
        "SELECT 'ratings', file, 'merge', reason, detail, source_file, line FROM repeated ORDER BY row"
    ).to_arrow_table()
    stage.write_rejects("merge", refused.rename_columns(REJECTS.schema.names), _by_dataset(connection, "imported"))
    entered = connection.execute("SELECT count(*) FROM imported").fetchall()[0][0]
    return stage.record(
        Step(
            name="merge",
            place=2,
            unit="list rows",
            stage="merge",
            follows=tuple(f"import-{source.name}" for source in config.sources),
            entered=entered,
            kept=entered - refused.num_rows,
            rejected=_counted(refused["reason"]),
            notes=tuple(notes),
        )
    )


def average(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> None:
    """Create `merged`, one row a clip with its mean, and `repeated`, the rows of `imported` that have no part in it."""
    connection.execute("CREATE TABLE sources (dataset VARCHAR, means BOOLEAN, repeat_votes VARCHAR)")
    rules = [(source.name, source.format != "table", source.repeat_votes) for source in config.sources]
    connection.executemany("INSERT INTO sources VALUES (?, ?, ?)", rules)
    connection.execute(query("mos_preferences/judge_rows"))
    connection.execute(query("mos_preferences/merge_votes"))


def _averages(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """What a reader must know of how rows became means, a sentence a source."""
    notes = []
    for dataset, rule, rows, clips, again in connection.execute(query("mos_preferences/averages")).fetchall():
        if rows > clips:
            notes.append(f"{dataset}: averaged {rows:,} ratings into {clips:,} clips")
        if again:
            notes.append(
                f"{dataset}: {again:,} ratings are by listeners who had rated the clip before; repeat_votes = "
                f'"{rule}" decides what counts of them'
            )
    return notes


def _write_split_rules(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> list[str]:
    """Create `split_rules`; a source whose list names no split at all is split by content."""
    query_splits = "SELECT dataset, count(split) FROM merged GROUP BY dataset"
    splits = dict(connection.execute(query_splits).fetchall())  # a source all of whose rows are rejects is not there
    notes, rows = [], []
    for source in config.sources:
        rule = source.split
        if rule == "native" and splits.get(source.name) == 0:
            rule = "by-content"
            notes.append(f"{source.name}: its lists name no splits; contents were placed in splits by their hash")
        rows.append((source.name, rule, *source.scale, *_upto(source)))
    connection.execute(
        """CREATE TABLE split_rules (dataset VARCHAR, rule VARCHAR, scale_min DOUBLE, scale_max DOUBLE,
           train_upto DOUBLE, validation_upto DOUBLE, test_upto DOUBLE)"""
    )
    connection.executemany("INSERT INTO split_rules VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return notes


def _upto(source: Source) -> list[float]:
    """Where the shares of train, validation and test end on the line from 0 to 1; what is beyond is ood."""
    ends, total = [], 0.0
    for split in SPLITS[:3]:
        total += source.shares.get(split, 0.0)  # type: ignore[call-overload]
        ends.append(2.0 if total > 1 - 1e-9 else total)
    return ends


def in_shards(stage: Stage, config: MosPreferences) -> list[int]:
    """Where each shard of clips to look at begins; none if the config leaves audio alone."""
    clips = 0 if config.audio == "none" else pq.read_metadata(stage.work / "placed.parquet").num_rows
    return list(range(0, clips, CLIPS_A_SHARD))


@task(name="index", task_run_name="index-{start:07d}", cache_policy=NO_CACHE)
def index_clips(stage: Stage, config: MosPreferences, start: int) -> Path:
    """Find, hash and measure one shard of the clips' files, and convert them if the config says so.

    Leaves `work/media/<start>.parquet`, one row a clip. A shard that is there already is not made again.
    """
    path = stage.work / "media" / f"{start:09d}.parquet"
    if path.is_file():
        return path
    clips = pq.ParquetFile(stage.work / "placed.parquet").read(["row", "dataset", "file", "audio"])
    clips = clips.slice(start, CLIPS_A_SHARD).to_pylist()
    sources = {source.name: source for source in config.sources}
    paths = [find_audio(config, sources[clip["dataset"]], clip["file"], clip["audio"]) for clip in clips]
    with working(f"index clips {start + 1:,}-{start + len(clips):,}", len(clips)) as work:
        roots = {source.name: root_of(config, source) for source in config.sources}
        files = [clip_below(roots[clip["dataset"]], path) for clip, path in zip(clips, paths, strict=True)]
        found = media_index(stage.store).look(files, seen=work.advance)
    rows = [
        (clip["row"], *_measured(stage, config, file, probe))
        for clip, file, probe in zip(clips, paths, found, strict=True)
    ]
    with replacing(path) as temporary:
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table([pa.array(c, f.type) for c, f in zip(columns, MEDIA, strict=True)], MEDIA), temporary)
    return path


def _measured(stage: Stage, config: MosPreferences, file: Path, probe: Probe | AudioFault) -> tuple[object, ...]:
    if isinstance(probe, AudioFault):
        return (None, None, None, None, None, *probe)
    if config.audio == "index":
        return (*probe[:4], None, None, None)
    try:
        return (*probe[:4], _convert(stage, file, probe.clip_sha256), None, None)
    except BadAudio as bad:  # the file changed since it was measured
        return (None, None, None, None, None, bad.reason, bad.detail)


def _convert(stage: Stage, file: Path, sha256: str) -> str:
    """Write the clip as 16 kHz mono WAV among the intermediate files, once for equal bytes; its path there."""
    name = f"audio/{sha256[:2]}/{sha256}.wav"
    if not (stage.work / name).is_file():
        with replacing(stage.work / name) as temporary:
            convert(file, temporary, CONVERTED_RATE_HZ)
    return name


@task(name="ratings", cache_policy=NO_CACHE)
def write_ratings(stage: Stage, config: MosPreferences) -> Step:
    """Write the published table `ratings`; clips without a split, with faulty audio or the same audio are rejects."""
    if done := stage.recorded("clips"):
        return done
    with working("write ratings"), connect(stage.work / "spill") as connection:
        return _write_ratings(stage, connection, config)


def _write_ratings(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> Step:
    view_parquet(connection, "placed", [stage.work / "placed.parquet"])
    view_parquet(connection, "media", sorted((stage.work / "media").glob("*.parquet")), MEDIA)
    _look_again(stage, connection, config)
    connection.execute(query("mos_preferences/refuse_clips"))
    refused = connection.sql(
        "SELECT 'ratings', file, 'clips', reason, detail, source_file, line FROM refused ORDER BY row"
    ).to_arrow_table()
    stage.write_rejects("clips", refused.rename_columns(REJECTS.schema.names), _by_dataset(connection, "placed"))
    _write_scales(connection, config)
    kept = 0
    for split in SPLITS:
        rows = connection.sql(query("mos_preferences/ratings"), params={"split": split}).to_arrow_reader(BATCH)
        kept += stage.write(RATINGS, split, _with_audio(stage, config, rows))
    stage.drop_empty_splits(RATINGS)
    entered = connection.execute("SELECT count(*) FROM placed").fetchall()[0][0]
    return stage.record(
        Step(
            name="clips",
            place=3,
            unit="clips",
            stage="clips",
            entered=entered,
            kept=kept,
            rejected=_counted(refused["reason"]),
            table=RATINGS.name,
        )
    )


def _look_again(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> None:
    """Make sure that clips which the index found missing are not here: a machine of a cluster may lack a disk.

    Raises:
        InputError: one is here. The index is dropped, so that the next build looks again.
    """
    sources = {source.name: source for source in config.sources}
    missing = (
        "SELECT dataset, file, audio FROM placed JOIN media USING (row) WHERE reason = 'audio_missing' ORDER BY row"
    )
    for dataset, file, audio in connection.execute(missing).fetchall():
        path = find_audio(config, sources[dataset], file, audio)
        if path.is_file():
            shutil.rmtree(stage.work / "media")
            raise InputError(
                f"{told(path)} is here, and who indexed the clips found nothing there; leave inputs alone during a "
                "build, have every machine of a cluster see them, then go on with: earmark resume"
            )


def _with_audio(stage: Stage, config: MosPreferences, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put the converted audio itself in place of its path."""
    for batch in rows:
        at_once = EMBEDDED_AT_ONCE if config.audio == "convert" else len(batch)
        for start in range(0, len(batch), at_once):
            ratings = pa.Table.from_batches([batch.slice(start, at_once)])
            names = ratings["converted"].to_pylist()
            held = [{"bytes": (stage.work / n).read_bytes(), "path": Path(n).name} if n else None for n in names]
            yield ratings.drop_columns("converted").append_column("audio", pa.array(held, AUDIO))


def _write_scales(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> None:
    connection.execute("CREATE TABLE scales (dataset VARCHAR, scale_min DOUBLE, scale_max DOUBLE)")
    connection.executemany("INSERT INTO scales VALUES (?, ?, ?)", [(s.name, *s.scale) for s in config.sources])


def _by_dataset(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    return dict(connection.execute(f"SELECT dataset, count(*) FROM {table} GROUP BY dataset ORDER BY ALL").fetchall())


def _counted(reasons: pa.ChunkedArray) -> dict[str, int]:
    return dict(Counter(reasons.to_pylist()))
