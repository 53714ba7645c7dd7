"""Reviewers' verdicts on questions: files in, verdicts and rejects out, and how far reviewers agree.

Read are CSV with the columns that `earmark review export` writes, and Label Studio's exports JSON (tasks with their
annotations) and JSON-MIN (a flat object a task and annotator) of the project that it writes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from earmark.schemas.errors import InputError
from earmark.schemas.files import read_regular
from earmark.tasks.importers.cells import shown
from earmark.tasks.importers.lines import read_rows, unreadable
from earmark.tasks.importers.rows import Reject
from earmark.tasks.text.anonymity import scrub

CRITERIA = ("musically_correct", "options_relevant", "offensive", "ambiguous")
FLAGS_WHEN = {"musically_correct": False, "options_relevant": False, "offensive": True, "ambiguous": True}
COLUMNS = ("question_id", "content_sha256", "reviewer", *CRITERIA, "note")
_YES = {"yes": True, "y": True, "true": True, "1": True, "no": False, "n": False, "false": False, "0": False}
_ID = re.compile(r"[\w.-]{1,200}")  # what else stands in that cell may name someone, and rejects are published
LONGEST_NOTE = 2000
LONGEST_CELL = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """One reviewer's word on one question.

    Attributes:
        question_id: the question.
        content_sha256: what it read like then.
        reviewer: who.
        answers: yes or no to each of `CRITERIA`.
        note: the reviewer's words, if any.
        file: the review file, as the config names it.
        line: line or task in it, from 1.
    """

    question_id: str
    content_sha256: str
    reviewer: str
    answers: Mapping[str, bool]
    note: str | None
    file: str
    line: int

    @property
    def flagged(self) -> bool:
        """Whether it speaks for leaving the question out."""
        return any(self.answers[name] is flag for name, flag in FLAGS_WHEN.items())


def read_reviews(path: Path, name: str) -> Iterator[Verdict | Reject]:
    """The verdicts of a file, in its order; rows that nobody filled in are passed over.

    Args:
        path: the file; JSON where its name ends so, else CSV.
        name: what rows call it.

    Raises:
        InputError: it is missing, not text, no JSON, or lacks a column.
    """
    rows = _json_rows(path, name) if path.suffix.lower() == ".json" else _csv_rows(path, name)
    seen: dict[tuple[str, str], int] = {}
    for line, row in rows:
        one = row if isinstance(row, Reject) else _verdict(row, name, line)
        if isinstance(one, Verdict):
            before = seen.setdefault((one.question_id, one.reviewer), line)
            if before != line:
                detail = f"expected one row a reviewer and question, found another in {before}"
                one = Reject(one.question_id, "reviewed_twice", detail, name, line)
        if isinstance(one, Reject):
            one = one._replace(item=one.item if _ID.fullmatch(one.item) else "")
        if one is not None:
            yield one


def _csv_rows(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any] | Reject]]:
    rows = read_rows(path, name)
    _, header = next(rows, (0, []))
    names = [] if isinstance(header, Reject) else [cell.strip() for cell in header]
    if missing := [column for column in COLUMNS[:-1] if column not in names]:
        raise InputError(f"{name}: expected the column '{missing[0]}', found '{shown(', '.join(names))}'")
    for line, row in rows:
        yield line, row if isinstance(row, Reject) else dict(zip(names, row, strict=False))


def _json_rows(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        tasks = json.loads(read_regular(path))
    except OSError as error:
        raise unreadable(name, error) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: expected Label Studio's JSON export: {error}") from None
    if not isinstance(tasks, list):
        raise InputError(f"{name}: expected a list of tasks, found {type(tasks).__name__}")
    for number, task in enumerate(tasks, 1):
        if not isinstance(task, dict):
            yield number, {"question_id": shown(json.dumps(task))}
        elif isinstance(task.get("annotations"), list):
            data = task["data"] if isinstance(task.get("data"), dict) else {}
            for annotation in task["annotations"]:
                if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
                    yield number, {**_texts(data), **_annotated(annotation)}
        else:  # JSON-MIN: the task's data and the answers side by side
            yield number, {**_texts(task), "reviewer": _reviewer(task.get("annotator")), **_notes(task.get("note"))}


def _texts(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name in COLUMNS if isinstance(value := data.get(name), str)}


def _annotated(annotation: Mapping[str, Any]) -> dict[str, str]:
    """The answers of one annotation: `choices` by the control's name, `text` for the note."""
    answers = {"reviewer": _reviewer(annotation.get("completed_by"))}
    results = annotation.get("result")
    for result in results if isinstance(results, list) else []:
        if not isinstance(result, dict) or not isinstance(result.get("value"), dict):
            continue
        name, value = result.get("from_name"), result["value"]
        if name in CRITERIA and isinstance(value.get("choices"), list):
            answers[name] = ",".join(map(str, value["choices"]))
        elif name == "note":
            answers |= _notes(value.get("text"))
    return answers


def _notes(value: Any) -> dict[str, str]:
    lines = value if isinstance(value, list) else [value] if value else []
    return {"note": "\n".join(map(str, lines))} if lines else {}


def _reviewer(value: Any) -> str:
    """An annotator is a number, or an object with one; addresses and names of accounts are not taken."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return "" if value is None else f"annotator-{value}"


def _verdict(row: Mapping[str, Any], name: str, line: int) -> Verdict | Reject | None:
    """A row's verdict. A reject's detail quotes no cell: in a row that is shifted it may be anyone's name or words."""
    cells = {column: str(row.get(column) or "").strip() for column in COLUMNS}
    if not any(cells[column] for column in CRITERIA):
        return None if cells["question_id"] else _reject(row, "no_question_id", "expected one, found none", name, line)
    answers = {}
    for column in CRITERIA:
        answer = _YES.get(cells[column].casefold())
        if answer is None:
            detail = f"expected yes or no in {column}, found {'something else' if cells[column] else 'nothing'}"
            return _reject(row, "not_yes_or_no", detail, name, line)
        answers[column] = answer
    if "@" in cells["reviewer"]:
        detail = "expected a pseudonym or number in reviewer, found an address; it would be published"
        return _reject(row, "reviewer_is_an_address", detail, name, line)
    for column in ("question_id", "content_sha256", "reviewer"):
        if not cells[column] or len(cells[column]) > LONGEST_CELL:
            length = f"more than {LONGEST_CELL} characters" if cells[column] else "nothing"
            return _reject(row, f"no_{column}", f"expected a {column}, found {length}", name, line)
    if not _ID.fullmatch(cells["question_id"]):
        return _reject(row, "no_question_id", "expected the id of a question, found something else", name, line)
    note = scrub(cells["note"])[:LONGEST_NOTE] or None
    return Verdict(cells["question_id"], cells["content_sha256"], cells["reviewer"], answers, note, name, line)


def _reject(row: Mapping[str, Any], reason: str, detail: str, name: str, line: int) -> Reject:
    return Reject(shown(row.get("question_id") or ""), reason, detail, name, line)


def gather_reviews(
    files: Iterable[tuple[Path, str]], contents: Mapping[str, str]
) -> tuple[list[Verdict], list[Reject]]:
    """The verdicts of several files, one a question and reviewer: rather one on the question as it reads now.

    Args:
        files: each file, and what rows call it.
        contents: what each question reads like now, by its id.

    Raises:
        InputError: a file cannot be read.
    """
    kept: dict[tuple[str, str], Verdict] = {}
    refused: list[Reject] = []
    for path, name in files:
        for one in read_reviews(path, name):
            if isinstance(one, Reject):
                refused.append(one)
                continue
            key = one.question_id, one.reviewer
            before = kept.setdefault(key, one)
            if before is not one:
                if applies(one, contents) and not applies(before, contents):
                    kept[key], one = one, before
                detail = f"expected one review a question and reviewer, found another by {one.reviewer}"
                who = (("annotator", one.reviewer),)
                refused.append(Reject(one.question_id, "reviewed_twice", detail, one.file, one.line, made_from=who))
    return [kept[key] for key in sorted(kept)], refused


def applies(verdict: Verdict, contents: Mapping[str, str]) -> bool:
    """Whether a verdict is of a question as it reads now."""
    return contents.get(verdict.question_id) == verdict.content_sha256


def left_out(verdicts: Iterable[Verdict], by: Literal["any", "majority", "all"]) -> dict[str, list[Verdict]]:
    """The questions that reviewers flag, with the verdicts that do.

    Args:
        verdicts: those on questions as they read now.
        by: how many of a question's reviewers must flag it.
    """
    by_question: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_question[verdict.question_id].append(verdict)
    flagged = {}
    for question, own in by_question.items():
        flags = [verdict for verdict in own if verdict.flagged]
        need = {"any": 1, "majority": len(own) // 2 + 1, "all": len(own)}[by]
        if len(flags) >= need:
            flagged[question] = flags
    return flagged
