"""Find the lists in a published folder, and turn their rows into ratings or rejects.

`find_parts` alone decides the files of a source; reading and hashing both start from its result.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import InputError
from earmark.schemas.files import FOLLOW, Root, source_root
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import Registry, registered
from earmark.tasks.importers.cells import BadList, BadRow, Scale, missing_cells, number, one_spelling
from earmark.tasks.importers.lines import read_rows


class Rating(NamedTuple):
    """A rating or a mean of a clip, as a list states it.

    Rows of the same file are averaged later: over listeners if they carry a `listener_id`, else over rows.
    """

    file: str  # the audio file as the list names it
    score: float  # a listener's rating or the published mean, within the source's scale
    source_file: str  # "<source name>/<path below its root>" of the list
    line: int  # line in that list, from 1
    split: str | None = None  # the publisher's split in Earmark's words; None without one
    subset: str | None = None  # listening test within the dataset (a track, a NISQA database)
    system_id: str | None = None
    speaker_id: str | None = None
    content_id: str | None = None
    condition_id: str | None = None
    listener_id: str | None = None
    votes: int | None = None  # ratings behind a published mean
    mos_std: float | None = None  # their sample standard deviation
    audio: str | None = None  # the clip's path below the source's root, if not at `file`


Imported = Iterator[Rating | Reject | Note]


Cells = Sequence[Any]
Value = TypeVar("Value")
Resolve = Callable[[str], Path]  # make a path of the config absolute

# Words found only in headers, never in a row of ids and scores.
HEADER_WORDS = frozenset(
    (
        *("wav", "wav_name", "wavname", "file", "filename", "file_name", "utt", "utt_id", "utterance", "utteranceid"),
        *("sample_id", "system", "system_id", "systemid", "listener", "listener_id", "listenerid"),
        *("mos", "mean", "score", "rating", "choice"),
    )
)

IN_HEADERS = HEADER_WORDS | {"id", "generation_id", "track", "track_id", "name", "audio", "path", "url"}

# Trailing header columns that rows may leave out: of a trailing delimiter, and of MTurk's batches.
UNFILLED = ("", "approve", "reject")


class ListFile(NamedTuple):
    """A list of a source."""

    path: Path  # absolute
    name: str  # "<source name>/<path below its root>"
    part: str = ""  # its part in the layout: a split, a track
    kind: str = ""  # which alternative: its file name; of a table, its type
    mark: str = ""  # the delimiter, if the config gives it
    header: tuple[str, ...] = ()  # names of the columns of a list without a header
    quotes: bool | None = None  # whether quoted cells may span delimiters and lines, if the config says so
    encoding: str = ""  # of its text, if the config gives it


class Found(NamedTuple):
    """The lists of a source."""

    lists: tuple[ListFile, ...]
    notes: tuple[Note, ...] = ()
    folder: str = ""  # their folder below the root


@dataclass(frozen=True)
class RatingLayout:
    """A layout of rated clips."""

    find: Callable[[Source, Resolve], Found]  # the lists of a source; no others are opened
    read: Callable[[Source, Resolve], Imported]  # yields their ratings, rejects and notes, in a fixed order
    # the folder that clips in a list may not leave
    clip_root: Callable[[Source, Resolve, Path], Path] = lambda source, resolve, path: resolve(source.root or "")
    # facts from folder names beyond the lists, for the build key
    listing: Callable[[Source, Resolve], dict[str, str] | None] | None = None
    signature: str = ""  # a regular expression for the beginning of its lists, used by `earmark init`


def published(
    find: Callable[[Source, Path], Found],
    read: Callable[[Source, Path], Imported],
    listing: Callable[[Source, Path], dict[str, str] | None] | None = None,
    signature: str = "",
) -> RatingLayout:
    """Return a layout of functions starting from a single folder, the source's `root`."""

    def at_root(function: Callable[[Source, Path], Value]) -> Callable[[Source, Resolve], Value]:
        return lambda source, resolve: function(source, resolve(source.root or ""))

    return RatingLayout(
        at_root(find), at_root(read), listing=at_root(listing) if listing else None, signature=signature
    )


def list_file(source: Source, root: Path, below: str, part: str = "") -> ListFile:
    """Return the list at a path below the source's root.

    Raises:
        InputError: a link leads out of the root, and links are not followed.
    """
    require_below(source_root(root), root / below, f"{source.name}/{below}")
    return ListFile(root / below, f"{source.name}/{below}", part, below.rpartition("/")[2])


def require_below(root: Root, path: Path, name: str) -> None:
    """Refuse a list outside the root behind a link, unless links are followed."""
    if root.leads_out(path):
        raise InputError(f"{name}: expected a list below the root, found a link out of it; {FOLLOW} allows it")


def find_parts(source: Source, root: Path, folders: Sequence[str], parts: Mapping[str, Sequence[str]]) -> Found:
    """Find each part of a layout in the first folder with any part.

    Args:
        folders: folders below the root, the published one first; "" is the root itself.
        parts: possible names of each part's list, the preferred first.
    """
    require_folder(source, root)
    for folder in folders:
        prefix = f"{folder}/" if folder else ""
        present = {part: next((n for n in names if exists(root / (prefix + n))), None) for part, names in parts.items()}
        if any(present.values()):
            break
    else:
        wanted = ", ".join(" or ".join(names) for names in parts.values())
        places = ", ".join(folder or "the folder itself" for folder in folders)
        raise InputError(f"{source.name}: expected {wanted} in {source.root} (looked in: {places}), found none")
    lists = tuple(list_file(source, root, prefix + name, part) for part, name in present.items() if name)
    notes = tuple(
        Note(f"{source.name}: {' or '.join(parts[part])} is not in {source.root}; its rows are left out")
        for part, name in present.items()
        if name is None
    )
    return Found(lists, notes, folder)


def require_folder(source: Source, root: Path) -> None:
    """Refuse a root that is missing or no folder."""
    try:
        if root.is_dir():
            return
        found = "a file" if root.exists() else "nothing there"
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
    raise InputError(f"{source.name}: expected a folder at root = '{source.root}', found {found}")


def exists(path: Path) -> bool:
    """Return whether something lies at a path; True without permission to look, so that reading reports the fault."""
    try:
        return path.exists()
    except OSError:
        return True


def bare_rows(file: ListFile, width: int) -> Iterator[tuple[int, Cells | Reject | Note]]:
    """Yield rows of a list without a header; recognise and skip a header present all the same."""
    rows = read_rows(file.path, file.name)
    first = next(rows, None)
    if first is None:
        yield 0, Note(f"{file.name} is empty")
        return
    line, cells = first
    if isinstance(cells, list) and any(cell.strip().lower() in HEADER_WORDS for cell in cells):
        yield line, Note(f"{file.name}: line {line} is a header, which this list has not in every release")
    else:
        rows = chain((first,), rows)
    for line, cells in rows:
        if len(cells) == width or isinstance(cells, Reject):
            yield line, cells
        else:
            yield line, _ragged(file, cells, width, line)


def by_its_header(file: ListFile) -> ListFile:
    """Return a list of text with the delimiter of its header, if that is not the one of its file name's ending."""
    usual = {"csv": ",", "tsv": "\t"}.get(file.kind, "")
    top = next(read_rows(file.path, file.name, usual, encoding=file.encoding), (0, []))[1] if usual else []
    if file.mark or file.header or isinstance(top, Reject) or len(top) != 1:
        return file
    return file._replace(mark=next((mark for mark in "\t;|," if mark in top[0]), ""))


def headed_rows(
    file: ListFile, wanted: Sequence[str], optional: Sequence[str] = (), published: Sequence[str] = (), mark: str = ","
) -> Iterator[tuple[int, Cells | Reject | Note]]:
    """Yield the wanted cells of each row of a list with a header.

    Args:
        wanted: columns that must exist, at least two.
        optional: further columns; an absent one gives empty cells.
        published: all columns in their published order, for a release without the header; a first row with
            as many cells, none of them a column name, is then read as a row.
        mark: the delimiter.
    """
    rows = read_rows(file.path, file.name, file.mark or mark, file.quotes, file.encoding)
    first = (0, list(file.header)) if file.header else next(rows, None)
    if first is None:
        yield 0, Note(f"{file.name} is empty")
        return
    line, top = first
    if isinstance(top, Reject):
        bad = top.reason == "bad_encoding"
        way = "; save the file as UTF-8, or set encoding" if bad else ""
        raise InputError(f"{file.name}: expected a header, found a line that cannot be read: {top.detail}{way}")
    header = [cell.strip() for cell in top]
    if len(header) == len(published) and not set(header) & set(published) and any(number(c) == number(c) for c in top):
        yield line, Note(f"{file.name}: line {line} is a row where a header was expected; columns go by their order")
        header = list(published)
        rows = chain((first,), rows)
    require_columns(file.name, wanted, header)
    width = least = len(header)
    while least > 1 and header[least - 1].lower() in UNFILLED:
        least -= 1
    at = [header.index(column) for column in wanted] + [header.index(c) if c in header else -1 for c in optional]
    take: Callable[[list[str]], Cells] = itemgetter(*at) if len(at) > 1 else lambda cells: (cells[at[0]],)
    for line, cells in rows:
        if isinstance(cells, Reject):
            yield line, cells
            continue
        if len(cells) != width:
            cells = fitted(cells, least, width)
        if len(cells) == width:
            cells.append("")  # the cell at -1, for absent optional columns
            yield line, take(cells)
        else:
            yield line, _ragged(file, cells, width, line)


def names_columns(*cells: str) -> bool:
    """Return whether the cells of an id and a file are the names of columns, as in a second header."""
    return all(cell.lower() in IN_HEADERS for cell in cells)


def fitted(cells: list[str], least: int, width: int) -> list[str]:
    """Fit a row to its header: drop empty cells beyond it, and add optional trailing cells."""
    if len(cells) > width and not any(map(str.strip, cells[width:])):
        return cells[:width]
    return cells + [""] * (width - len(cells)) if least <= len(cells) < width else cells


def require_columns(name: str, wanted: Iterable[str], header: Sequence[str]) -> None:
    """Refuse a list without a wanted column; name its nearest columns."""
    for column in wanted:
        if header.count(column) == 1:
            continue
        if column in header:
            raise InputError(f"{name}: expected one column '{shown(column)}', found {header.count(column)}")
        near = difflib.get_close_matches(column, header, n=3, cutoff=0.5)
        known = ", ".join(f"'{shown(other)}'" for other in near or header[:12])
        hint = f"the nearest are {known}" if near else f"its columns are {known}"
        raise InputError(f"{name}: expected a column '{shown(column)}', found none; {hint}")


def parsed(
    name: str, rows: Iterable[tuple[int, Cells | Reject | Note]], parse: Callable[[Cells, int], Value], item: int = 0
) -> Iterator[Value | Reject | Note]:
    """Turn each row into exactly one value or one reject.

    Args:
        name: the list's name in rejects.
        parse: makes the value from cells and line, or raises `BadRow`.
        item: the index of the cell naming the row, for rejects.
    """
    for line, cells in rows:
        if isinstance(cells, Reject | Note):
            yield cells
            continue
        try:
            value = parse(cells, line)
        except BadList as bad:
            raise InputError(f"{name}, line {line}: {bad.detail}") from None
        except BadRow as bad:
            texts = ["" if cell is None else str(cell) for cell in cells]
            named = shown(texts[item].strip() if item < len(texts) else "") or shown(",".join(texts))
            yield Reject(named, bad.reason, bad.detail, name, line)
        else:
            yield value


def scale_of(source: Source, test: str | None = None) -> Scale:
    """Return the scale of a source's listening test.

    Raises:
        BadList: the source has a scale for each test, and none for this test.
    """
    scales = source.scales()
    ends = scales.get(None) or scales.get(test)
    if ends is None:
        raise BadList(
            "score_out_of_scale",
            f"expected scale to name the test '{shown(test)}', found {', '.join(map(str, scales))}",
        )
    return Scale(*ends, missing_cells(source.not_a_rating), source.best == "low")


def require_once(lines: dict[Value, int], key: Value, line: int, word: str) -> None:
    """Refuse a row with the key of an earlier line; `lines` maps keys to lines."""
    if (first := lines.setdefault(key, line)) != line:
        raise BadRow("duplicate_id", f"expected each {word} once, found it in line {first}")


def _ragged(file: ListFile, cells: Sequence[str], width: int, line: int) -> Reject:
    detail = f"expected {width} fields, found {len(cells)}"
    return Reject(shown(",".join(cells)), "bad_line", detail, file.name, line)


RATING_LAYOUTS = Registry(
    "layout of ratings", "earmark.importers", RatingLayout, registered("earmark.tasks.importers"), "ratings."
)


def read_source(source: Source, resolve: Resolve) -> Imported:
    """Yield the content of a source's lists, in a fixed order. Open nothing before the first item is requested.

    Raises:
        InputError: the source or a list of it cannot be read at all.
    """
    if source.best == "low":
        yield Note(f"{source.name}: best = low, so ratings are turned on their scale: the lowest stands as the highest")
    yield from one_spelling(RATING_LAYOUTS.find(source.format).read(source, resolve), ("file",))


def input_files(source: Source, resolve: Resolve) -> list[tuple[str, Path]]:
    """List the files opened by `read_source`: "<source name>/<path below its root>" and absolute path, sorted.

    Importers open only the result of their own `find`, so the two agree.
    """
    return sorted((file.name, file.path) for file in RATING_LAYOUTS.find(source.format).find(source, resolve).lists)
