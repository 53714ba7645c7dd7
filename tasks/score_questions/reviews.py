"""Read reviewers' verdicts on questions from files into verdicts and rejects, and apply them.

Formats: CSV with the columns of `earmark people review export`, and Label Studio's exports JSON (tasks with their
annotations) and JSON-MIN (a flat object per task and annotator) of its project.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Reject, shown
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.importers.json_arrays import read_json
from earmark.tasks.importers.lines import Row, read_lines, read_rows
from earmark.tasks.store.result_table import FORMULA
from earmark.tasks.text.anonymity import scrub

FLAGS_WHEN = {"musically_correct": False, "options_relevant": False, "offensive": True, "ambiguous": True}
CRITERIA = tuple(FLAGS_WHEN)
REQUIRED = ("question_id", "content_sha256", "reviewer", *CRITERIA)
DELETES = "delete_options"
COLUMNS = (*REQUIRED, DELETES, "note")
_YES = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}
_ID = re.compile(r"[\w.-]{1,200}")  # other text in an id's cell may name someone, and rejects are published
_ROUNDED = re.compile(r"\d([.,]\d+)?E[+]\d+")  # 1.23E+15, and its digits are lost
_SEEN = ("options", "right")
_LETTERED, _OPTION_ID = re.compile("[A-H][.] "), re.compile("[0-9a-f]{12}")
LONGEST_NOTE = 2000
LONGEST_CELL = 200


@dataclass(frozen=True, slots=True)
class ReviewerVerdict:
    """A reviewer's verdict on a question."""

    question_id: str
    content_sha256: str  # its content at review
    reviewer: str
    answers: Mapping[str, bool]  # yes or no to each of `CRITERIA`
    note: str | None  # the reviewer's words, or None
    file: str  # the review file, as the config names it
    line: int  # line or task in it, from 1
    deletes: tuple[str, ...] = ()  # wrong options to remove from the question, by `option_id`

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what one verdict is given on: a reviewer may see a question again after a deletion."""
        return self.question_id, self.reviewer, self.content_sha256

    @property
    def flagged(self) -> bool:
        """Return whether the verdict rejects the question."""
        return any(self.answers[name] is flag for name, flag in FLAGS_WHEN.items())


def read_reviews(path: Path, name: str) -> Iterator[ReviewerVerdict | Reject]:
    """Yield the verdicts of a file (JSON, or else CSV), in its order; skip rows left blank."""
    rows = _json_rows(path, name) if path.suffix.lower() == ".json" else _csv_rows(path, name)
    seen: dict[tuple[str, ...], int] = {}
    for line, row in rows:
        one: ReviewerVerdict | Reject | None = row if isinstance(row, Reject) else None
        if isinstance(row, dict):
            try:
                one = _verdict(row, name, line)
            except BadRow as bad:
                one = Reject(shown(row.get("question_id") or ""), bad.reason, bad.detail, name, line)
        if isinstance(one, ReviewerVerdict):
            before = seen.setdefault(one.key, line)
            if before != line:
                detail = f"expected one row a reviewer and question, found another in {before}"
                one = Reject(one.question_id, "duplicate_id", detail, name, line)
        if isinstance(one, Reject):
            one = one._replace(item=one.item if _ID.fullmatch(one.item) else "")
        if one is not None:
            yield one


def count_answered(path: Path, name: str) -> int:
    """Count the rows of a sheet that a reviewer has written in, also one that no build would take."""
    said = (*CRITERIA, DELETES, "note")
    rows = (row for _, row in _csv_rows(path, name))
    return sum(isinstance(row, Reject) or any(str(row.get(column) or "").strip() for column in said) for row in rows)


def _csv_rows(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any] | Reject]]:
    """Yield rows by their columns' names, without the apostrophes of `guarded`.

    Raises:
        InputError: a column is missing, or the file is in another encoding.
    """
    _, first = next(read_lines(path, name), (0, ""))
    delimiter = (
        max(",;\t", key=first.count) if isinstance(first, str) else ","
    )  # as spreadsheets of many countries save
    rows = _in_utf8(read_rows(path, name, delimiter), name)
    _, header = next(rows, (0, []))
    names = [] if isinstance(header, Reject) else [cell.strip() for cell in header]
    if missing := [column for column in REQUIRED if column not in names]:
        raise InputError(f"{name}: expected the column '{missing[0]}', found '{shown(', '.join(names))}'")
    for line, row in rows:
        if not isinstance(row, Reject) and not any(cell.strip() for cell in row):
            continue  # of deleted rows, spreadsheets may leave the delimiters
        yield line, row if isinstance(row, Reject) else dict(zip(names, map(_unguarded, row), strict=False))


def _in_utf8(rows: Iterable[Row], name: str) -> Iterator[Row]:
    """Yield rows; refuse a file in another encoding, where rows with accents alone would be lost."""
    for line, row in rows:
        if isinstance(row, Reject) and row.reason == "bad_encoding":
            raise InputError(f"{name}, line {line}: {row.detail}; save the sheet as CSV in UTF-8 (in Excel: CSV UTF-8)")
        yield line, row


def guarded(cell: str) -> str:
    """Protect a cell from being read as a formula by spreadsheets: text from outside may begin like one."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _unguarded(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def json_annotations(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any], dict[str, Any] | None]]:
    """Yield each annotation of Label Studio's export: its task's number from 1, its task's data, and itself.

    JSON-MIN keeps data and answers side by side, without a separate annotation. A task of another type is empty;
    tasks without annotations are skipped.
    """
    for number, task in enumerate(read_json(path, name, list, "Label Studio's JSON export, a list of tasks"), 1):
        if not isinstance(task, dict):
            yield number, {"question_id": shown(json.dumps(task))}, None
        elif not isinstance(task.get("annotations"), list):
            if not isinstance(task.get("data"), dict):
                yield number, task, None
        else:
            data = task["data"] if isinstance(task.get("data"), dict) else {}
            for one in task["annotations"]:
                if isinstance(one, dict) and not one.get("was_cancelled"):
                    yield number, data, one


def _json_rows(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, data, annotation in json_annotations(path, name):
        beside = {"reviewer": _reviewer(data.get("annotator")), **_in_words(data.get(DELETES), data.get("note"))}
        yield number, {**_texts(data), **(beside if annotation is None else _annotated(annotation))}


def _texts(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name in (*COLUMNS, *_SEEN) if isinstance(value := data.get(name), str)}


def several(value: Any) -> list[Any]:
    """Return the values of a Label Studio field; it writes a single value without a list."""
    return value if isinstance(value, list) else [value] if value else []


def _in_words(deletes: Any = None, note: Any = None) -> dict[str, str]:
    """Return the letters of options to delete, and the note, if present."""
    letters = several(deletes.get("choices") if isinstance(deletes, Mapping) else deletes)
    cells = {DELETES: " ".join(map(str, letters)), "note": "\n".join(map(str, several(note)))}
    return {name: cell for name, cell in cells.items() if cell}


def _annotated(annotation: Mapping[str, Any]) -> dict[str, str]:
    """Return the answers of an annotation: `choices` by the control's name, `text` for the note."""
    answers = {"reviewer": _reviewer(annotation.get("completed_by"))}
    results = annotation.get("result")
    for result in results if isinstance(results, list) else []:
        if not isinstance(result, dict) or not isinstance(result.get("value"), dict):
            continue
        name, value = result.get("from_name"), result["value"]
        if name in CRITERIA and isinstance(value.get("choices"), list):
            answers[name] = ",".join(map(str, value["choices"]))
        elif name == DELETES:
            answers |= _in_words(deletes=value)
        elif name == "note":
            answers |= _in_words(note=value.get("text"))
    return answers


def _reviewer(value: Any) -> str:
    """Return an annotator's id from a number, or an object with one; ignore addresses and account names."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return "" if value is None else f"annotator-{value}"


def _verdict(row: Mapping[str, Any], name: str, line: int) -> ReviewerVerdict | None:
    """Parse a row's verdict. Quote no cell in faults: in a shifted row it may hold anyone's name or words."""
    cells: dict[str, str] = {column: str(row.get(column) or "").strip() for column in COLUMNS}
    if not any(cells[column] for column in CRITERIA):
        if not cells["question_id"]:
            raise BadRow("missing_value", "expected a question_id, found none")
        return None
    answers = {}
    for column in CRITERIA:
        answer = _YES.get(cells[column].casefold())
        if answer is None:
            content = "something else" if cells[column] else "nothing"
            raise BadRow("bad_value", f"expected yes or no in {column}, found {content}")
        answers[column] = answer
    if "@" in cells["reviewer"]:
        expected = "expected a pseudonym or number in reviewer"
        raise BadRow("bad_value", f"{expected}, found an address; it would be published")
    for column in ("question_id", "content_sha256", "reviewer"):
        if not cells[column] or len(cells[column]) > LONGEST_CELL:
            length = f"more than {LONGEST_CELL} characters" if cells[column] else "nothing"
            raise BadRow("missing_value", f"expected a {column}, found {length}")
    if not _ID.fullmatch(cells["question_id"]):
        number = _ROUNDED.fullmatch(cells["question_id"])
        found = (
            "a number as spreadsheets write it; import the column question_id as text" if number else "something else"
        )
        raise BadRow("missing_value", f"expected the id of a question, found {found}")
    deletes = _options(cells[DELETES], str(row.get("options") or ""), str(row.get("right") or ""))
    note = scrub(cells["note"])[:LONGEST_NOTE] or None
    names = cells["question_id"], cells["content_sha256"], cells["reviewer"]
    return ReviewerVerdict(*names, answers, note, name, line, deletes)


def option_id(text: str) -> str:
    """Return an option's id, independent of its letter: twelve digits of its text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _options(cell: str, options: str, right: str) -> tuple[str, ...]:
    """Return the options named in a cell, by their letters beside it, or by their ids."""
    by_letter = {line[0]: line[3:] for line in options.splitlines() if _LETTERED.match(line)}
    seen = set(map(option_id, by_letter.values()))
    ids = []
    for word in re.split(r"[\s,;]+", cell):
        known = not seen or word in seen if _OPTION_ID.fullmatch(word) else word.upper() in by_letter
        if word and not known:
            raise BadRow("bad_value", f"expected letters of options in {DELETES}, found something else")
        if word and (right.startswith(f"{word.upper()}. ") or word == option_id(right[3:])):
            expected = f"expected wrong options in {DELETES}"
            raise BadRow("bad_value", f"{expected}; of a wrong right one, say no in musically_correct")
        ids += [option_id(by_letter[word.upper()]) if word.upper() in by_letter else word] if word else []
    return tuple(sorted(set(ids)))


def gather_reviews(files: Iterable[tuple[Path, str]]) -> tuple[list[ReviewerVerdict], list[Reject]]:
    """Merge the verdicts of several files, the first one per question, reviewer and content.

    Raises:
        InputError: a file cannot be read.
    """
    kept: dict[tuple[str, ...], ReviewerVerdict] = {}
    refused: list[Reject] = []
    for path, name in files:
        for one in read_reviews(path, name):
            if isinstance(one, Reject):
                refused.append(one)
                continue
            if kept.setdefault(one.key, one) is not one:
                detail = f"expected one review a question and reviewer, found another by {one.reviewer}"
                who = (("annotator", one.reviewer),)
                refused.append(Reject(one.question_id, "duplicate_id", detail, one.file, one.line, made_from=who))
    return [kept[key] for key in sorted(kept)], refused


def latest(verdicts: Iterable[ReviewerVerdict], contents: Mapping[str, Sequence[str]]) -> list[ReviewerVerdict]:
    """Return each reviewer's verdict on the latest content of a question, of those that it had."""
    kept: dict[tuple[str, str], ReviewerVerdict] = {}

    def age(one: ReviewerVerdict) -> int:
        known = contents.get(one.question_id, ())
        return known.index(one.content_sha256) if one.content_sha256 in known else -1

    for one in verdicts:
        before = kept.setdefault((one.question_id, one.reviewer), one)
        if age(one) > age(before):
            kept[one.question_id, one.reviewer] = one
    return list(kept.values())


def applies(verdict: ReviewerVerdict, contents: Mapping[str, str | tuple[str, ...]]) -> bool:
    """Return whether a verdict concerns a question's present content, or a content before a deletion."""
    known = contents.get(verdict.question_id, ())
    return verdict.content_sha256 in ((known,) if isinstance(known, str) else known)


def enough(speak: int, reviewers: int, by: Literal["any", "majority", "all"]) -> bool:
    """Return whether the given number of a question's reviewers decides."""
    return speak >= {"any": 1, "majority": reviewers // 2 + 1, "all": max(1, reviewers)}[by]


def left_out(
    verdicts: Iterable[ReviewerVerdict], by: Literal["any", "majority", "all"]
) -> dict[str, list[ReviewerVerdict]]:
    """Return the questions flagged by enough of their reviewers, with the flagging verdicts."""
    by_question: dict[str, list[ReviewerVerdict]] = defaultdict(list)
    for verdict in verdicts:
        by_question[verdict.question_id].append(verdict)
    flagged = {}
    for question, own in by_question.items():
        flags = [verdict for verdict in own if verdict.flagged]
        if enough(len(flags), len(own), by):
            flagged[question] = flags
    return flagged
