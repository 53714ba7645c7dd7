"""Declare the config keys of 1.0.0 that are constants now, in `dropped.tsv`: their values as JSON, and what holds now.

A value stays in recorded configs, and so in build keys: a build of before is up to date.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple


class Dropped(NamedTuple):
    """Key of before.

    Attributes:
        value: the constant, as a recorded config holds it.
        instead: the rule that holds now, for the message to a config that sets the key.
    """

    value: Any
    instead: str


def _read() -> dict[str, dict[str, Dropped]]:
    found: dict[str, dict[str, Dropped]] = {}
    for line in Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()[1:]:
        model, key, value, instead = line.split("\t")
        found.setdefault(model, {})[key] = Dropped(json.loads(value), instead)
    return found


DROPPED = _read()
"""Dropped keys by the model that had them, `module.Class` of `schemas/`."""


def dropped_of(model: type) -> dict[str, Dropped]:
    """Return a config model's dropped keys, its bases' included."""
    found: dict[str, Dropped] = {}
    for base in reversed(model.__mro__):
        found |= DROPPED.get(f"{base.__module__.rpartition('.')[2]}.{base.__name__}", {})
    return {name: one for name, one in found.items() if name not in getattr(model, "model_fields", {})}
