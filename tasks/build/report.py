"""What a report shows: a corpus's own sections, its rejects, and the sound of the clips in them. No Prefect.

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

Nothing here depends on time, place or chance: the same tables and clips give the same page.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import soundfile
import soxr

from earmark.schemas.corpus import Corpus
from earmark.schemas.files import NotAFile, open_regular
from earmark.schemas.registry import load
from earmark.schemas.tables import REJECTS
from earmark.tasks.audio.decode import average, decode
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.build.media import media_index
from earmark.tasks.store.figures import MOST_ROWS, Bars, Browser, Clip, Histogram, Page, Row, Section
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

HEARD_S = 8.0
"""Clips are cut to their first seconds, so that a page stays small."""
HEARD_RATE_HZ = 24_000
MOST_SOUND_BYTES = 7_000_000
"""Sound in one page, before it is written as text (a third more)."""


@dataclass(frozen=True)
class Material:
    """What a corpus's report is made from.

    Attributes:
        db: has a view of each of the corpus's tables, by the table's name; optional tables without rows are empty.
        stage: the build.
    """

    db: duckdb.DuckDBPyConnection
    stage: Stage


def make_page(corpus: Corpus, stage: Stage) -> Page:
    """The sections of a version that is about to be committed, and the sound of their clips."""
    written = stage.tables()
    with connect(stage.work / "duckdb") as db:
        for table in corpus.tables:
            paths = [path for paths in written.get(table.name, {}).values() for path in paths]
            view_parquet(db, table.name, paths, table.schema)
        sections: list[Section] = []
        if corpus.report:
            sections += load(corpus.report)(Material(db, stage))
        if count(db, REJECTS.name):
            sections.append(rejects_section(db))
    clips = [
        clip
        for section in sections
        for figure in section.figures
        if isinstance(figure, Browser)
        for row in figure.rows
        for clip in row.clips
    ]
    return Page(tuple(sections), read_sounds(stage.store, clips))


def rejects_section(db: duckdb.DuckDBPyConnection) -> Section:
    """Rejects by reason, and a sample that has some of each."""
    found = db.execute(query("build/shown_rejects"), {"most": MOST_ROWS}).fetchall()
    rows = tuple(
        Row(
            item,
            {"reason": reason, "stage": stage, "table": table},
            {"read from": file if line is None else f"{file}:{line}"} if file else {},
            {"what was found": detail},
        )
        for item, reason, stage, table, file, line, detail in found
    )
    browser = Browser("rejects", rows, count(db, REJECTS.name))
    return Section("Rejects", (shares(db, REJECTS.name, "reason", "Rejects by reason"), browser))


def count(db: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> int:
    """Rows of a table."""
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
) -> list[dict[str, Any]]:
    """Some rows of a table by the hash of their key, spread evenly over the values of a column.

    Args:
        db: where the table is.
        table: its name.
        key: the column that names a row; with more rows, earlier ones leave only for those of smaller hash.
        by: a column whose values take turns.
        most: rows at most.
        rows: a query that gives the rows of the keys `$keys`, in any order, one a key; without it, the table's own.
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
    """How often each value of a column occurs, the most frequent first; at most 24 values, the others as one bar."""
    found = db.execute(
        f"""SELECT coalesce("{column}"::VARCHAR, 'none'), count(*) FROM "{table}" GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    shown, others = found[:24], found[24:]
    if others:
        shown.append((f"{len(others)} others", sum(number for _, number in others)))
    return Bars(title, tuple((str(name), float(number)) for name, number in shown), says=says)


def histogram(
    db: duckdb.DuckDBPyConnection, table: str, column: str, title: str, says: str = "", bins: int = 24
) -> Histogram:
    """How a column's numbers are distributed, in at most about `bins` bins of a round width."""
    found = db.execute(
        f'SELECT min("{column}")::DOUBLE, max("{column}")::DOUBLE FROM "{table}" WHERE isfinite("{column}"::DOUBLE)'
    ).fetchone()
    if found is None or found[0] is None:
        return Histogram(title, (), says)
    width = round_width((found[1] - found[0]) / bins)
    counts = dict(
        db.execute(
            f"""SELECT floor("{column}"::DOUBLE / $width + 1e-9)::BIGINT, count(*) FROM "{table}"
                WHERE isfinite("{column}"::DOUBLE) GROUP BY 1""",
            {"width": width},
        ).fetchall()
    )
    steps = range(min(counts), max(counts) + 1)
    return Histogram(title, tuple((step * width, (step + 1) * width, counts.get(step, 0)) for step in steps), says)


def round_width(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is no less."""
    if least <= 0:
        return 1.0
    power = math.floor(math.log10(least))
    for factor in (1, 2, 5, 10):
        if factor * 10.0**power >= least * (1 - 1e-9):
            return float(f"{factor}e{power}")
    raise AssertionError("one of them is")


def read_sounds(store: Store, clips: Iterable[Clip], most_bytes: int = MOST_SOUND_BYTES) -> dict[str, bytes]:
    """The beginning of each clip as MP3, by its SHA-256, until the page is full; missing clips are left out."""
    wanted = {clip.sha256: clip for clip in clips if clip.sha256}
    if not wanted:
        return {}
    places = media_index(store).places(set(wanted))
    sounds: dict[str, bytes] = {}
    size = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda sha256: _sound(wanted[sha256], sha256, places), wanted)
        for sha256, sound in zip(wanted, made, strict=True):
            if sound is not None and size + len(sound) <= most_bytes:
                sounds[sha256] = sound
                size += len(sound)
    return sounds


def _sound(clip: Clip, sha256: str, places: Mapping[str, list[Path]]) -> bytes | None:
    """The clip from its source, or from the first file that still is it."""
    if isinstance(clip.source, bytes):
        with soundfile.SoundFile(io.BytesIO(clip.source)) as file:
            samples = file.read(round(HEARD_S * file.samplerate), dtype="float32", always_2d=True)
            return as_mp3(samples, file.samplerate)
    for path in [clip.source] if clip.source else places.get(sha256, []):
        try:
            with open_regular(path) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    continue
            return as_mp3(*decode(path, first_s=HEARD_S))
        except (FileNotFoundError, NotAFile, BadAudio):
            continue  # the page says that the clip is not at hand
    return None


def as_mp3(samples: Any, rate: int) -> bytes:
    """The first seconds of samples (frames, channels), full scale ±1, as mono MP3 of a constant bit rate."""
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
