"""Read rated clips from any table: CSV, TSV, JSON, JSON lines or Parquet; the config assigns its columns.

A column of the config must exist, and each of its cells must be filled. For text tables, a config may give the
delimiter, name the columns of a list without a header, and take ids from file names; they may end in `.gz` too.
Lines are counted from 1, the header being one; rows of Parquet and of JSON from 1.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

from earmark.schemas.errors import InputError
from earmark.schemas.files import require_regular
from earmark.schemas.places import below, without_place
from earmark.schemas.rating_sources import COLUMN, Columns, Source, fields_in, groups_in
from earmark.schemas.reasons import Note, Reject, shown
from earmark.schemas.registry import register
from earmark.tasks.importers.cells import (
    AS_FILES,
    BadRow,
    clip,
    deviation,
    given,
    identifier,
    number,
    score,
    split_name,
    votes,
)
from earmark.tasks.importers.json_arrays import flat_lines, object_lines, read_records
from earmark.tasks.importers.lines import most_rows, unreadable
from earmark.tasks.importers.lists import (
    Cells,
    Found,
    Imported,
    ListFile,
    Rating,
    RatingLayout,
    headed_rows,
    parsed,
    require_columns,
    scale_of,
)
from earmark.tasks.importers.machines import KINDS, ORIGINS, require_person

ENDINGS = {
    **{".csv": "csv", ".txt": "csv", ".tsv": "tsv"},
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"},
}
BATCH = 65_536  # rows of Parquet in memory at once
# Limits on a Parquet's claims per byte of its file: a value repeated a million times takes a few bytes, but the time
# and memory of a million to read. Lists of clips have different names: real ones hold less than a row a byte.
MOST_ROWS, MOST_ROWS_A_BYTE = 1_000_000, 50
MOST_UNPACKED, MOST_UNPACKED_A_BYTE = 1 << 30, 1_000  # bytes
LOOKAHEAD = 100  # JSON objects read for the names of columns, since an object may leave out a key
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
"""Rating field of each name in `Columns` or group of a file name's pattern, and the parser of its cells."""

Rows = Iterator[tuple[int, Cells | Reject | Note]]


def find(source: Source, resolve: Callable[[str], Path]) -> Found:
    """List the files of the config.

    Raises:
        InputError: a pattern matches no file.
    """

    def place(written: str) -> Path:
        return resolve(below(source.root, written) if source.root else written)

    written = [(split, one) for split, pattern in source.lists() for one in expanded(pattern, source.name, place)]
    names = [without_place(one) for _, one in written]  # names never show folders of this machine
    lists = []
    for (split, one), name in zip(written, names, strict=True):
        named = f"{source.name}/{split}/{name}" if names.count(name) > 1 else f"{source.name}/{name}"
        kind = kind_of(source.name, one)
        lists.append(
            ListFile(place(one), named, split, kind, source.delimiter, source.header, source.quotes, source.encoding)
        )
    return Found(tuple(lists))


def expanded(written: str, name: str, place: Callable[[str], Path]) -> list[str]:
    """List the files matching a pattern, sorted; return a path without wildcards as it is."""
    folder, slash, pattern = written.rpartition("/")
    if not is_pattern(written) or place(written).exists():
        return [written]
    found = sorted(path.name for path in place(folder or ".").glob(pattern) if path.is_file())
    if not found:
        raise InputError(f"{name}: no file fits files = '{shown(written)}'")
    return [f"{folder}{slash}{one}" for one in found]


def is_pattern(written: str) -> bool:
    """Return whether a path's last part is a pattern of file names."""
    return any(mark in written.rpartition("/")[2] for mark in "*?[")


def read(source: Source, resolve: Callable[[str], Path]) -> Imported:
    """Yield a rating or mean for each row; of a wide row, or of a cell with several, each of them."""
    columns = source.columns
    if columns is None:
        raise InputError(f"{source.name}: expected 'columns' for a table, found none")
    wanted = tuple(dict.fromkeys((*columns.named(), *source.where)))
    may_tell = (*KINDS, *sorted(ORIGINS), *(() if columns.listener else ("judge",)))
    kinds = tuple(kind for kind in may_tell if kind not in wanted)
    at = {column: place for place, column in enumerate((*wanted, *kinds))}
    for file in find(source, resolve).lists:
        parse = _parser(source, columns, at, str(clip_root(source, resolve, file.path)), file)
        for line, cells in read_table(file, wanted, kinds):
            if isinstance(cells, Reject | Note):
                yield cells
                continue
            other = _not_selected(source, at, cells)
            if other and not _tells_answers_apart(source, at, cells):
                yield _left_out(other, cells, file, line)
                continue
            for one in _ratings(columns, at, cells, source.where if other else ()):
                if other and (own := _not_selected(source, at, one[-1])):
                    yield _left_out(own, cells, file, line)
                else:
                    yield from parsed(file.name, [(line, one)], parse)


def _left_out(other: str, cells: Cells, file: ListFile, line: int) -> Reject:
    item = shown(next(filter(given, cells), ""))
    return Reject(item, "not_selected", f"where leaves out {other}", file.name, line)


def _tells_answers_apart(source: Source, at: Mapping[str, int], cells: Cells) -> bool:
    """Return whether a column of `where` lists a word for each rating of a cell, as Argilla's datasets do."""
    mos = source.columns.mos if source.columns else ()
    counts = {len(several(cells[at[name]]) or ()) for name in ((mos,) if isinstance(mos, str) else mos)} - {0}
    return any(len(several(cells[at[name]]) or ()) in counts for name in source.where)


def _not_selected(source: Source, at: Mapping[str, int], cells: Cells) -> str | None:
    """Return the column and cell excluded by `where`, or None for a selected row."""
    for column, written in source.where.items():
        words = written if isinstance(written, tuple) else (written,)
        if _word(cells[at[column]]) not in map(_word, words):
            return f"{shown(column)} = '{shown(cells[at[column]])}'"
    return None


def _word(cell: Any) -> str:
    """Normalise a cell for comparison in `where`: 1, 1.0 and "1" are equal, and so are True and "true"."""
    value = number(cell)
    if abs(value) < 2**53:  # beyond it, and of `5e1234`, a float holds no id
        if value.is_integer():
            return str(int(value))
        return f"{value:.7g}" if abs(value) < 1e5 else repr(value)  # a float of 32 bits has seven digits
    return str("" if cell is None else cell).strip().lower()


def _ratings(columns: Columns, at: Mapping[str, int], cells: Cells, apart: Iterable[str] = ()) -> Iterator[Cells]:
    """Yield each rating of a row: its clip, the rating, its column, the listener, and all cells.

    Args:
        apart: columns of which a rating has its own word alone, where a cell has as many words as ratings.
    """
    words = {at[name]: several(cells[at[name]]) or () for name in apart}
    wide = (columns.mos,) if isinstance(columns.mos, str) else columns.mos
    pattern = columns.file if isinstance(columns.file, str) else ""
    for place, column in enumerate(wide):
        file = cells[at[columns.file[place]]] if not pattern else cells[at[pattern]] if pattern in at else None
        listener = cells[at[columns.listener]] if columns.listener else None
        values = several(cells[at[column]])
        if values is None:
            yield file, cells[at[column]], column, listener, cells
            continue
        listeners = several(listener) or []
        for turn, value in enumerate(values):
            by = listeners[turn] if len(listeners) == len(values) else listener
            own = {n: [each[turn]] for n, each in words.items() if len(each) == len(values)}
            yield file, value, column, by, [own.get(n, [cell])[0] for n, cell in enumerate(cells)] if own else cells


def several(cell: Any) -> list[Any] | None:
    """Split a cell with a list: of JSON or Parquet, in brackets, or between `;` or `|`; return None for other cells."""
    if isinstance(cell, list):
        return cell
    if not isinstance(cell, str):
        return None
    text = cell.strip()
    if text[:1] + text[-1:] in ("[]", "()") and len(text) > 2:
        return [one.strip(" '\"") for one in re.split(r"[,;\s]+", text[1:-1].strip())]
    mark = next((mark for mark in ";|" if mark in text), None)
    return [one for one in map(str.strip, text.split(mark)) if one] if mark else None


def clip_root(source: Source, resolve: Callable[[str], Path], path: Path) -> Path:
    """Return the folder bounding the clips of a table: without a root, the table's own."""
    home = source.audio_root or source.root
    return resolve(home) if home else path.parent


def kind_of(name: str, written: str) -> str:
    """Return the type of a table by its ending.

    Args:
        name: the file's owner, for the message.
        written: the file as the config writes it.

    Raises:
        InputError: an unsupported ending.
    """
    plain = written.lower().removesuffix(".gz")
    kind = ENDINGS.get(PurePosixPath(plain).suffix)
    if kind is None or (kind == "parquet" and written.lower() != plain):
        raise InputError(f"{name}: expected a file ending in {', '.join(ENDINGS)}, found '{shown(written)}'")
    return kind


def _parser(
    source: Source, columns: Columns, at: Mapping[str, int], root: str, file: ListFile
) -> Callable[[Cells, int], Rating]:
    reads = [
        (field, at[column], read)
        for word, (field, read) in FIELDS.items()
        if word != "listener" and (column := getattr(columns, word))
    ]
    named = source.file_name
    pattern = columns.file if isinstance(columns.file, str) and columns.file not in at else None
    first = len({*columns.named(), *source.where})  # behind the columns of the config
    kinds = {kind: place for kind, place in at.items() if place >= first}
    told = columns.listener in source.where or not source.where.keys().isdisjoint(KINDS)
    one_scale = None if isinstance(source.scale, dict) else scale_of(source)

    def parse(one: Cells, line: int) -> Rating:
        cell, value, column, listener, cells = one
        row: dict[str, Any] = {"split": file.part}
        asked = {kind: cells[place] for kind, place in kinds.items()} if kinds and any(cells[first:]) else {}
        judge = asked.pop("judge", None)  # a name, as of a listener
        require_person(None if told else listener or judge, asked, "; where keeps rows by a column's words")
        name = clip(cell if pattern is None else _filled(pattern, column, at, cells, root), root)
        mos = score(value, one_scale) if one_scale else math.nan
        if pattern is None and isinstance(cell, str) and cell.strip() == name != cell:
            row["audio"] = cell  # the file's name may begin or end with the space
        for field, place, read in reads:
            row[field] = read(cells[place])
        if columns.listener:
            row["listener_id"] = identifier(listener, "listener")
        if source.unpivot:
            field, read = FIELDS[source.unpivot]
            row[field] = read(column)
        if named:
            groups = groups_in(named, name if "/" in named else PurePosixPath(name).name)
            if groups is None:
                expected = "expected a file name as file_name describes it"
                raise BadRow("bad_value", f"{expected}, found {shown(name)}")
            for group, text in groups.items():
                if group == "file":
                    name = clip(text, root)
                    continue
                field, read = FIELDS[group]
                row[field] = read(text)
        mos = mos if one_scale else score(value, scale_of(source, row.get("subset")))
        return Rating(name, mos, file.name, line, **row)

    return parse


def _filled(pattern: str, column: str, at: Mapping[str, int], cells: Cells, root: str) -> str:
    """Fill the pattern of a clip's file; keep each cell in it below the root."""
    values = {COLUMN: column, **{one: cells[at[one]] for one in fields_in(pattern) if one in at}}
    return re.sub(r"\{([^{}]+)\}", lambda field: clip(values[field[1]], root), pattern)


def table_file(path: Path, written: str) -> ListFile:
    """Return a table named by a config."""
    name = without_place(written)
    return ListFile(path, name, "", kind_of(name, written))


def named_rows(
    file: ListFile, wanted: Mapping[str, str], optional: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any] | Reject | Note]]:
    """Yield the rows of `read_table` as cells by Earmark's names; both mappings give the table's column names."""
    for line, cells in read_table(file, tuple(wanted.values()), tuple(optional.values())):
        if isinstance(cells, Reject | Note):
            yield line, cells
        else:
            yield line, dict(zip((*wanted, *optional), cells, strict=True))


def read_table(
    file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...] = (), inner: Mapping[str, str] | None = None
) -> Rows:
    """Yield the wanted and optional cells of each row of a configured table; allow no rows, but refuse an empty file.

    Args:
        inner: of Parquet, the only field read of a column, such as `audio.path`.

    Raises:
        InputError: a wanted column is missing, or the content contradicts the file's ending.
    """
    seen = False
    reader = partial(_parquet, inner=inner) if inner else READERS[file.kind]
    for line, cells in reader(file, wanted, optional):
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
    names = dict.fromkeys(chain.from_iterable(readable))
    if any("." in column and column not in names for column in wanted):  # keys of objects within objects
        columns = (*wanted, *optional)
        first, objects = list(flat_lines(first, columns)), flat_lines(objects, columns)
        names = dict.fromkeys(chain.from_iterable(row for _, row in first if isinstance(row, dict)))
    if readable:
        require_columns(file.name, wanted, list(names))
    if not first:
        yield 0, Note(f"{file.name} is empty")
    for line, row in chain(first, objects):
        yield line, row if isinstance(row, Reject) else [row.get(column) for column in (*wanted, *optional)]


def _json(file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...]) -> Rows:
    records = enumerate(read_records(file, (*wanted, *optional)), 1)
    first = list(islice(records, LOOKAHEAD))
    if first:
        require_columns(file.name, wanted, list(dict.fromkeys(chain.from_iterable(row for _, row in first))))
    else:
        yield 0, Note(f"{file.name} is empty")
    for line, row in islice(chain(first, records), most_rows()):
        yield line, [row.get(column) for column in (*wanted, *optional)]


def _parquet(
    file: ListFile, wanted: tuple[str, ...], optional: tuple[str, ...], inner: Mapping[str, str] | None = None
) -> Rows:
    import pyarrow as pa  # imported here: the command line must answer before Arrow is loaded
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(require_regular(file.path)) as table:
            known: dict[str, tuple[str, ...]] = dict.fromkeys(table.schema_arrow.names, ())
            known |= leaves_of(table.schema_arrow)
            require_columns(file.name, wanted, list(known))
            _require_bounded(file, table.metadata)
            present = [name for name in dict.fromkeys((*wanted, *optional)) if name in known]
            line = 1
            beside = {name: known[name][0] for name in present if known[name][1:] == ("path",)}
            beside = {name: f"{held}.bytes" for name, held in beside.items() if has_bytes(table.schema_arrow, held)}
            for name, held in beside.items():
                yield line, Note(f"{file.name}: clips are the files that {name} names; bytes in {held} are not read")
            fields = [(inner or {}).get(name, name) for name in present]
            batches = table.iter_batches(batch_size=most_rows() or BATCH, columns=fields)
            for batch in islice(batches, 1 if most_rows() else None):
                columns = {name: batch.column((known[name] or (name,))[0]).to_pylist() for name in present}
                cells = {
                    name: [cell_at(cell, known[name][1:]) for cell in column] if known[name][1:] else column
                    for name, column in columns.items()
                }
                for name, held in beside.items():
                    if not any(cells[name]) and any(columns[name]):
                        raise InputError(
                            f"{file.name}: expected names in {name}, found bytes alone in {held}: {AS_FILES}"
                        )
                absent = [None] * batch.num_rows
                yield from enumerate(zip(*(cells.get(n, absent) for n in (*wanted, *optional)), strict=True), line)
                line += batch.num_rows
    except OSError as error:
        raise unreadable(file.name, error) from None
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"{file.name}: expected a Parquet file, found: {shown(error)}") from None


def leaves_of(schema: Any, before: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Return the path to each column of an Arrow schema by its name, `audio.path` in a struct; none to bytes in one."""
    found: dict[str, tuple[str, ...]] = {}
    for field in schema:
        path = (*before, field.name)
        if field.type.num_fields and str(field.type).startswith("struct"):
            found |= leaves_of([field.type.field(at) for at in range(field.type.num_fields)], path)
        elif not before or "binary" not in str(field.type):
            found[".".join(path)] = path
    return found


def has_bytes(schema: Any, column: str) -> bool:
    """Return whether a column is of structs with bytes, as the Hub's features of audio and pictures are."""
    kind = schema.field(column).type
    return bool(kind.num_fields) and str(kind).startswith("struct") and kind.get_field_index("bytes") >= 0


def cell_at(row: Any, path: Iterable[str]) -> Any:
    """Return the cell at a path of keys in a row; None where an object on the way is missing."""
    for key in path:
        row = None if row is None else row.get(key)
    return row


def _require_bounded(file: ListFile, claims: Any) -> None:
    """Refuse a Parquet with more claimed rows or bytes than any list of clips."""
    size, rows = file.path.stat().st_size, claims.num_rows
    unpacked = sum(claims.row_group(group).total_byte_size for group in range(claims.num_row_groups))
    if rows > max(MOST_ROWS, MOST_ROWS_A_BYTE * size) or unpacked > max(MOST_UNPACKED, MOST_UNPACKED_A_BYTE * size):
        raise InputError(
            f"{file.name}: expected a list of clips, found {size:,} bytes that claim {rows:,} rows and {unpacked:,} "
            "bytes; if that is right, write it as CSV or JSON lines"
        )


READERS: dict[str, Callable[[ListFile, tuple[str, ...], tuple[str, ...]], Rows]] = {
    "csv": headed_rows,
    "tsv": partial(headed_rows, mark="\t"),
    "jsonl": _jsonl,
    "json": _json,
    "parquet": _parquet,
}

LAYOUT = register("ratings.table")(RatingLayout(find, read, clip_root))
