"""The layout `panel-json`: below `panel/`, a file a listener, which holds `{"clip": score}`."""

from __future__ import annotations

import json
from pathlib import Path

from earmark.schemas.mos_preferences import Source
from earmark.schemas.rejects import Reject
from earmark.tasks.importers.lists import Found, list_file, published
from earmark.tasks.importers.rows import Imported, Rating


def find(source: Source, root: Path) -> Found:
    """The listeners' files."""
    names = sorted(path.name for path in (root / "panel").glob("*.json"))
    return Found(tuple(list_file(source, root, f"panel/{name}", "train") for name in names))


def read(source: Source, root: Path) -> Imported:
    """A rating a clip and listener."""
    for file in find(source, root).lists:
        scores = json.loads(file.path.read_text("utf-8"))
        for line, (clip, score) in enumerate(scores.items(), 1):
            if isinstance(score, int | float):
                yield Rating(clip, float(score), file.name, line, "train", listener_id=file.path.stem)
            else:
                yield Reject(clip, "score_not_a_number", f"expected a number, found {score!r}", file.name, line)


LAYOUT = published(find, read)
