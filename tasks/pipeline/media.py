"""Measure the audio of inputs by the store's media index, and digest it."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import InputError
from earmark.schemas.files import FOLLOW, Root, connected, open_to_read, read_regular
from earmark.schemas.machine import uncollected
from earmark.schemas.places import url_of
from earmark.schemas.reasons import AudioFault
from earmark.schemas.tables import AUDIO
from earmark.tasks.audio.decode import convert
from earmark.tasks.audio.faults import LONGEST_S, BadAudio
from earmark.tasks.audio.index import Beginning, MediaIndex, decoded_in_part
from earmark.tasks.audio.probe import Probe, probe
from earmark.tasks.audio.similarity import Similarity, Vector
from earmark.tasks.importers.cells import other_forms
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.files import replacing
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store
from earmark.tasks.text.anonymity import SALT_FILE

Thing = TypeVar("Thing")
INDEX = "EARMARK_MEDIA_INDEX"
MEDIA, SIMILARITIES = "media.sqlite", "similarities.sqlite"
ASSUMED, UNFETCHED = "assumed", "unfetched"  # the first is also the codec of an unmeasured clip
UNREAD = "0" * 16  # prefix of the hash of an unmeasured clip
SAMPLE = 64  # clips to measure at most per step
MOST_SAMPLED = 256  # in all
USUAL_S = 10.0  # assumed length of a clip without a sample


@dataclass
class Looked:
    """Results of a dry run's clips."""

    # by path: `known` (measured before), `measured` (in the sample), `assumed` (not measured), `unfetched` (left behind
    # its URL), or the reason of its fault
    clips: dict[str, str] = field(default_factory=dict)
    unheard: set[str] = field(default_factory=set)  # clips, by SHA-256, without a stored embedding
    lengths: list[float] = field(default_factory=list)  # of known and measured clips, in s

    def counts(self) -> dict[str, int]:
        """Count clips by result."""
        return dict(Counter(self.clips.values()))


def media_place(store: Store) -> Path:
    """Return the path of a store's media index: `EARMARK_MEDIA_INDEX`, or `<store>/media.sqlite`.

    Machines cannot share SQLite, so each has its own index.
    """
    return Path(os.environ.get(INDEX) or store.root / MEDIA)


class SampledIndex(MediaIndex):
    """Media index that measures a sample of its unknown clips."""

    def __init__(self, path: Path, looked: Looked) -> None:
        super().__init__(path)
        self._looked = looked

    def look(
        self,
        paths: Sequence[Path | AudioFault],
        *,
        threads: int | None = None,
        longest_s: float = LONGEST_S,
        seen: Callable[[int], None] = lambda count: None,
    ) -> list[Probe | AudioFault]:
        """Look as `MediaIndex.look`; assume clips outside the sample, which is drawn by the hash of their paths."""
        clips = self._looked.clips
        files = [path for path in dict.fromkeys(paths) if isinstance(path, Path)]
        met = [path for path in files if str(path) not in clips and url_of(path)]
        away = in_order([path for path in met if not os.path.isfile(path)])  # noqa: PTH113
        some = max(0, SAMPLE - len(met) + len(away))
        bring(away[:some])
        clips |= dict.fromkeys(map(str, away[some:]), UNFETCHED)
        new = [path for path in files if str(path) not in clips and os.path.isfile(path)]  # noqa: PTH113
        new = in_order([path for path, one in zip(new, self.known(new), strict=True) if one is None])
        room = max(0, min(SAMPLE, MOST_SAMPLED - self._looked.counts().get("measured", 0)))
        clips |= dict.fromkeys(map(str, new[:room]), "measured") | dict.fromkeys(map(str, new[room:]), ASSUMED)
        asked = [path for path in files if clips.get(str(path)) not in (ASSUMED, UNFETCHED)]
        probes = dict(zip(asked, super().look(asked, threads=threads, longest_s=longest_s, seen=seen), strict=True))
        for path, found in probes.items():
            if isinstance(found, Probe):
                self._looked.lengths.append(found.duration_s)
                clips.setdefault(str(path), "known")
            else:
                clips[str(path)] = found.reason
        seen(len(files) - len(asked))
        usual = median(self._looked.lengths or [USUAL_S])
        return [
            path if isinstance(path, AudioFault) else probes.get(path) or assumed(path, usual) for path in paths
        ]  # fmt: skip


def assumed(path: Path, duration_s: float) -> Probe:
    """Return the probe of an unmeasured clip, with a hash of its path that matches no file's bytes."""
    return Probe(UNREAD + _hash(path)[len(UNREAD) :], duration_s, 16_000, 1, -1.0, -20.0, 0.0, ASSUMED)


def in_order(things: Sequence[Thing], path_of: Callable[[Any], Path] = lambda thing: thing) -> list[Thing]:
    """Return things in a dry run's sampling order: by the hash of their paths."""
    return sorted(things, key=lambda thing: _hash(path_of(thing)))


def _hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()


@contextmanager
def scratch_store(store: Store) -> Iterator[Store]:
    """Yield a store with the contents of another one, with its writes in a temporary folder.

    Databases and the salt are copies; versions are links; other folders are new, with links to their entries.

    A dry run fetches and measures a sample of the clips unknown to the media index, and assumes that the others are
    sound. It reads clips' embeddings from the store, and computes none.
    """
    with TemporaryDirectory(prefix="earmark-") as name:
        root = Path(name)
        corpora = {*store.corpora()}
        for entry in store.root.absolute().iterdir() if store.root.is_dir() else ():
            if entry.name in corpora:
                (root / entry.name).symlink_to(entry)
            elif entry.is_dir():
                (root / entry.name).mkdir()
                for inner in entry.iterdir():
                    (root / entry.name / inner.name).symlink_to(inner)
        if (salt := store.root / SALT_FILE).is_file():
            (root / SALT_FILE).write_bytes(read_regular(salt))
            (root / SALT_FILE).chmod(0o600)
        index = media_place(store)
        for source, copy in ((index, MEDIA), (index.with_name(SIMILARITIES), SIMILARITIES)):
            if source.is_file():
                with closing(open_to_read(source)) as connection, connected(root / copy, "TMPDIR") as into:
                    connection.backup(into)
        yield replace(store, root=root, named=store.address, looked=Looked())


MEASURED = (
    "clip_sha256 string, duration_s float64, sample_rate_hz int64, channels int64, peak_dbfs float64, "
    "level_dbfs float64, silent_share float64, codec string, reason string, detail string"
)  # columns of `measure`
USUAL_LUFS = -23.0  # assumed for an unmeasured clip
EMBEDDED_AT_ONCE = 16  # clips held in memory while a table is written, beside the current row group


def media_index(store: Store) -> MediaIndex:
    """Open the media index that all corpora of a store share; a sampled index in a dry run."""
    return MediaIndex(_place(store)) if store.looked is None else SampledIndex(_place(store), store.looked)


def _place(store: Store) -> Path:
    return media_place(store) if store.looked is None else store.root / MEDIA


def clips_decoded_in_part(store: Store) -> frozenset[str] | None:
    """Read the clips that Earmark 1.0.0 decoded in part, as `decoded_in_part`."""
    return decoded_in_part(_place(store))


def embeddings_of(store: Store, model: str, paths: Mapping[str, Path | None]) -> dict[str, Vector]:
    """Return the embeddings of clips, as `Similarity.embeddings`, with progress; only stored ones in a dry run."""
    if store.looked is not None:
        there = Path(model).exists()  # a model on the Hub would have to be fetched first
        kept = similarity_of(store, model).embeddings(dict.fromkeys(paths)) if there else {}
        store.looked.unheard |= {clip for clip, path in paths.items() if path is not None} - kept.keys()
        return kept
    with working(f"embed clips with {model}", len(paths)) as work:
        return similarity_of(store, model).embeddings(paths, work.advance)


def similarity_of(store: Store, model: str) -> Similarity:
    """Open a CLAP model with its cache of results, `similarities.sqlite` beside the media index."""
    return Similarity(model, _place(store).with_name(SIMILARITIES), media_index(store).redecoded())


def clip_below(root: Root, path: Path | str) -> Path | AudioFault:
    """Return a clip's file for the index; a link out of the root is a fault unless links are followed.

    A string is a name below the root, as a list gives it, perhaps in another form of Unicode than the file's.
    """
    if isinstance(path, str):
        places = [root.folder / name for name in (path, *other_forms(path))]
        path = next(filter(os.path.lexists, places), places[0]) if len(places) > 1 else places[0]
    if not root.leads_out(path):
        return path
    return AudioFault(
        "link_outside_root", f"expected a file below the root, found a link out of it; {FOLLOW} allows it"
    )


def measure(
    store: Store, label: str, files: Sequence[Path | AudioFault], longest_s: float = LONGEST_S
) -> list[tuple[Any, ...]]:
    """Hash and measure audio files, each once; return measures or faults as columns `MEASURED`.

    Args:
        store: its media index holds the results.
        label: of the progress.
        files: as `clip_below` gives them.
        longest_s: longer files are faults.
    """
    distinct = list(dict.fromkeys(files))
    with working(label, len(distinct)) as work:
        probes = media_index(store).look(distinct, longest_s=longest_s, seen=work.advance)
    rows = {file: fault_row(*probe) if isinstance(probe, AudioFault) else (*probe, None, None)
            for file, probe in zip(distinct, probes, strict=True)}  # fmt: skip
    return [rows[file] for file in files]


def clap_at(config: BuildConfig, written: str) -> str:
    """Return a CLAP model of a config: its folder or file, relative to the config's own, or its name on the Hub."""
    place = config.path(written)
    return str(place) if place.exists() else written


def clap_digest(store: Store, key: str, model: str | None) -> dict[str, str]:
    """Return the SHA-256 of a CLAP model on disk, as the input of that key; empty for a model on the Hub."""
    return {key: similarity_of(store, model).digest} if model and Path(model).exists() else {}


def length_s(file: Path) -> float:
    """Return an audio file's length in s, without the index; 0 for unusable files."""
    looked = probe(file)
    return looked.duration_s if isinstance(looked, Probe) else 0.0


def loudness_of(store: Store, beginnings: Sequence[Beginning]) -> list[float]:
    """Measure the gated loudness of clips' beginnings in LUFS, as `MediaIndex.loudness`, with progress.

    Clips unmeasured in a dry run get a usual value.
    """
    known = [one for one in beginnings if not one.clip_sha256.startswith(UNREAD)]
    with working("measure loudness", len(known)) as work:
        loudness = dict(zip(known, media_index(store).loudness(known, seen=work.advance), strict=True))
    return [loudness.get(one, USUAL_LUFS) for one in beginnings]


def fault_row(reason: str, detail: str) -> tuple[Any, ...]:
    """Return the columns `MEASURED` of an unusable file."""
    return (*[None] * len(Probe._fields), reason, detail)


def convert_once(file: Path, target: Path, sample_rate_hz: int) -> tuple[Any, ...] | None:
    """Write a clip as a mono WAV unless it is there; return a `fault_row` if the file changed since it was measured."""
    if target.is_file():
        return None
    try:
        with replacing(target) as temporary:
            convert(file, temporary, sample_rate_hz)
    except BadAudio as bad:
        return fault_row(bad.reason, bad.detail)
    return None


def audio_digest(store: Store, label: str, files: Mapping[str, Path | AudioFault], longest_s: float = LONGEST_S) -> str:
    """Return one SHA-256 over the names and contents of audio files.

    The index remembers each file's hash; later calls cost a `stat` per file. Files behind URLs are fetched first; later
    calls check each object.

    Args:
        store: its media index holds the hashes.
        label: of the progress.
        files: every audio file of the inputs, by its name there; a missing file counts as missing, a refused file by
            its fault from `clip_below`.
        longest_s: longer files are neither hashed nor decoded; they count as too long.
    """
    names = sorted(files)
    if store.looked is None:
        bring(path for path in files.values() if isinstance(path, Path))
    with working(label, len(names)) as work:
        probes = media_index(store).look([files[name] for name in names], seen=work.advance, longest_s=longest_s)
    if any(isinstance(probe, Probe) and probe.codec == ASSUMED for probe in probes):
        return ""
    with uncollected():
        results = [probe.clip_sha256 if isinstance(probe, Probe) else probe.reason for probe in probes]
        return digest_of([*zip(names, results, strict=True)])


def with_audio(rows: pa.Table, files: Sequence[Path] | None) -> Iterator[pa.Table]:
    """Append the column `audio`: each row's audio file unchanged, named `<SHA-256>.<extension>`; null without files.

    Args:
        rows: of a table whose last column is embedded audio, with the media index's `clip_sha256`.
        files: the file of each row; memory holds the audio of `EMBEDDED_AT_ONCE` of them at once.

    Raises:
        InputError: a file changed since it was measured.
    """
    if files is None:
        yield rows.append_column("audio", pa.nulls(len(rows), AUDIO))
        return
    for start in range(0, len(files), EMBEDDED_AT_ONCE):
        part = rows.slice(start, EMBEDDED_AT_ONCE)
        cells = [
            {"bytes": _bytes_of(file, sha256), "path": f"{sha256}{file.suffix.lower()}"}
            for file, sha256 in zip(files[start : start + len(part)], part["clip_sha256"].to_pylist(), strict=True)
        ]
        yield part.append_column("audio", pa.array(cells, AUDIO))


def _bytes_of(file: Path, sha256: str) -> bytes:
    content = read_regular(file)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise InputError(
            f"{file}: expected the audio that was measured (SHA-256 {sha256[:16]}…), found {found[:16]}…; "
            "leave inputs alone during a build, and build again"
        )
    return content
