"""`instruction-rubrics`: how well instructions fit clips by an audio-text model, where the config names one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.audio.similarity import Said
from earmark.tasks.build.ask import Row
from earmark.tasks.build.media import clap_at, similarity_of
from earmark.tasks.build.progress import working
from earmark.tasks.store.staging import Stage


def similarities(
    stage: Stage, config: InstructionRubrics, pairs: Sequence[tuple[Row, str]]
) -> list[float] | list[None]:
    """The cosine similarity of clips (`clip_sha256`, `path`) and texts, -1 to 1; without a model, None for each.

    Raises:
        MissingExtraError: transformers or torch is missing.
        ConfigError: the model cannot be loaded.
        InputError: a clip cannot be decoded.
    """
    if config.similarity is None or not pairs:
        return [None] * len(pairs)
    fits = [Said(row["clip_sha256"], Path(row["path"]), text) for row, text in pairs]
    with working(f"similarity by {config.similarity.model}", len(fits)) as work:
        return similarity_of(stage.store, clap_at(config, config.similarity.model)).cosines(fits, work.advance)
