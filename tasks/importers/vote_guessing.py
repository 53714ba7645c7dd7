"""Guess the content of a table of comparisons: the columns of the clips, the choice and the annotator."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import shown
from earmark.tasks.importers.cells import number
from earmark.tasks.importers.guessing import MARKS_ROWS
from earmark.tasks.importers.rating_scales import FEW
from earmark.tasks.importers.sniffing import QUESTIONS, WORDS, ColumnName, is_audio, read_name, read_sample, word_set
from earmark.tasks.importers.votes import DIMENSIONS as OWN
from earmark.tasks.importers.votes import FIELDS, said_choice

SIDES = {**dict.fromkeys(("a", "1", "left", "first"), "a"), **dict.fromkeys(("b", "2", "right", "second"), "b")}
CHOSEN = word_set(
    "winner preference preferred choice vote better answer result cmos ccr comparison overall selected pick score "
    "rating auswahl präferenz preferencia préférence 选择 偏好 選択 선택"
)
NO_CHOICE = word_set("time rt id confidence comment reason duration date order reference feedback")
DIMENSIONS = {"musicality": "musicality", "quality": "musicality", "alignment": "alignment", "relevance": "alignment"}
MARGIN = 3  # of a comparison category rating
TELLS = (QUESTIONS - {"item", "type"}) | MARKS_ROWS | word_set("swapped swap flipped flip reversed")  # names of columns
STATES = ("AssignmentStatus", "Finished")  # of rows, by Mechanical Turk and Qualtrics


class GuessedVotes(NamedTuple):
    """The guessed content of a table of comparisons."""

    rows: int
    columns: Mapping[str, str]  # the table's column by Earmark's name
    unused: tuple[str, ...]
    signed: bool  # whether choices are numbers with a sign
    doubts: tuple[str, ...]


def guess_votes(path: Path) -> GuessedVotes | None:
    """Guess the columns of a table from its first rows; return None without two columns of clips.

    Raises:
        InputError: the file cannot be read as a table, or is webMUSHRA's of a test of hearing.
    """
    sample = read_sample(path)
    cells = {name: [row[at] for row in sample.rows] for at, name in enumerate(sample.names) if name}
    if {"correct", "incorrect"} & {*cells.get("choice_answer", ())}:
        raise InputError(
            f"{path.name}: expected a preference, found correct and incorrect in choice_answer: a test of hearing the "
            "reference"
        )
    names = {name: read_name(name) for name in cells}
    audio = [name for name in cells if sum(map(is_audio, cells[name])) > len(cells[name]) / 2]
    pair = _pair([name for name in ("audio_a", "audio_b") if name in cells], names) or _pair(audio, names)
    pair = pair or _pair([name for name in cells if names[name].file is not None], names)
    if not pair:
        return None
    columns, doubts = dict(pair), list[str]()
    if sample.delimiter == " ":
        doubts.append(f"cells are split by {WORDS[sample.delimiter]}: save the table with commas")
    models = _pair([name for name in cells if {"model", "system", "method"} & {*names[name].words}], names)
    columns |= {f"model_{key[-1]}": name for key, name in models.items() if name not in pair.values()}
    chosen = [name for name in cells if name not in columns.values() and _may_choose(names[name], cells, name, columns)]
    chosen = [name for name in chosen if name in OWN] or chosen
    by_dimension = {
        next((DIMENSIONS[w] for w in names[name].words if w in DIMENSIONS), "overall"): name for name in chosen
    }
    if chosen and len(by_dimension) == len(chosen):
        columns |= by_dimension
    elif chosen:
        doubts.append(
            f"{len(chosen)} columns may be the choice ({shown(', '.join(chosen))}): columns.overall names one"
        )
    else:
        doubts.append("no column is called a choice: columns.overall names the one that is")
    people = [name for name in cells if names[name].holds("listener") and name not in columns.values()]
    if len(people) == 1:
        columns["annotator"] = people[0]
    elif people:
        doubts.append(f"several columns may name who chose ({shown(', '.join(people))}): columns.annotator chooses one")
    signed = any(_is_signed(cells[name]) for name in by_dimension.values())
    counted = [name for name in by_dimension.values() if signed and _counts(cells[name])]
    if counted:  # 0 and 1 are as often the two clips as a tie and the second
        held = ", ".join(sorted({cell.strip() for cell in cells[counted[0]] if cell.strip()}))
        signed = False
        doubts.append(f"{counted[0]} holds {held} without a sign: write a, b or tie in their place")
    elif signed:
        doubts.append('choices are numbers with a sign: positive = "a" or "b" names the clip that one above 0 prefers')
    for field, words in (("text", ("text", "prompt")), ("prompt_id", ("prompt id", "item", "trial id"))):
        fit = [name for name in cells if " ".join(names[name].words) in words and name not in columns.values()]
        columns |= {field: fit[0]} if len(fit) == 1 else {}
    read = {*columns.values(), *FIELDS}
    unused = tuple(name for name in cells if name not in read)
    doubts += filter(None, (_may_tell(names[name], name, cells[name]) for name in unused))
    return GuessedVotes(len(sample.rows), columns, unused, signed, tuple(doubts))


def _pair(fit: Sequence[str], names: Mapping[str, ColumnName]) -> dict[str, str]:
    """Find two columns differing only in their side."""
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for name in fit:
        found = {SIDES[word] for word in names[name].words if word in SIDES}
        if len(found) == 1:
            sides[found.pop()].append(name)
    if len(sides["a"]) == len(sides["b"]) == 1:
        return {"audio_a": sides["a"][0], "audio_b": sides["b"][0]}
    return {}


def _may_choose(name: ColumnName, cells: Mapping[str, Sequence[str]], column: str, columns: Mapping[str, str]) -> bool:
    if column not in OWN and (not {*name.words} & CHOSEN or {*name.words} & NO_CHOICE):
        return False
    clips = {cell.strip() for side in columns.values() for cell in cells[side]}
    given = [cell.strip() for cell in cells[column] if cell.strip()]
    fits = [said_choice(cell) is not None or cell in clips or abs(number(cell)) <= MARGIN for cell in given]
    return bool(given) and sum(fits) > 0.9 * len(fits)


def _may_tell(name: ColumnName, column: str, cells: Sequence[str]) -> str:
    """Return the doubt of an unused column that may say what a row's choice means; empty without one."""
    found = {cell.strip() for cell in cells}
    if "x" in name.words and all(is_audio(cell) or cell.lower() in SIDES for cell in found):
        return f"{column} holds a third clip: an ABX test, of who tells clips apart, holds no preferences"
    tells = {*name.words} & TELLS or column in STATES or {cell.lower() for cell in found} == {"ab", "ba"}
    if not tells or not 1 < len(found) <= FEW:
        return ""
    listed = ", ".join(f'"{shown(word)}"' for word in sorted(found))
    return f"{column} holds {listed}: write a table of one question, of votes that count, and of sides as clips stand"


def _counts(cells: Sequence[str]) -> bool:
    return not any(cell.strip().startswith(("+", "-", "−")) for cell in cells)


def _is_signed(cells: Sequence[str]) -> bool:
    values = {number(cell) for cell in cells if number(cell) == number(cell)}
    return bool(values - {1.0, 2.0}) or any(cell.strip().startswith("+") for cell in cells)
