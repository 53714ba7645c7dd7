"""Sheets and exports that reviewers send back are read, rejected by row or refused in a line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.reasons import Reject
from earmark.tasks.score_questions.review_files import SHEET, write_review, write_verdicts
from earmark.tasks.score_questions.reviews import (
    CRITERIA,
    ReviewerVerdict,
    read_reviews,
)
from tests.score_questions.questions import build_questions, config_of, thread

QUESTION = f"{0:016x}"


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    rows = [
        thread(
            0,
            title='=HYPERLINK("http://evil.example")',
            comments=[("@SUM(1+1) is what it is worth", 3), ("-1 of it", 2)],
        )
    ]
    version = build_questions(config_of(tmp_path), tmp_path / "store", rows)
    write_review(version, tmp_path / "out")
    verdict = ReviewerVerdict("q", "c", "=cmd", dict.fromkeys(CRITERIA, True), "+1", "f", 1)
    write_verdicts(tmp_path / "reviews.csv", [verdict])
    for path in (tmp_path / "out" / SHEET, tmp_path / "reviews.csv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            assert not [cell for row in csv.reader(file) for cell in row if cell.startswith(("=", "+", "-", "@"))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("q,c,alice,maybe,yes,no,no,", "bad_value"),
        ("q,c,,yes,yes,no,no,", "missing_value"),
        ("q,c,alice@example.org,yes,yes,no,no,", "bad_value"),
        ("q,c,yes,alice@example.org,yes,no,no,", "bad_value"),  # shifted: a cell is lost
        ("alice@example.org,q,c,yes,yes,no,no,", "missing_value"),
        ('q,c,"alice@example.org" x,yes,yes,no,no,', "bad_line"),
        (f"q,c,{'Alice of example.org ' * 20},yes,yes,no,no,", "missing_value"),
        (",c,alice,yes,yes,no,no,", "missing_value"),
        ("q,,alice,yes,yes,no,no,", "missing_value"),
        ("q,c,alice,yes,,no,no,", "bad_value"),
    ],
)
def test_rows_that_cannot_be_read_are_rejects(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    head = "question_id,content_sha256,reviewer,musically_correct,options_relevant,offensive,ambiguous,note"
    path.write_text(f"{head}\n{text}\nq,c,bob,,,,,\nq,c,carol,Yes,y,NO,0,\n", "utf-8")
    first, second = read_reviews(path, "a.csv")
    assert isinstance(first, Reject)
    assert (first.reason, first.source_file, first.line) == (reason, "a.csv", 2)
    assert isinstance(second, ReviewerVerdict)
    assert second.reviewer == "carol"
    assert "example.org" not in first.item + first.detail


@pytest.mark.parametrize("quote", ["", '"'])  # some quote every cell, and the header's too
@pytest.mark.parametrize(("delimiter", "encoding"), [(";", "utf-8-sig"), ("\t", "utf-16"), (",", "utf-8")])
def test_sheets_that_spreadsheets_save_with_other_delimiters_are_read(
    tmp_path: Path, delimiter: str, encoding: str, quote: str
) -> None:
    cells = {**dict.fromkeys(CRITERIA, "yes"), "question_id": QUESTION, "content_sha256": "c", "reviewer": "carol"}
    head, row = (delimiter.join(f"{quote}{cell}{quote}" for cell in line) for line in (cells, cells.values()))
    rows = [head, delimiter * (len(cells) - 1), row]  # one was emptied
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n", encoding)
    (one,) = read_reviews(tmp_path / "a.csv", "a.csv")
    assert isinstance(one, ReviewerVerdict)
    assert (one.reviewer, one.question_id) == ("carol", QUESTION)


@pytest.mark.parametrize("note", ["na\xefve", "plain"])
def test_a_sheet_in_another_encoding_is_refused_in_a_line(tmp_path: Path, note: str) -> None:
    """Excel's plain CSV is Windows-1252: rows without an accent would be read, and the others lost."""
    cells = {**dict.fromkeys(CRITERIA, "no"), "question_id": QUESTION, "content_sha256": "c", "reviewer": "carol"}
    rows = [[*cells, "note"], [*cells.values(), "fine"], [*cells.values(), note], [*cells.values(), "fine"]]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(map(";".join, rows)) + "\n", "cp1252")
    if note == "plain":
        assert isinstance(next(read_reviews(path, "a.csv")), ReviewerVerdict)
        return
    with pytest.raises(
        InputError, match=r"a.csv, line 3: expected UTF-8, found byte 0xef .*; save the sheet as CSV in"
    ):
        list(read_reviews(path, "a.csv"))


@pytest.mark.parametrize("note", ["=1+1 is odd", "-5 dB", "+2 dB", "'quoted'", "''= twice"])
def test_the_apostrophe_against_formulas_does_not_come_back(tmp_path: Path, note: str) -> None:
    """However often a table of reviews is written and read."""
    one = ReviewerVerdict(QUESTION, "c", "-dash", dict.fromkeys(CRITERIA, True), note, "reviews.csv", 2)
    for _ in range(3):
        write_verdicts(tmp_path / "reviews.csv", [one])
        (cells,) = csv.DictReader((tmp_path / "reviews.csv").read_text("utf-8").splitlines())
        assert not cells["note"].startswith(("=", "-", "+"))
        assert list(read_reviews(tmp_path / "reviews.csv", "reviews.csv")) == [one]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "question_id,reviewer\n", "expected the column 'content_sha256', found 'question_id, reviewer'"),
        ("a.csv", "", "expected the column 'question_id', found ''"),
        ("a.json", "{", "expected Label Studio's JSON export, a list of tasks, found: Expecting"),
        ("a.json", "{}", "expected Label Studio's JSON export, a list of tasks, found {}"),
        ("b.csv", None, "file not found"),
    ],
)
def test_files_that_are_no_reviews_are_one_line(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(InputError, match=said):
        list(read_reviews(tmp_path / name, name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "annotations", "result", "value", "choices", "from_name", "question_id", "offensive"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(tasks=st.lists(JSON, max_size=4))
def test_no_json_stops_the_reading(tmp_path_factory: pytest.TempPathFactory, tasks: list[Any]) -> None:
    path = tmp_path_factory.mktemp("reviews") / "a.json"
    path.write_text(json.dumps(tasks), "utf-8")
    assert all(isinstance(found, ReviewerVerdict | Reject) for found in read_reviews(path, "a.json"))
