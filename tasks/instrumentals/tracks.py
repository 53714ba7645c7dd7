"""Write the published table of `instrumentals`, check each result, and write the card sections."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from earmark.schemas.errors import StoreError
from earmark.schemas.instrumentals import FLAGS, TRACKS, Instrumentals
from earmark.tasks.audio.decode import decode
from earmark.tasks.instrumentals.separated import MEASURED, SEPARATED, describe_separator, separate_shard
from earmark.tasks.pipeline.media import EMBEDDED_AT_ONCE, with_audio
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.rows import Rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.tracks import PooledTrack, audio_file
from earmark.tasks.store.files import place, sync
from earmark.tasks.store.sql import by_split, connect, query, view_parquet
from earmark.tasks.store.staging import Stage

# From these limits a result is flagged. Flagged tracks stay, with the figures: trainers choose which to leave out.
MOST_CLIPPED = 0.001  # share of the mix's samples at full scale
MOST_EMPTIED = 0.1  # share of the mix's sounding moments that are silent now
LEAST_REMOVED_DB = -40.0  # level of what was removed, against the mix
LEAST_LEFT_DB = -25.0  # level of what is left, against the mix
MOST_CORRELATED = 0.25  # correlation of what is left with what was removed
LENGTH_S = 0.06  # difference in length between mix and instrumental: a frame of MP3 and its padding
BYTES_AT_ONCE = 50 << 20  # of audio read ahead, and as much again, beside the row group being written


class KeptTrack(PooledTrack):
    """A row of `tracks.sql`, with its measures as `heard_…`."""

    kept: str
    instrumental_sha256: str
    codec: str


def flags_of(heard: Mapping[str, float]) -> list[str]:
    """Return the failed checks of measurements (`separation.jobs.Done`), from `FLAGS` and in that order."""
    failed = {
        "mix_clipped": heard["clipped_share"] > MOST_CLIPPED,
        "emptied": heard["emptied_share"] > MOST_EMPTIED,
        "nothing_removed": heard["removed_db"] - heard["mix_db"] < LEAST_REMOVED_DB,
        "little_left": heard["instrumental_db"] - heard["mix_db"] < LEAST_LEFT_DB,
        "voice_left": heard["correlation"] > MOST_CORRELATED,
        "length_mismatch": abs(_length_error_s(heard)) > LENGTH_S,
    }
    return [flag for flag in FLAGS if failed[flag]]


def _length_error_s(heard: Mapping[str, float]) -> float:
    return heard["written_frames"] / heard["written_rate_hz"] - heard["frames"] / heard["sample_rate_hz"]


@step("tracks", unit="tracks", follows="index", table=TRACKS.name, label="")
def write_tracks(stage: Stage, config: Instrumentals, pool: Rows, separated: list[Path]) -> Done[None]:
    """Write the published table `tracks`, and the instrumentals beside it if kept as files.

    Raises:
        StoreError: a shard's result is gone; it is separated again in the next build.
    """
    flagged: Counter[str] = Counter()
    with connect(stage.work / "spill") as connection:
        _view(connection, pool, separated)
        refused = connection.sql(query("instrumentals/refuse_separated")).to_arrow_table()
        with working("write tracks") as work:
            rows = by_split(connection, query("instrumentals/tracks"), batch=10_000)
            kept = stage.write_splits(
                TRACKS, lambda split: work.watching(ahead(_published(stage, config, rows(split), flagged)))
            )
    for folder in (stage.version / "audio").glob("*"):
        sync(folder)  # of links, before this step counts as done
    flags = ", ".join(f"{flag} {flagged[flag]}" for flag in FLAGS if flagged[flag]) or "none"
    return Done(None, Account(pool.total, kept, refused, notes=(f"flags: {flags}",), stage="separate"))


def ahead(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield parts, each made in a thread while the one before it is written: audio is read and hashed meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = pool.submit(next, parts, None)
            yield part


def _view(connection: duckdb.DuckDBPyConnection, pool: Rows, separated: Sequence[Path]) -> None:
    view_parquet(connection, "pool", [pool.path])
    view_parquet(connection, "separated", separated, SEPARATED)


def _published(
    stage: Stage, config: Instrumentals, batches: Iterator[pa.RecordBatch], flagged: Counter[str]
) -> Iterator[pa.Table]:
    separator = describe_separator(config.separator, config.path, stage.store)
    bare = pa.schema([field for field in TRACKS.schema if field.name != "audio"])
    for batch in batches:
        for part in _handfuls(batch.to_pylist(), stage):
            files = [stage.store.root / row["kept"] for row in part]
            rows = [row_of(row, config, separator) for row in part]
            for row in rows:
                flagged.update(row["flags"])
            embedded = config.output.keep == "embedded"
            for file, row in () if embedded else zip(files, rows, strict=True):
                place(file, stage.version / row["instrumental"], durable=False)
            yield from with_audio(pa.Table.from_pylist(rows, bare), files if embedded else None)


def _handfuls(rows: Sequence[KeptTrack], stage: Stage) -> Iterator[list[KeptTrack]]:
    """Yield rows in groups fitting in memory with their audio: a long track is a group of its own."""
    part: list[KeptTrack] = []
    size = 0
    for row in rows:
        path = stage.store.root / row["kept"]
        if not path.is_file():
            separate_shard.forget(stage)
            raise StoreError(f"{path.name}: expected what this build separated, found none; build again")
        size += path.stat().st_size
        if part and (len(part) == EMBEDDED_AT_ONCE or size > BYTES_AT_ONCE):
            yield part
            part, size = [], path.stat().st_size
        part.append(row)
    if part:
        yield part


def row_of(found: KeptTrack, config: Instrumentals, separator: Sequence[str | None]) -> dict[str, Any]:
    """Return a row of `tracks`, without its audio, from a row of `tracks.sql`."""
    measures: Mapping[str, Any] = found
    heard: dict[str, float] = {name: measures[f"heard_{name}"] for name in MEASURED}
    stem, codec = found["name"], config.output.codec
    file = f"audio/{stem[-2:]}/{stem}_instrumental.{codec}" if config.output.keep == "files" else None
    return {
        **{
            column: measures[column] for column in ("track_id", "split", "artist_id", "album_id", "tags", "source_file")
        },
        "track_licence": found["licence"],
        "source": config.source.name,
        "file": found["audio"],
        "mix_sha256": found["clip_sha256"],
        "clip_sha256": found["instrumental_sha256"],
        "instrumental": file,
        "mix_duration_s": found["duration_s"],
        "duration_s": heard["duration_s"],
        "sample_rate_hz": int(heard["written_rate_hz"]),
        "mix_sample_rate_hz": found["sample_rate_hz"],
        "mix_channels": found["channels"],
        "mix_codec": found["codec"],
        "mix_dbfs": heard["mix_db"],
        "instrumental_dbfs": heard["instrumental_db"],
        "removed_dbfs": heard["removed_db"],
        "removed_db": heard["removed_db"] - heard["mix_db"],
        "residual_voice": heard["correlation"],
        "gain_db": heard["gain_db"],
        "clipped_share": heard["clipped_share"],
        "emptied_share": heard["emptied_share"],
        "length_error_s": _length_error_s(heard),
        "flags": flags_of(heard),
        "separator": separator[0],
        "separator_digest": separator[1],
        "checkpoint_sha256": separator[2],
        "source_line": found["line"],
    }


def sections(stage: Stage, config: Instrumentals, pool: Rows, separated: list[Path]) -> dict[str, str]:
    """Write the card's section on the separation: levels, flags, and for demos the removal of the true lead."""
    columns = ["track_id", "removed_db", "residual_voice", "flags", "separator", "duration_s"]
    rows = stage.rows(TRACKS, columns)
    if not rows:
        return {"What was removed": "No track was separated."}
    removed, hours = sorted(row["removed_db"] for row in rows), sum(row["duration_s"] for row in rows) / 3600
    low, high = removed[len(removed) // 20], removed[-1 - len(removed) // 20]
    counts = Counter(flag for row in rows for flag in row["flags"])
    lines = [
        f"{len(rows):,} tracks, {hours:,.3g} h, by `{rows[0]['separator']}`. For nine tracks of ten, what was removed "
        f"lies between {low:.1f} and {high:.1f} dB against the mix, {median(removed):.1f} dB in the middle; the "
        f"residual voice is {median(row['residual_voice'] for row in rows):.3f} in the middle.",
        "",
        "| flag | tracks | share |",
        "|---|---:|---:|",
        *(f"| `{flag}` | {counts[flag]:,} | {counts[flag] / len(rows):.1%} |" for flag in FLAGS),
    ]
    texts = {"What was removed": "\n".join(lines)}
    if config.known_leads:
        texts["How much of the known lead is gone"] = _lead_section(stage, config, pool, separated)
    return texts


def _lead_section(stage: Stage, config: Instrumentals, pool: Rows, separated: list[Path]) -> str:
    folder = config.path(str(config.known_leads))
    with connect(stage.work / "spill") as connection:
        _view(connection, pool, separated)
        tracks = connection.sql(
            """SELECT track_id, name, kept, audio, heard_gain_db FROM pool JOIN separated USING (row)
               WHERE kept IS NOT NULL ORDER BY row"""
        ).fetchall()
    rows = []
    for track_id, name, kept, audio, gain_db in tracks:
        lead = folder / f"{name}.flac"
        if lead.is_file():
            lead_db, band_db = changes_db(lead, audio_file(config, audio), stage.store.root / kept)
            rows.append((track_id, lead_db - gain_db, band_db - gain_db))
    if not rows:
        raise StoreError(f"known_leads: expected `<id>.flac` of a separated track in {folder.name}, found none")
    lines = [
        "The leads of these tracks are known, since the tracks were made here. How much of the lead, and of all else, "
        "the instrumental holds against the mix:",
        "",
        "| track | lead, dB | all else, dB |",
        "|---|---:|---:|",
        *(f"| `{track}` | {lead_db:+.1f} | {band_db:+.1f} |" for track, lead_db, band_db in rows),
        f"| in the middle | {median(row[1] for row in rows):+.1f} | {median(row[2] for row in rows):+.1f} |",
    ]
    return "\n".join(lines)


def changes_db(lead: Path, mix: Path, instrumental: Path) -> tuple[float, float]:
    """Return the level changes of a known lead, and of all else, from mix to instrumental, in dB; no less than -60.

    A sound's gain in a file is its projection: its least-squares fit there. All else is the mix less its
    lead, so the lead must be in the mix unchanged, in both channels alike.

    Args:
        lead: the lead alone, mono.
        mix: the track, stereo, at the same rate.
        instrumental: the track without its voice.
    """
    (known, _), (whole, _), (left, _) = decode(lead), decode(mix), decode(instrumental)
    size = min(len(known), len(whole), len(left))
    voice = np.repeat(known[:size].astype(np.float64), 2, axis=1).ravel()
    mixed, kept = whole[:size].astype(np.float64).ravel(), left[:size].astype(np.float64).ravel()
    band = mixed - _gain(voice, mixed) * voice
    found = (_gain(voice, kept) / _gain(voice, mixed), _gain(band, kept))
    lead_db, band_db = (20 * math.log10(max(abs(gain), 1e-3)) for gain in found)
    return lead_db, band_db


def _gain(sound: npt.NDArray[np.float64], heard: npt.NDArray[np.float64]) -> float:
    return float(sound @ heard) / float(sound @ sound)
