"""List what a person must decide about a table of ratings: questions, sums, blanks and means have two readings."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from earmark.schemas.reasons import shown
from earmark.tasks.importers.cells import is_day, is_rounded, number
from earmark.tasks.importers.rating_scales import FEW, STEPS
from earmark.tasks.importers.row_kinds import asks_trials, is_their_mean, sums_people_up, sums_up
from earmark.tasks.importers.sniffing import QUESTIONS, RATINGS, ColumnName, is_audio, last_keys, read_name, word_set
from earmark.tasks.importers.table import several

ENDS = word_set("min minimum lowest"), word_set("max maximum highest")  # in names of columns that tell a scale
PAGES = word_set("trial page screen")  # of columns of numbers, each of several clips that are rated together
Held = dict[str, str | tuple[str, ...]]  # the column or columns of each kind


class GuessedTable(NamedTuple):
    """A table's cells by column, with what each column's name and cells are like."""

    cells: Mapping[str, Sequence[str]]
    names: Mapping[str, ColumnName]
    numbers: Sequence[str]  # columns of numbers
    audio: Sequence[str]  # columns of names of sound files
    nested: bool = False  # whether a name with dots is the way to a key


def taken_by(columns: Held) -> list[str]:
    """Return the columns that have a kind."""
    written = [one for value in columns.values() for one in ((value,) if isinstance(value, str) else value)]
    return [*written, *(field for one in written for field in re.findall(r"\{([^{}]+)\}", one))]


def cells_of(table: GuessedTable, mos: str | tuple[str, ...]) -> list[str]:
    """Return the cells of the columns of ratings."""
    return [cell for name in ((mos,) if isinstance(mos, str) else mos) for cell in table.cells[name]]


def is_list(cells: Sequence[str]) -> bool:
    """Return whether most cells hold several numbers."""
    return sum(several(cell) is not None for cell in cells) > 0.5 * len(cells)


def holds_kind(table: GuessedTable, name: str, what: str) -> bool:
    """Return whether a column's name, or its last keys, name a kind."""
    return any(one.holds(what) for one in (table.names[name], *(last_keys(name) if table.nested else ())))


def asks_questions(table: GuessedTable, columns: Held) -> list[str]:
    """List a person's decisions about columns with the question answered in each row."""
    file, listener = columns.get("file"), columns.get("listener")
    if not isinstance(file, str) or file not in table.cells:
        return []
    keys = [file, *([listener] if isinstance(listener, str) else [])]
    rows = [*zip(*(table.cells[name] for name in keys), strict=True)]
    doubts = []
    form = "{}" if sum(map(is_audio, table.cells[file])) > 0.5 * len(rows) else "{}.wav"
    for name, cells in table.cells.items():
        if name in taken_by(columns):
            continue
        words, core = {*cells}, table.names[name].core
        told = {*zip(rows, cells, strict=True)}
        called = bool({*table.names[name].words} & QUESTIONS) or core == ("q",)
        # it alone tells apart what a listener said of a clip, and a number does so on pages of several clips
        alone = len(keys) > 1 and 2 * len({*rows}) <= len(rows) == len(told)
        pages = len({*zip(table.cells[file], cells, strict=True)}) > 0.9 * len({*table.cells[file]}) * len(words)
        is_number = all(number(word) == number(word) for word in words)
        if not called and not (alone and (not is_number or (pages and {*core} & PAGES))):
            continue
        if len(words) > 1 and len(told) > len({*rows}) and (len(words) <= FEW or (alone and pages)):
            first = sorted(words)[: FEW if len(words) <= FEW else 3]
            listed = ", ".join([*(f'"{shown(word)}"' for word in first), *["…"] * (len(first) < len(words))])
            clip = form.format(f"{{{name}}}/{{{file}}}")
            doubts.append(
                f"{name} holds several questions ({listed}): where = {{ {name} = … }} chooses one"
                + (f"; if they are items of a test, file = '{clip}' names the clips" if alone else "")
            )
    return doubts


def asks_clips(table: GuessedTable, columns: Held) -> list[str]:
    """List a person's decisions about rows that rate no clip, and about names of several clips."""
    file, mos, people = columns.get("file"), columns.get("mos"), columns.get("listener")
    doubts = []
    summed = [cell for cell in table.cells[people] if sums_people_up(cell)] if isinstance(people, str) else []
    if 0 < len(summed) < len(table.cells[str(people)]):
        listed = ", ".join(f"'{shown(one)}'" for one in dict.fromkeys(summed[:3]))
        doubts.append(f"{people} holds rows that sum others up ({listed}): delete them from the list")
    doubts += asks_trials(people, table.cells[people]) if isinstance(people, str) and people in table.cells else []
    if not isinstance(file, str) or file not in table.cells:
        return doubts
    marked = [cell for cell in table.cells[file] if cell.strip().startswith("#")]
    if 0 < len(marked) < len(table.cells[file]):
        doubts.append(f"{len(marked)} clips begin with #, such as {shown(marked[0])}: remove rows that are comments")
    cells, ratings = table.cells[file], cells_of(table, mos if isinstance(mos, str) else ())
    sound = sum(map(is_audio, cells)) > 0.5 * len(cells)
    rated = [cell.strip() for cell, rating in zip(cells, ratings, strict=False) if cell.strip() and rating.strip()]
    other = [cell for cell in rated if sums_up(cell, sound)]
    if other:
        listed = ", ".join(f"'{shown(one)}'" for one in dict.fromkeys(other[:3]))
        doubts.append(f"{file} holds rows that sum others up ({listed}): delete them from the list")
    for what in ("system", "condition"):
        column = columns.get(what)
        if isinstance(column, str) and column in table.cells and not sound:
            pairs = {*zip(cells, table.cells[column], strict=True)}
            if len(pairs) > 1.5 * len({*cells}):
                doubts.append(
                    f"{file} is one name for clips of several {what}s: file = '{{{column}}}/{{{file}}}.wav' names all, "
                    f"or as the clips are called; content = '{file}'"
                )
                break
    return doubts


def asks_rounded(cells: Mapping[str, Sequence[str]], among: Iterable[str]) -> list[str]:
    """List a person's decisions about columns of ids, of those among, that have lost digits."""
    doubts = []
    for name in dict.fromkeys(among):
        if rounded := [cell for cell in cells.get(name, ()) if is_rounded(cell)]:
            doubts.append(
                f"{name} holds rounded ids ('{shown(rounded[0])}', …: {len(rounded):,} of {len(cells[name]):,} rows), "
                f"as of a spreadsheet or a float: their digits are lost; export the list anew, with {name} as text"
            )
    return doubts


def asks_spellings(
    cells: Mapping[str, Sequence[str]], among: Iterable[str], listeners: Sequence[str] | None = None
) -> list[str]:
    """List a person's decisions about names of clips that may be of one, in columns of those among.

    Args:
        listeners: of each row; who hears two names of a folder hears two clips. Without them, so does each row.
    """
    heard: dict[str, set[object]] = defaultdict(set)
    for name in among:
        for key, cell in zip(listeners or count(), cells.get(name, ()), strict=False):
            heard[cell.strip()].add(key)
    clips = sorted(heard.keys() - {""})
    bare = {one for one in clips if not is_audio(one)}
    shorter = {
        one: next((rest for rest in _behind_folders(one) if rest in heard and not heard[rest] & heard[one]), "")
        for one in clips
    }
    longer = Counter(shorter.values())  # of several, each may be of another system
    folds: dict[str, Callable[[str], str]] = {
        "in capitals alone": str.casefold,
        "behind '?' alone": lambda one: path if is_audio(path := one.partition("?")[0]) else one,
        "in an ending alone": lambda one: stem if is_audio(one) and (stem := one.rpartition(".")[0]) in bare else one,
        "in a leading folder alone": lambda one: rest if (rest := shorter[one]) and longer[rest] == 1 else one,
        "in leading zeros alone": lambda one: one.lstrip("0") if one.isdecimal() else one,
    }
    doubts = []
    for where, plain in folds.items():
        first: dict[str, str] = {}
        twice = [(first[key], one) for one in clips if first.setdefault(key := plain(one), one) != one]
        if twice:
            pair = " and ".join(f"'{shown(one)}'" for one in twice[0])
            doubts.append(
                f"{len(twice):,} names of clips differ {where}, such as {pair}: each counts as a clip of its own; "
                "write a clip's name in one way"
            )
    if days := [*filter(is_day, clips)]:
        doubts.append(
            f"{len(days):,} names of clips are days, such as '{shown(days[0])}', as a spreadsheet makes of 3-1: export "
            "the list anew, with them as text"
        )
    return doubts


def _behind_folders(name: str) -> list[str]:
    """List a path's ends behind its first folder, its first two, …, the longest first."""
    parts = name.split("/")
    return ["/".join(parts[at:]) for at in range(1, len(parts))]


def asks_scales(cells: Mapping[str, Sequence[str]], unused: Iterable[str], scale: tuple[float, float]) -> list[str]:
    """List a person's decisions about unused columns that tell the scale of each row, if they do not tell the guess."""
    doubts = []
    for name in unused:
        words = {*read_name(name).words}
        ends = [end for end, spelt in zip(scale, ENDS, strict=True) if words & spelt and words & (RATINGS | {"scale"})]
        told = {cell.strip() for cell in cells[name]} - {""}
        steps = [(float(match[1]), float(match[2])) for cell in told if (match := STEPS.search(cell))]
        if len(told) > 1 and (
            ("scale" in words and len(steps) == len(told) <= FEW)
            or (ends and len(told) <= FEW and all(math.isfinite(number(cell)) for cell in told))
        ):
            listed = ", ".join(f'"{shown(cell)}"' for cell in sorted(told))
            doubts.append(
                f"{name} holds several scales ({listed}): where = {{ {name} = … }} chooses one; a source each"
            )
        elif len(told) == 1:
            end = number(*told)
            if ("scale" in words and steps not in ([], [scale])) or (ends and math.isfinite(end) and end not in ends):
                doubts.append(
                    f"{name} says {shown(*told)}, and the ratings seem to be of {scale[0]:g} to {scale[1]:g}: write "
                    "scale, or take the column out"
                )
    return doubts


def asks_blanks(table: GuessedTable, columns: Held, what: str) -> list[str]:
    """List a person's decisions about a column of a kind that lacks cells, without which none of it is read."""
    for name, cells in table.cells.items():
        empty = sum(not cell.strip() for cell in cells)
        fits = what == "listener" or (name in table.numbers and not is_list(cells))
        if name not in taken_by(columns) and fits and holds_kind(table, name, what) and 0 < empty < len(cells):
            return [f"{name} may hold the {what}, but {empty:,} of {len(cells):,} cells are blank: fill or delete them"]
    return []


def asks_means(table: GuessedTable, columns: Held) -> list[str]:
    """List a person's decision about ratings that are means of other columns, such as those of systems."""
    mos = columns.get("mos")
    if not isinstance(mos, str) or is_list(table.cells[mos]):
        return []
    held = [name for name in table.numbers if name not in taken_by(columns) and not is_list(table.cells[name])]
    rows = [*zip(*([number(cell) for cell in table.cells[name]] for name in (mos, *held)), strict=True)]
    rows = [row for row in rows if all(value == value for value in row)]
    low, high = min((row[0] for row in rows), default=0.0), max((row[0] for row in rows), default=0.0)
    means, *others = [*zip(*rows, strict=True)] or [()]
    near = [
        at for at, one in enumerate(others) if min(one) >= low - (high - low) - 1 and max(one) <= 2 * high - low + 1
    ]
    if not is_their_mean(means, [others[at] for at in near]):
        return []
    listed = shown(", ".join(held[at] for at in near))
    return [f"{mos} is the mean of {listed}: of listeners, or of systems, which unpivot tells apart? columns.mos says"]
