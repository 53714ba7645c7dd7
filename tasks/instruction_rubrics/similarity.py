"""Measure the similarity of instructions and clips by the config's audio-text model, if any."""

from collections.abc import Sequence
from pathlib import Path

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.audio.similarity import ClipText
from earmark.tasks.pipeline.ask import Row
from earmark.tasks.pipeline.media import clap_at, similarity_of
from earmark.tasks.pipeline.progress import working
from earmark.tasks.store.staging import Stage


def similarities(
    stage: Stage, config: InstructionRubrics, pairs: Sequence[tuple[Row, str]], unknown: float
) -> list[float] | list[None]:
    """Return the cosine similarity of clips (`clip_sha256`, `path`) and texts, -1 to 1; without a model, None for each.

    In a dry run nothing is computed: each is `unknown`.

    Raises:
        MissingExtraError: transformers or torch is missing.
        ConfigError: the model cannot be loaded.
        InputError: a clip cannot be decoded.
    """
    if config.similarity is None or not pairs:
        return [None] * len(pairs)
    if stage.store.looked is not None:
        stage.store.looked.unheard |= {row["clip_sha256"] for row, _ in pairs}
        return [unknown] * len(pairs)
    fits = [ClipText(row["clip_sha256"], Path(row["path"]), text) for row, text in pairs]
    with working(f"similarity by {config.similarity.model}", len(fits)) as work:
        return similarity_of(stage.store, clap_at(config, config.similarity.model)).cosines(fits, work.advance)
