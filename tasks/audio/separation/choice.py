"""Separators by name."""

from __future__ import annotations

from schemas.errors import ConfigError
from tasks.audio.separation.centre import CentreRemoval
from tasks.audio.separation.jobs import Separator


def make_separator(name: str = CentreRemoval.name) -> Separator:
    """A separator by name.

    Args:
        name: `centre-removal`.

    Raises:
        ConfigError: there is none of this name.
    """
    if name != CentreRemoval.name:
        raise ConfigError(f"separator: expected {CentreRemoval.name}, found '{name}'")
    return CentreRemoval()
