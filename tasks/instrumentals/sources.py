"""Import a list of tagged tracks and keep those with separable audio."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from earmark.schemas.instrumentals import CORPUS, TRACKS, Instrumentals
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.tracks import Track
from earmark.tasks.instrumentals.separated import describe_separator
from earmark.tasks.pipeline.inputs import Input
from earmark.tasks.pipeline.media import MEASURED, audio_digest, clip_below
from earmark.tasks.pipeline.mirror import bring_folder
from earmark.tasks.pipeline.plan import Plan, make_plan
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.references import measure_apart
from earmark.tasks.pipeline.rows import Rows, keep_rows
from earmark.tasks.pipeline.step import Done, step
from earmark.tasks.pipeline.tracks import (
    audio_name,
    audio_root,
    choose_pool,
    file_name,
    import_list,
    list_input,
    read_list,
)
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

TRACKS_A_SHARD = 256
MEDIA = row_schema(f"row int64, {MEASURED}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def plan_build(config: Instrumentals, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """Plan a version from its inputs; report whether there is anything to build."""
    models = (Path(config.separator.model).name,)
    return make_plan(CORPUS, config, store, inputs=inputs, models=models)


def inputs(config: Instrumentals) -> Iterator[Input]:
    """Yield the separator, the list with its synonyms and audio, and the folder of known leads."""

    def separator(store: Store) -> dict[str, str]:
        return {"separator": describe_separator(config.separator, config.path, store).digest}

    def leads(store: Store) -> dict[str, str]:
        bring_folder(folder := config.path(config.known_leads or ""), lambda name: name.endswith(".flac"))
        files = {path.name: path for path in sorted(folder.glob("*.flac"))}
        return {"known leads": audio_digest(store, "hash known leads", files)}

    yield Input(name="separator", more=separator)  # a wrong one is reported first
    yield list_input(config, partial(listed, config), None)
    if config.known_leads:
        yield Input(name="known_leads", more=leads)


def listed(config: Instrumentals) -> Iterator[Track | Reject | Note]:
    """Yield the rows of the list; reject a track without a valid file name of its own, if the version keeps files."""
    lines: dict[str, int] = {}
    for row in read_list(config):
        if not isinstance(row, Track) or config.output.keep != "files":
            yield row
            continue
        name = file_name(config, row)
        if not _FILE_NAME.fullmatch(name):
            detail = f"expected an id of letters, digits, _ and - for the file's name, found '{shown(name)}'"
            yield Reject(row.track_id, "bad_value", detail, row.source_file, row.line)
        elif name in lines:
            detail = f"expected a file name of its own, found '{name}' in line {lines[name]} too"
            yield Reject(row.track_id, "duplicate_id", detail, row.source_file, row.line)
        else:
            lines[name] = row.line
            yield row


@step("import", unit="tracks", label="")
def import_tracks(stage: Stage, config: Instrumentals) -> Done[Path]:
    """Read the list; reject unreadable rows."""
    with working(f"import {config.source.name}"):
        return import_list(stage, config, listed(config), TRACKS.name)


@step("index", unit="tracks", follows="import", label="")
def index_audio(stage: Stage, config: Instrumentals, tracks: Path) -> Done[Rows]:
    """Hash and measure every track; keep separable tracks, rows of `track_pool.sql`; reject the rest."""
    root = audio_root(config)
    names = pq.ParquetFile(tracks).read(["audio"])["audio"].to_pylist()
    files = [clip_below(root, audio_name(config, name)) for name in names]
    media = stage.work / "media.parquet"
    measured = measure_apart(stage, config, "index audio", files, config.length_s[1])
    write_rows(media, MEDIA, [(row, *each) for row, each in enumerate(measured)])
    pool, account = choose_pool(stage, config, tracks, media, TRACKS.name)
    length_s = sum(pool["duration_s"].to_pylist())
    length = f"{length_s / 3600:,.1f} h" if length_s >= 3600 else f"{length_s:.0f} s"
    note = f"{length} of audio can be separated"
    return Done(keep_rows(stage, "pool", pool, TRACKS_A_SHARD), replace(account, notes=(note,)))
