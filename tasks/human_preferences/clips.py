"""Measure the clips of `human-preferences` once, and write the table `clips`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.vote_tables import CLIPS
from earmark.tasks.human_preferences.sources import Exports, root_of
from earmark.tasks.pipeline.media import MEASURED, clip_below, with_audio
from earmark.tasks.pipeline.references import measure_apart
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.sql import create_table, query
from earmark.tasks.store.staging import Stage

MEDIA = row_schema(f"source string, file string, {MEASURED}")


@step("measure", label="")
def measure_clips(stage: Stage, config: HumanPreferences, exports: Exports) -> Done[Path]:
    """Hash and measure every named clip once (Parquet, `MEDIA`); none if audio is left alone."""
    here = {source.name for source in config.sources if source.clips == "here"}
    named: set[tuple[str, str]] = set()
    if config.audio != "none":
        for file, columns in ((exports.votes, ("audio_a", "audio_b", "reference")), (exports.ratings, ("file",))):
            for row in pq.read_table(file, columns=["source", *columns]).to_pylist():
                named |= {(row["source"], row[name]) for name in columns if row[name] and row["source"] in here}
    clips = sorted(named)
    roots = {source.name: root_of(config, source) for source in config.sources}
    files = [clip_below(roots[source], file) for source, file in clips]
    measured = measure_apart(stage, config, "measure clips", files)
    rows = [(*clip, *each) for clip, each in zip(clips, measured, strict=True)]
    path = stage.work / "media.parquet"
    write_rows(path, MEDIA, rows)
    return Done(path)


def write_clips(stage: Stage, connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> None:
    """Write the published table `clips`: all clips of kept votes and ratings."""
    licences = [(name, terms.licence) for name, terms in config.licences.items()]
    create_table(connection, "licences", "name string, licence string", licences)
    stage.write_splits(CLIPS, lambda split: _rows(connection, config, split))


def _rows(connection: duckdb.DuckDBPyConnection, config: HumanPreferences, split: str) -> Iterator[pa.Table]:
    folders = {source.name: root_of(config, source).folder for source in config.sources}
    for batch in connection.sql(query("human_preferences/clips"), params={"split": split}).to_arrow_reader():
        rows = pa.Table.from_batches([batch])
        if config.audio == "embed":
            measured = rows.filter(pc.is_valid(rows["clip_sha256"]))
            rows = rows.filter(pc.is_null(rows["clip_sha256"]))
            pairs = zip(measured["source"].to_pylist(), measured["file"].to_pylist(), strict=True)
            yield from with_audio(measured, [folders[source] / file for source, file in pairs])
        yield from with_audio(rows, None)
