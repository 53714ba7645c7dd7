"""Guess the content of a table of comparisons: the columns of the clips, the choice and the annotator."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import shown
from earmark.tasks.importers.cells import number
from earmark.tasks.importers.guessing import MARKS_ROWS, MOST_MARKS
from earmark.tasks.importers.machines import is_model
from earmark.tasks.importers.rating_scales import FEW
from earmark.tasks.importers.row_kinds import asks_models, asks_trials, leaves_out, unfinished
from earmark.tasks.importers.sniffing import (
    QUESTIONS,
    WORDS,
    ColumnName,
    is_audio,
    last_keys,
    read_name,
    read_sample,
    word_set,
)
from earmark.tasks.importers.table_doubts import asks_rounded, asks_spellings
from earmark.tasks.importers.votes import DIMENSIONS as OWN
from earmark.tasks.importers.votes import FIELDS, said_choice

CHOSEN_CLIP = word_set("winner chosen preferred better best")
OTHER_CLIP = word_set("loser rejected dispreferred worse worst")
SIDES = {**dict.fromkeys(("a", "1", "left", "first"), "a"), **dict.fromkeys(("b", "2", "right", "second"), "b")}
TWIN = {a: b for one in ("a b", "1 2", "left right", "first second") for a, b in (one.split(), one.split()[::-1])}
CHOSEN = word_set(
    "winner preference preferred choice vote better answer result cmos ccr comparison overall selected pick score "
    "rating auswahl präferenz preferencia préférence 选择 偏好 選択 선택"
)
NO_CHOICE = word_set(
    "time rt id confidence comment reason duration date order reference feedback "
    # the clip that loses, a model's answer, the one that a test expects, and one that was changed
    "not non least less worse worst loser rejected disliked noisier bad gpt llm ai pred predicted expected correct "
    "gold previous initial"
)
MACHINES = word_set("model judge")  # before a word for a choice; after one they may name what is chosen
ALONE = {  # words that choose by themselves
    **dict.fromkeys(("musicality", "quality"), "musicality"),
    **dict.fromkeys(("alignment", "relevance", "adherence"), "alignment"),
}
DIMENSIONS = {**ALONE, "prompt": "alignment"}
MARGIN = 3  # of a comparison category rating
TELLS = (
    (QUESTIONS - {"item", "type"})
    | MARKS_ROWS
    | word_set(  # names of columns
        "swapped swap flipped flip reversed mirrored inverted switched switch permuted shuffled"
    )
)
PLACES = word_set("left right position shown")  # names of columns that may tell which clip stood where
NO_PLACE = NO_CHOICE | word_set("plays played listened count seconds s ms")
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
    won = {} if pair else _won(audio, names)
    if not pair and not won:
        return None
    columns, doubts = won or dict(pair), list[str]()
    marked = [cell for name in {*columns.values()} for cell in cells[name] if cell.strip().startswith("#")]
    if 0 < len(marked) < 2 * len(sample.rows):
        doubts.append(f"{len(marked)} clips begin with #, such as {shown(marked[0])}: remove rows that are comments")
    if sample.delimiter == " ":
        doubts.append(f"cells are split by {WORDS[sample.delimiter]}: save the table with commas")
    models = _pair([name for name in cells if {"model", "system", "method"} & {*names[name].words}], names)
    columns |= {f"model_{key[-1]}": name for key, name in models.items() if name not in pair.values()}
    chosen = [name for name in cells if name not in columns.values() and _may_choose(names[name], cells, name, columns)]
    if own := [name for name in chosen if name in OWN]:  # beside names of ours, only those of further dimensions count
        more = (n for n in chosen if {*names[n].words} & ALONE.keys() and _dimension(names[n]) not in own)
        chosen = [*own, *more]
    by_dimension = {_dimension(names[name]): name for name in chosen}
    if won and not chosen:  # the winner is called by its own name
        by_dimension = {}
    elif chosen and len(by_dimension) == len(chosen):
        columns |= by_dimension
    elif chosen:
        doubts.append(
            f"{len(chosen)} columns may be the choice ({shown(', '.join(chosen))}): columns.overall names one"
        )
    else:
        called = [name for name in cells if name not in columns.values() and _called_a_choice(names[name], name)]
        called = [name for name in called if not _has_twin(names[name], cells)]
        odd = [cell for name in called[:1] for cell in sorted({*cells[name]}) if cell and said_choice(cell) is None]
        if odd:
            listed = ", ".join(f"'{shown(cell)}'" for cell in odd[:3])
            doubts.append(f"{called[0]} is called a choice, but holds {listed}: write a, b or tie in their place")
        else:
            doubts.append("no column is called a choice: columns.overall names the one that is")
    told = {name: (names[name], *(() if sample.delimiter else last_keys(name))) for name in cells}
    people = [n for n in cells if any(one.holds("listener") for one in told[n]) and n not in columns.values()]
    doubts += filter(None, (unfinished(name, held) for name, held in cells.items()))
    if len(people) == 1:
        columns["annotator"] = people[0]
        doubts += asks_trials(people[0], cells[people[0]])
    elif people:
        doubts.append(f"several columns may name who chose ({shown(', '.join(people))}): columns.annotator chooses one")
    may_tell = {*cells} - {*columns.values()} | {*people}
    way = "a build rejects them, by the column that columns.annotator_type names"
    whose = asks_models(cells, may_tell, way, "remove the rows of models, which a build would count")
    doubts += whose.values()
    if kinds := [name for name in whose if name not in people and any(map(is_model, cells[name]))]:
        columns["annotator_type"] = kinds[0]
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
    doubts += asks_spellings(cells, [columns["audio_a"], columns["audio_b"]])
    doubts += asks_rounded(cells, columns.values())
    read = {*columns.values(), *FIELDS}
    unused = tuple(name for name in cells if name not in read)
    said = {cell.strip().lower() for name in by_dimension.values() for cell in cells[name]}
    tells = [name for name in unused if said & {"left", "right"} and _places(names[name], cells[name])]
    doubts += [
        f"{name} may tell which clip stood left: write a or b in place of left and right, as clips stand in the table"
        for name in tells
    ]
    doubts += filter(
        None, (_may_tell(names[name], name, cells[name]) for name in unused if name not in (*tells, *whose))
    )
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


def _dimension(name: ColumnName) -> str:
    return next((DIMENSIONS[word] for word in name.words if word in DIMENSIONS), "overall")


def _won(audio: Sequence[str], names: Mapping[str, ColumnName]) -> dict[str, str]:
    """Find the columns of the chosen clip and of the other; a choice is the chosen clip's name."""
    won, lost = ([name for name in audio if {*names[name].words} & words] for words in (CHOSEN_CLIP, OTHER_CLIP))
    if len(won) == len(lost) == 1 and won != lost:
        return {"audio_a": won[0], "audio_b": lost[0], "overall": won[0]}
    return {}


def _places(name: ColumnName, cells: Sequence[str]) -> bool:
    """Return whether a column of two words, or of clips, may tell where the clips of a row stood."""
    found = {cell.strip().lower() for cell in cells if cell.strip()}
    named = bool({*name.words} & PLACES) and not {*name.words} & NO_PLACE
    return named and (len(found) == 2 or (bool(found) and all(map(is_audio, found))))


def _called_a_choice(name: ColumnName, column: str) -> bool:
    no_choice = {*name.words} & NO_CHOICE or {*name.words[:1]} & MACHINES
    return column in OWN or (bool({*name.words} & (CHOSEN | ALONE.keys())) and not no_choice)


def _may_choose(name: ColumnName, cells: Mapping[str, Sequence[str]], column: str, columns: Mapping[str, str]) -> bool:
    if not _called_a_choice(name, column) or _has_twin(name, cells):
        return False
    in_words = column not in OWN and not {*name.words} & CHOSEN  # numbers may be ratings of one clip
    clips = {cell.strip() for side in columns.values() for cell in cells[side]}
    given = [cell.strip() for cell in cells[column] if cell.strip()]
    fits = [
        said_choice(cell) is not None or cell in clips or (not in_words and abs(number(cell)) <= MARGIN)
        for cell in given
    ]
    return bool(given) and sum(fits) > 0.9 * len(fits)


def _has_twin(name: ColumnName, columns: Iterable[str]) -> bool:
    """Return whether another column is of the same name but for its side: each tells of one clip, as ratings do."""
    others = {read_name(column).words for column in columns}
    at = [place for place, word in enumerate(name.words) if word in TWIN]
    return any((*name.words[:one], TWIN[name.words[one]], *name.words[one + 1 :]) in others for one in at)


def _may_tell(name: ColumnName, column: str, cells: Sequence[str]) -> str:
    """Return the doubt of an unused column that may say what a row's choice means; empty without one."""
    found = {cell.strip() for cell in cells}
    if "x" in name.words and all(is_audio(cell) or cell.lower() in SIDES for cell in found):
        return f"{column} holds a third clip: an ABX test, of who tells clips apart, holds no preferences"
    small = {cell.lower() for cell in found}
    outside = len(found) <= MOST_MARKS and leaves_out(column, cells, MOST_MARKS)
    tells = {*name.words} & TELLS or column in STATES or small in ({"ab", "ba"}, {"12", "21"}) or outside
    differs = len(found) == len(cells) > 2  # an id of the row, not a question asked of several
    if not tells or differs or not 1 < len(found) <= FEW:
        return ""
    listed = ", ".join(f'"{shown(word)}"' for word in sorted(found))
    return f"{column} holds {listed}: write a table of one question, of votes that count, and of sides as clips stand"


def _counts(cells: Sequence[str]) -> bool:
    return not any(cell.strip().startswith(("+", "-", "−")) for cell in cells)


def _is_signed(cells: Sequence[str]) -> bool:
    values = {number(cell) for cell in cells if number(cell) == number(cell)}
    return bool(values - {1.0, 2.0}) or any(cell.strip().startswith("+") for cell in cells)
