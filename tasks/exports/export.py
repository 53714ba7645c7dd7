"""Export a version as a trainer's folder: choose rows, shape them, write them aside and rename the folder."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from earmark.schemas.corpus import Corpus, names_file
from earmark.schemas.errors import StoreError
from earmark.schemas.places import without_place
from earmark.tasks.exports.choosing import ExportOptions, Target, choose
from earmark.tasks.exports.clips import ClipFolder, clip_files, write_clips
from earmark.tasks.exports.readme import ExportRecord, render_readme
from earmark.tasks.exports.rows import BATCH, Selection, rollouts_of, select_clips, select_table, select_view
from earmark.tasks.exports.shapes import plain
from earmark.tasks.exports.sinks import Batch, write_lines, write_parquet, write_tars
from earmark.tasks.pipeline.media import similarity_of
from earmark.tasks.pipeline.progress import say, working
from earmark.tasks.store.files import sha256_file
from earmark.tasks.store.folder import RECORD, building, version_facts, write_facts
from earmark.tasks.store.sql import readable
from earmark.tasks.store.versions import Store, Version
from earmark.tasks.store.withdrawals import withdrawal_against

SPILL, PACKED = ".spill", ".packed"


def export(version: Version, corpus: Corpus, store: Store, folder: Path, wish: ExportOptions) -> ExportRecord:
    """Write a version's rows and their clips in a trainer's format; return the content of `export.json`.

    The folder appears whole or not at all. Of a version with withdrawn rows one line is said.

    Raises:
        StoreError: format, view and split do not go together, the view's rows are unfit, or the folder is not free.
        InputError: clips are missing.
    """
    home = store.folder(version.corpus).resolve()
    if folder.resolve().is_relative_to(home):
        raise StoreError(f"--out: expected a folder outside the versions in {home}, found {folder}")
    if withdrawal := withdrawal_against(store.root, version.manifest):
        holds = "contains" if withdrawal.holds(version.manifest) else "was not searched for"
        said = f"{version.corpus} {version.name} {holds} data withdrawn on {withdrawal.withdrawn:%Y-%m-%d}"
        say(f"{said} ({withdrawal.reason}): do not pass the export on; take a later version where there is one")
    with readable(f"{version.corpus}@{version.name}"):
        target = choose(version, corpus, wish)
        with building(folder.absolute(), force=wish.force) as place:
            return _write(place, version, corpus, store, wish, target)


def _write(
    place: Path, version: Version, corpus: Corpus, store: Store, wish: ExportOptions, target: Target
) -> ExportRecord:
    spill = place / SPILL
    spill.mkdir()
    if wish.clap is not None:
        selecting = select_clips(version, corpus, spill, wish.split, wish.limit)
    elif target.view is None:
        selecting = select_table(version, corpus, str(wish.table), spill, wish.split, wish.limit)
    else:
        selecting = select_view(version, corpus, target.view, spill, wish.split, wish.limit, wish.rollouts)
    with selecting as selection:
        record = _write_rows(place, version, corpus, store, wish, target, selection)
        schema = selection.uneven() if target.format.sink == "jsonl" and target.shape is plain else None
    shutil.rmtree(spill)
    write_facts(place, RECORD, record, {"README.md": render_readme(record, target, schema)})
    return record


def _write_rows(
    place: Path,
    version: Version,
    corpus: Corpus,
    store: Store,
    wish: ExportOptions,
    target: Target,
    selection: Selection,
) -> ExportRecord:
    if target.view is not None:
        selection.check(target.view, clips=target.clips)
    packed = target.format.sink == "tar"
    clips = ClipFolder(place, {})
    if target.clips:
        home = place / PACKED if packed else place
        clips = write_clips(home, selection.clips(), version, store, wish.roots)
    embedder = None
    if wish.clap is not None:
        embedder = Embedder(selection, version, store, wish.clap, place / SPILL / "clips", wish.roots)
    with working(f"write {selection.name}", sum(selection.counts.values())) as work:
        for name, splits in [("", list(selection.counts))] if target.whole else [(s, [s]) for s in selection.counts]:
            rows = work.watching(chain.from_iterable(map(selection.rows, splits)))
            _write_split(place, name, target, embedder.rows(rows) if embedder else rows, clips)
    if packed:
        shutil.rmtree(place / PACKED, ignore_errors=True)
    if target.format.finish is not None:
        target.format.finish(place, selection, target.shape)
    parts = [place, *(place / config for config in target.configs if (place / config).is_dir())]
    files = sorted(path for part in parts for path in part.iterdir() if path.is_file())
    drawn = rollouts_of(wish.rollouts, version, target.view) if wish.rollouts and target.view else None
    facts: Any = {
        "format": target.format.name,
        **version_facts(version),
        "view" if target.view else "table": selection.name,
        "limit": wish.limit,
        "blind": wish.blind,
        "rollouts": drawn and {name: drawn[name] for name in ("annotator", "draws", "rows", "kept")},
        **(embedder.facts if embedder else {}),
        "rows": selection.counts,
        "clips": len(clips.suffixes),
        "files": {
            path.relative_to(place).as_posix(): {"sha256": sha256_file(path), "bytes": path.stat().st_size}
            for path in files
        },
    }
    record: ExportRecord = facts
    return record


def _write_split(place: Path, split: str, target: Target, batches: Iterator[pa.RecordBatch], clips: ClipFolder) -> None:
    named = _with_files(batches, clips) if target.clips else batches
    if target.format.write is not None:
        target.format.write(named, place / (target.whole or f"{split}{target.format.suffix}"))
        return
    rows: Iterator[Batch] = ((batch.schema, list(map(target.shape, batch.to_pylist()))) for batch in named)
    if target.format.sink == "parquet":
        write_parquet(place / f"{split}.parquet", rows)
    elif target.format.sink == "tar":
        write_tars(place, split, rows, place / PACKED)
    else:
        write_lines(place / f"{split}.jsonl", rows)


def _with_files(batches: Iterable[pa.RecordBatch], clips: ClipFolder) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in columns:
            if names_file(name):
                columns[name] = pa.array([clips.path(clip) for clip in batch[name].to_pylist()], pa.string())
        for name in {"audios", "images"} & columns.keys():
            shown = [row and [clips.path(clip) for clip in row] for row in batch[name].to_pylist()]
            columns[name] = pa.array(shown, pa.list_(pa.string()))
        yield pa.RecordBatch.from_pydict(columns)


class Embedder:
    """A CLAP model with the embeddings of a selection's clips, computed on construction.

    Raises:
        MissingExtraError: a clip has no stored embedding, and transformers or torch is missing.
        ConfigError: the model cannot be loaded.
        InputError: clips are missing or cannot be decoded.
    """

    def __init__(
        self, selection: Selection, version: Version, store: Store, model: str, folder: Path, roots: Sequence[Path]
    ) -> None:
        self._model = similarity_of(store, model)
        missing: dict[str, None] = {}
        for split in selection.counts:
            for batch in selection.rows(split):
                clips = dict.fromkeys(batch["clip_sha256"].to_pylist())
                missing |= dict.fromkeys(clips.keys() - self._model.embeddings(clips).keys())
        if not missing:
            return
        self._model.load()
        files = clip_files(set(missing), version, store, folder, roots)
        new = sorted(missing)
        with working(f"embed clips with {model}", len(new)) as work:
            for start in range(0, len(new), BATCH):  # the result is held in memory
                self._model.embeddings({clip: files[clip].path for clip in new[start : start + BATCH]}, work.advance)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the model's name, and the SHA-256 over its files."""
        return {"model": without_place(self._model.model), "model_sha256": self._model.digest}

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield clips with their model and embedding: float32, (dimensions,), of length 1."""
        for batch in batches:
            clips = batch["clip_sha256"].to_pylist()
            vector_of = self._model.embeddings(dict.fromkeys(clips))
            vectors = np.stack([vector_of[clip] for clip in clips]).astype(np.float32)
            embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            facts = {name: pa.array([value] * len(clips)) for name, value in self.facts.items()}
            yield pa.RecordBatch.from_pydict({"clip_sha256": batch["clip_sha256"], **facts, "embedding": embedding})
