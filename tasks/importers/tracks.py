"""Register the layouts of tagged tracks, `tracks.<format>` among the entry points `earmark.importers`.

`table` is any table: CSV, TSV, JSON lines or Parquet with `track_id`, `audio`, and if present `artist_id`,
`album_id`, `licence` and `tags`: words between semicolons, or a list of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from earmark.schemas.registry import Registry, register, registered
from earmark.schemas.rejects import Note, Reject, shown
from earmark.schemas.tracks import MARK, Tag, Track
from earmark.tasks.importers.cells import BadRow, clip, given, identifier
from earmark.tasks.importers.jamendo import TagMap, TrackLayout
from earmark.tasks.importers.lists import Cells, parsed, require_once
from earmark.tasks.importers.table import read_table, table_file

WANTED = ("track_id", "audio")
OPTIONAL = ("artist_id", "album_id", "tags", "licence")


def read_track_table(
    path: Path, written: str, synonyms: TagMap | None = None, audio: Path | None = None
) -> Iterator[Track | Reject | Note]:
    """Yield a track or a reject for each row, as `tasks.importers.jamendo.read_tracks` does; `duration_s` is 0:
    unknown.

    Raises:
        InputError: the file, or its column `track_id` or `audio`, is missing, or the content contradicts the ending.
    """
    file, root, lines = table_file(path, written), str(audio or path.parent), dict[str, int]()

    def parse(cells: Cells, line: int) -> Track:
        track = _track(cells, file.name, line, synonyms or {}, root)
        require_once(lines, track.track_id, line, "track")
        return track

    return parsed(file.name, read_table(file, WANTED, OPTIONAL), parse)


def _track(cells: Cells, name: str, line: int, synonyms: TagMap, root: str) -> Track:
    track_id, file = identifier(cells[0], "track"), clip(cells[1], root)
    artist = identifier(cells[2], "artist") if given(cells[2]) else ""
    album = identifier(cells[3], "album") if given(cells[3]) else ""
    tags = tuple(dict.fromkeys(_tag(word, synonyms) for word in _words(cells[4])))
    licence = shown(str(cells[5]).strip()) if given(cells[5]) else ""
    return Track(track_id, artist, album, file, 0.0, tags, name, line, licence)


def _words(cell: Any) -> list[str]:
    if not given(cell):
        return []
    parts = cell if isinstance(cell, list) else str(cell).split(";")
    return [identifier(part, "tag") for part in parts if given(part)]


def _tag(word: str, synonyms: TagMap) -> Tag:
    """Parse `genre---rock` as MTG-Jamendo writes it, or a bare word in the category `tag`."""
    category, mark, name = word.partition(MARK)
    if not mark:
        category, name = "tag", word
    name = name.strip().lower()
    if not name:
        raise BadRow("bad_value", f"expected a tag with a word, found '{shown(word)}'")
    return Tag(category.strip(), synonyms.get(category.strip(), {}).get(name, name))


TABLE = register("tracks.table")(TrackLayout(read_track_table))
TRACK_LAYOUTS = Registry(
    "layout of tracks",
    "earmark.importers",
    TrackLayout,
    registered("earmark.tasks.importers"),
    "tracks.",
)
