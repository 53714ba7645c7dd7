"""JSON without surprises: an object that names a key twice, or nests past reading, is a fault and not a guess."""

from __future__ import annotations

import json
from typing import Any

from earmark.tasks.importers.cells import BadRow, shown


def parse_object(text: str) -> dict[str, Any]:
    """The object that a text holds; `BadRow` where it holds none."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadRow("bad_json", f"expected a JSON object, found: {shown(error)}") from None
    if isinstance(value, dict):
        return value
    raise BadRow("bad_json", f"expected a JSON object, found {shown(text.strip())}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key '{twice}' twice")
    return found
