"""Guess the content of a table of rated clips from its column names and cells; a person checks the guess.

A column counts as ratings only if its name alone suggests them; else every numeric column is a choice.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import shown
from earmark.schemas.tables import SPLITS, common_split
from earmark.tasks.importers.cells import LONGEST_ID
from earmark.tasks.importers.lines import is_utf16
from earmark.tasks.importers.rating_scales import (
    UNSAID,
    ambiguous,
    apart,
    is_rating,
    named_scale,
    numbers_of,
    scale_by_test,
    scale_of,
    worse_above,
)
from earmark.tasks.importers.row_kinds import (
    answered,
    asks_models,
    beside_numbers,
    leaves_out,
    publishers_split,
    unfinished,
)
from earmark.tasks.importers.sniffing import (
    HOLDERS,
    LOW_IN_WORDS,
    LOW_IS_GOOD,
    MAY_BE_LOW,
    ColumnName,
    ending,
    is_audio,
    meant,
    names_columns_too,
    read_name,
    read_sample,
    require_names,
)
from earmark.tasks.importers.table_doubts import (
    GuessedTable,
    Held,
    asks_blanks,
    asks_clips,
    asks_means,
    asks_questions,
    asks_rounded,
    asks_scales,
    asks_spellings,
    cells_of,
    holds_kind,
    is_list,
    taken_by,
)

MARKS_ROWS = frozenset(("attention", "trap", "gold", "check", "catch", "practice", "training", "control", "screening"))
MOST_MARKS = 3  # different words in a column that marks rows
WEB_MUSHRA = (
    ("trial_id", "rating_stimulus", "rating_score"),
    ("trial_id", "stimuli", "stimuli_rating"),
    ("trials.id", "trials.responses.stimulus", "trials.responses.score"),
)
CLIP_IN = (r"(?P<file>[^\s/\[\]()]+\.\w+)", r"(?P<file>[^\s\[\]()]+/[^\s\[\]()]+\.\w+)")  # without folders, and with
CLIP_NAME = re.compile(r"[^\s/\\\[\]()\"':]+\.(?:wav|flac|mp3|ogg|opus|m4a)\b", re.IGNORECASE)


class RatingCandidate(NamedTuple):
    """A numeric column, possibly of ratings."""

    column: str
    values: int
    low: float
    high: float
    doubt: str  # reason against ratings; empty without one

    @property
    def facts(self) -> str:
        """Return the column's numbers in words."""
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"{self.values:,} numbers from {self.low:g} to {self.high:g}{doubt}"


class Guess(NamedTuple):
    """The guessed content of a table."""

    rows: int  # rows read
    delimiter: str  # cell separator; empty for a table other than text
    encoding: str  # of its text; empty for UTF-8
    usual: bool  # whether the delimiter is the default for the file's ending
    header: tuple[str, ...]  # column names for a list without a header; else empty
    columns: Held  # the table's column by content, as far as it is sure
    examples: Mapping[str, str]  # a cell of each column
    scale: tuple[float, float] | Mapping[str, tuple[float, float]]  # lowest and highest possible rating
    seen: tuple[float, float]  # lowest and highest rating there
    unused: tuple[str, ...]  # columns that no guess took
    file_name: str | None = None  # a pattern of systems suggested by the clips' names, or None
    clip_in: str | None = None  # a pattern of the clip in the names of columns
    unpivot: str | None = None
    where: Mapping[str, str | tuple[str, ...]] = {}
    who: str = ""  # the rows that it keeps, in words
    missing: Mapping[str | float, int] = {}  # cells resembling no rating, and their numbers
    best: str = "high"
    choices: tuple[RatingCandidate, ...] = ()  # candidates, if no column is surely the rating
    doubts: tuple[str, ...] = ()  # decisions for a person before a build, a sentence each
    contents: int = 0  # different contents
    clips: int = 0  # different clips


def guess_table(path: Path, encoding: str = "") -> Guess:
    """Guess the content of CSV, TSV or TXT (also `.gz`), JSON, JSON lines or Parquet from its first rows.

    Raises:
        InputError: the table cannot be read, holds fewer than two rows, or compares two clips a row.
    """
    require_names(path)
    sample = read_sample(path, encoding)
    rows = [row for row in sample.rows if any(row)]
    if len(rows) < 2:
        raise InputError(f"{path.name or path}: expected two rows of cells or more, found {len(rows)}")
    twice = [name for name, count in Counter(sample.names).items() if name and count > 1]
    if twice:
        raise InputError(
            f"{path.name}: line 1 names '{shown(twice[0])}' {sample.names.count(twice[0])} times: give each column a "
            "name of its own"
        )
    headless = not sample.names
    names = sample.names or [f"column_{at}" for at in range(1, len(rows[0]) + 1)]
    where, who, rows = answered(names, rows)
    if sample.names and rows[:1] != [names] and names_columns_too(rows):
        raise InputError(
            f"{path.name}: the first row below the names of the columns holds names too "
            f"('{shown(', '.join(rows[0]))}'): keep one line of names"
        )
    cells = {name: [row[at] for row in rows] for at, name in enumerate(names) if name}
    table = _look({name: cells[name] for name in cells if name not in where})._replace(nested=not sample.delimiter)
    columns, doubts, more = _columns(path, table, headless)
    choices = () if "mos" in columns else _choices(table, columns)
    ratings = cells_of(table, columns.get("mos", ()))
    missing, seen, scale = scale_of(ratings) if ratings else ({}, (0.0, 0.0), (1.0, 5.0))
    mos = columns.get("mos")
    if named := named_scale(mos, seen):
        scale = named
        inside = [cell for cell in missing if isinstance(cell, float) and named[0] <= cell <= named[1]]
        seen = min([*inside, seen[0]]), max([*inside, seen[1]])
        missing = {cell: count for cell, count in missing.items() if cell not in inside}
    ids = [what for what in columns if what not in ("mos", "votes", "mos_std")]
    doubts = (
        *doubts,
        *asks_rounded(cells, taken_by({what: columns[what] for what in ids})),
        *asks_spellings(
            cells,
            taken_by({what: columns[what] for what in ids if what == "file"}),
            cells.get(str(columns.get("listener", ""))),
        ),
        *ambiguous(mos, ratings, missing, seen, sample.delimiter),
    )
    rated = read_name(mos) if isinstance(mos, str) else ColumnName(())
    best = "low" if {*rated.words} & LOW_IS_GOOD else "high"
    if best == "low":
        scale = seen
    elif meant(rated.words, MAY_BE_LOW) or (isinstance(mos, str) and LOW_IN_WORDS.search(mos)):
        doubts = (*doubts, f"{mos}: is a low one good (a school grade, how annoying)? Then best = 'low'")
    elif turned := worse_above(ratings):
        doubts = (*doubts, f"{mos}: is a low one good, as '{shown(turned)}' says? Then best = 'low'")
    file = columns.get("file", "")
    file_name = more.get("file_name")
    if isinstance(file, str) and file in cells and "system" not in columns:
        file_name = file_name or _pattern(cells[file])
        if same := next(
            (n for n in cells if n not in taken_by(columns) and _in_names(cells[n], cells[file], file_name)), None
        ):
            columns["system"], file_name = same, None
    test = columns.get("subset")
    by_test = {}
    if isinstance(test, str) and isinstance(mos, str):
        by_test = scale_by_test(table.cells[test], ratings, missing)
    if not named:
        tests = [one.strip() for one in table.cells[test]] if by_test and isinstance(test, str) else []
        clips = cells[file] if isinstance(file, str) and file in cells and isinstance(mos, str) else [""] * len(ratings)
        for name in by_test or [""]:
            held = [at for at in range(len(ratings)) if not by_test or tests[at] == name]
            part, rated_clips = [ratings[at] for at in held], [clips[at] for at in held]
            doubts = (*doubts, *apart(mos, part, missing, rated_clips))
    if headless:  # name columns by their content
        renamed = {column: what for what, column in columns.items() if isinstance(column, str)}
        cells = {renamed.get(name, name): values for name, values in cells.items()}
        choices = tuple(choice._replace(column=renamed.get(choice.column, choice.column)) for choice in choices)
        names, columns = [*cells], {what: what for what in columns}
    taken = {*taken_by(columns), *where}
    content = columns.get("content")
    unused = tuple(name for name in names if name and name not in taken)
    if not by_test and ratings:
        doubts = (*doubts, *asks_scales(cells, unused, scale))
    return Guess(
        rows=len(rows),
        delimiter=sample.delimiter,
        encoding=encoding or ("utf-16" if sample.delimiter and is_utf16(path) else ""),
        usual=sample.delimiter == ("\t" if ending(path) == "tsv" else ","),
        header=tuple(names) if headless else (),
        columns={what: columns[what] for what in ("file", "mos", *HOLDERS, "votes", "mos_std") if what in columns},
        examples={name: values[0] for name, values in cells.items()},
        scale=by_test or scale,
        seen=seen,
        unused=unused,
        file_name=None if "system" in columns else file_name,
        clip_in=more.get("clip_in"),
        unpivot=more.get("unpivot"),
        where=where,
        who=who,
        missing=missing,
        best=best,
        choices=choices,
        doubts=doubts,
        contents=len({*cells[content]}) if isinstance(content, str) and content in cells else 0,
        clips=len({*cells[file]}) if isinstance(file, str) and file in cells else 0,
    )


def _look(cells: Mapping[str, Sequence[str]]) -> GuessedTable:
    numbers, audio = [], []
    for name, values in cells.items():
        given = [cell for cell in values if cell.strip().lower() not in UNSAID]
        if given and sum(map(is_rating, given)) > 0.9 * len(given):
            numbers.append(name)
        if given and sum(map(is_audio, given)) > 0.5 * len(given):
            audio.append(name)
    return GuessedTable(cells, {name: read_name(name) for name in cells}, numbers, audio)


def _columns(path: Path, table: GuessedTable, headless: bool) -> tuple[Held, tuple[str, ...], dict[str, str]]:
    """Assign columns to kinds; list a person's decisions and further options."""
    columns: Held = {}
    doubts: list[str] = []
    more: dict[str, str] = {}
    cells, names = table.cells, table.names
    clips_above = [name for name in table.numbers if CLIP_NAME.search(name)]
    mushra = next(filter(all, ([_ending_in(cells, name) for name in form] for form in WEB_MUSHRA)), None)
    if mushra:
        trial, stimulus, score = mushra
        columns |= {"file": f"{{{trial}}}/{{{stimulus}}}.wav", "mos": score, "system": stimulus, "content": trial}
        columns |= {"listener": session} if (session := _ending_in(cells, "uuid")) else {}
    elif len(clips_above) > 1:
        columns |= {"file": "{column}", "mos": tuple(clips_above)}
        if not all(CLIP_NAME.fullmatch(name) for name in clips_above):
            found = [{match[1] for name in clips_above if (match := re.search(one, name))} for one in CLIP_IN]
            more["clip_in"] = CLIP_IN[len(found[0]) < len(found[1])]  # systems may share the names of their clips
            asked: dict[str, list[str]] = {}
            for name in clips_above:
                if match := re.search(more["clip_in"], name):
                    asked.setdefault(match["file"], []).append(name)
            if twice := next((held for held in asked.values() if len(held) > 1), []):
                doubts.append(
                    f"{len(twice)} columns rate one clip ({shown(', '.join(twice))}): keep one question in columns.mos"
                )
    else:
        columns |= _paired(table) or _file(path, table, headless)
    if "mos" not in columns:
        rated = [name for name in table.numbers if names[name].rates or is_list(cells[name])]
        rated = [name for name in rated if not _doubt(table, name)]
        if headless and len(cells) == 2 and len(table.numbers) == 1 and "file" in columns:
            rated = [n for n in table.numbers if _is_bare_mos(cells[n])]
        if len(rated) == 1:
            columns["mos"] = rated[0]
        elif rated:
            doubts.append(
                f"{len(rated)} columns may be the rating ({shown(', '.join(rated))}): columns.mos chooses one"
            )
        elif called := next((name for name in cells if names[name].rates and name not in table.numbers), None):
            other = [cell for cell in cells[called] if cell.strip().lower() not in UNSAID and not is_rating(cell)]
            words = shown(", ".join(sorted({*other})[:3]))
            held = "holds no numbers" if len(other) == len(cells[called]) else f"{len(other):,} cells are no numbers"
            if beside := beside_numbers(cells[called]):
                held, words = f"holds {len(beside):,} words beside numbers", shown(", ".join(sorted({*beside})))
            doubts.append(
                f"{called} is called a rating and {held} ({words}): write numbers, several as 4;5;3, or name another"
            )
        else:
            wide = len([name for name in table.numbers if not _doubt(table, name)]) > 1
            several_ways = "; of a wide table all that are, with unpivot" if wide else ""
            doubts.append(f"no column is called a rating: columns.mos names the one that is{several_ways}")
    if headless:
        return columns, tuple(doubts), more
    split, asks = publishers_split({name: cells[name] for name in cells if name not in taken_by(columns)})
    columns |= {"split": split} if split else {}
    doubts += asks
    for what in (*HOLDERS, "votes", "mos_std"):
        fit = [name for name in cells if holds_kind(table, name, what) and name not in taken_by(columns)]
        fit = [name for name in fit if _may_hold(what, table, name)]
        doubts += asks_blanks(table, columns, what) if not fit and what in ("listener", "votes") and not mushra else []
        if fit and what not in columns and all(_same_groups(cells[fit[0]], cells[name]) for name in fit[1:]):
            columns[what] = fit[0]
        elif len(fit) > 1 and what not in columns and what in ("listener", "system"):
            doubts.append(f"several columns may name the {what} ({shown(', '.join(fit))}): columns.{what} chooses one")
    if "file" not in columns and _own(cells.get(str(columns.get("system")), ())):
        columns["file"] = columns.pop("system")  # a different name in each row names clips
    if "file" not in columns and _own(cells.get(str(columns.get("content")), ())):
        columns["file"] = columns.pop("content")
    if "file" not in columns:
        doubts.append("no column is called a clip: columns.file names the one that is")
    doubts += [
        *asks_questions(table, columns),
        *_marked(table, columns),
        *asks_clips(table, columns),
        *asks_means(table, columns),
    ]
    file = columns.get("file")
    if isinstance(file, str) and file in cells and sum("\\" in cell for cell in cells[file]) > 0.5 * len(cells[file]):
        doubts.append(f"{file} holds paths with \\: write them with / from the folder of the clips")
    return columns, tuple(doubts), more


def _ending_in(cells: Iterable[str], name: str) -> str:
    """Return the only column of a name, or of objects holding it; empty if none or several match."""
    found = [one for one in cells if one == name or one.endswith((f".{name}", f"_{name}"))]
    return found[0] if len(found) == 1 else ""


def _file(path: Path, table: GuessedTable, headless: bool) -> Held:
    """Find the columns of clips and of their references."""
    clips = [name for name in table.audio if not table.names[name].is_reference]
    others = [name for name in table.audio if table.names[name].is_reference]
    found: Held = {}
    if others and clips:
        found["content"] = others[0]
    if len(clips) > 1:
        longest = max(clips, key=lambda name: sum(map(len, table.cells[name])))
        for name in clips:
            if not all(long.endswith(one) for long, one in zip(table.cells[longest], table.cells[name], strict=True)):
                raise InputError(
                    f"{path.name}: two clips stand in a row ({shown(', '.join(clips))}): comparisons are read by "
                    "`earmark init human-preferences --from FILE`; if one is the clip that is rated, name it in "
                    "columns.file by hand"
                )
        clips = [longest]
    if not clips and not others:
        named = [
            (at, name in table.numbers, name) for name in table.cells if (at := table.names[name].file) is not None
        ]
        texts = [name for _, is_numeric, name in sorted(named) if not is_numeric]
        clips = texts[:1] or [name for _, _, name in sorted(named)][:1]
        if headless and not clips:
            clips = [
                n for n in table.cells if n not in table.numbers and 2 * len({*table.cells[n]}) > len(table.cells[n])
            ][:1]
    return found | ({"file": clips[0]} if clips else {})


def _paired(table: GuessedTable) -> Held:
    """Find columns of clips beside columns of their ratings in a row, such as in MTurk's batches of P.808."""

    def key(name: str) -> tuple[str, ...]:
        plain = ("input", "answer", "url", "file", "clip", "audio", "wav", "path", "rating", "score", "mos", "quality")
        return tuple(word for word in table.names[name].words if word not in plain)

    clips = {key(name): name for name in table.audio if not table.names[name].is_reference}
    answers = [name for name in table.numbers if {*table.names[name].words} & {"answer", "rating", "score", "mos"}]
    answers = [name for name in answers if not {*table.names[name].words} & {"gold", "trap", "tp"}]
    pairs = [(clips[key(name)], name) for name in answers if key(name) in clips and key(name)]
    if len(pairs) < 2 or len({file for file, _ in pairs}) < len(pairs):
        return {}
    return {"file": tuple(file for file, _ in pairs), "mos": tuple(name for _, name in pairs)}


def _is_bare_mos(cells: Sequence[str]) -> bool:
    """Return whether the only numbers of a list without a header are means or ratings from 1 to 5."""
    values = [value for cell in cells for value in numbers_of(cell)]
    return all(1 <= value <= 5 for value in values) and not _counts(values)


def _counts(values: Sequence[float]) -> bool:
    return len(values) > 5 and sorted(values) == [min(values) + at for at in range(len(values))]


def _doubt(table: GuessedTable, name: str) -> str:
    """Return the reason against ratings in a numeric column; empty without one."""
    values = [value for cell in table.cells[name] for value in numbers_of(cell) if value == value]
    whole = all(value.is_integer() for value in values)
    if _counts(values):
        return "counts the rows"
    if whole and len({*values}) == len(values) > 20:
        return "different in every row, as an id"
    people = next((n for n in table.cells if table.names[n].holds("listener") and n != name), None)
    if whole and people and not table.names[name].rates:
        by_person: dict[str, set[float]] = {}
        for who, value in zip(table.cells[people], values, strict=False):
            by_person.setdefault(who, set()).add(value)
        if len(by_person) < len(values) and all(len(seen) == 1 for seen in by_person.values()):
            return f"the same in all rows of a {people}, as an age or an id"
    return ""


def _choices(table: GuessedTable, columns: Held) -> tuple[RatingCandidate, ...]:
    """List the numeric columns not yet assigned, likely ratings first."""
    found = []
    for name in table.numbers:
        if name in taken_by(columns):
            continue
        values = [value for cell in table.cells[name] for value in numbers_of(cell) if value == value]
        found.append(RatingCandidate(name, len(values), min(values), max(values), _doubt(table, name)))
    return tuple(sorted(found, key=lambda one: (bool(one.doubt), not table.names[one.column].rates)))


def _may_hold(what: str, table: GuessedTable, name: str) -> bool:
    cells = table.cells[name]
    if what == "split":
        return {common_split(cell) for cell in cells} <= {*SPLITS}
    if what in ("votes", "mos_std"):
        return name in table.numbers and all(map(str.strip, cells)) and not is_list(cells)
    if what == "content" and table.names[name].file is not None and name in table.audio:
        return table.names[name].is_reference
    # rows without an id would be rejects
    return all(0 < len(cell.strip()) <= LONGEST_ID and cell.strip().isprintable() for cell in cells)


def _marked(table: GuessedTable, columns: Held) -> list[str]:
    """List a person's decisions about columns that mark rows other than ratings, such as tests of attention."""
    others = {*table.cells} - {*taken_by({kind: one for kind, one in columns.items() if kind != "listener"})}
    whose = asks_models(table.cells, others, "where names it with the words of the rows to keep")
    doubts = [*whose.values(), *filter(None, (unfinished(name, cells) for name, cells in table.cells.items()))]
    for name, cells in table.cells.items():
        words = Counter(cell.strip() for cell in cells)
        marks = {*table.names[name].words} & MARKS_ROWS and 1 < len(words) <= MOST_MARKS
        if name not in (*taken_by(columns), *whose) and (marks or leaves_out(name, cells, MOST_MARKS)):
            counted = ", ".join(f'"{shown(word)}" {count:,}' for word, count in words.most_common())
            doubts.append(f"{name} marks rows ({counted}): where = {{ {name} = … }} keeps ratings")
    return doubts


def _same_groups(one: Sequence[str], other: Sequence[str]) -> bool:
    return len({*zip(one, other, strict=True)}) == len({*one}) == len({*other})


def _own(cells: Sequence[str]) -> bool:
    return len({*cells}) > 0.9 * len(cells)


def _pattern(files: Sequence[str]) -> str | None:
    """Suggest a pattern for systems: folders with several clips, or a shared first word of file names."""
    folders = Counter(file.strip("/").rpartition("/")[0] for file in files)
    if "" not in folders and 1 < len(folders) <= len({*files}) / 2 and len({one.count("/") for one in folders}) == 1:
        return "(?P<system>[^/]+)/[^/]+$"
    stems = [PurePosixPath(file).stem for file in files]
    for mark in ("-", "_"):
        words = Counter(stem.partition(mark)[0] for stem in stems if mark in stem)
        if sum(words.values()) > 0.9 * len(stems) and 1 < len(words) <= len(stems) / 3:
            return f"^(?P<system>[^{mark}]+){mark}"
    return None


def _in_names(cells: Sequence[str], files: Sequence[str], pattern: str | None) -> bool:
    """Return whether a column repeats the pattern's match in file names, so that both name the system."""
    if pattern is None or "/" in pattern:
        return False
    words = (re.match(pattern, PurePosixPath(file).stem) for file in files)
    first = (str(word[1]) if word else "" for word in words)
    return sum(one.lower() == cell.lower() for one, cell in zip(first, cells, strict=True)) > 0.9 * len(files)
