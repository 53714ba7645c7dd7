"""Tell rows of a table that count as ratings from those that were taken back, sum others up, or name a split."""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from earmark.schemas.reasons import shown
from earmark.schemas.tables import SPLIT_ALIASES, SPLITS, common_split
from earmark.tasks.importers.machines import ORIGINS, is_judge, is_model
from earmark.tasks.importers.rating_scales import FEW, UNSAID
from earmark.tasks.importers.sniffing import HOLDERS, is_audio, is_number, read_name, word_set
from earmark.tasks.importers.table import several

LEFT_OUT = word_set(  # cells
    "reject rejected returned practice training discarded draft preview spam excluded invalid catch pretest pilot "
    "warmup failed fail skipped removed deleted flagged dummy trap timedout awaitingreview screenedout incomplete"
)
EXCLUDES = word_set(
    "exclude excluded exclusion outlier outliers valid invalid consent consented einwilligung"
)  # names of columns
MARKS = word_set(  # names of columns of yes and no, or of what is blank elsewhere
    "skip skipped discard discarded dropped remove removed delete deleted withdrawn flag flagged spam spammer cheater "
    "failed passed reject rejected accept accepted approve approved keep kept include included usable reliable ok "
    "used trustworthy tainted golden warmup dummy finished complete completed istest istrain testquestion qc "
    "ausgeschlossen gültig exclu 有效"
)
YES_NO = word_set("0 1 0.0 1.0 true false yes no y n x t f ok bad pass fail passed failed ja nein oui non 是 否")
RESPONSES = word_set("submitted discarded draft pending")  # Argilla's states of a response
SPLIT_COLUMNS = word_set("split set subset partition fold dataset part usage")
TOTALS = word_set(
    "mean average avg total sum median std sd stdev stddev count n min max overall grand all mittelwert durchschnitt "
    "summe gesamt ergebnis gesamtergebnis moyenne écart-type media promedio 平均 平均值 合计 総計 合計 中央値 "
    "标准差 標準偏差"
)
NAMES_TOO = word_set("n min max sd media all grand")  # may begin a clip's name
PEOPLE_TOO = word_set("n min max sd media")  # may name a person
ENDED = word_set("submitdate submittedat completedat finishedat datesubmitted")  # names of columns
TRIES_OUT = re.compile(
    r"(?:test|tester|testing|dummy|admin|debug)(?:[ _-]?(?:user|account|person))?[ _-]?\d*", re.IGNORECASE
)
KIND_OF = word_set("human llm gpt ai machine")  # of columns of yes and no
WHOSE = ORIGINS | word_set(f"{HOLDERS['listener']} voter labeler labeller scorer reviewer vote label annotation by")
OF_CLIPS = word_set(
    "prompt text caption lyrics content instruction audio clip song music speech file system generated created made "
    "produced composed performed synthesized"
)


def answered(names: Sequence[str], rows: list[list[str]]) -> tuple[dict[str, tuple[str, ...]], str, list[list[str]]]:
    """Return which rows count, in words too, and all rows below the descriptions that follow Qualtrics' header."""
    if any("ImportId" in cell for row in rows[:2] for cell in row):
        where: dict[str, tuple[str, ...]] = {"Finished": ("True", "1")} if "Finished" in names else {}
        return where, "people who finished", rows[2:]
    for at, name in enumerate(names):
        words = {row[at] for row in rows}
        each = {word for cell in words for word in several(cell) or ["" if cell == "[]" else cell]}
        if name == "AssignmentStatus" and words - {"Rejected"}:  # Mechanical Turk's
            kept = {"Approved", "Submitted"} | words - {"Rejected"}  # also if further down
            return {name: tuple(sorted(kept))}, "work that was not rejected", rows
        last = name.rpartition(".")[2]
        if last == "was_cancelled" and {word.lower() for word in words} & {"false", "0"}:  # Label Studio's
            return {name: ("False", "0")}, "annotations that were not cancelled", rows
        if last == "status" and "submitted" in each and each <= {"", *RESPONSES}:  # Argilla's
            return {name: ("submitted",)}, "responses that were submitted", rows
    return {}, "", rows


def leaves_out(name: str, cells: Sequence[str], most: int) -> bool:
    """Return whether a column may tell which rows do not count, by its name or its words."""
    found = {cell.strip().lower() for cell in cells}
    words = read_name(name).words
    by_name = ({*words} & EXCLUDES and len(found) <= most) or (
        {*words, "".join(words)} & MARKS and ("" in found or found <= YES_NO)
    )
    by_cells = any({*_last_word(cell)} & LEFT_OUT for cell in found if len(cell.split()) < 3)
    return 1 < len(found) <= FEW and bool(by_name or by_cells) and not names_splits(cells)


def _last_word(cell: str) -> tuple[str, ...]:
    return (*cell.replace("-", " ").split()[-1:], re.sub(r"[-_\s]+", "", cell))


def unfinished(name: str, cells: Sequence[str]) -> str:
    """Return a person's decision about a column of the time of the end, blank where somebody stopped before it."""
    blank = sum(not cell.strip() for cell in cells)
    if "".join(read_name(name).words) not in ENDED or not 0 < blank < len(cells):
        return ""
    return (
        f"{name} is blank in {blank:,} of {len(cells):,} rows, of people who did not finish: delete them from the list"
    )


def asks_trials(name: str, cells: Sequence[str]) -> list[str]:
    """List a person's decision about a column of people in which some are called as those who try a study out are."""
    people = {cell.strip() for cell in cells}
    found = sorted(filter(TRIES_OUT.fullmatch, people))
    if not 0 < 2 * len(found) < len(people):
        return []
    rows = sum(cell.strip() in found for cell in cells)
    return [
        f"{name} holds '{shown(found[0])}', as of a trial ({rows:,} of {len(cells):,} rows): delete such rows from the "
        "list"
    ]


def names_splits(cells: Sequence[str]) -> bool:
    """Return whether the filled cells of a column are two splits or more, and nothing else."""
    found = {common_split(cell) for cell in cells if cell.strip()}
    return len(found) > 1 and found <= {*SPLITS}


def _like_splits(name: str, cells: Sequence[str]) -> bool:
    """Return whether a column's words are a publisher's own for splits, such as `test_seen` and `train-clean`."""
    given = {cell.strip().lower() for cell in cells if cell.strip()}
    if not 1 < len(given) <= FEW:
        return False
    known = {frozenset(re.split(r"[\W_\d]+", word)) & {*SPLITS, *SPLIT_ALIASES, "trainval"} for word in given}
    return "split" in read_name(name).words or (len(known) > 1 and all(known))


def publishers_split(columns: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """Return the column that is surely the publisher's split, or else a person's decisions about those that may be."""
    found = [name for name, cells in columns.items() if names_splits(cells)]
    doubts = [
        f"{name} holds {shown(', '.join(sorted({*cells})))}: if these are the publisher's splits, write "
        f"{', '.join(SPLITS)} in their place, and columns.split takes it"
        for name, cells in columns.items()
        if name not in found and _like_splits(name, cells)
    ]
    for name in found:
        empty = sum(not cell.strip() for cell in columns[name])
        sure = bool({*read_name(name).words} & SPLIT_COLUMNS)
        if len(found) == 1 and sure and not empty:
            return name, []
        blank = f", and {empty:,} blank cells, which would be rejects" if empty else ""
        doubts.append(f"{name} holds the names of splits{blank}: columns.split takes it if they are")
    return "", doubts


def sums_up(cell: str, sound: bool) -> bool:
    """Return whether the cell of a clip names a sum of other rows instead, such as `Mean:`, `N=36`, `a.wav Average`.

    Args:
        sound: whether clips are named by sound files.
    """
    words = [word for word in re.split(r"[\s=:]+", cell.lower()) if word]
    if not words:
        return False
    if is_audio(cell):
        return len(words) > 1 and words[0] in TOTALS - NAMES_TOO  # `Total a.wav`, but also `All of me.wav`
    if sound:
        return bool({words[0], words[-1]} & TOTALS)
    return words[0] in TOTALS and all(word in TOTALS or ("=" in cell and is_number(word)) for word in words)


def sums_people_up(cell: str) -> bool:
    """Return whether the cell of a listener names a sum of listeners instead."""
    words = cell.lower().strip(" :").split()
    return bool(words) and {*words} <= TOTALS - PEOPLE_TOO


def is_their_mean(means: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
    """Return whether numbers are, but for rounding, the means of two other columns or more."""
    if len(others) < 2 or len(means) < 2:
        return False
    near = [abs(mean - sum(row) / len(row)) < 0.051 for mean, row in zip(means, zip(*others, strict=True), strict=True)]
    return bool(sum(near) > 0.9 * len(near))


def beside_numbers(cells: Sequence[str]) -> list[str]:
    """Return the words in lists of numbers, such as `nan` in `[1, nan, 2]`."""
    words = [word for cell in cells for word in re.split(r"[\[\]();|,\s]+", cell) if word]
    odd = [word for word in words if not is_number(word)]
    return odd if len(odd) < len(words) and {word.lower() for word in odd} <= {*UNSAID} else []


def asks_models(
    cells: Mapping[str, Sequence[str]], among: Container[str], way: str, way_of_marks: str | None = None
) -> dict[str, str]:
    """Return a person's decision for each column, of those among, that tells which rows are of models.

    Args:
        way_of_marks: the way for a column of yes and no, by default the same.
    """
    systems = [cells[name] for name in cells if read_name(name).holds("system")]
    doubts = {}
    for name, held in cells.items():
        words = {*read_name(name).words}
        counts = Counter(cell.strip() for cell in held)
        if name not in among or words & OF_CLIPS:
            continue
        if words & KIND_OF and {cell.lower() for cell in counts} <= YES_NO and len(counts) > 1:
            marks = shown(", ".join(sorted(counts)))
            doubts[name] = f"{name} tells answers of people from others ({marks}): {way_of_marks or way}"
        if not words & WHOSE:
            continue
        found = {cell: count for cell, count in sorted(counts.items()) if is_model(cell)}
        if words & ORIGINS and len(counts) > 1:  # may tell how the clip was made
            of_clips = any(len({*zip(each, held, strict=True)}) == len({*each}) for each in systems)
            found = {cell: found[cell] for cell in found if is_judge(cell) or not of_clips}  # a build rejects a judge's
        if found:
            listed = ", ".join(f'"{shown(one)}"' for one in [*found][:3])
            rows = f"{sum(found.values()):,} of {len(held):,} rows"
            doubts[name] = f"{name} holds {listed} in {rows}, answers of models and not of people: {way}"
    return doubts
