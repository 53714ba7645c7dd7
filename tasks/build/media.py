"""The store's media index, and the audio that inputs name as one fingerprint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.config import BuildConfig
from earmark.schemas.errors import InputError
from earmark.schemas.files import FOLLOW, Root, read_regular
from earmark.schemas.tables import AUDIO
from earmark.tasks.audio.faults import LONGEST_S
from earmark.tasks.audio.index import Beginning, MediaIndex
from earmark.tasks.audio.probe import AudioFault, Probe, probe
from earmark.tasks.audio.similarity import Similarity, Vector
from earmark.tasks.build.mirror import bring
from earmark.tasks.build.progress import working
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store

INDEX = "EARMARK_MEDIA_INDEX"
MEASURED = (
    "clip_sha256 string, duration_s float64, sample_rate_hz int64, channels int64, peak_dbfs float64, "
    "level_dbfs float64, silent_share float64, codec string, reason string, detail string"
)  # columns of what `measure` gives
EMBEDDED_AT_ONCE = 16  # clips whose audio is in memory while a table is written, beside the row group under way


def media_index(store: Store) -> MediaIndex:
    """What was measured of audio files, shared by all corpora of a store (`<store>/media.sqlite`).

    `EARMARK_MEDIA_INDEX` names another file: SQLite cannot be shared by machines, so each has its own.
    """
    return MediaIndex(Path(os.environ.get(INDEX) or store.root / "media.sqlite"))


def embeddings_of(store: Store, model: str, paths: Mapping[str, Path | None]) -> dict[str, Vector]:
    """The embeddings of clips, as `Similarity.embeddings`, with progress."""
    with working(f"embed clips with {model}", len(paths)) as work:
        return similarity_of(store, model).embeddings(paths, work.advance)


def similarity_of(store: Store, model: str) -> Similarity:
    """A CLAP model, and what it said before for any corpus of a store (`<store>/similarities.sqlite`)."""
    return Similarity(model, store.root / "similarities.sqlite")


def clip_below(root: Root, path: Path | str) -> Path | AudioFault:
    """A clip's file for the index to look at; one that is elsewhere by a link is a fault, unless its source follows.

    A text is a name below the root, as a list gives it.
    """
    path = root.folder / path if isinstance(path, str) else path
    if not root.leads_out(path):
        return path
    return AudioFault(
        "audio_outside_root", f"expected a file below the root, found a link out of it; {FOLLOW} allows it"
    )


def measure(
    store: Store, label: str, files: Sequence[Path | AudioFault], longest_s: float = LONGEST_S
) -> list[tuple[Any, ...]]:
    """Hash and measure audio files, each once: what was measured of it, or why it cannot be used (`MEASURED`).

    Args:
        store: whose media index remembers it.
        label: of the progress.
        files: as `clip_below` gives them.
        longest_s: longer ones are faults.
    """
    distinct = list(dict.fromkeys(files))
    with working(label, len(distinct)) as work:
        probes = media_index(store).look(distinct, longest_s=longest_s, seen=work.advance)
    rows = {file: fault_row(*probe) if isinstance(probe, AudioFault) else (*probe, None, None)
            for file, probe in zip(distinct, probes, strict=True)}  # fmt: skip
    return [rows[file] for file in files]


def clap_at(config: BuildConfig, written: str) -> str:
    """A CLAP model that a config names: its folder, seen from the config's own, or its name on the Hub."""
    folder = config.path(written)
    return str(folder) if folder.is_dir() else written


def clap_digest(store: Store, key: str, model: str | None) -> dict[str, str]:
    """SHA-256 of a CLAP model in a folder, as the input of that key; one on the Hub goes by its name."""
    return {key: similarity_of(store, model).digest} if model and Path(model).is_dir() else {}


def length_s(file: Path) -> float:
    """How long an audio file is that no index need remember, in s; 0 where it cannot be used."""
    looked = probe(file)
    return looked.duration_s if isinstance(looked, Probe) else 0.0


def loudness_of(store: Store, beginnings: Sequence[Beginning]) -> list[float]:
    """Gated loudness of clips' beginnings in LUFS, as `MediaIndex.loudness`, with progress."""
    with working("measure loudness", len(beginnings)) as work:
        return media_index(store).loudness(beginnings, seen=work.advance)


def fault_row(reason: str, detail: str) -> tuple[Any, ...]:
    """Columns `MEASURED` of a file that cannot be used."""
    return (*[None] * len(Probe._fields), reason, detail)


def audio_digest(store: Store, label: str, files: Mapping[str, Path | AudioFault], longest_s: float = LONGEST_S) -> str:
    """One SHA-256 over the names and contents of audio files.

    Files are hashed once and remembered in the index; afterwards this costs a `stat` a file. Those behind URLs are
    brought here first; afterwards each costs a look at its object.

    Args:
        store: whose media index remembers what was measured.
        label: of the progress.
        files: every audio file that the inputs name, by the name they give it; a missing one counts as missing, one
            that may not be opened as what `clip_below` gave.
        longest_s: longer files are neither hashed nor decoded; they count as too long.
    """
    names = sorted(files)
    bring(path for path in files.values() if isinstance(path, Path))
    with working(label, len(names)) as work:
        probes = media_index(store).look([files[name] for name in names], seen=work.advance, longest_s=longest_s)
    return digest_of(
        [
            [name, probe.clip_sha256 if isinstance(probe, Probe) else probe.reason]
            for name, probe in zip(names, probes, strict=True)
        ]
    )


def with_audio(rows: pa.Table, files: Sequence[Path] | None) -> Iterator[pa.Table]:
    """Append the column `audio`: each row's audio file as it is, named `<SHA-256>.<extension>`; null without files.

    Args:
        rows: of a table whose last column is an `audio_column`, with the `clip_sha256` that the media index found.
        files: the file of each row; the audio of `EMBEDDED_AT_ONCE` of them is held in memory at once.

    Raises:
        InputError: a file is not what was measured.
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
