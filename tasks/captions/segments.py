"""Cut long recordings, such as films, into tracks of about a minute; reject the pieces left over."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.captions import CAPTIONS, SEGMENTS, Captions, recorded_segments
from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Reject
from earmark.tasks.audio.faults import BadAudio
from earmark.tasks.audio.segments import CutRule, levels_of, pieces_of, write_segments
from earmark.tasks.captions.asking import HeardTrack, SegmentTrack, shard_sizes
from earmark.tasks.pipeline.media import MEASURED, measure
from earmark.tasks.pipeline.progress import working
from earmark.tasks.pipeline.rows import Rows, keep_rows, read_rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.files import place, sha256_file, write_text
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store

FORMAT = 1  # of the kept files: raised when the same rule would write other files
FOLDER = "segments"
OWN = row_schema("recording string, recording_sha256 string, recording_start_s float64, recording_end_s float64")
WHY = {
    "segment_silent": "expected sound, found silence of {length} s",
    "segment_fades": "expected a level that stays, found {length} s that fade in or out",
    "segment_too_short": "expected at least {shortest} s between silences, found {length} s",
}


@dataclass(frozen=True)
class Cut:
    """A piece of a recording."""

    start_s: float  # start_s, end_s: within the recording
    end_s: float
    lost: str | None  # reason for leaving it out; None for a segment
    sha256: str | None  # of a segment's file


@dataclass(frozen=True)
class SegmentFiles:
    """The segments of a store, by rule and recording: `<store>/segments/<key>/<aa>/<SHA-256>-<number>.flac`.

    They count once the list of a recording's pieces lies beside them (`.json`), written last.
    """

    store: Store
    lengths: tuple[float, float]

    def path(self, recording_sha256: str, ending: str) -> Path:
        """Return the path of a recording's list, or of a segment."""
        key = digest_of([FORMAT, recorded_segments(self.lengths)])[:32]
        return self.store.root / FOLDER / key / recording_sha256[:2] / f"{recording_sha256}{ending}"

    def segment(self, recording_sha256: str, number: int) -> Path:
        """Return the path of a piece."""
        return self.path(recording_sha256, f"-{number:04d}.flac")

    def cut(self, recording_sha256: str, path: Path, duration_s: float, longest_s: float) -> list[Cut]:
        """Return a recording's pieces up to its end; cut them unless kept already (1.0.0 decoded some in part).

        Raises:
            BadAudio: the recording cannot be decoded.
            InputError: it changed since it was measured.
        """
        note = self.path(recording_sha256, ".json")
        if note.is_file():
            cuts = [Cut(**one) for one in json.loads(note.read_bytes())]
            whole = bool(cuts) and cuts[-1].end_s > duration_s - 1.0
            if whole and all(
                self.segment(recording_sha256, number).is_file() for number, one in enumerate(cuts) if one.sha256
            ):
                return cuts
        levels, frame_s = levels_of(path, longest_s)
        pieces = pieces_of(levels, CutRule(*self.lengths))
        files = [None if piece.lost else self.segment(recording_sha256, number) for number, piece in enumerate(pieces)]
        write_segments(path, [piece.end for piece in pieces], files, longest_s)
        if sha256_file(path) != recording_sha256:
            raise InputError(f"{path.name} changed during the build; leave inputs alone, and build again")
        ends = [(round(piece.start * frame_s, 3), round(piece.end * frame_s, 3), piece.lost) for piece in pieces]
        cuts = [Cut(*end, sha256_file(file) if file else None) for end, file in zip(ends, files, strict=True)]
        write_text(note, json.dumps([vars(one) for one in cuts], indent=1) + "\n")
        return cuts


@step("segment", unit="segments", label="")
def cut_recordings(stage: Stage, config: Captions, pool: Rows[HeardTrack]) -> Done[Rows[HeardTrack]]:
    """Cut recordings into segments if configured; each is a track from here on.

    Returns:
        The segments, rows of `track_pool.sql` with columns `OWN`; without `segments` the unchanged
        tracks. A dry run assumes a segment a minute: nothing is decoded.

    Raises:
        InputError: a recording changed since it was measured.
    """
    if config.segments is None:
        return Done(pool)
    rows: list[SegmentTrack] = []
    rejects: list[tuple[str, Reject]] = []
    recordings = read_rows(pool)
    with working("cut into segments", len(recordings)) as work:
        for recording in recordings:
            if stage.forecast is not None:
                rows += _imagined(config.segments, recording)
            else:
                own, lost = _segments(stage, config, config.segments, recording)
                rows += own
                rejects += [(CAPTIONS.name, one) for one in lost]
            work.advance()
    kept: list[SegmentTrack] = []
    first: dict[str, str] = {}
    for row in rows:
        other = first.setdefault(row["clip_sha256"], row["track_id"])
        if other == row["track_id"]:
            kept.append({**row, "row": len(kept)})
        else:
            detail = f"expected sound that no other segment has, found the bytes of {other}"
            rejects.append((CAPTIONS.name, _reject(row, "duplicate_audio", detail)))
    schema = pa.unify_schemas([pq.read_schema(pool.path), OWN])
    table = pa.Table.from_pylist(kept, schema)
    segments = keep_rows(stage, "segments", table, shard_sizes(config, table["duration_s"].to_pylist()))
    hours = sum(table["duration_s"].to_pylist()) / 3600
    note = f"{len(kept):,} segments, {hours:,.3g} h, of {len(recordings):,} recordings"
    return Done(segments, Account(len(kept) + len(rejects), len(kept), rejects, notes=(note,)))


def _segments(
    stage: Stage, config: Captions, lengths: tuple[float, float], recording: HeardTrack
) -> tuple[list[SegmentTrack], list[Reject]]:
    """Return the segments of a recording, and a reject for every other piece of it."""
    store, sha256 = SegmentFiles(stage.store, lengths), recording["clip_sha256"]
    try:
        cuts = store.cut(sha256, Path(recording["path"]), recording["duration_s"], config.length_s[1])
    except BadAudio as bad:
        return [], [_reject(recording, bad.reason, str(bad))]
    files = [store.segment(sha256, number) for number, cut in enumerate(cuts) if cut.lost is None]
    label = f"measure segments of {recording['track_id']}"
    measured = iter(zip(files, measure(stage.store, label, files), strict=True))
    rows: list[SegmentTrack] = []
    lost: list[Reject] = []
    for cut in cuts:
        if cut.lost is not None:
            found = {"length": round(cut.end_s - cut.start_s, 1), "shortest": lengths[0]}
            detail = f"{cut.start_s:g} s to {cut.end_s:g} s: {WHY[cut.lost].format(**found)}"
            lost.append(_reject(recording, cut.lost, detail))
        else:
            file, values = next(measured)
            facts = dict(zip(row_schema(MEASURED).names, values, strict=True))
            segment: Any = {**_segment(recording, cut.start_s, cut.end_s), **facts, "path": str(file)}
            rows.append(segment)
    return rows, lost


def _imagined(lengths: tuple[float, float], recording: HeardTrack) -> list[SegmentTrack]:
    """Return about as many segments as a recording has, for a dry run."""
    count = int(recording["duration_s"] // (sum(lengths) / 2))
    length = recording["duration_s"] / max(1, count)
    return [
        {
            **_segment(recording, number * length, (number + 1) * length),
            "clip_sha256": digest_of([recording["clip_sha256"], number]),
            "duration_s": length,
        }
        for number in range(count)
    ]


def _segment(recording: HeardTrack, start_s: float, end_s: float) -> SegmentTrack:
    return {
        **recording,
        "track_id": f"{recording['track_id']}@{start_s:.1f}",
        "recording": recording["track_id"],
        "recording_sha256": recording["clip_sha256"],
        "recording_start_s": start_s,
        "recording_end_s": end_s,
    }


def _reject(row: HeardTrack | SegmentTrack, reason: str, detail: str) -> Reject:
    clip = (
        "clip",
        str(row.get("recording_sha256", row["clip_sha256"])),
    )  # a withdrawn recording takes its rejects along
    return Reject(row["track_id"], reason, detail, row["source_file"], row["line"], made_from=(clip,))


def write_segment_rows(stage: Stage, config: Captions, pool: Rows[SegmentTrack]) -> None:
    """Write the table `segments`, and their files beside it."""
    rows = read_rows(pool)
    for row in rows:
        place(Path(row["path"]), stage.version / _file(row))
    segments = pa.Table.from_pylist([_row(config, row) for row in rows], SEGMENTS.schema)
    stage.write_splits(SEGMENTS, lambda split: [segments.filter(pc.equal(segments["split"], split))])


def _row(config: Captions, row: SegmentTrack) -> dict[str, Any]:
    return {
        **row,
        "clip_id": row["track_id"],
        "start_s": row["recording_start_s"],
        "end_s": row["recording_end_s"],
        "file": _file(row),
        "source": config.source.name,
        "source_line": row["line"],
        "track_licence": row["licence"],
    }


def _file(row: SegmentTrack) -> str:
    return f"audio/{row['clip_sha256'][:2]}/{row['clip_sha256']}.flac"
