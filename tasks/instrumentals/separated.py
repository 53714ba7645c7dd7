"""Remove voices, shard by shard. Separated files are kept for every build of the store."""

import json
import math
import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Literal, Self

from earmark.schemas.errors import InputError, Interrupted
from earmark.schemas.instrumentals import Instrumentals, Separation
from earmark.schemas.machine import memory_bytes, processors
from earmark.tasks.audio.index import MediaIndex, Stamp, file_stamp
from earmark.tasks.audio.probe import Probe
from earmark.tasks.audio.separation import choice
from earmark.tasks.audio.separation.choice import Described, cuda_devices
from earmark.tasks.audio.separation.jobs import FailedTrack, Output, SeparatedTrack, SeparationJob, Separator
from earmark.tasks.audio.separation.pipeline import part_path, separate
from earmark.tasks.audio.separation.side_by_side import SeparatingProcesses
from earmark.tasks.pipeline.media import media_index
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.pipeline.rows import Rows, Shard, read_shard, shards_of
from earmark.tasks.pipeline.step import Done, Enough, step
from earmark.tasks.pipeline.tracks import PooledTrack, audio_file
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.parquet import row_schema, write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store


def describe_separator(config: Separation, resolve: Callable[[str], Path], store: Store) -> Described:
    """Return the separator's name and the digest of its output; download a known checkpoint if missing.

    Raises:
        ConfigError: the separator does not exist.
        MissingExtraError: it needs the extra `separation`.
    """
    return choice.describe_separator(**_named(config, resolve, store), precision=config.precision)


class Separators:
    """Separators waiting for work, one shard each. Their creator holds them in a `with`.

    They are loaded for the first shard. In another process, they are loaded there, on its devices.

    Args:
        resolve: makes a path of the config absolute.
        cores: for a separator without a model; default: as many as there are.

    Attributes:
        stopped: set at the end of the block: shards still at work then, as after an interrupt, end early.
    """

    def __init__(
        self, config: Separation, resolve: Callable[[str], Path], store: Store, cores: int | None = None
    ) -> None:
        self.stopped = threading.Event()
        self._cores = cores or cores_at_once()
        self._processes: SeparatingProcesses | None = None
        self._made_of = (config, resolve, store.absolute())
        self._free: queue.SimpleQueue[Separator] = queue.SimpleQueue()
        self._loading = threading.Lock()
        self._loaded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: Any) -> None:
        self.stopped.set()
        with self._loading:
            if self._processes is not None:
                self._processes.__exit__(*ended)

    def __reduce__(self) -> tuple[Any, ...]:
        return separators_here, self._made_of

    @property
    def in_process(self) -> bool:
        """Return whether a model runs in this process, quicker on a GPU."""
        config, _, _ = self._made_of
        return config.model != choice.CENTRE_REMOVAL

    @contextmanager
    def one(self) -> Iterator[Separator]:
        """Lend a separator to this thread alone; wait until one is free.

        Raises:
            ConfigError: the separator does not exist.
            Interrupted: the build was stopped.
            MissingExtraError: it needs the extra `separation`.
        """
        self._load()
        separator = self._free.get()
        try:
            self.check()
            yield separator
        finally:
            self._free.put(separator)

    def separate(
        self, jobs: Sequence[SeparationJob], lengths_s: Sequence[float], separator: Separator, output: Output,
        longest_s: float,
    ) -> Iterator[SeparatedTrack | FailedTrack]:  # fmt: skip
        """Separate as `pipeline.separate`: here, or, many jobs without a model, in a process a core."""
        before = [0.0, *accumulate(lengths_s)]
        chunks = [
            [job for job, _ in each]
            for _, each in groupby(zip(jobs, before, strict=False), lambda pair: pair[1] // CHUNK_S)
        ]
        if self.in_process or self._cores == 1 or len(chunks) < FEWEST_CHUNKS:
            yield from separate(jobs, separator, output, longest_s=longest_s)
            return
        with self._loading:
            self.check()
            self._processes = self._processes or SeparatingProcesses(self._cores)
        try:
            yield from self._processes.separate(chunks, separator, output, longest_s)
        except (CancelledError, RuntimeError):
            self.check()
            raise

    def check(self) -> None:
        """Raise if the build was stopped.

        Raises:
            Interrupted: it was.
        """
        if self.stopped.is_set():
            raise Interrupted("the build was stopped; finished tracks are kept")

    def _load(self) -> None:
        with self._loading:
            if self._loaded:
                return
            config, resolve, store = self._made_of
            named = _named(config, resolve, store)
            options: dict[str, Any] = {"precision": config.precision, "compiled": config.compile}
            devices = cuda_devices() if self.in_process else ("auto",) * self._cores
            for device in devices or ("auto",):
                self._free.put(choice.make_separator(**named, device=device, **options))
            self._loaded = True


_HERE: dict[bytes, Separators] = {}
_MEETING = threading.Lock()


def separators_here(config: Separation, resolve: Callable[[str], Path], store: Store) -> Separators:
    """Return this process's separators of a config; drop those of another config."""
    key = pickle.dumps((config, resolve, store))
    with _MEETING:
        if key not in _HERE:
            _HERE.clear()
            _HERE[key] = Separators(config, resolve, store, cores=1)  # a cluster starts a process a core itself
        return _HERE[key]


def _named(config: Separation, resolve: Callable[[str], Path], store: Store) -> dict[str, Any]:
    """Return a checkpoint's options: with a YAML it is a path from the config's folder, else a known name."""
    options = {"models": store.root / "models"}
    if config.config is None:
        return {"name": config.model, **options}
    return {"name": str(resolve(config.model)), "settings": resolve(config.config), **options}


TRACK_BYTES = 2 << 30  # of memory for the tracks that one separator has open: four spools, and their samples


def cores_at_once() -> int:
    """Return the number of separators for cores that fit the memory: 8 at most, as a disk seldom feeds more."""
    return max(1, min(8, processors(), memory_bytes() // TRACK_BYTES))


CHUNK_S = 30.0  # of sound that a process takes at once
FEWEST_CHUNKS = 4  # of a shard, for which processes are started
SHARDS_AT_ONCE = 16  # at most; each waits for a device of its own
FORMAT = 1  # of the kept files: raised when the same separator and settings would write other files
FOLDER = "separated"
BITS: Literal[16] = 16  # a sample of FLAC and WAV: the noise of 16 bits lies below that of any separator
MEASURED = (
    "duration_s", "sample_rate_hz", "frames", "written_frames", "written_rate_hz", "gain_db", "mix_db",
    "instrumental_db", "removed_db", "correlation", "clipped_share", "emptied_share",
)  # fmt: skip
SEPARATED = row_schema(
    f"row int64, kept string, instrumental_sha256 string, {', '.join(f'heard_{name} float64' for name in MEASURED)}, "
    "reason string, detail string"
)


@dataclass(frozen=True)
class SeparatedFiles:
    """The separated files of a store, by clip, separator and output: `<store>/separated/<key>/<aa>/<SHA-256>.<codec>`.

    A file counts once its measures lie beside it (`.json`), written last. Builds link files from here.
    """

    store: Store
    separator: str  # its digest
    output: Output

    @cached_property
    def folder(self) -> Path:
        """Return the folder of this separator's files at these settings."""
        output = asdict(self.output)
        if output["bitrate_kbps"] == 320:  # keeps files separated before the option existed
            del output["bitrate_kbps"]
        return self.store.root / FOLDER / digest_of([FORMAT, self.separator, output])[:32]

    def path(self, clip_sha256: str) -> Path:
        """Return the path of a clip's instrumental."""
        return self.folder / clip_sha256[:2] / f"{clip_sha256}.{self.output.codec}"

    def find(self, clip_sha256: str) -> dict[str, Any] | None:
        """Return the measurements of a clip's instrumental, if present and whole."""
        path = self.path(clip_sha256)
        try:
            measures: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
            return measures if path.stat().st_size == measures["bytes"] else None
        except (FileNotFoundError, ValueError, KeyError):
            return None

    def keep(self, clip_sha256: str, written: SeparatedTrack) -> dict[str, Any]:
        """Record a clip's instrumental as written."""
        measures = {name: getattr(written, name) for name in ("sha256", "bytes", *MEASURED)}
        path = self.path(clip_sha256)
        temporary = part_path(path)  # not synced: of a record lost with the power, the clip is separated again
        temporary.write_text(json.dumps(measures) + "\n")
        temporary.replace(path.with_suffix(".json"))
        return measures


def separate_tracks(stage: Stage, config: Instrumentals, pool: Rows[PooledTrack]) -> list[Path]:
    """Remove the voice from all usable tracks, except those kept already.

    Returns:
        Parquet files, columns `SEPARATED`, a row per track, in the order of the pool.

    Raises:
        InputError: an audio file changed during the build.
        Interrupted: the build was stopped.
        StoreError: a file cannot be written.
    """
    if stage.forecast is not None:
        raise Enough
    with (
        Separators(config.separator, config.path, stage.store) as separators,
        working("remove voices", pool.total) as work,
    ):
        return separate_shard.map(stage, config, shards_of(pool), pool=pool, separators=separators, work=work)


@step("separate", unit="tracks", label="")
def separate_shard(
    stage: Stage,
    config: Instrumentals,
    shard: Shard,
    *,
    pool: Rows[PooledTrack],
    separators: Separators,
    work: Work | None,
) -> Done[Path]:
    """Remove the voice from one shard of tracks."""
    tracks = {str(track["row"]): track for track in read_shard(pool, shard)}
    rows: list[tuple[Any, ...]] = []
    index, form = media_index(stage.store), config.output
    with separators.one() as separator:
        output = Output(form.codec, BITS, form.crop_s, form.bitrate_kbps if form.codec == "mp3" else 320)
        cache = SeparatedFiles(stage.store, separator.digest, output)
        jobs: list[SeparationJob] = []
        for name, track in tracks.items():
            measures = cache.find(track["clip_sha256"])
            length_s = min(track["duration_s"], form.crop_s or math.inf)
            if measures and measures["duration_s"] > length_s - 0.1:  # 1.0.0 decoded some clips in part
                rows.append(_row(cache, track, measures))
                _advance(work)
            else:
                source = audio_file(config, track["audio"])
                jobs.append(SeparationJob(name, source, cache.path(track["clip_sha256"])))
        unchanged = _stamps(index, jobs, tracks)
        lengths_s = [tracks[job.track]["duration_s"] for job in jobs]
        for result in separators.separate(jobs, lengths_s, separator, output, config.length_s[1]):
            track = tracks[result.job.track]
            if isinstance(result, FailedTrack):
                rows.append((track["row"], None, None, *[None] * len(MEASURED), result.reason, result.detail))
            else:
                same = unchanged.get(result.job.source, 0) == file_stamp(result.job.source)
                if not same and not _stamps(index, [result.job], tracks):
                    result.job.target.unlink()
                    raise InputError(f"{track['audio']} changed during the build; leave inputs alone, and build again")
                rows.append(_row(cache, track, cache.keep(track["clip_sha256"], result)))
            _advance(work)
            separators.check()
    path = stage.work / "separated" / f"{shard.name}.parquet"
    write_rows(path, SEPARATED, sorted(rows))
    return Done(path)


def _stamps(
    index: MediaIndex, jobs: list[SeparationJob], tracks: Mapping[str, PooledTrack]
) -> dict[Path, Stamp | None]:
    """Return size and time of change of the sources that still hold their tracks' clips."""
    stamps = [file_stamp(job.source) for job in jobs]
    probes = index.look([job.source for job in jobs], threads=1)
    return {
        job.source: stamp
        for job, stamp, probe in zip(jobs, stamps, probes, strict=True)
        if isinstance(probe, Probe) and probe.clip_sha256 == tracks[job.track]["clip_sha256"]
    }


def _row(cache: SeparatedFiles, track: PooledTrack, measures: dict[str, Any]) -> tuple[Any, ...]:
    path = cache.path(track["clip_sha256"]).relative_to(cache.store.root).as_posix()
    return (track["row"], path, measures["sha256"], *(float(measures[name]) for name in MEASURED), None, None)


def _advance(work: Work | None) -> None:
    if work is not None:  # another process has no progress to show
        work.advance(1)
