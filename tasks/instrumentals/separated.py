"""`instrumentals`: voices removed, shard by shard. What was separated once is kept for every build of the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import InputError
from schemas.instrumentals import Instrumentals, Result
from tasks.audio.probe import Probe
from tasks.audio.separation.jobs import Done, Failed, Job, Output, Separator
from tasks.audio.separation.pipeline import separate
from tasks.build.media import media_index
from tasks.build.progress import Work
from tasks.instrumentals.separators import Separators
from tasks.instrumentals.sources import audio_folder
from tasks.store.files import sha256_file, write_text
from tasks.store.manifest import digest_of
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage
from tasks.store.versions import Store

TRACKS_A_SHARD = 256
FORMAT = 1  # of what is kept: raised when the same separator and settings would write other files
FOLDER = "separated"
MEASURED = (
    "duration_s", "sample_rate_hz", "frames", "written_frames", "written_rate_hz", "gain_db", "mix_db",
    "instrumental_db", "removed_db", "correlation", "clipped_share", "emptied_share",
)  # fmt: skip
SEPARATED = pa.schema(
    [
        ("row", pa.int64()),
        ("kept", pa.string()),
        ("instrumental_sha256", pa.string()),
        *((f"heard_{name}", pa.float64()) for name in MEASURED),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class Kept:
    """The separated files of a store, by clip, separator and output: `<store>/separated/<key>/<aa>/<SHA-256>.<codec>`.

    A file counts once its measures lie beside it (`.json`); they are written last. Builds link files from here.

    Attributes:
        store: the store.
        separator: its digest.
        output: how files are written.
    """

    store: Store
    separator: str
    output: Output

    @property
    def folder(self) -> Path:
        """Where all files of this separator and these settings are."""
        return self.store.root / FOLDER / digest_of([FORMAT, self.separator, asdict(self.output)])[:32]

    def path(self, clip_sha256: str) -> Path:
        """Where a clip's instrumental is, or will be."""
        return self.folder / clip_sha256[:2] / f"{clip_sha256}.{self.output.codec}"

    def find(self, clip_sha256: str) -> dict[str, Any] | None:
        """What was measured of a clip's instrumental, if it is there and whole."""
        path = self.path(clip_sha256)
        try:
            held: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
            return held if path.stat().st_size == held["bytes"] else None
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def keep(self, clip_sha256: str, done: Done) -> dict[str, Any]:
        """Note that a clip's instrumental is written."""
        path = self.path(clip_sha256)
        held = {"sha256": sha256_file(path), "bytes": path.stat().st_size} | {
            name: getattr(done, name) for name in MEASURED
        }
        note = path.with_suffix(".json")
        for left in path.parent.glob(f".{note.name}.*.tmp"):
            left.unlink()  # by a build that was killed at this point
        write_text(note, json.dumps(held, indent=1) + "\n")
        return held


def output_of(result: Result) -> Output:
    """The output settings of a config."""
    return Output(result.codec, result.bits, result.crop_s)


def in_shards(stage: Stage) -> list[int]:
    """Where each shard of tracks begins."""
    return list(range(0, pq.read_metadata(stage.work / "pool.parquet").num_rows, TRACKS_A_SHARD))


def separate_shard(stage: Stage, config: Instrumentals, separators: Separators, start: int, work: Work | None) -> None:
    """Remove the voice from one shard of tracks; those that are kept already are not done again.

    Leaves `work/separated/<start>.parquet`, one row a track.

    Raises:
        InputError: an audio file changed during the build.
        Interrupted: the build was stopped.
        StoreError: a file cannot be written.
    """
    path = stage.work / "separated" / f"{start:09d}.parquet"
    tracks = pq.ParquetFile(stage.work / "pool.parquet").read(["row", "audio", "clip_sha256"])
    shard = {str(track["row"]): track for track in tracks.slice(start, TRACKS_A_SHARD).to_pylist()}
    rows: list[tuple[Any, ...]] = []
    with separators.one() as separator:
        kept = Kept(stage.store, separator.digest, output_of(config.output))
        jobs = []
        for name, track in shard.items():
            if held := kept.find(track["clip_sha256"]):
                rows.append(_row(stage.store, kept, track, held))
                _advance(work, 1)
            else:
                jobs.append(Job(name, audio_folder(config) / track["audio"], kept.path(track["clip_sha256"])))
        rows += _separated(stage, config, separator, kept, shard, jobs, work, separators.check)
    write_rows(path, SEPARATED, sorted(rows))


def _separated(
    stage: Stage,
    config: Instrumentals,
    separator: Separator,
    kept: Kept,
    shard: dict[str, dict[str, Any]],
    jobs: list[Job],
    work: Work | None,
    check: Callable[[], None],
) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    index = media_index(stage.store)
    for result in separate(jobs, separator, kept.output, longest_s=config.tracks.longest_s):
        track = shard[result.job.track]
        if isinstance(result, Failed):
            rows.append((track["row"], None, None, *[None] * len(MEASURED), result.reason, result.detail))
        else:
            (found,) = index.look([result.job.source], threads=1)
            if not isinstance(found, Probe) or found.clip_sha256 != track["clip_sha256"]:
                result.job.target.unlink()
                raise InputError(f"{track['audio']} changed during the build; leave inputs alone, and build again")
            rows.append(_row(stage.store, kept, track, kept.keep(track["clip_sha256"], result)))
        _advance(work, 1)
        check()
    return rows


def _row(store: Store, kept: Kept, track: dict[str, Any], held: dict[str, Any]) -> tuple[Any, ...]:
    path = kept.path(track["clip_sha256"]).relative_to(store.root).as_posix()
    return (track["row"], path, held["sha256"], *(float(held[name]) for name in MEASURED), None, None)


def _advance(work: Work | None, count: int) -> None:
    if work is not None:
        work.advance(count)
