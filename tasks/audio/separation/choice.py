"""Make separators by name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from earmark.tasks.audio.separation.centre import CentreRemoval
from earmark.tasks.audio.separation.checkpoints import find_checkpoint
from earmark.tasks.audio.separation.jobs import Separator
from earmark.tasks.audio.separation.roformer import Precision, Roformer, digest

CENTRE_REMOVAL = CentreRemoval.name


class Described(NamedTuple):
    """Name of a separator and hashes that decide its output; see `Separator`."""

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
    """Return the description of `make_separator`'s result, without torch and without loading weights.

    A checkpoint of the registry is downloaded if missing: its hash is part of the result.

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
    """Return a separator by name.

    Args:
        name: `centre-removal`; a file name of audio-separator's registry, such as `vocals_mel_band_roformer.ckpt`,
            downloaded on first use; or a checkpoint's path, with `settings`.
        models: the folder of downloaded checkpoints; default: `EARMARK_CHECKPOINTS` or `~/.cache`.
        device, precision, compiled, batch_size: see `Roformer`; centre removal ignores them.

    Raises:
        ConfigError: the name is unknown, or the separator cannot be used with these options.
        MissingExtraError: a model is named and the `separation` extra is not installed.
    """
    if name == CENTRE_REMOVAL:
        return CentreRemoval()
    checkpoint = find_checkpoint(name, settings, sha256, models)
    return Roformer(checkpoint, device=device, precision=precision, compiled=compiled, batch_size=batch_size)
