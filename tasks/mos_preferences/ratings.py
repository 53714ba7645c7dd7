"""Import published lists into rated clips: merge votes, place in splits, index audio."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.errors import InputError
from earmark.schemas.mos_preferences import RATINGS, MosPreferences
from earmark.schemas.places import told
from earmark.schemas.rating_sources import Source
from earmark.schemas.tables import AUDIO, split_ends
from earmark.tasks.importers.lists import Rating, read_source
from earmark.tasks.mos_preferences.clips import find_audio, root_of
from earmark.tasks.pipeline.media import EMBEDDED_AT_ONCE, MEASURED, clip_below, convert_once
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.references import Intake, measure_apart
from earmark.tasks.pipeline.rows import Rows, Shard, read_shard, shards_of
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.files import replacing
from earmark.tasks.store.parquet import record_schema, row_schema, to_table, write_rows
from earmark.tasks.store.sql import by_split, connect, create_table, literal, query, view_parquet
from earmark.tasks.store.staging import SplitFiles, Stage

ROWS_PER_SOURCE = 1 << 40  # a source's rows are numbered from its place times this, to order the rows of all sources
BATCH = 100_000
CLIPS_A_SHARD = 6_144  # DuckDB writes row groups of multiples of 2,048
CONVERTED_RATE_HZ = 16_000

IMPORTED = record_schema(Rating, "", "dataset string, row int64")
MEDIA = row_schema(f"row int64, converted string, {MEASURED}")


@step("import", unit="list rows", label="")
def import_source(stage: Stage, config: MosPreferences, source: Source) -> Done[Path]:
    """Read one source's lists; reject unreadable rows.

    Returns:
        Parquet, columns `IMPORTED`.

    Raises:
        InputError: the source is missing, or a file contradicts its format.
    """
    number = config.sources.index(source)
    intake = Intake()
    path = stage.work / "imported" / f"{number:03d}.parquet"
    with (
        working(f"import {source.name}") as work,
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, IMPORTED, compression="zstd") as writer,
    ):
        ratings = islice(intake.take(read_source(source, config.path), RATINGS.name), config.limit)
        while batch := list(islice(ratings, BATCH)):
            first = number * ROWS_PER_SOURCE + intake.kept - len(batch)
            rows = [(*rating, source.name, row) for row, rating in enumerate(batch, first)]
            writer.write_table(to_table(IMPORTED, rows))
            work.advance(len(batch))
    account = intake.account()
    return Done(path, replace(account, sources={source.name: account.entered}))


@step("merge", unit="list rows", label="merge ratings")
def merge_ratings(stage: Stage, config: MosPreferences, lists: list[Path]) -> Done[Rows]:
    """Average ratings and place each clip in a split, a row per clip; reject contradicting rows."""
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "imported", lists, IMPORTED)
        average(connection, config)
        notes = [*_averages(connection), *_write_split_rules(connection, config)]
        connection.execute(query("mos_preferences/place_in_splits"), {"seed": config.seed})
        notes += _empty_splits(connection, config)
        path = stage.work / "placed.parquet"
        with replacing(path) as temporary:
            connection.execute(
                f"COPY (SELECT * FROM placed ORDER BY row) TO {literal(temporary)} "
                f"(FORMAT parquet, ROW_GROUP_SIZE {CLIPS_A_SHARD})"
            )
        refused = connection.sql(
            "SELECT 'ratings', file, 'merge', reason, detail, source_file, line FROM repeated ORDER BY row"
        ).to_arrow_table()
        sources = _by_dataset(connection, "imported")
    entered = sum(sources.values())
    follows = tuple(f"import-{source.name}" for source in config.sources)
    account = Account(entered, entered - len(refused), refused, sources=sources, notes=notes, follows=follows)
    return Done(Rows(path, pq.read_metadata(path).num_rows), account)


def average(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> None:
    """Create `merged`, a row per clip with its mean, and `repeated`, the rows of `imported` left out of it."""
    rules = [(source.name, source.format != "table", source.repeat_votes) for source in config.sources]
    create_table(connection, "sources", "dataset string, means bool, repeat_votes string", rules)
    connection.execute(query("mos_preferences/judge_rows"))
    connection.execute(query("mos_preferences/merge_votes"))


def _averages(connection: duckdb.DuckDBPyConnection) -> list[str]:
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
    """Create `split_rules`; split a source without any split in its list by content."""
    query_splits = "SELECT dataset, count(split) FROM merged GROUP BY dataset"
    splits = dict(connection.execute(query_splits).fetchall())  # a source with only rejects is absent
    notes, rows = [], []
    for source in config.sources:
        rule = source.split
        if rule == "native" and splits.get(source.name) == 0:
            rule = "by-content"
            notes.append(f"{source.name}: its lists name no splits; contents were placed in splits by their hash")
        rows.append((source.name, rule, *split_ends(source.shares).values()))
    columns = "train_upto float64, validation_upto float64, test_upto float64"
    create_table(connection, "split_rules", f"dataset string, rule string, {columns}", rows)
    return notes


def _empty_splits(connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> list[str]:
    """Return a note for each source with shares of splits that no clip fell into."""
    shares, notes = {source.name: source.shares for source in config.sources}, []
    found = """SELECT dataset, rule, count(*), list(DISTINCT split) FROM placed JOIN split_rules USING (dataset)
        WHERE rule LIKE 'by-%' GROUP BY dataset, rule ORDER BY dataset"""
    for dataset, rule, clips, there in connection.execute(found).fetchall():
        empty = [f"{split} ({share:g})" for split, share in shares[dataset].items() if share and split not in there]
        if empty:
            notes.append(
                f"{dataset}: no rows of {', '.join(empty)}, for which `shares` asks: {rule} goes by a hash, and none "
                f"of its {clips:,} clips fell there; give it more clips or a larger share"
            )
    return notes


def shards_to_index(config: MosPreferences, clips: Rows) -> list[Shard]:
    """Return the shards of clips to index; none if the config leaves audio alone."""
    return [] if config.audio == "none" else shards_of(clips)


@step("index", unit="clips", label="")
def index_clips(stage: Stage, config: MosPreferences, shard: Shard, *, clips: Rows) -> Done[Path]:
    """Find, hash and measure one shard of the clips' files, and convert them if the config says so.

    Writes Parquet, columns `MEDIA`, a row per clip.
    """
    rows = read_shard(clips, shard)
    roots = {source.name: root_of(config, source) for source in config.sources}
    paths = [find_audio(roots[clip["dataset"]].folder, clip["file"], clip["audio"]) for clip in rows]
    label = f"index clips {shard.start + 1:,}-{shard.start + shard.rows:,}"
    files = [clip_below(roots[clip["dataset"]], path) for clip, path in zip(rows, paths, strict=True)]
    probes = measure_apart(stage, config, label, files)
    measured = [
        (clip["row"], *_converted(stage, config, file, probe))
        for clip, file, probe in zip(rows, paths, probes, strict=True)
    ]
    path = stage.work / "media" / f"{shard.name}.parquet"
    write_rows(path, MEDIA, measured)
    return Done(path)


def _converted(stage: Stage, config: MosPreferences, file: Path, probe: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert a clip if configured; return the converted file and the measurements."""
    sha256 = probe[0]
    if sha256 is None or config.audio == "index":
        return None, *probe
    name = f"audio/{sha256[:2]}/{sha256}.wav"
    fault = convert_once(file, stage.work / name, CONVERTED_RATE_HZ)
    return (None, *fault) if fault else (name, *probe)


@step("clips", unit="clips", table=RATINGS.name, label="write ratings")
def write_ratings(stage: Stage, config: MosPreferences, clips: Rows, media: list[Path]) -> Done[SplitFiles]:
    """Write the published table `ratings`; reject clips without a split, with faulty audio or the same audio.

    Raises:
        InputError: a clip missing from the index exists here.
    """
    with connect(stage.work / "spill") as connection:
        view_parquet(connection, "placed", [clips.path])
        view_parquet(connection, "media", media, MEDIA)
        _look_again(stage, connection, config)
        connection.execute(query("mos_preferences/refuse_clips"))
        refused = connection.sql(
            "SELECT 'ratings', file, 'clips', reason, detail, source_file, line, made_from FROM refused ORDER BY row"
        ).to_arrow_table()
        scales = [(source.name, test, *ends) for source in config.sources for test, ends in source.scales().items()]
        columns = "dataset string, test string, scale_min float64, scale_max float64"
        create_table(connection, "scales", columns, scales)
        rows = by_split(connection, query("mos_preferences/ratings"), batch=BATCH)
        kept = stage.write_splits(RATINGS, lambda split: _with_audio(stage, config, rows(split)))
        account = Account(clips.total, kept, refused, sources=_by_dataset(connection, "placed"))
        return Done(stage.split_files(RATINGS), account)


def _look_again(stage: Stage, connection: duckdb.DuckDBPyConnection, config: MosPreferences) -> None:
    """Make sure that clips missing from the index are missing here too: a machine of a cluster may lack a disk."""
    folders = {source.name: root_of(config, source).folder for source in config.sources}
    missing = (
        "SELECT dataset, file, audio FROM placed JOIN media USING (row) WHERE reason = 'file_missing' ORDER BY row"
    )
    for dataset, file, audio in connection.execute(missing).fetchall():
        path = find_audio(folders[dataset], file, audio)
        if path.is_file():
            index_clips.forget(stage)
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
            audio = [{"bytes": (stage.work / n).read_bytes(), "path": Path(n).name} if n else None for n in names]
            yield ratings.drop_columns("converted").append_column("audio", pa.array(audio, AUDIO))


def _by_dataset(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    return dict(connection.execute(f"SELECT dataset, count(*) FROM {table} GROUP BY dataset ORDER BY ALL").fetchall())
