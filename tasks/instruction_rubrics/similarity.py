"""Measure the similarity of instructions and clips by the config's audio-text model, if any."""

from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.audio.similarity import ClipText
from earmark.tasks.instruction_rubrics.rows import CaptionRow
from earmark.tasks.pipeline.media import clap_at, similarity_of
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.staging import Stage


def similarities(
    stage: Stage, config: InstructionRubrics, pairs: Iterable[tuple[CaptionRow, str]], unknown: float
) -> Iterator[Any]:
    """Return the cosine similarity of clips and texts, -1 to 1, in order; without a model, None for each.

    In a dry run nothing is computed: each is `unknown`.

    Raises:
        MissingExtraError: transformers or torch is missing.
        ConfigError: the model cannot be loaded.
        InputError: a clip cannot be decoded.
    """
    if config.similarity is None:
        return repeat(None)
    fits = [ClipText(row["clip_sha256"], Path(row["path"]), text) for row, text in pairs]
    if not fits:
        return iter(())
    if stage.store.looked is not None:
        stage.store.looked.unheard |= {one.clip_sha256 for one in fits}
        return repeat(unknown)
    with working(f"similarity by {config.similarity.model}", len(fits)) as work:
        return iter(similarity_of(stage.store, clap_at(config, config.similarity.model)).cosines(fits, work.advance))
