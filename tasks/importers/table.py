"""Rated clips in any table: CSV, TSV, JSON lines or Parquet, one file a split; the config says which column is what.

A column that the config names must exist, and each of its cells must be filled. Of text tables, a config may say the
delimiter, name the columns where there is no header, and take ids from file names; they may end in `.gz` too. Lines are
counted from 1, the header being one; rows of Parquet from 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.files import require_regular
from earmark.schemas.mos_preferences import Columns, Source
from earmark.schemas.places import below, without_place
from earmark.tasks.importers.cells import BadRow, clip, deviation, identifier, score, shown, split_name, votes
from earmark.tasks.importers.json_arrays import object_lines
from earmark.tasks.importers.lines import most_rows, unreadable
from earmark.tasks.importers.lists import (
    Cells,
    Found,
    ListFile,
    RatingLayout,
    headed_rows,
    parsed,
    require_columns,
)
from earmark.tasks.importers.rows import Imported, Note, Rating, Reject

ENDINGS = {".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
BATCH = 65_536  # rows of Parquet in memory at once
LOOKAHEAD = 100  # JSON objects that are looked at for the names of columns, since an object may leave out a key
FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{
        word: (f"{word}_id", partial(identifier, word=word))
        for word in ("system", "speaker", "content", "condition", "listener")
    },
    "subset": ("subset", partial(identifier, word="subset")),
    "votes": ("votes", votes),
    "mos_std": ("mos_std", deviation),
    "split": ("split", split_name),
}
"""Where a rating holds what `Columns` or a group of a file name's pattern name, and how a cell of it is read."""

Rows = Iterator[tuple[int, Cells | Reject | Note]]


def find(source: Source, resolve: Callable[[str], Path]) -> Found:
    """The files that the config names."""
    lists = []
    names = [without_place(written) for written in source.files.values()]  # never where on this machine they lie
    for (split, written), name in zip(source.files.items(), names, strict=True):
        path = resolve(below(source.root, written) if source.root else written)
        named = f"{source.name}/{split}/{name}" if names.count(name) > 1 else f"{source.name}/{name}"
        lists.append(ListFile(path, named, split, kind_of(source.name, written), source.delimiter, source.header))
    return Found(tuple(lists))


def read(source: Source, resolve: Callable[[str], Path]) -> Imported:
    """Yield one rating or mean a row."""
    columns = source.columns
    if columns is None:
        raise InputError(f"{source.name}: expected 'columns' for a table, found none")
    wanted = tuple(columns.model_dump(exclude_none=True).values())  # file and mos come first
    for file in find(source, resolve).lists:
        parse = _parser(source, columns, file, str(clip_root(source, resolve, file.path)))
        yield from parsed(file.name, read_table(file, wanted), parse)


def clip_root(source: Source, resolve: Callable[[str], Path], path: Path) -> Path:
    """The folder that clips in one of the tables may not leave: without a root, the table's own."""
    home = source.audio_root or source.root
    return resolve(home) if home else path.parent


def kind_of(name: str, written: str) -> str:
    """The type of a table by its ending.

    Args:
        name: what the file belongs to, for the message.
        written: the file as the config writes it.

    Raises:
        InputError: the ending is none that is read.
    """
    plain = written.lower().removesuffix(".gz")
    kind = ENDINGS.get(PurePosixPath(plain).suffix)
    if kind is None or (kind == "parquet" and written.lower() != plain):
        raise InputError(f"{name}: expected a file ending in {', '.join(ENDINGS)}, found '{shown(written)}'")
    return kind


def _parser(source: Source, columns: Columns, file: ListFile, root: str) -> Callable[[Cells, int], Rating]:
    at = {word: place for place, word in enumerate(columns.model_dump(exclude_none=True))}
    reads = [(field, at[word], read) for word, (field, read) in FIELDS.items() if word in at]
    named = re.compile(source.file_name) if source.file_name else None

    def parse(cells: Cells, line: int) -> Rating:
        row: dict[str, Any] = {"split": file.part}
        name, mos = clip(cells[0], root), score(cells[1], *source.scale)
        for field, place, read in reads:
            row[field] = read(cells[place])
        if named:
            match = named.search(PurePosixPath(str(cells[0])).name)
            if match is None:
                expected = "expected a file name as file_name describes it"
                raise BadRow("bad_file_name", f"{expected}, found {shown(cells[0])}")
            for group, text in match.groupdict().items():
                field, read = FIELDS[group]
                row[field] = read(text or "")
        return Rating(name, mos, file.name, line, **row)

    return parse


def table_file(path: Path, written: str) -> ListFile:
    """A table that a config names, by its path there."""
    name = without_place(written)
    return ListFile(path, name, "", kind_of(name, written))


def named_rows(
    file: ListFile, wanted: Mapping[str, str], optional: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    """The rows of `read_table` as cells by our names; both mappings are from our name of a column to the table's."""
    for line, cells in read_table(file, tuple(wanted.values()), tuple(optional.values())):
        if isinstance(cells, Reject | Note):
            yield line, cells
        else:
            yield line, dict(zip((*wanted, *optional), cells, strict=True))


def read_table(file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> Rows:
    """The wanted and optional cells of each row of a table that a config names; it may hold no rows, but not nothing.

    Raises:
        InputError: a wanted column is missing, or the file cannot be read as what its ending says.
    """
    seen = False
    for line, cells in READERS[file.kind](file, wanted, optional):
        if line == 0:
            raise InputError(f"{file.name}: expected a table, found an empty file")
        seen = True
        yield line, cells
    if not seen:
        yield 0, Note(f"{file.name} holds no rows")


def _jsonl(file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...]) -> Rows:
    objects = object_lines(file)
    first = list(islice(objects, LOOKAHEAD))
    readable = [row for _, row in first if isinstance(row, dict)]
    if readable:
        require_columns(file.name, wanted, list(dict.fromkeys(chain.from_iterable(readable))))
    if not first:
        yield 0, Note(f"{file.name} is empty")
    for line, row in chain(first, objects):
        yield line, row if isinstance(row, Reject) else [row.get(column) for column in (*wanted, *optional)]


def _parquet(file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...]) -> Rows:
    import pyarrow as pa  # here, since the command line shall answer before Arrow is loaded
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(require_regular(file.path)) as table:
            require_columns(file.name, wanted, table.schema_arrow.names)
            present = [name for name in dict.fromkeys((*wanted, *optional)) if name in table.schema_arrow.names]
            line = 1
            batches = table.iter_batches(batch_size=most_rows() or BATCH, columns=present)
            for batch in islice(batches, 1 if most_rows() else None):
                cells = {name: batch.column(name).to_pylist() for name in present}
                absent = [None] * batch.num_rows
                yield from enumerate(zip(*(cells.get(n, absent) for n in (*wanted, *optional)), strict=True), line)
                line += batch.num_rows
    except OSError as error:
        raise unreadable(file.name, error) from None
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"{file.name}: expected a Parquet file, found: {shown(error)}") from None


READERS: dict[str, Callable[[ListFile, tuple[str, ...], tuple[str, ...]], Rows]] = {
    "csv": headed_rows,
    "tsv": partial(headed_rows, mark="\t"),
    "jsonl": _jsonl,
    "parquet": _parquet,
}

LAYOUT = RatingLayout(find, read, clip_root)
