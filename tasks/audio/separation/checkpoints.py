"""Find checkpoints on disk or download them by audio-separator's registry, check hashes, and load models.

A downloaded file appears under its name only after it is complete. Its SHA-256 must equal the caller's, else the known
hash, else the hash noted beside the file at its first download.
"""

import fcntl
import hashlib
import json
import logging
import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.files import open_regular

KNOWN_SHA256 = {
    # Kim's vocals model, as published by its author (MelBandRoformer.ckpt on the Hub, MIT)
    "vocals_mel_band_roformer.ckpt": "87201f4d31afb5bc79993230fc49446918425574db48c01c405e44f365c7559e"
}
CHECKPOINTS = "EARMARK_CHECKPOINTS"
"""Environment variable: the folder of downloaded checkpoints; default `~/.cache/earmark/separation`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path  # the file of weights, a PyTorch state dict
    sha256: str  # of this file
    settings: dict[str, Any]  # content of its YAML: `model`, `training`, `inference`

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name


def find_checkpoint(name: str, settings: Path | None = None, models: Path | None = None) -> Checkpoint:
    """Return a checkpoint by path, with its YAML, or by its file name in audio-separator's registry.

    Args:
        name: a path, or a registry's file name such as `vocals_mel_band_roformer.ckpt`.
        models: the folder of downloaded checkpoints; default: `EARMARK_CHECKPOINTS`.
    """
    if settings is not None or os.sep in name:
        path = Path(name)
        if settings is None:
            raise ConfigError(f"separator '{name}': expected the checkpoint's YAML beside it; name it as `settings`")
        for file, what in ((path, "a checkpoint"), (settings, "its YAML")):
            if not file.is_file():
                raise ConfigError(f"separator: expected {what} at {file}, found nothing")
        wanted = None
    else:
        path, settings = _from_registry(name, models)
        wanted = KNOWN_SHA256.get(name) or _noted(path)
    digest = _sha256(path)
    if wanted is not None and digest != wanted:
        raise ConfigError(
            f"separator '{path.name}': expected SHA-256 {wanted[:12]}…, found {digest[:12]}…; "
            "remove the file, and it is downloaded again"
        )
    return Checkpoint(path, digest, _read_settings(settings))


def load_model(checkpoint: Checkpoint, device: str) -> Any:
    """Load the model in evaluation mode, by audio-separator's own loader."""
    with quiet():
        try:
            from audio_separator.separator.roformer.roformer_loader import RoformerLoader
        except ImportError:
            raise MissingExtraError(f"separator '{checkpoint.name}'", "separation") from None
        try:
            result = RoformerLoader().load_model(str(checkpoint.path), checkpoint.settings, device)
        except (pickle.UnpicklingError, EOFError, OSError, KeyError, AssertionError, AttributeError) as error:
            raise ConfigError(_unusable(checkpoint, error)) from None
    if not result.success or result.model is None:
        raise ConfigError(_unusable(checkpoint, result.error_message))
    return result.model.eval().requires_grad_(False)


def _unusable(checkpoint: Checkpoint, fault: object) -> str:
    words = " ".join(str(fault).split())
    return f"separator '{checkpoint.name}': expected weights that fit its YAML, found: {words[:200]}"


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] | None = yaml.load(path.read_text("utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"separator: {path.name} cannot be read: {' '.join(str(error).split())}") from None
    model = settings.get("model") if isinstance(settings, dict) else None
    if settings is None or not isinstance(model, dict) or "num_bands" not in model:
        raise ConfigError(f"separator: {path.name}: expected the YAML of a Mel-Band Roformer, with model.num_bands")
    target = (settings.get("training") or {}).get("target_instrument")
    if str(target).lower() != "vocals":
        raise ConfigError(f"separator: {path.name}: expected training.target_instrument: vocals, found {target}")
    if not isinstance((settings.get("inference") or {}).get("dim_t"), int):
        raise ConfigError(f"separator: {path.name}: expected a whole number as inference.dim_t")
    return settings


class _Loader(yaml.SafeLoader):
    """Loader of plain YAML with Python's tuples, present in the published files."""


def _tuple(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node))


_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple)


def _from_registry(name: str, models: Path | None) -> tuple[Path, Path]:
    """Return checkpoint and YAML in the folder of models, after a download if missing."""
    folder = (models or Path(os.environ.get(CHECKPOINTS) or "~/.cache/earmark/separation")).expanduser()
    settings = _registry().get(name)

    def is_there() -> bool:
        return settings is not None and (folder / name).is_file() and (folder / settings).is_file()

    if not is_there():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process downloads; the system releases it however that one ends
            if not is_there():
                settings = _fetched(name, folder)
    return folder / name, folder / str(settings)


def _fetched(name: str, folder: Path) -> str:
    """Download a checkpoint into a folder, and return its YAML's name; remove what a killed process left first."""
    for left in folder.glob(".downloading-*"):  # up to a gigabyte each
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".downloading-") as made, quiet():
        settings = _download(name, Path(made), folder)
        note = f"{_sha256(Path(made) / name)}  {name}\n"
        (folder / f"{name}.sha256").write_text(note)
        for file in (settings, name):  # the checkpoint last: its presence means all is complete
            (Path(made) / file).replace(folder / file)
    return settings


def _registry() -> dict[str, str]:
    """Return the YAML of each checkpoint listed by the installed audio-separator."""
    try:
        text = resources.files("audio_separator").joinpath("models.json").read_text("utf-8")
    except ModuleNotFoundError:
        raise MissingExtraError("a separator by name", "separation") from None
    lists = json.loads(text)["roformer_download_list"].values()
    return {file: settings for files in lists for file, settings in files.items()}


def _download(name: str, folder: Path, models: Path) -> str:
    """Download a model by audio-separator into a folder; return the name of its YAML. `models` is named in messages."""
    from audio_separator.separator import Separator

    downloader = Separator(
        log_level=logging.CRITICAL, info_only=True, model_file_dir=str(folder), output_dir=str(folder)
    )
    downloader.model_file_dir = str(folder)  # overrides AUDIO_SEPARATOR_MODEL_DIR
    try:
        settings = downloader.download_model_files(name)[4]
    except ValueError:
        raise ConfigError(
            f"separator: expected centre-removal, a file name of audio-separator's registry, or a path, found '{name}'"
        ) from None
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        words = " ".join(str(error).split()).partition(" (Caused by")[0]
        raise ConfigError(
            f"separator '{name}' cannot be downloaded: {words}; put it and its YAML into {models}, or give their paths"
        ) from None
    if not settings:
        raise ConfigError(f"separator: expected a Mel-Band Roformer, found '{name}', which has no YAML")
    return str(settings)


def _noted(path: Path) -> str | None:
    try:
        return path.with_name(f"{path.name}.sha256").read_text().split()[0]
    except (FileNotFoundError, IndexError):
        return None


def _sha256(path: Path) -> str:
    status = path.stat()
    return _hashed(path, status.st_size, status.st_mtime_ns)


@lru_cache(8)
def _hashed(path: Path, size: int, changed_ns: int) -> str:
    """Return a file's hash, computed once while unchanged: checkpoints have a gigabyte."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence audio-separator's log, which repeats errors, and its libraries' warnings."""
    logger = logging.getLogger("audio_separator")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)
