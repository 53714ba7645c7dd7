"""`instruction-rubrics`: how well instructions fit clips by an audio-text model, where the config names one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from earmark.schemas.instruction_rubrics import InstructionRubrics
from earmark.tasks.audio.similarity import Said
from earmark.tasks.build.ask import Row
from earmark.tasks.build.media import similarity_of
from earmark.tasks.build.progress import working
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store


def similarities(
    stage: Stage, config: InstructionRubrics, pairs: Sequence[tuple[Row, str]]
) -> list[float] | list[None]:
    """The cosine similarity of clips and instructions, -1 to 1; without a model, None for each.

    Args:
        stage: whose store keeps what was measured before.
        config: names the model.
        pairs: a clip (`clip_sha256`, `path`) and a text.

    Raises:
        MissingExtraError: transformers or torch is missing.
        ConfigError: the model cannot be loaded.
        InputError: a clip cannot be decoded.
    """
    if config.similarity is None or not pairs:
        return [None] * len(pairs)
    fits = [Said(row["clip_sha256"], Path(row["path"]), text) for row, text in pairs]
    with working(f"similarity by {config.similarity.model}", len(fits)) as work:
        return similarity_of(stage.store, model_of(config)).cosines(fits, work.advance)


def model_of(config: InstructionRubrics) -> str:
    """The model's folder, seen from the config's own; or its name on the Hub."""
    assert config.similarity is not None
    folder = config.path(config.similarity.model)
    return str(folder) if folder.is_dir() else config.similarity.model


def model_digest(config: InstructionRubrics, store: Store) -> dict[str, str]:
    """SHA-256 of the model in a folder, as an input; a model on the Hub goes by its name."""
    if config.similarity is None or not Path(model := model_of(config)).is_dir():
        return {}
    return {"similarity": similarity_of(store, model).digest}
