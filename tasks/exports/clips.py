"""Write clips as files for a trainer, each once, named by its SHA-256, from any place of storage."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from earmark.schemas.errors import InputError
from earmark.schemas.files import NotAFile, open_regular
from earmark.schemas.tables import AUDIO, WholeFile
from earmark.tasks.pipeline.media import length_s, measure, media_index
from earmark.tasks.pipeline.mirror import bring
from earmark.tasks.pipeline.progress import Work, working
from earmark.tasks.store.versions import Store, Version

FOLDERS = dict.fromkeys((".png", ".jpg", ".jpeg", ".webp"), "images")  # other clips: `audio/<2 digits>`
SHOWN = 3  # missing clips named in an error
AT_ONCE = 16  # embedded clips in memory, beside their row group
_BLOCK = 1 << 20
_SUFFIX = re.compile(r"\.[a-z0-9]{1,5}")
_NAME = re.compile(r"[0-9a-f]{64}(\.[a-z0-9]{1,5})?")


@dataclass(frozen=True)
class ClipFile:
    """A clip's file and its length."""

    path: Path
    duration_s: float


@dataclass
class ClipFolder:
    """Files of clips in an export's folder."""

    folder: Path
    suffixes: dict[str, str]  # endings of written clips' files, by SHA-256

    def path(self, reference: str | None) -> str | None:
        """Return a clip's path below the export's folder; a reference is a SHA-256, or a name beginning with it."""
        if reference is None:
            return None
        sha256 = reference.partition(".")[0]
        suffix = self.suffixes[sha256]
        return f"{FOLDERS.get(suffix, f'audio/{sha256[:2]}')}/{sha256}{suffix}"

    def target(self, sha256: str, suffix: str) -> Path:
        """Return the path to write a clip to, and record the clip as written."""
        self.suffixes[sha256] = suffix if _SUFFIX.fullmatch(suffix) else ".bin"
        path = self.folder / str(self.path(sha256))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def write_clips(
    folder: Path, references: Iterable[str], version: Version, store: Store, roots: Sequence[Path]
) -> ClipFolder:
    """Write clips named by rows as `audio/<2 digits>/<SHA-256>.<ending>` below a folder, images in `images/`.

    A clip is taken from the tables of the version or its ancestors, else from their files, else from files known to the
    store's media index or found below `roots`, if their bytes still have the hash.

    Args:
        references: SHA-256s, or `<SHA-256>.<ending>`.

    Raises:
        InputError: clips are missing; the message has their number and the first ones.
    """
    wanted = {_checked(reference).partition(".")[0] for reference in references}
    clips = ClipFolder(folder, {})
    if not wanted:
        return clips
    with working("write clips", len(wanted)) as work:
        holders = _holders(version, store)
        for holder in holders:
            _from_tables(clips, wanted, holder, work)
        _from_files(clips, wanted, holders, store, roots, work)
    if missing := sorted(wanted - clips.suffixes.keys()):
        seen = media_index(store).places(set(missing))
        named = [f"{clip[:16]}…{f' (was {seen[clip][0]})' if clip in seen else ''}" for clip in missing[:SHOWN]]
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise InputError(
            f"{len(missing)} of {len(wanted)} clips were not found by their SHA-256: {', '.join(named)}{more}; "
            "name their folder with --audio-root"
        )
    return clips


def clip_files(
    wanted: set[str], version: Version, store: Store, folder: Path, roots: Sequence[Path]
) -> dict[str, ClipFile]:
    """Return the file of every clip by SHA-256: unchanged files in the media index, else files written to a folder.

    Raises:
        InputError: clips are missing.
    """
    if not wanted:
        return {}
    seen = [path for paths in media_index(store).places(wanted).values() for path in paths]
    bring(seen, stream=True)
    places = [path for path in seen if path.is_file()]
    found: dict[str, ClipFile] = {}
    for path, (sha256, duration_s, *_) in zip(places, measure(store, "look for clips", places), strict=True):
        if sha256 in wanted:
            found.setdefault(sha256, ClipFile(path, duration_s))
    if missing := sorted(wanted - found.keys()):
        clips = write_clips(folder, missing, version, store, roots)
        paths = {sha256: folder / str(clips.path(sha256)) for sha256 in missing}
        found |= {sha256: ClipFile(path, length_s(path)) for sha256, path in paths.items()}
    return found


def _checked(reference: str) -> str:
    if not _NAME.fullmatch(reference):
        raise InputError(f"expected a clip's SHA-256, found {reference[:80]!r}")
    return reference


def _holders(version: Version, store: Store) -> list[Version]:
    """Return the version, and its ancestors still in the store."""
    holders, waiting = [], [version]
    while waiting:
        holder = waiting.pop()
        holders.append(holder)
        for parent in holder.manifest.parents:
            known = {v.name: v for v in store.versions(parent.corpus)}
            ancestor = known.get(parent.version)
            if ancestor and ancestor.manifest.digest() == parent.digest:
                waiting.append(ancestor)
    return holders


def _from_tables(clips: ClipFolder, wanted: set[str], version: Version, work: Work) -> None:
    """Write clips embedded in tables, reading only row groups with a wanted clip, each by itself."""
    for entry in version.manifest.files:
        if not entry.path.endswith(".parquet") or wanted <= clips.suffixes.keys():
            continue
        file = pq.ParquetFile(version.whole(entry))
        for column in (field.name for field in file.schema_arrow if field.type == AUDIO):  # images are stored alike
            for group in range(file.num_row_groups):
                named = file.read_row_group(group, [f"{column}.path"])[column].combine_chunks().field("path")
                if _still_wanted(named.to_pylist(), clips, wanted):
                    for path, content in _embedded(file, group, column):
                        if path and content is not None and _still_wanted([path], clips, wanted):
                            clips.target(path.partition(".")[0], Path(path).suffix).write_bytes(content)
                            work.advance()


def _still_wanted(paths: Sequence[str | None], clips: ClipFolder, wanted: set[str]) -> bool:
    names = {path.partition(".")[0] for path in paths if path and _NAME.fullmatch(path)}
    return bool((names & wanted) - clips.suffixes.keys())


def _embedded(file: pq.ParquetFile, group: int, column: str) -> Iterator[tuple[str | None, bytes | None]]:
    for batch in file.iter_batches(AT_ONCE, [group], [column]):
        for value in batch[column]:
            if value.is_valid:
                held: WholeFile = value.as_py()
                yield held["path"], held["bytes"]


def _from_files(
    clips: ClipFolder, wanted: set[str], holders: Sequence[Version], store: Store, roots: Sequence[Path], work: Work
) -> None:
    """Copy clips from files: the version's own, then the index's, then files below the roots."""
    own: dict[str, list[Path]] = {}
    for holder in holders:
        for entry in holder.manifest.files:
            own.setdefault(entry.sha256, []).append(holder.path(entry))
    index = media_index(store)
    for source in ("version", "index", "roots"):
        missing = wanted - clips.suffixes.keys()
        if not missing:
            return
        if source == "roots":
            index.look([path for root in roots for path in sorted(root.absolute().rglob("*")) if path.is_file()])
        places = own if source == "version" else index.places(missing)
        bring((path for sha256 in sorted(missing & places.keys()) for path in places[sha256]), stream=True)
        for sha256 in sorted(missing & places.keys()):
            work.advance(any(_copy(clips, sha256, path) for path in places[sha256]))


def _copy(clips: ClipFolder, sha256: str, source: Path) -> bool:
    target = clips.target(sha256, source.suffix.lower())
    digest = hashlib.sha256()
    try:
        with open_regular(source) as read, target.open("wb") as written:
            while block := read.read(_BLOCK):
                digest.update(block)
                written.write(block)
    except (FileNotFoundError, IsADirectoryError, NotAFile, PermissionError):
        pass  # the index still has deleted files
    if digest.hexdigest() == sha256:
        return True
    target.unlink(missing_ok=True)
    del clips.suffixes[sha256]
    return False
