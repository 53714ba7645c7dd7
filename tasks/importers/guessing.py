"""What a table of rated clips seems to hold, by its names and cells; for a person to check."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.tasks.importers.cells import LONGEST_ID, shown
from earmark.tasks.importers.json_arrays import object_lines
from earmark.tasks.importers.lines import read_rows
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.rows import Reject

LOOKED_AT = 20_000  # rows
MARKS = (",", "\t", ";", "|", " ")
SCALES = ((1, 5), (0, 5), (1, 7), (1, 9), (0, 10), (1, 10), (0, 1), (-3, 3), (0, 100))
AUDIO = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".aiff")
NAMES: Mapping[str, str] = {
    "file": "file filename file_name wav wav_name wav_path path audio audio_path clip clip_path sample sample_id "
    "stimulus utt_id",
    "mos": "mos score rating mean mean_score mean_rating ovr overall quality naturalness opinion value",
    "system": "system system_id systems sys sys_id model model_id method codec algorithm engine tts_system vocoder "
    "generator",
    "speaker": "speaker speaker_id singer voice spk",
    "content": "content content_id text_id sentence sentence_id phrase prompt_id transcript transcription "
    "content_cluster cluster ref text prompt utt utterance utterance_id",
    "condition": "condition condition_id conditionid con snr degradation",
    "listener": "listener listener_id rater rater_id annotator annotator_id worker worker_id subject judge user",
    "votes": "votes n_votes num_votes ratings n_ratings count n",
    "mos_std": "mos_std std score_std stdev sd",
    "subset": "subset test test_id experiment track study",
    "split": "split partition fold",
}
"""Names of columns as labs write them, without case, by what they hold."""


class Guess(NamedTuple):
    """What a table seems to be."""

    rows: int  # how many were looked at
    delimiter: str  # what separates cells; empty where the table is no text
    usual: bool  # whether a file with this ending has that delimiter without being told
    header: tuple[str, ...]  # names for the columns of a list that has none; else empty
    columns: Mapping[str, str]  # the table's column by what it holds; `file` and `mos` at least
    examples: Mapping[str, str]  # a cell of each column
    scale: tuple[float, float]  # lowest and highest possible rating
    seen: tuple[float, float]  # lowest and highest rating there
    unused: tuple[str, ...]  # columns that no guess took
    file_name: str | None  # a pattern that the clips' names suggest for systems; None without one


def guess_table(path: Path) -> Guess:
    """Look at the first rows of CSV, TSV or TXT (also `.gz`), JSON lines or Parquet.

    Raises:
        InputError: it cannot be read, holds fewer than two rows, or no column is recognised as clips or as ratings.
    """
    delimiter, names, rows = _rows_of(path)
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise InputError(f"{path.name or path}: expected two rows of cells or more, found {len(rows)}")
    headless = not names
    names = names or [f"column_{at}" for at in range(1, len(rows[0]) + 1)]
    cells = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    columns = _columns(path, cells)
    if not all(map(_is_id, cells.get(columns.get("content", ""), ()))):
        del columns["content"]  # the rows without an id would be rejects
    file_name = None if "system" in columns else _pattern(cells[columns["file"]])
    _take(columns, "system", cells, lambda name: _is_in_names(cells[name], cells[columns["file"]], file_name))
    if headless:  # names that say what a column holds
        by_column = {column: what for what, column in columns.items()}
        cells = {by_column.get(name, name): values for name, values in cells.items()}
        names, columns = [*cells], {what: what for what in columns}
    seen = _ends(cells[columns["mos"]])
    unused = tuple(name for name in names if name not in columns.values())
    return Guess(
        rows=len(rows),
        delimiter=delimiter,
        usual=delimiter == ("\t" if _ending(path) == "tsv" else ","),
        header=tuple(names) if headless else (),
        columns=columns,
        examples={name: values[0] for name, values in cells.items()},
        scale=_scale(*seen) or seen,
        seen=seen,
        unused=unused,
        file_name=None if "system" in columns else file_name,
    )


def _rows_of(path: Path) -> tuple[str, list[str], list[list[str]]]:
    """Delimiter (empty where the table is no text), header (empty without one) and rows as text."""
    ending = _ending(path)
    if ending == "parquet":
        import pyarrow.parquet as pq

        try:
            batch = next(pq.ParquetFile(path).iter_batches(LOOKED_AT))
        except (OSError, ValueError, StopIteration) as error:
            raise InputError(f"{path.name or path}: expected a Parquet file with rows: {shown(error)}") from None
        return "", batch.schema.names, [[_text(cell) for cell in row.values()] for row in batch.to_pylist()]
    if ending in ("jsonl", "ndjson"):
        lines = [row for _, row in islice(object_lines(ListFile(path, path.name)), LOOKED_AT)]
        objects = [row for row in lines if isinstance(row, dict)]
        faults = [row for row in lines if isinstance(row, Reject)]
        if len(objects) < 2 and faults:
            raise InputError(f"{path.name}, line {faults[0].line}: {faults[0].detail}")
        names = list(dict.fromkeys(name for row in objects for name in row))
        return "", names, [[_text(row.get(name)) for name in names] for row in objects]
    best = max((_split(path, mark) for mark in MARKS), key=lambda one: (one[0], -MARKS.index(one[1])))
    share, mark, rows = best
    if not share or not rows:
        raise InputError(
            f"{path.name or path}: expected a table of two columns or more, found no delimiter that splits its rows"
        )
    has_header = not any(map(_is_number, rows[0])) and any(_is_number(cell) for row in rows[1:20] for cell in row)
    names = [cell.strip() for cell in rows[0]] if has_header else []
    return mark, names, rows[1:] if has_header else rows


def _ending(path: Path) -> str:
    return "".join(path.suffixes[-2:]).lower().removesuffix(".gz").rpartition(".")[2]


def _split(path: Path, mark: str) -> tuple[float, str, list[list[str]]]:
    """How well a delimiter splits a list: the share of rows of the most frequent width; 0 below two cells."""
    rows = [
        cells
        for _, cells in islice(read_rows(path, path.name or str(path), mark), LOOKED_AT)
        if not isinstance(cells, Reject)
    ]
    widths = Counter(map(len, rows))
    if not widths:
        return 0.0, mark, []
    width, count = widths.most_common(1)[0]
    return (count / len(rows) if width > 1 else 0.0), mark, [row for row in rows if len(row) == width]


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def _is_number(cell: str) -> bool:
    try:
        return float(cell) == float(cell)
    except ValueError:
        return False


def _columns(path: Path, cells: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The column of each thing by its name; clips and ratings also by their cells."""
    columns: dict[str, str] = {}
    for what, names in NAMES.items():
        for name in names.split():
            same = [one for one in cells if re.sub(r"[\W_]+", "_", one.strip().lower()).strip("_") == name]
            if same and same[0] not in columns.values():
                columns.setdefault(what, same[0])
    numbers = [name for name, values in cells.items() if sum(map(_is_number, values)) > 0.9 * len(values)]
    if columns.get("mos") not in numbers:
        columns.pop("mos", None)
    if "file" not in columns and _each_its_own(cells.get(columns.get("system", ""), ())):
        columns["file"] = columns.pop("system")  # a name of its own in each row is a clip's
    texts = [name for name in cells if name not in numbers]
    text = columns.get("content")
    if "file" not in columns and text in texts and (_audio_share(cells[text]) > 0.5 or _each_its_own(cells[text])):
        columns["file"] = columns.pop("content")
    fit = [name for name in numbers if _scale(*_ends(cells[name]))]
    _take(columns, "file", texts, lambda name: _audio_share(cells[name]) > 0.5)
    _take(columns, "file", texts, lambda name: len({*cells[name]}) > 0.5 * len(cells[name]))
    _take(columns, "mos", fit, lambda name: any("." in cell for cell in cells[name]))
    _take(columns, "mos", fit, lambda name: len({*cells[name]}) > 1)
    for what in ("file", "mos"):
        if what not in columns:
            raise InputError(
                f"{path.name or path}: no column seems to hold {'clips' if what == 'file' else 'ratings'}; columns: "
                f"{shown(', '.join(cells))}. Write the config by hand: data/demo/mos-preferences.toml shows one"
            )
    return {what: columns[what] for what in NAMES if what in columns}


def _take(columns: dict[str, str], what: str, names: Iterable[str], fits: Callable[[str], bool]) -> None:
    """Take the first free column that fits, where none is taken yet."""
    for name in names:
        if what not in columns and name not in columns.values() and fits(name):
            columns[what] = name


def _each_its_own(cells: Sequence[str]) -> bool:
    return len({*cells}) > 0.9 * len(cells)


def _is_id(cell: str) -> bool:
    return 0 < len(cell.strip()) <= LONGEST_ID and cell.strip().isprintable()


def _audio_share(cells: Sequence[str]) -> float:
    return sum(cell.lower().endswith(AUDIO) for cell in cells) / len(cells)


def _ends(cells: Sequence[str]) -> tuple[float, float]:
    """The least and the greatest number."""
    numbers = [float(cell) for cell in cells if _is_number(cell)]
    return min(numbers), max(numbers)


def _scale(low: float, high: float) -> tuple[float, float] | None:
    """The first usual scale that holds all ratings."""
    return next(((a, b) for a, b in SCALES if a <= low and high <= b), None)


def _pattern(files: Sequence[str]) -> str | None:
    """A pattern for systems, where file names begin with a word that several share."""
    stems = [PurePosixPath(file).stem for file in files]
    for mark in ("-", "_"):
        words = Counter(stem.partition(mark)[0] for stem in stems if mark in stem)
        if sum(words.values()) > 0.9 * len(stems) and 1 < len(words) <= len(stems) / 3:
            return f"^(?P<system>[^{mark}]+){mark}"
    return None


def _is_in_names(cells: Sequence[str], files: Sequence[str], pattern: str | None) -> bool:
    """Whether a column says what the pattern takes from file names, so that both name the system."""
    if pattern is None:
        return False
    words = (re.match(pattern, PurePosixPath(file).stem) for file in files)
    first = (str(word[1]) if word else "" for word in words)
    return sum(one.lower() == cell.lower() for one, cell in zip(first, cells, strict=True)) > 0.9 * len(files)
