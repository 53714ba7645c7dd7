"""Add CLAP embeddings to clips, using the store's cache of them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from earmark.schemas.places import without_place
from earmark.tasks.exports.clips import clip_files
from earmark.tasks.exports.rows import BATCH, Selection
from earmark.tasks.pipeline.media import similarity_of
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.versions import Store, Version


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
