"""Register the layouts of tagged tracks, `tracks.<format>` among the entry points `earmark.importers`.

`table` is any table: CSV, TSV, JSON lines or Parquet with `track_id`, `audio`, and if present `artist_id`,
`album_id`, `licence` and `tags`: a list of words, also as text, or words between semicolons, bars or commas. The whole
column decides: if one of its cells holds a semicolon, commas and bars are part of tags, and so are commas beside bars.
"""

import ast
import html
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.places import without_place
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import Registry, register, registered
from earmark.schemas.tracks import MARK, NOT_STATED, Tag, Track
from earmark.tasks.importers.cells import BadRow, clip, given, identifier, normal, number
from earmark.tasks.importers.json_arrays import read_json
from earmark.tasks.importers.lines import read_lines, read_rows
from earmark.tasks.importers.lists import (
    Cells,
    ListFile,
    by_its_header,
    names_columns,
    parsed,
    require_columns,
    require_once,
)
from earmark.tasks.importers.table import read_table, table_file

CATEGORIES = ("genre", "instrument", "mood/theme")
JAMENDO_COLUMNS = ("TRACK_ID", "ARTIST_ID", "ALBUM_ID", "PATH", "DURATION", "TAGS")
_PATH = re.compile(r"[^\s/]+/\S+\.[a-z0-9]{2,4}", re.IGNORECASE)
_TERMS = re.compile(r"available under (?:an? )?(.+?)(?: licen[cs]e)?: *(https?://\S+)", re.IGNORECASE)
_COMMONS = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(licenses|publicdomain)/([a-z-]+)/([0-9.]+)(?:/([a-z]+))?/?"
)

_OTHERS_LIST = re.compile(r"""\{.*\}|array\(.*\)|\(['"].*\)""", re.DOTALL)  # of PostgreSQL, NumPy, a tuple of Python
# A list that was written as text, as pandas writes MusicCaps' `aspect_list`; `[live]; [loud]` is none.
_LIST = re.compile(r"""\s*\[(\s*['"].*['"],?\s*|[^\[\]]*)\]\s*""", re.DOTALL)

TagMap = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class TrackLayout:
    """A layout of tagged tracks."""

    # as `read_tracks`; yields a track or a reject for each row, in order
    read: Callable[[Path, str, TagMap | None, Path | None], Iterator[Track | Reject | Note]]
    file_name: Callable[[Track], str] = lambda track: track.track_id  # the id naming a track's files in a version


def read_tracks(
    path: Path, written: str, synonyms: TagMap | None = None, audio: Path | None = None
) -> Iterator[Track | Reject | Note]:
    """Yield a track or a reject for each row, in the order of the list.

    Tab-separated, header `TRACK_ID ARTIST_ID ALBUM_ID PATH DURATION TAGS`; a track's tags run on as further columns, so
    rows differ in length. A `.csv` has commas instead, and may hold all tags of a track in one quoted cell. A tag is
    written `genre---punkrock`, `instrument---guitar` or `mood/theme---calm`. The path is `14/214.mp3`: the folder is
    the last two digits of the track's number. `tag_map.json` beside the lists names synonyms. `audio_licenses.txt`
    states the licence of each track, in blocks with an empty line between them:

        14/214.mp3
        TITLE by ARTIST from Jamendo: http://www.jamendo.com/track/214
        Available under a Creative Commons Attribution-… license: http://creativecommons.org/licenses/by-nc-sa/3.0/

    Args:
        written: the list as the config writes it, for rows and rejects.
        synonyms: the result of `read_tag_map`.
        audio: folder of the audio, by default the list's own; paths starting with it are made relative to it,
            and none may leave it.

    Raises:
        InputError: the file is missing, is not UTF-8, is empty, or has another header.
    """
    name = without_place(written)
    comma = path.name.lower().removesuffix(".gz").endswith(".csv")
    rows = read_rows(path, name, "," if comma else "\t")
    take = _columns(name, next(rows, None))
    lines: dict[str, int] = {}

    def parse(cells: Cells, line: int) -> Track:
        track = _jamendo_track(cells, take, name, line, synonyms or {}, str(audio or path.parent))
        require_once(lines, track.track_id, line, "track")
        return track

    yield from parsed(name, rows, parse, take[0])
    if not lines:
        yield Note(f"{name} holds no tracks")


def read_tag_map(path: Path, written: str) -> TagMap:
    """Read synonyms by category: `{"genre": {"punk": "punkrock"}, …}`; a synonym of a synonym is the last one's.

    Raises:
        InputError: missing, or of another form; or a tag stands for two tags, or for itself by way of others.
    """
    name, synonyms = without_place(written), dict[str, dict[str, str]]()
    for category, words in read_json(path, name, dict, "a JSON object of categories").items():
        if category not in CATEGORIES:
            raise InputError(f"{name}: expected categories {', '.join(CATEGORIES)}, found '{shown(category)}'")
        if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
            raise InputError(f"{name}: expected an object of tags under '{category}', found {shown(words)}")
        synonyms[category] = _followed(words, f"{name}, {category}")
    return synonyms


def _followed(words: Mapping[str, str], where: str) -> dict[str, str]:
    """Return each synonym with the tag at the end of its chain, both spelt as tags of a list are."""
    direct, ends = dict[str, str](), dict[str, str]()
    for pair in words.items():
        try:
            word, tag = map(_tag_name, pair)
            if MARK in word + tag:
                raise BadRow("bad_value", f"expected tags without '{MARK}', found it")
        except BadRow as bad:
            raise InputError(f"{where}: {bad.detail} in {shown(': '.join(pair))}") from None
        if direct.setdefault(word, tag) != tag:
            raise InputError(f"{where}: expected one tag for '{shown(word)}', found '{direct[word]}' and '{tag}'")
    for word, tag in direct.items():
        passed = [word]
        while direct.get(tag, tag) != tag:
            if tag in passed:
                circle = " → ".join([*passed, tag])
                raise InputError(f"{where}: expected synonyms that end in a tag, found a circle: {shown(circle)}")
            passed.append(tag)
            tag = direct[tag]
        ends[word] = tag
    return ends


def _tag_name(cell: str) -> str:
    return normal(identifier(cell, "tag")).lower()


def read_licences(path: Path, written: str) -> dict[str, str]:
    """Read the licence of each track from `audio_licenses.txt`, keyed by the track's path.

    Licences of Creative Commons have their short names, as in SPDX where it has them: `CC-BY-NC-SA-3.0`, with the
    country of a ported licence. Others keep the words of the list, such as `Free Art License`.

    Raises:
        InputError: missing, or of another form; or a track stands there twice with two licences.
    """
    name, licences, track = without_place(written), dict[str, str](), ""
    for at, line in read_lines(path, name):
        text = "" if isinstance(line, Reject) else line.strip()  # a title in another encoding is ignored
        if _PATH.fullmatch(text):
            track = text
            licences.setdefault(track, NOT_STATED)
        elif (found := _TERMS.fullmatch(text)) and " from Jamendo: " not in text:  # titles are no terms
            where, licence = f"{name}, line {at}", _licence(found[1], found[2])
            if not track:
                raise InputError(f"{where}: expected a track's path before its licence, found none")
            if licences[track] not in (NOT_STATED, licence):
                raise InputError(f"{where}: expected one licence of {track}, found {licences[track]} and {licence}")
            licences[track] = licence
    if not licences:
        raise InputError(f"{name}: expected audio_licenses.txt, a track's path on a line and its terms below it")
    return licences


def _licence(words: str, url: str) -> str:
    found = _COMMONS.fullmatch(url.lower())
    if found is None:
        return shown(words)
    kind, terms, version, country = found.groups()
    if kind == "publicdomain" and terms == "zero":
        return f"CC0-{version}"
    return "-".join(part.upper() for part in ("cc" if kind == "licenses" else "cc-pd", terms, version, country) if part)


def parse_tag(cell: str, synonyms: TagMap) -> Tag:
    """Parse a tag from `category---name`."""
    category, mark, tag = cell.strip().partition(MARK)
    if not mark or category not in CATEGORIES:
        known = ", ".join(f"{known}{MARK}…" for known in CATEGORIES)
        raise BadRow("bad_value", f"expected {known}, found '{shown(cell.strip())}'")
    tag = _tag_name(tag)
    return Tag(category, synonyms.get(category, {}).get(tag, tag))


def _columns(name: str, first: tuple[int, list[str] | Reject] | None) -> tuple[int, ...]:
    """Locate the columns; require the tags last, since they run on."""
    if first is None:
        raise InputError(f"{name}: expected a list of tracks, found an empty file")
    top = first[1]
    if isinstance(top, Reject):
        raise InputError(f"{name}: expected a header, found a line that cannot be read: {top.detail}")
    header = [cell.strip() for cell in top]
    require_columns(name, JAMENDO_COLUMNS, header)
    if header[-1] != JAMENDO_COLUMNS[-1]:
        raise InputError(f"{name}: expected TAGS as the last column, found '{shown(header[-1])}'")
    return tuple(header.index(column) for column in JAMENDO_COLUMNS)


def _jamendo_track(
    cells: Sequence[str], take: tuple[int, ...], name: str, line: int, synonyms: TagMap, root: str
) -> Track:
    at_tags = take[-1]
    if len(cells) < at_tags:  # a track without tags may end before their column
        raise BadRow("bad_line", f"expected at least {at_tags} fields, found {len(cells)}")
    track, artist, album = (
        identifier(cells[at], word) for at, word in zip(take[:3], ("track", "artist", "album"), strict=True)
    )
    written = (tag for cell in cells[at_tags:] for tag in re.split(r"[\t;,]", cell) if tag.strip())
    tags = dict.fromkeys(parse_tag(tag, synonyms) for tag in written)
    file, duration_s = clip(cells[take[3]], root), _duration(cells[take[4]])
    return Track(track, artist, album, file, duration_s, tuple(tags), name, line)


def _duration(cell: str) -> float:
    value = number(cell)
    if 0 < value < math.inf:
        return value
    if not cell.strip():
        raise BadRow("missing_value", "expected a duration in seconds, found an empty cell")
    raise BadRow("bad_value", f"expected a duration in seconds, found '{shown(cell)}'")


LAYOUT = register("tracks.mtg-jamendo")(
    TrackLayout(read_tracks, lambda track: PurePosixPath(track.path).stem.removesuffix(".low"))
)


WANTED = ("track_id", "audio")
OPTIONAL = ("artist_id", "album_id", "tags", "licence")


def read_track_table(
    path: Path, written: str, synonyms: TagMap | None = None, audio: Path | None = None
) -> Iterator[Track | Reject | Note]:
    """Yield a track or a reject for each row, as `read_tracks` does; `duration_s` is 0: unknown."""
    file, root, lines = by_its_header(table_file(path, written)), str(audio or path.parent), dict[str, int]()
    mark, licensed = _survey(file)

    def parse(cells: Cells, line: int) -> Track:
        track = _track(cells, file.name, line, synonyms or {}, root, mark)
        if licensed and not track.licence:  # others have one: this one's is missing, and does not follow the source's
            track = track._replace(licence=NOT_STATED)
        require_once(lines, track.track_id, line, "track")
        return track

    yield from parsed(file.name, read_table(file, WANTED, OPTIONAL), parse)


def _survey(file: ListFile) -> tuple[str, bool]:
    """Return what stands between tags in a table's cells, and whether any row states a licence.

    The mark is `;` if a cell has it, else `|` if one has it, else a comma.
    """
    found, licensed = set[str](), False
    for _, cells in read_table(file, WANTED, ("tags", "licence")):
        if isinstance(cells, Reject | Note):
            continue
        row: Cells = cells
        text, licence = row[-2:]
        licensed = licensed or given(licence)
        if isinstance(text, str) and not _LIST.fullmatch(text):
            found.update(mark for mark in ";|" if mark in html.unescape(text))
        if licensed and ";" in found:
            break
    return next((mark for mark in ";|" if mark in found), ","), licensed


def _track(cells: Cells, name: str, line: int, synonyms: TagMap, root: str, mark: str) -> Track:
    track_id, file = identifier(cells[0], "track"), clip(cells[1], root)
    if names_columns(track_id, file):
        raise BadRow("bad_line", f"expected a track, found the names of columns ('{track_id}', '{file}')")
    artist = normal(identifier(cells[2], "artist")) if given(cells[2]) else ""
    album = normal(identifier(cells[3], "album")) if given(cells[3]) else ""
    tags = tuple(dict.fromkeys(_tag(word, synonyms) for word in _words(cells[4], mark)))
    licence = shown(str(cells[5]).strip()) if given(cells[5]) else ""
    return Track(track_id, artist, album, file, 0.0, tags, name, line, licence)


def _words(cell: Any, mark: str) -> list[str]:
    if not given(cell):
        return []
    text = html.unescape(str(cell).strip())
    if isinstance(cell, dict) or _OTHERS_LIST.fullmatch(text):
        raise BadRow("bad_value", f"expected tags such as rock; piano or ['rock', 'piano'], found '{shown(text)}'")
    parts = cell if isinstance(cell, list) else _listed(text) if _LIST.fullmatch(text) else text.split(mark)
    return [normal(html.unescape(identifier(part, "tag"))) for part in parts if given(part)]


def _listed(text: str) -> list[Any]:
    """Parse a list that was written as text, by JSON, by Python, or without quotes."""
    if not re.search("['\"]", text):
        return re.split("[;|,]", text[1:-1])
    bare = re.search(r"""['"]\s+['"]""", text)  # NumPy's, without commas: Python would join its words
    for read in (json.loads, *(() if bare else (ast.literal_eval,))):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found: list[Any] = read(text)
            return found
    raise BadRow("bad_value", f"expected tags such as rock; piano or ['rock', 'piano'], found '{shown(text)}'")


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
    "layout of tracks", "earmark.importers", TrackLayout, registered("earmark.tasks.importers"), "tracks."
)


COLUMNS = ("category", "tag", "asked", "detected")


class Recall(NamedTuple):
    """Detections of a tag."""

    tag: Tag
    asked: int  # its tracks in the judge's questions
    detected: int  # of these, tracks with the tag detected
    source_file: str


def read_recalls(
    path: Path, written: str, synonyms: TagMap | None = None, tags: Collection[Tag] | None = None
) -> Iterator[Recall | Reject | Note]:
    """Read a CSV, TSV, JSON lines or Parquet table with the columns `category`, `tag`, `asked` and `detected`.

    Args:
        synonyms: the result of `read_tag_map`.
        tags: the tags to decide about; a row of another tag is a reject. None takes all.

    Raises:
        InputError: the file or a column is missing, or the content contradicts the file's ending.
    """
    file, lines = by_its_header(table_file(path, written)), dict[Tag, int]()

    def parse(cells: Cells, line: int) -> Recall:
        tag = parse_tag(f"{cells[0]}{MARK}{cells[1] or ''}", synonyms or {})
        recall = Recall(tag, _count(cells[2]), _count(cells[3]), file.name)
        if recall.detected > recall.asked:
            raise BadRow("bad_value", f"expected detected up to {recall.asked}, found {recall.detected}")
        require_once(lines, recall.tag, line, "tag")
        if tags is not None and tag not in tags:
            raise BadRow("not_known", f"expected a tag of the track list, found '{shown(tag.name)}' of {tag.category}")
        return recall

    return parsed(file.name, read_table(file, COLUMNS), parse, item=1)


def _count(cell: Any) -> int:
    value = number(cell)
    if value >= 0 and value.is_integer() and value < 2**53:
        return int(value)
    raise BadRow("bad_value", f"expected a whole number of tracks from 0, found '{shown(cell)}'")
