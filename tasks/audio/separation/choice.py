"""Separators by name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from earmark.tasks.audio.separation.centre import CentreRemoval
from earmark.tasks.audio.separation.checkpoints import find_checkpoint
from earmark.tasks.audio.separation.jobs import Separator
from earmark.tasks.audio.separation.roformer import Precision, Roformer, digest

CENTRE_REMOVAL = CentreRemoval.name


class Described(NamedTuple):
    """What names a separator and decides its output; see `Separator`."""

    name: str
    digest: str
    checkpoint_sha256: str | None


def describe_separator(
    name: str = CENTRE_REMOVAL,
    *,
    settings: Path | None = None,
    sha256: str | None = None,
    models: Path | None = None,
    precision: Precision = "float32",
) -> Described:
    """What `make_separator` would make, without torch and without reading weights into memory.

    A checkpoint of the registry is downloaded if need be: its hash is part of the answer.

    Raises:
        ConfigError, MissingExtraError: as `make_separator`.
    """
    if name == CENTRE_REMOVAL:
        made = CentreRemoval()
        return Described(made.name, made.digest, None)
    checkpoint = find_checkpoint(name, settings, sha256, models)
    return Described(checkpoint.name, digest(checkpoint, precision), checkpoint.sha256)


def make_separator(
    name: str = CENTRE_REMOVAL,
    *,
    settings: Path | None = None,
    sha256: str | None = None,
    models: Path | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    compiled: bool = False,
    batch_size: int | None = None,
) -> Separator:
    """A separator by name.

    Args:
        name: `centre-removal`; a file name of audio-separator's registry, such as `vocals_mel_band_roformer.ckpt`,
            which is downloaded on first use; or a checkpoint's path, with `settings`.
        models: the folder that downloaded checkpoints lie in; without it, `EARMARK_MODELS` or `~/.cache` has it.
        device, precision, compiled, batch_size: see `Roformer`; centre removal has none of them.

    Raises:
        ConfigError: there is none of this name, or it cannot be used as asked.
        MissingExtraError: a model is asked for and the `audio` extra is not installed.
    """
    if name == CENTRE_REMOVAL:
        return CentreRemoval()
    checkpoint = find_checkpoint(name, settings, sha256, models)
    return Roformer(checkpoint, device=device, precision=precision, compiled=compiled, batch_size=batch_size)
