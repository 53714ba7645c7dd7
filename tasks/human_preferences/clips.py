"""`human-preferences`: clips measured once, and the table `clips`."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.human_preferences import HumanPreferences
from schemas.tables import AUDIO, SPLITS
from schemas.vote_tables import CLIPS
from tasks.audio.probe import AudioFault
from tasks.build.media import EMBEDDED_AT_ONCE, clip_below, embed, media_index
from tasks.build.progress import working
from tasks.human_preferences.sources import audio_folder, root_of
from tasks.store.parquet import write_rows
from tasks.store.sql import query
from tasks.store.staging import Stage

MEDIA_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("clip_sha256", pa.string()),
        ("duration_s", pa.float64()),
        ("sample_rate_hz", pa.int64()),
        ("channels", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


def measure_clips(stage: Stage, config: HumanPreferences) -> None:
    """Hash and measure every clip that is named, each once; leaves `work/media.parquet`, empty if audio is let be."""
    path = stage.work / "media.parquet"
    if path.is_file():
        return
    wanted: set[tuple[str, str]] = set()
    if config.audio != "none":
        for name, columns in (("votes", ("audio_a", "audio_b", "reference")), ("ratings", ("file",))):
            for row in pq.read_table(stage.work / f"{name}.parquet", columns=["source", *columns]).to_pylist():
                wanted |= {(row["source"], row[column]) for column in columns if row[column]}
    here = {source.name for source in config.sources if source.clips == "here"}
    roots = {source.name: root_of(config, source) for source in config.sources}
    named = sorted(one for one in wanted if one[0] in here)
    with working("measure clips", len(named)) as work:
        files = [clip_below(roots[source], roots[source].folder / file) for source, file in named]
        found = media_index(stage.store).look(files, seen=work.advance)
    rows = [
        (*name, *([None] * 4), *probe) if isinstance(probe, AudioFault) else (*name, *probe[:4], None, None)
        for name, probe in zip(named, found, strict=True)
    ]
    write_rows(path, MEDIA_SCHEMA, rows)


def write_clips(stage: Stage, connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> None:
    """Write the published table `clips`: all that kept votes and ratings name."""
    connection.execute("CREATE TABLE licences (name VARCHAR, licence VARCHAR)")
    for name, terms in config.licences.items():
        connection.execute("INSERT INTO licences VALUES (?, ?)", [name, terms.licence])
    for split in SPLITS:
        stage.write(CLIPS, split, _rows(connection, config, split))
    stage.drop_empty_splits(CLIPS)


def _rows(connection: duckdb.DuckDBPyConnection, config: HumanPreferences, split: str) -> Iterator[pa.Table]:
    folders = {source.name: audio_folder(config, source) for source in config.sources}
    for batch in connection.sql(query("human_preferences/clips"), params={"split": split}).to_arrow_reader():
        if config.audio != "embed":
            yield pa.Table.from_batches([batch]).append_column("audio", pa.nulls(len(batch), AUDIO))
            continue
        rows = pa.Table.from_batches([batch])
        held = rows.filter(pc.is_valid(rows["clip_sha256"]))
        without = rows.filter(pc.is_null(rows["clip_sha256"]))
        for start in range(0, len(held), EMBEDDED_AT_ONCE):
            part = held.slice(start, EMBEDDED_AT_ONCE)
            pairs = zip(part["source"].to_pylist(), part["file"].to_pylist(), strict=True)
            yield embed(part, [folders[source] / file for source, file in pairs], part["clip_sha256"].to_pylist())
        if len(without):
            yield without.append_column("audio", pa.nulls(len(without), AUDIO))
