"""Where a submission's images are: addresses in its fields, or files in a folder."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
LONGEST_ADDRESS = 2000  # characters
_NUMBER = re.compile(r"(\d+)")


def image_links(submission: Mapping[str, Any]) -> list[str]:
    """The addresses of a submission's images, first to last, none twice.

    Args:
        submission: `url`, `media_metadata`, `gallery_data`, `preview` as the dump has them, the last three as JSON
            text; and `image_from`, which of them counts. Whatever is not as it should be is passed over.
    """
    match submission["image_from"]:
        case "direct":
            links = [submission["url"]]
        case "gallery":
            links = _gallery(_parsed(submission["media_metadata"]), _parsed(submission["gallery_data"]))
        case _:
            images = _at(_parsed(submission["preview"]), "images")
            links = [_at(_at(image, "source"), "url") for image in images] if isinstance(images, list) else []
    links = [html.unescape(link) for link in links if isinstance(link, str) and len(link) <= LONGEST_ADDRESS]
    return list(dict.fromkeys(links))


def _gallery(metadata: Any, order: Any) -> list[Any]:
    """Images of a gallery in the order that it shows them, or as its parts lie."""
    if not isinstance(metadata, dict):
        return []
    items = _at(order, "items")
    shown = [_at(item, "media_id") for item in items] if isinstance(items, list) else []
    ids = [name for name in shown if isinstance(name, str) and name in metadata] or list(metadata)
    return [
        _at(_at(metadata[name], "s"), "u")
        for name in ids
        if _at(metadata[name], "e") == "Image" and _at(metadata[name], "status") in ("valid", None)
    ]


def _at(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def images_in(folder: Path, submissions: Collection[str]) -> dict[str, list[Path]]:
    """Image files of submissions in a folder: `<id>.<suffix>`, `<id>_2.<suffix>`, `<id>-2.<suffix>` or `<id>/…`.

    Args:
        folder: looked through once.
        submissions: the ids that count.
    """
    by_submission: dict[str, list[Path]] = defaultdict(list)
    ids_here = set(submissions)
    for path in folder.iterdir():
        if path.name in ids_here and path.is_dir():
            by_submission[path.name] += [file for file in path.iterdir() if file.suffix.lower() in SUFFIXES]
        elif path.suffix.lower() in SUFFIXES:
            ids = (path.stem, *(path.stem.rpartition(mark)[0] for mark in "_-"))
            if known := next((name for name in ids if name in ids_here), None):
                by_submission[known].append(path)
    return {name: sorted(files, key=_by_number) for name, files in by_submission.items()}


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Sorts `a_10` after `a_2`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(path.stem)]
