"""Cache measurements of audio files by path, size and time of change, so that a second look costs a `stat`."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from earmark.schemas.files import connected, write_ahead
from earmark.schemas.machine import processors, uncollected
from earmark.schemas.reasons import AudioFault
from earmark.tasks.audio.decode import average
from earmark.tasks.audio.encode import decode
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.audio.measure import LONGEST_S as LOUDNESS_OF_S
from earmark.tasks.audio.measure import filtered_loudness_lufs
from earmark.tasks.audio.probe import Probe, probe, within
from earmark.tasks.audio.sound import was_cut

FORMAT = 3  # of the table; a table of another format is dropped, since all can be measured again
PAGES_CHECKED = 1  # Ogg files measured before, without a look at their pages' checksums, are measured again
ASKED_AT_ONCE = 4096  # paths in one query
KEPT_AT_ONCE = 256  # new measurements in a transaction: the loss by a kill
_SCHEMA = f"""CREATE TABLE media (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, changed_ns INTEGER NOT NULL,
    clip_sha256 TEXT NOT NULL, duration_s REAL NOT NULL, sample_rate_hz INTEGER NOT NULL, channels INTEGER NOT NULL,
    peak_dbfs REAL NOT NULL, level_dbfs REAL NOT NULL, silent_share REAL NOT NULL, codec TEXT NOT NULL
) WITHOUT ROWID; PRAGMA user_version = {FORMAT}"""
_KNOWN = f"""SELECT path, size, changed_ns, {", ".join(Probe._fields)} FROM media
    WHERE path IN (SELECT value FROM json_each(?))"""
_KEEP = f"INSERT OR REPLACE INTO media VALUES ({', '.join('?' * (3 + len(Probe._fields)))})"

_REDECODED = "CREATE TABLE IF NOT EXISTS redecoded (clip_sha256 TEXT PRIMARY KEY) WITHOUT ROWID"
_KNOWN_LOUDNESS = "SELECT * FROM loudness WHERE clip_sha256 IN (SELECT value FROM json_each(?))"
_LOUDNESS = """CREATE TABLE IF NOT EXISTS loudness (
    clip_sha256 TEXT, first_s REAL, lufs REAL NOT NULL, PRIMARY KEY (clip_sha256, first_s)
) WITHOUT ROWID"""

Stamp = tuple[int, int]


def decoded_in_part(path: Path) -> frozenset[str] | None:
    """Return the clips 1.0.0 decoded in part; None if it measured MP3 or Ogg files not checked since.

    Args:
        path: a media index, opened without changes.
    """
    if not path.is_file():
        return frozenset()
    with connected(path) as connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            return frozenset(clip for (clip,) in connection.execute("SELECT clip_sha256 FROM redecoded"))
        lossy = "SELECT 1 FROM media WHERE codec IN ('mp3', 'mp2', 'vorbis', 'opus') LIMIT 1"
        return None if connection.execute(lossy).fetchone() else frozenset()


class Beginning(NamedTuple):
    """The first seconds of a clip, by its hash; `path` is its present file."""

    clip_sha256: str
    path: Path
    first_s: float


class MediaIndex:
    """Cache of the results of `probe`. Faults are not cached: their causes may pass.

    Args:
        path: the SQLite file, created if missing. Several processes may share it.

    Raises:
        DiskError: the file cannot be read or written; so do the methods.
    """

    def __init__(self, path: Path) -> None:
        with suppress(OSError):  # the connection gives the reason
            path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        with connected(self.path) as connection:
            write_ahead(connection)
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
                for statement in ("DROP TABLE IF EXISTS media", *_SCHEMA.split("; ")):
                    connection.execute(statement)
            connection.execute(_LOUDNESS)
            connection.execute(_REDECODED)
            if connection.execute("PRAGMA application_id").fetchone()[0] < PAGES_CHECKED:
                connection.execute("DELETE FROM media WHERE codec IN ('vorbis', 'opus')")
                connection.execute(f"PRAGMA application_id = {PAGES_CHECKED}")

    def look(
        self,
        paths: Sequence[Path | AudioFault],
        *,
        threads: int | None = None,
        longest_s: float = LONGEST_S,
        seen: Callable[[int], None] = lambda count: None,
    ) -> list[Probe | AudioFault]:
        """Probe files, each only if new or changed.

        Args:
            paths: absolute paths; a fault in place of a path closed to reading.
            threads: files read at once; default: the number of processors and two more to wait for the disk.
            longest_s: longer files are faults.
            seen: called with the number of further files done, for progress.

        Returns:
            A result for each path, in order. Files with faults are probed again each time.
        """
        results: list[Probe | AudioFault | None] = []
        stamps: list[Stamp | None] = []
        with uncollected():
            for start in range(0, len(paths), ASKED_AT_ONCE):
                batch = paths[start : start + ASKED_AT_ONCE]
                stamps += [file_stamp(path) for path in batch]
                known: list[Probe | AudioFault | None] = [*self._known(batch, stamps[start:])]
                for place, path in enumerate(batch):
                    if isinstance(path, AudioFault):
                        known[place] = path
                    elif stamps[start + place] is None:  # a missing file: no work for a thread
                        known[place] = probe(path, longest_s)
                results += known
                seen(sum(found is not None for found in known))
        new = [place for place, found in enumerate(results) if found is None]
        files = [(path, stamps[i]) for i in new if isinstance(path := paths[i], Path)]
        measured = self._measure(files, threads or processors() + 2, longest_s)
        for place, found in zip(new, measured, strict=True):
            results[place] = found
            seen(1)
        return [within(result, longest_s) for result in results if result is not None]

    def known(self, paths: Sequence[Path]) -> list[Probe | None]:
        """Return cached results of files in order; None for new and changed files."""
        found: list[Probe | None] = []
        for start in range(0, len(paths), ASKED_AT_ONCE):
            batch = paths[start : start + ASKED_AT_ONCE]
            found += self._known(batch, [file_stamp(path) for path in batch])
        return found

    def places(self, sha256s: Collection[str]) -> dict[str, list[Path]]:
        """Return the paths of clips by SHA-256; readers must check the hash again."""
        by_clip: dict[str, list[Path]] = {}
        with connected(self.path) as connection:
            for clip_sha256, path in connection.execute("SELECT clip_sha256, path FROM media ORDER BY path"):
                if clip_sha256 in sha256s:
                    by_clip.setdefault(clip_sha256, []).append(Path(path))
        return by_clip

    def measured(self, sha256s: Collection[str]) -> dict[str, Probe]:
        """Return the cached results of clips by SHA-256, valid for any present path."""
        with connected(self.path) as connection:
            rows = connection.execute(f"SELECT {', '.join(Probe._fields)} FROM media").fetchall()
        return {row[0]: Probe._make(row) for row in rows if row[0] in sha256s}

    def redecoded(self) -> frozenset[str]:
        """Return the clips 1.0.0 decoded in part, by SHA-256; answers about the part do not count for the clip."""
        return decoded_in_part(self.path) or frozenset()

    def loudness(
        self, beginnings: Sequence[Beginning], *, seen: Callable[[int], None] = lambda count: None
    ) -> list[float]:
        """Return gated loudness in LUFS of clips' beginnings, rounded to 0.01, -120 for silence; measure each once.

        Args:
            beginnings: at most three minutes of each are measured.
            seen: called with the number of further clips done, for progress.

        Raises:
            InputError: a file's hash has changed, or it cannot be decoded.
        """
        keys = [(one.clip_sha256, round(min(one.first_s, LOUDNESS_OF_S), 3)) for one in beginnings]
        known: dict[tuple[str, float], float] = {}
        with connected(self.path) as connection:
            for start in range(0, len(keys), ASKED_AT_ONCE):
                clips = json.dumps([clip for clip, _ in keys[start : start + ASKED_AT_ONCE]])
                rows = connection.execute(_KNOWN_LOUDNESS, (clips,))
                known |= {(clip, first_s): lufs for clip, first_s, lufs in rows}
        new = list({key: one.path for key, one in zip(keys, beginnings, strict=True) if key not in known}.items())
        seen(len(keys) - len(new))
        with ThreadPoolExecutor(processors()) as pool:
            for start in range(0, len(new), KEPT_AT_ONCE):
                batch = new[start : start + KEPT_AT_ONCE]
                measured = {key: lufs for (key, _), lufs in zip(batch, pool.map(_loudness_of, batch), strict=True)}
                with connected(self.path) as connection:
                    kept = [(*key, lufs) for key, lufs in measured.items()]
                    connection.executemany("INSERT OR REPLACE INTO loudness VALUES (?, ?, ?)", kept)
                known |= measured
                seen(len(batch))
        return [known[key] for key in keys]

    def _known(self, paths: Sequence[Path | AudioFault], stamps: Sequence[Stamp | None]) -> list[Probe | None]:
        with connected(self.path) as connection:
            rows = connection.execute(_KNOWN, (json.dumps([str(path) for path in paths]),)).fetchall()
        by_path = {path: ((size, changed_ns), Probe._make(rest)) for path, size, changed_ns, *rest in rows}
        stored = (by_path.get(str(path), (None, None)) for path in paths)
        return [
            probed if stamp is not None and stamp == at else None
            for stamp, (at, probed) in zip(stamps, stored, strict=True)
        ]

    def _measure(
        self, files: Sequence[tuple[Path, Stamp | None]], threads: int, longest_s: float
    ) -> Iterator[Probe | AudioFault]:
        """Probe each file; store results in batches, and at the end, also after an exception."""
        rows: list[tuple[object, ...]] = []
        cut: list[tuple[str]] = []
        pool = ThreadPoolExecutor(threads)
        try:
            waiting = pool.map(lambda file: probe(file[0], longest_s), files)
            for (path, stamp), probed in zip(files, waiting, strict=True):
                if isinstance(probed, Probe) and stamp is not None:
                    rows.append((str(path), *stamp, *probed))
                    cut += [(probed.clip_sha256,)] if was_cut(path, probed.codec) else []
                if len(rows) >= KEPT_AT_ONCE:
                    self._keep(rows, cut)
                    rows, cut = [], []
                yield probed
        finally:
            pool.shutdown(cancel_futures=True)
            self._keep(rows, cut)

    def _keep(self, rows: list[tuple[object, ...]], cut: list[tuple[str]]) -> None:
        with connected(self.path) as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO redecoded VALUES (?)", cut)
            connection.executemany("DELETE FROM loudness WHERE clip_sha256 = ?", cut)
            connection.executemany(_KEEP, rows)


def file_stamp(path: Path | AudioFault) -> Stamp | None:
    """Return a file's size in bytes and time of change in ns; None without a file."""
    if isinstance(path, AudioFault):
        return None
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None  # probe gives the reason
    return status.st_size, status.st_mtime_ns


def _loudness_of(beginning: tuple[tuple[str, float], Path]) -> float:
    (clip_sha256, first_s), path = beginning
    samples, rate = decode(str(path), clip_sha256)
    mono = average(samples[: max(1, round(first_s * rate))])
    return round(filtered_loudness_lufs(mono.astype(np.float64), rate), 2)
