"""The lists that a published folder consists of: where they lie, and how their rows become ratings or rejects.

`find_parts` alone decides which files a source consists of; reading and hashing both start from its answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import InputError
from earmark.schemas.files import FOLLOW, Root
from earmark.schemas.mos_preferences import Source
from earmark.tasks.importers.cells import BadRow, number, shown
from earmark.tasks.importers.lines import read_rows
from earmark.tasks.importers.rows import Imported, Note, Reject

Cells = Sequence[Any]
Value = TypeVar("Value")
Resolve = Callable[[str], Path]
"""Makes a path as the config writes it absolute."""

# Words that stand in a header and never in a row of ids and scores.
HEADER_WORDS = frozenset(
    (
        *("wav", "wav_name", "wavname", "file", "filename", "file_name", "utt", "utt_id", "utterance", "utteranceid"),
        *("sample_id", "system", "system_id", "systemid", "listener", "listener_id", "listenerid"),
        *("mos", "mean", "score", "rating", "choice"),
    )
)


class ListFile(NamedTuple):
    """One list of a source."""

    path: Path  # absolute
    name: str  # "<source name>/<path below its root>"
    part: str = ""  # what it is in its layout: a split, a track
    kind: str = ""  # which of the alternatives it is: its file name; of a table, its type
    mark: str = ""  # the delimiter, where the config says it
    header: tuple[str, ...] = ()  # names of the columns, where the list has none


class Found(NamedTuple):
    """The lists that a source consists of."""

    lists: tuple[ListFile, ...]
    notes: tuple[Note, ...] = ()
    folder: str = ""  # where below the root they lie


@dataclass(frozen=True)
class RatingLayout:
    """A layout of rated clips."""

    find: Callable[[Source, Resolve], Found]  # the lists that a source consists of, and no others are opened
    read: Callable[[Source, Resolve], Imported]  # yields their ratings, rejects and notes, in a fixed order
    # the folder that clips in a list may not leave
    clip_root: Callable[[Source, Resolve, Path], Path] = lambda source, resolve, path: resolve(source.root or "")
    # what the names in folders say beyond the lists; the build key holds it
    listing: Callable[[Source, Resolve], dict[str, str] | None] | None = None


def published(
    find: Callable[[Source, Path], Found],
    read: Callable[[Source, Path], Imported],
    listing: Callable[[Source, Path], dict[str, str] | None] | None = None,
) -> RatingLayout:
    """A layout whose functions start from one folder, the source's `root`."""

    def at_root(function: Callable[[Source, Path], Value]) -> Callable[[Source, Resolve], Value]:
        return lambda source, resolve: function(source, resolve(source.root or ""))

    return RatingLayout(at_root(find), at_root(read), listing=at_root(listing) if listing else None)


def list_file(source: Source, root: Path, below: str, part: str = "") -> ListFile:
    """The list at a path below the source's root.

    Raises:
        InputError: it leads out of the root by a link, and the source does not follow links.
    """
    require_below(Root(root, source.links), root / below, f"{source.name}/{below}")
    return ListFile(root / below, f"{source.name}/{below}", part, below.rpartition("/")[2])


def require_below(root: Root, path: Path, name: str) -> None:
    """Refuse a list that lies elsewhere by a link, unless its source follows links."""
    if root.leads_out(path):
        raise InputError(f"{name}: expected a list below the root, found a link out of it; {FOLLOW} allows it")


def find_parts(source: Source, root: Path, folders: Sequence[str], parts: Mapping[str, Sequence[str]]) -> Found:
    """Find each part of a layout in the first of the folders that holds any part.

    Args:
        folders: folders below the root, the published one first; "" is the root itself.
        parts: names that the list of each part may have, the preferred first.

    Raises:
        InputError: the root is no folder, or holds no part at all.
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
    """Whether something lies at a path; what may not be looked at is left for reading to complain of."""
    try:
        return path.exists()
    except OSError:
        return True


def bare_rows(file: ListFile, width: int) -> Iterator[tuple[int, Cells | Reject | Note]]:
    """Rows of a list without a header; where one stands on top all the same, it is told apart from a row."""
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


def headed_rows(
    file: ListFile, wanted: Sequence[str], optional: Sequence[str] = (), published: Sequence[str] = (), mark: str = ","
) -> Iterator[tuple[int, Cells | Reject | Note]]:
    """The wanted cells of each row of a list with a header.

    Args:
        wanted: columns that must exist, at least two.
        optional: further columns; an absent one gives empty cells.
        published: all columns in their published order, for a release without the header; a first row that has
            as many cells, none of them a name of a column, is then read as a row.
        mark: the delimiter.

    Raises:
        InputError: a wanted column is missing or there twice, or the header itself cannot be read.
    """
    rows = read_rows(file.path, file.name, file.mark or mark)
    first = (0, list(file.header)) if file.header else next(rows, None)
    if first is None:
        yield 0, Note(f"{file.name} is empty")
        return
    line, top = first
    if isinstance(top, Reject):
        raise InputError(f"{file.name}: expected a header, found a line that cannot be read: {top.detail}")
    header = [cell.strip() for cell in top]
    if len(header) == len(published) and not set(header) & set(published) and any(number(c) == number(c) for c in top):
        yield line, Note(f"{file.name}: line {line} is a row where a header was expected; columns go by their order")
        header = list(published)
        rows = chain((first,), rows)
    require_columns(file.name, wanted, header)
    width = len(header)
    at = [header.index(column) for column in wanted] + [header.index(c) if c in header else -1 for c in optional]
    take = itemgetter(*at)
    for line, cells in rows:
        if isinstance(cells, Reject):
            yield line, cells
        elif len(cells) == width:
            cells.append("")  # the cell at -1, for optional columns that are absent
            yield line, take(cells)
        else:
            yield line, _ragged(file, cells, width, line)


def require_columns(name: str, wanted: Iterable[str], header: Sequence[str]) -> None:
    """Refuse a list without one of the wanted columns, naming the nearest that it has."""
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
        name: what rejects call the list.
        parse: makes the value from cells and line, or raises `BadRow`.
        item: the cell that names the row, for rejects.
    """
    for line, cells in rows:
        if isinstance(cells, Reject | Note):
            yield cells
            continue
        try:
            value = parse(cells, line)
        except BadRow as bad:
            texts = ["" if cell is None else str(cell) for cell in cells]
            named = shown(texts[item].strip() if item < len(texts) else "") or shown(",".join(texts))
            yield Reject(named, bad.reason, bad.detail, name, line)
        else:
            yield value


def require_once(lines: dict[Value, int], key: Value, line: int, word: str) -> None:
    """Refuse a row whose key an earlier line has; `lines` remembers each key's line."""
    if (first := lines.setdefault(key, line)) != line:
        raise BadRow("duplicate_id", f"expected each {word} once, found it in line {first}")


def _ragged(file: ListFile, cells: Sequence[str], width: int, line: int) -> Reject:
    detail = f"expected {width} fields, found {len(cells)}"
    return Reject(shown(",".join(cells)), "ragged_row", detail, file.name, line)
