"""Make the sections of a report: a corpus's own, distributions, rejects, tables, and the sound of clips. No Prefect.

A corpus adds sections by `report="earmark.tasks.<corpus>.report:sections"` in its `Corpus`; it gets a `Material` and
returns `Section`s of the figures in `tasks/store/figures.py`. It reads the staged tables by their names in DuckDB; the
functions below draw the common figures:

```python
def sections(material: Material) -> list[Section]:
    db = material.db
    rows = tuple(
        Row(r["caption_id"], {"split": r["split"]}, texts={"caption": r["caption"]}, clips=(Clip("clip", r["sha256"]),))
        for r in sample(db, "captions", "caption_id")
    )
    browser = Browser("captions", rows, count(db, "captions"))
    return [Section("Captions", (histogram(db, "captions", "words", "Words a caption"), browser))]
```

Pages are reproducible, independent of time, place or chance: equal tables and clips give equal pages.
"""

import hashlib
import inspect
import io
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import soundfile
import soxr

from earmark.schemas.corpus import Corpus
from earmark.schemas.files import NotAFile, open_regular, read_regular
from earmark.schemas.machine import processors
from earmark.schemas.reasons import count_reasons, find_reason, options_of
from earmark.schemas.registry import load
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.audio.decode import average, decode
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.sound import open_sound, without_remarks
from earmark.tasks.pipeline.inputs import library_versions
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.store.diff import Change
from earmark.tasks.store.figures import (
    MOST_ROWS,
    AudioPlayer,
    Bars,
    Browser,
    Figure,
    Histogram,
    Page,
    Section,
    Sheet,
    round_width,
)
from earmark.tasks.store.manifest import REPORT, Manifest, digest_of
from earmark.tasks.store.report import sounds_of
from earmark.tasks.store.result_table import ResultColumn, ResultTable, percent
from earmark.tasks.store.sql import connect, quoted, view_parquet
from earmark.tasks.store.staging import SPILL, Stage
from earmark.tasks.store.versions import Store, Version

HEARD_S = 8.0  # length of the excerpts of clips, which keeps a page small
HEARD_RATE_HZ = 24_000
MOST_SOUND_BYTES = 7_000_000  # bytes of sound in one page, before its encoding as text (a third more)
MOST_SHEET_BYTES = 3_000_000
"""Bytes of rows in one page, as written; with all else but sound and pictures the page stays below 5 MB."""
MOST_SHEET_ROWS = 5000
MOST_CELL_LETTERS = 240
MOST_GROUPS = 100
_GROUPS = ("source", "dataset", "split", "system", "system_id", "speaker", "speaker_id", "model", "pipeline")
_MEASURE = re.compile(r"duration_s|\w+_dbfs|\w+_lufs")


@dataclass(frozen=True)
class Material:
    """Input of a corpus's report."""

    # a view of each of the corpus's tables, by table name; optional tables without rows are empty
    db: duckdb.DuckDBPyConnection
    stage: Stage  # the build


def make_page(corpus: Corpus, stage: Stage, manifest: Manifest, changes: Sequence[Change] = ()) -> Page:
    """Make the sections of a version before its commit, and the sound of their clips.

    Args:
        corpus: the corpus.
        stage: the build.
        manifest: of the version, before its pages are written.
        changes: differences from the previous version.
    """
    before = next(
        (Version(one.corpus, stage.store.folder(one.corpus) / one.version)
         for one in manifest.parents if one.corpus == corpus.name), None
    )  # fmt: skip
    with connect(stage.work / SPILL) as db:
        for table in corpus.tables:
            view_parquet(db, table.name, stage.files(table.name), table.schema)
        sections: list[Section] = []
        if before is not None:
            sections.append(beside_section(manifest, before.manifest, changes))
            # do not draw values again that were withdrawn since the previous version
            if before.manifest.applied_withdrawals == manifest.applied_withdrawals:
                for table in corpus.tables:
                    if table.name in before.manifest.rows:
                        view_parquet(db, quoted(_before(table.name)), before.files(table.name), table.schema)
        if corpus.report:
            sections += load(corpus.report)(Material(db, stage))
        sections.append(spread_section(db, corpus))
        if count(db, REJECTS.name):
            sections.append(rejects_section(db, corpus, manifest, MOST_SHEET_BYTES // 4))
        sections.append(table_sheets(db, corpus, MOST_SHEET_BYTES * 3 // 4))
    clips = [
        clip
        for section in sections
        for figure in section.figures
        if isinstance(figure, Browser)
        for row in figure.rows
        for clip in row.clips
    ]
    encoding = encoding_digest()
    sounds = read_sounds(stage.store, clips, encoded=encoded_sounds(before, encoding) if before else {})
    return Page(tuple(section for section in sections if section.figures), sounds, encoding)


def rejects_section(db: duckdb.DuckDBPyConnection, corpus: Corpus, manifest: Manifest, most_bytes: int) -> Section:
    """Make the section of rejects: counts by reason with options that can mend them, source files, and the rows.

    A shared page cannot open a line of a file elsewhere: a reject names the line, and links to its file's name and
    SHA-256 in the manifest.
    """
    counts = db.execute("SELECT reason, count(*) FROM rejects GROUP BY 1 ORDER BY 2 DESC, 1").fetchall()
    files = db.execute("SELECT file, count(*) FROM rejects WHERE file IS NOT NULL GROUP BY 1 ORDER BY 1").fetchall()
    rows = []
    for reason, number in counts:
        options = options_of(reason, corpus.config)
        values = {key: ", ".join(values_at(manifest.config, key)) for key, _ in options}
        shown = "; ".join(f"{key} = {value}" if value else key for key, value in values.items())
        says = " ".join(dict.fromkeys(f"{says.rstrip('.')}." for _, says in options)).replace("`", "")
        rows.append((reason, number, find_reason(reason).kind, shown or "none", says))
    reasons = ResultTable(
        "Rejects by reason",
        ("reason", "rejects", "kind", "option that can change it", "what the option sets"),
        tuple(rows),
        says="A `fault` is an input or an answer that is not as expected, a `rule` what method or config leave out.",
        ids=tuple(f"reason-{reason}" for reason, _ in counts),
    )
    known = [(file, number) for file, number in files if file in manifest.inputs]
    inputs = ResultTable(
        "Files that rejects were read from",
        ("file", "rejects", "SHA-256"),
        tuple((file, number, manifest.inputs[file]) for file, number in known),
        ids=tuple(f"input-{place}" for place in range(len(known))),
    )
    links = {
        "reason": {reason: f"reason-{reason}" for reason, _ in counts},
        "file": {file: f"input-{place}" for place, (file, _) in enumerate(known)},
    }
    sheet = make_sheet(db, REJECTS, most_bytes, by="reason", first=("reason", "file", "line", "item"), links=links)
    return Section("Rejects", (reasons, sheet, *([inputs] if known else [])))


def values_at(config: Any, key: str) -> list[str]:
    """Return a config's values under a dotted key, each plain value once; search every entry of a list."""
    parts = config if isinstance(config, list) else [config]
    first, _, rest = key.partition(".")
    within = [part[first] for part in parts if isinstance(part, dict) and part.get(first) is not None]
    if rest:
        return list(dict.fromkeys(value for part in within for value in values_at(part, rest)))
    plain = [part for part in within if not isinstance(part, dict) and "{" not in str(part)]
    return list(dict.fromkeys(part if isinstance(part, str) else json.dumps(part) for part in plain))


def beside_section(manifest: Manifest, before: Manifest, changes: Sequence[Change]) -> Section:
    """Make the section that compares rows and rejects with the previous version."""
    known = {(one.table, one.split): one for one in changes}
    tables = dict.fromkeys([*manifest.rows, *before.rows])
    splits = {table: [*manifest.rows.get(table, {}), *before.rows.get(table, {})] for table in tables}
    rows = []
    for name, split in dict.fromkeys((table, split) for table in tables for split in splits[table]):
        was, now = (of.rows.get(name, {}).get(split, 0) for of in (before, manifest))
        one = known.get((name, split), Change(name, split, 0, 0, 0, now))
        rows.append((name, split, was, now, one.added, one.removed, one.changed))
    old, new = (count_reasons(of.rejects) for of in (before, manifest))
    versions = (before.version, manifest.version)
    heads = ("table", "split", *versions, "added", "removed", "changed")
    named = " ".join(f"{manifest.corpus}@{version}" for version in versions)
    says = f"Rows are known by their keys: `earmark inspect diff {named} --rows` lists them."
    figures: list[Figure] = [ResultTable("Rows by split", heads, tuple(rows), says=says)]
    if old or new:
        rejects = tuple((reason, old[reason], new[reason]) for reason in sorted({*old, *new}))
        figures.append(ResultTable("Rejects", ("reason", *versions), rejects))
    drawn = f"Where a distribution has orange lines, they show {before.version} in the same bins."
    return Section(f"Beside {before.version}", tuple(figures), drawn)


def _before(table: str) -> str:
    return f"before {table}"


def spread_section(db: duckdb.DuckDBPyConnection, corpus: Corpus) -> Section:
    """Make the distributions of the main and measured tables by source, split, system and speaker."""
    figures: list[Figure] = []
    for table in corpus.tables:
        measures = [field for field in table.schema if _MEASURE.fullmatch(field.name)]
        if not count(db, table.name) or (not measures and table.name != corpus.story.main_table):
            continue
        for field in measures:
            about = {key.decode(): value.decode() for key, value in field.metadata.items()}
            figure = histogram(
                *(db, table.name, field.name, f"{table.name}: {field.name}", about["description"]),
                unit=about.get("unit", ""),
            )
            if figure.bins:
                figures.append(figure)
        groups = [field.name for field in table.schema if field.name in _GROUPS]
        figures += [grid for group in groups if (grid := _spread(db, table, group, measures)) is not None]
    return Section("Distributions", tuple(figures))


def _spread(db: duckdb.DuckDBPyConnection, table: Table, group: str, measures: list[pa.Field]) -> ResultTable | None:
    """Return rows and medians by the values of a column, most frequent first; None if it has fewer than two values."""
    names = [field.name for field in table.schema if field.name == "mos"] + [field.name for field in measures]
    medians = "".join(f', median("{name}")' for name in names)
    rows = db.execute(
        f"""SELECT coalesce("{group}"::VARCHAR, 'none'), count(*), count(*) / sum(count(*)) OVER (){medians}
            FROM "{table.name}" GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    if len(rows) < 2:
        return None
    heads: tuple[str | ResultColumn, ...] = (group, "rows", percent("share"), *(f"median {name}" for name in names))
    says = f"The {MOST_GROUPS} most frequent of {len(rows):,} values." if len(rows) > MOST_GROUPS else ""
    return ResultTable(f"{table.name} by {group}", heads, tuple(rows[:MOST_GROUPS]), says)


def table_sheets(db: duckdb.DuckDBPyConnection, corpus: Corpus, most_bytes: int) -> Section:
    """Make a sheet of each table but the rejects; bytes left over by short tables go to long tables."""
    counts = {table.name: count(db, table.name) for table in corpus.tables if table.name != REJECTS.name}
    waiting = sorted((table for table in corpus.tables if counts.get(table.name)), key=lambda one: counts[one.name])
    sheets: dict[str, Sheet] = {}
    for place, table in enumerate(waiting):
        sheets[table.name] = make_sheet(db, table, most_bytes // (len(waiting) - place))
        most_bytes -= len(sheets[table.name].packed)
    return Section("Tables", tuple(sheets[table.name] for table in corpus.tables if table.name in sheets))


def make_sheet(
    db: duckdb.DuckDBPyConnection,
    table: Table,
    most_bytes: int,
    *,
    by: str | None = None,
    first: tuple[str, ...] = (),
    links: Mapping[str, Mapping[str, str]] | None = None,
) -> Sheet:
    """Make a sheet of a table's rows in the order of their keys' hashes, as many as fit.

    Args:
        db: holds the table.
        table: the table; columns of files and of nested values are left out.
        most_bytes: the sheet's size in the page; rows are halved until they fit.
        by: a column whose values take turns.
        first: columns to put before the others.
        links: targets of cells, by column and value.
    """
    shown = [*first, *(one.name for one in table.schema if one.name not in first and _is_plain(one.type))]
    names = ", ".join(f'"{name}"' for name in shown)
    place = ", ".join(f'"{name}"::VARCHAR' for name in table.key or shown)
    turn = f'row_number() OVER (PARTITION BY "{by}" ORDER BY md5(concat_ws(chr(10), {place})), {names}), ' if by else ""
    rows = db.execute(
        f"""SELECT {names} FROM "{table.name}" ORDER BY {turn}md5(concat_ws(chr(10), {place})), {names}
            LIMIT {MOST_SHEET_ROWS}"""
    ).fetchall()
    columns = tuple(tuple(as_cell(row[at]) for row in rows) for at in range(len(shown)))
    total = count(db, table.name)
    while True:
        sheet = Sheet(table.name, tuple(shown), columns, total, links or {}, table.description)
        if len(sheet.packed) <= most_bytes or not rows:
            return sheet
        rows = rows[: len(rows) // 2]
        columns = tuple(column[: len(rows)] for column in columns)


def _is_plain(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_):
        return _is_plain(type_.value_type)
    return not (pa.types.is_nested(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def as_cell(value: Any) -> str | float | int | None:
    """Return a value for a sheet, as JSON exact in JavaScript, long texts truncated."""
    if value is None or isinstance(value, bool) or (type(value) is str and len(value) <= MOST_CELL_LETTERS):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= MOST_CELL_LETTERS else f"{text[:MOST_CELL_LETTERS]}…"


def count(db: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> int:
    """Count the rows of a table."""
    found = db.execute(f'SELECT count(*) FROM "{table}" WHERE {where}').fetchone()
    assert found is not None
    return int(found[0])


def sample(
    db: duckdb.DuckDBPyConnection,
    table: str,
    key: str,
    *,
    by: str | None = None,
    most: int = MOST_ROWS,
    rows: str | None = None,
) -> list[Any]:
    """Sample rows of a table by the hash of their key, spread evenly over the values of a column.

    The caller names their type.

    Args:
        db: holds the table.
        table: its name.
        key: the column of row keys; as rows are added, only rows of smaller hash displace earlier ones.
        by: a column whose values take turns.
        most: rows at most.
        rows: a query for the rows of the keys `$keys`, in any order, one row per key; default the table itself.
    """
    turn = f'row_number() OVER (PARTITION BY "{by}" ORDER BY md5("{key}"), "{key}")' if by else "1"
    keys = db.execute(f"""SELECT "{key}" FROM "{table}" ORDER BY {turn}, md5("{key}"), "{key}" LIMIT {int(most)}""")
    chosen = [found for (found,) in keys.fetchall()]
    if not chosen:
        return []
    own = f'SELECT * FROM "{table}" WHERE "{key}" IN (SELECT unnest($keys))'
    cursor = db.execute(rows or own, {"keys": chosen})
    names = [column[0] for column in cursor.description or []]
    held = {row[key]: row for row in (dict(zip(names, values, strict=True)) for values in cursor.fetchall())}
    return [held[name] for name in chosen]


def shares(db: duckdb.DuckDBPyConnection, table: str, column: str, title: str, says: str = "") -> Bars:
    """Count the values of a column, most frequent first, at most 24; add up the others in one bar."""
    found = db.execute(
        f"""SELECT coalesce("{column}"::VARCHAR, 'none'), count(*) FROM "{table}" GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    shown, others = found[:24], found[24:]
    if others:
        shown.append((f"{len(others)} others", sum(number for _, number in others)))
    return Bars(title, tuple((str(name), float(number)) for name, number in shown), says=says)


def histogram(
    db: duckdb.DuckDBPyConnection, table: str, column: str, title: str, says: str = "", bins: int = 24, unit: str = ""
) -> Histogram:
    """Count a column's numbers in at most about `bins` bins of a round width.

    Whole numbers stand in the middle of bins of whole width; the last bin includes its upper edge for other numbers. If
    the previous version has the table, add its counts in the same bins.
    """
    known = db.execute("SELECT view_name FROM duckdb_views() WHERE view_name = ?", [_before(table)]).fetchall()
    each = f'try_cast("{column}" AS DOUBLE) AS x, typeof("{column}") AS type'
    parts = [f'SELECT {place} AS place, {each} FROM "{name}"'
             for place, name in enumerate([table, *(name for (name,) in known)])]  # fmt: skip
    values = f"FROM ({' UNION ALL '.join(parts)}) WHERE isfinite(x)"
    found = db.execute(
        f"SELECT min(x), max(x), count(*) FILTER (place = 0), count(*) FILTER (place = 1), min_by(type, place) {values}"
    ).fetchone()
    if found is None or not found[2]:
        return Histogram(title, (), says, unit)
    low, high, number, earlier, type_ = found
    if low == high:
        return Histogram(title, ((low, high, number),), says, unit, before=(earlier,) if earlier else ())
    whole = type_ not in ("DOUBLE", "FLOAT")
    width = max(round_width((high - low) / bins), 1.0 if whole else 0.0)
    counts = {
        step: both
        for step, *both in db.execute(
            f"""SELECT floor(x / $width + 1e-9)::BIGINT, count(*) FILTER (place = 0), count(*) FILTER (place = 1)
                {values} GROUP BY 1""",
            {"width": width},
        ).fetchall()
    }
    top = max(counts)
    if not whole and top * width >= high - 1e-9 * width and len(counts) > 1:
        last, below = counts.pop(top), counts.get(top - 1, [0, 0])
        counts[top - 1] = [one + other for one, other in zip(last, below, strict=True)]
    shift = 0.5 if whole else 0.0
    steps = range(min(counts), max(counts) + 1)
    edges = [float(f"{step * width - shift:.12g}") for step in (*steps, steps.stop)]
    heights, beyond = zip(*(counts.get(step, [0, 0]) for step in steps), strict=True)
    drawn = tuple(zip(edges[:-1], edges[1:], heights, strict=True))
    return Histogram(title, drawn, says, unit, whole, beyond if earlier else ())


def encoding_digest() -> str:
    """Return a SHA-256 of how sounds are encoded: the libraries, and the modules that decode and encode."""
    modules = [inspect.getsource(sys.modules[name]) for name in (__name__, decode.__module__, open_sound.__module__)]
    return digest_of([library_versions(), modules])


def encoded_sounds(version: Version, encoding: str) -> dict[str, bytes]:
    """Return the sounds in a version's report by their clips' SHA-256, if encoded alike and unchanged since."""
    kept = [entry.sha256 for entry in version.manifest.files if entry.path == REPORT]
    try:
        page = read_regular(version.folder / REPORT)
    except OSError:
        return {}  # away, as behind a URL: encode again
    return sounds_of(page, encoding) if hashlib.sha256(page).hexdigest() in kept else {}


def read_sounds(
    store: Store,
    clips: Iterable[AudioPlayer],
    most_bytes: int = MOST_SOUND_BYTES,
    encoded: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Encode the beginning of each clip as MP3, by its SHA-256, until the page is full; skip missing clips.

    Args:
        store: its media index knows the clips' files.
        clips: the players.
        most_bytes: the page's size.
        encoded: sounds not to encode again, by SHA-256.
    """
    wanted = {clip.sha256: clip for clip in clips if clip.sha256}
    if not wanted:
        return {}
    places = media_index(store).places(set(wanted))
    sounds: dict[str, bytes] = {}
    size = 0
    with ThreadPoolExecutor(processors()) as pool:
        made = pool.map(lambda sha256: _sound(wanted[sha256], sha256, places, (encoded or {}).get(sha256)), wanted)
        for sha256, sound in zip(wanted, made, strict=True):
            if sound is not None and size + len(sound) <= most_bytes:
                sounds[sha256] = sound
                size += len(sound)
    return sounds


def _sound(clip: AudioPlayer, sha256: str, places: Mapping[str, list[Path]], encoded: bytes | None) -> bytes | None:
    """Encode a clip from its source, or from the first file with its SHA-256, unless its sound is given."""
    if isinstance(clip.source, bytes):
        if encoded is None:
            with without_remarks(), soundfile.SoundFile(io.BytesIO(clip.source)) as file:
                samples = file.read(round(HEARD_S * file.samplerate), dtype="float32", always_2d=True)
                encoded = as_mp3(samples, file.samplerate)
        return encoded
    for path in [clip.source] if clip.source else places.get(sha256, []):
        try:
            with open_regular(path) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    continue
            return encoded or as_mp3(*decode(path, first_s=HEARD_S))
        except (FileNotFoundError, NotAFile, BadAudio):
            continue  # the page says that the clip is not at hand
    return None


def as_mp3(samples: Any, rate: int) -> bytes:
    """Encode the first seconds of samples (frames, channels), full scale ±1, as mono MP3 of a constant bit rate."""
    mono = average(samples[: round(HEARD_S * rate)])
    if rate != HEARD_RATE_HZ:
        mono = soxr.resample(mono, rate, HEARD_RATE_HZ, quality="HQ")
    out = io.BytesIO()
    soundfile.write(
        out,
        np.clip(mono, -1.0, 1.0),
        HEARD_RATE_HZ,
        format="MP3",
        subtype="MPEG_LAYER_III",
        bitrate_mode="CONSTANT",
        compression_level=0.7,
    )
    return out.getvalue()
