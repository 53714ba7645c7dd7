"""Questions go out to reviewers and come back; what they flag leaves the set."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.score_questions import CORPUS
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.release.withdrawal import search, withdraw
from earmark.tasks.score_questions.review_agreement import agreements, alphas
from earmark.tasks.score_questions.review_files import CONFIG, SHEET, TASKS, contents_of, write_review, write_verdicts
from earmark.tasks.score_questions.reviews import (
    CRITERIA,
    DELETES,
    REQUIRED,
    ReviewerVerdict,
    gather_reviews,
    left_out,
    read_reviews,
)
from earmark.tasks.store.versions import Store, Version
from tests.builds import restate, traces
from tests.score_questions.questions import build_questions, config_of, rows_of, thread

GOOD = {"musically_correct": "yes", "options_relevant": "yes", "offensive": "no", "ambiguous": "no"}
BAD = GOOD | {"ambiguous": "yes"}
NAMES = [f"{number:016x}" for number in range(6)]


def built(folder: Path, **other: Any) -> Version:
    return build_questions(config_of(folder, **other), folder / "store", [thread(number) for number in range(6)])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a version of six questions."""
    return built(tmp_path_factory.mktemp("first")).folder.parents[1]


@pytest.fixture
def version(first: Path, tmp_path: Path) -> Version:
    """That version in a store of the test's own."""
    return Store(Path(shutil.copytree(first, tmp_path / "store"))).find(CORPUS.name)


def filled(sheet: Path, reviewer: str, answers: Callable[[str], dict[str, str]]) -> Path:
    """The sheet as a reviewer saves it from a spreadsheet."""
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    path = sheet.with_name(f"{reviewer}.csv")
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys(), lineterminator="\r\n")
        table.writeheader()
        table.writerows({**row, "reviewer": reviewer, **answers(row["question_id"])} for row in rows)
    return path


def annotated(tasks: Path, annotators: dict[int, Callable[[str], dict[str, str]]], min_: bool = False) -> Path:
    """Label Studio's export of the tasks, as its documentation shows it: JSON, or JSON-MIN."""
    exported: list[dict[str, Any]] = []
    for number, task in enumerate(json.loads(tasks.read_text("utf-8")), 1):
        said = {who: answers(task["data"]["question_id"]) for who, answers in annotators.items()}
        if min_:
            exported += [{"id": number, **task["data"], **held, "annotator": who} for who, held in said.items()]
            continue
        annotations = [
            {
                "id": 1000 * number + who,
                "completed_by": {"id": who, "email": "someone@example.org", "first_name": "Some", "last_name": "One"},
                "was_cancelled": False,
                "lead_time": 4.2,
                "result": [
                    {
                        "id": "Dx_aB91ISN",
                        "from_name": name,
                        "to_name": "question",
                        "type": "choices",
                        "origin": "manual",
                        "value": {"choices": [value]},
                    }
                    for name, value in held.items()
                ]
                + [{"from_name": "note", "to_name": "question", "type": "textarea", "value": {"text": ["Fine."]}}],
            }
            for who, held in said.items()
        ]
        skipped = {"id": 7, "completed_by": 9, "was_cancelled": True, "result": []}
        exported.append({"id": number, "data": task["data"], "annotations": [*annotations, skipped], "predictions": []})
    path = tasks.with_name("exported.json")
    path.write_text(json.dumps(exported), "utf-8")
    return path


@pytest.mark.slow
def test_round_trip_through_a_spreadsheet_and_label_studio(version: Version, tmp_path: Path) -> None:
    assert write_review(version, tmp_path / "out") == 6
    sheet = filled(tmp_path / "out" / SHEET, "alice", lambda name: BAD if name in NAMES[:2] else GOOD)
    export = annotated(tmp_path / "out" / TASKS, {3: lambda name: BAD if name == NAMES[0] else GOOD})
    verdicts, refused = gather_reviews([(sheet, "alice.csv"), (export, "ls.json")])
    assert refused == []
    assert {verdict.reviewer for verdict in verdicts} == {"alice", "annotator-3"}
    assert sorted(left_out(verdicts, "any")) == NAMES[:2]
    assert sorted(left_out(verdicts, "majority")) == sorted(left_out(verdicts, "all")) == NAMES[:1]
    assert {verdict.note for verdict in verdicts if verdict.reviewer == "annotator-3"} == {"Fine."}
    (flags,) = [one for one in agreements(verdicts) if one.criterion == "flagged"]
    assert (flags.reviewers, flags.both, round(flags.share, 3)) == (("alice", "annotator-3"), 6, 0.833)
    assert flags.kappa == pytest.approx((5 / 6 - 22 / 36) / (1 - 22 / 36))
    (all_,) = [one for one in alphas(verdicts) if one.criterion == "flagged"]
    assert (all_.questions, all_.reviews, round(all_.share, 3)) == (6, 12, 0.833)
    assert all_.alpha == pytest.approx(1 - 11 * 2 / (2 * 3 * 9))  # 3 of 12 reviews flag, one question parts them

    write_verdicts(tmp_path / "reviews.csv", verdicts)
    again = built(tmp_path, review=["reviews.csv"])
    assert {row["question_id"] for row in rows_of(again, "questions")} == set(NAMES[2:])
    assert {row["question_id"] for row in rows_of(again, "sources")} == set(NAMES[2:])
    rejects = rows_of(again, "rejects")
    assert {(row["item"], row["stage"], row["reason"]) for row in rejects} == {
        (name, "review", "flagged") for name in NAMES[:2]
    }
    assert "alice says ambiguous" in rejects[0]["detail"]
    reviews = rows_of(again, "reviews")
    assert len(reviews) == 12
    assert all(row["applies"] for row in reviews)
    letters = {row["question_id"]: row["truth_letter"] for row in rows_of(version, "questions")}
    assert all(letters[row["question_id"]] == row["truth_letter"] for row in rows_of(again, "questions"))


@pytest.mark.slow
def test_options_that_reviewers_delete_leave_and_the_rest_stays_a_question(version: Version, tmp_path: Path) -> None:
    before = {row["question_id"]: row for row in rows_of(version, "questions")}
    wrong = {name: [x for x in "ABCD" if x != row["truth_letter"]] for name, row in before.items()}
    gone = {NAMES[0]: wrong[NAMES[0]][:1], NAMES[1]: wrong[NAMES[1]][1:2], NAMES[2]: wrong[NAMES[2]][:2]}
    write_review(version, tmp_path / "out")
    said = {name: GOOD | {DELETES: ", ".join(gone.get(name, []))} for name in NAMES}
    said[NAMES[0]]["note"] = "Irrelevant: of another bar."
    said[NAMES[3]][DELETES] = before[NAMES[3]]["truth_letter"]  # the right one cannot be deleted
    right = before[NAMES[5]]["options"]["ABCD".index(before[NAMES[5]]["truth_letter"])]
    said[NAMES[5]][DELETES] = hashlib.sha256(right.encode()).hexdigest()[:12]  # nor by its id
    said[NAMES[4]][DELETES] = "0" * 12  # formed like an option's id, and nobody's
    sheet = filled(tmp_path / "out" / SHEET, "alice", lambda name: said[name])
    verdicts, refused = gather_reviews([(sheet, "alice.csv")])
    assert [(one.item, one.reason) for one in refused] == [(name, "bad_value") for name in NAMES[3:]]
    write_verdicts(tmp_path / "reviews.csv", verdicts)

    again = built(tmp_path, review=["reviews.csv"])
    after = {row["question_id"]: row for row in rows_of(again, "questions")}
    assert after.keys() == before.keys() - {NAMES[2]}
    for name, row in after.items():
        texts = {before[name]["options"]["ABCD".index(x)] for x in gone.get(name, [])}
        assert set(row["options"]) == set(before[name]["options"]) - texts
        right = [one["options"]["ABCD".index(one["truth_letter"])] for one in (before[name], row)]
        assert right[0] == right[1]
        assert (row["content_sha256"] == before[name]["content_sha256"]) == (not texts)
    assert after[NAMES[0]]["truth_letter"] != after[NAMES[1]]["truth_letter"]  # two of three options: places in turn
    rejects = [(row["table"], row["item"], row["reason"]) for row in rows_of(again, "rejects")]
    options = [("options", name, "option_deleted") for name in (*NAMES[:3], NAMES[2])]
    assert sorted(rejects) == sorted([*options, ("questions", NAMES[2], "too_few_options")])
    details = {row["item"]: row["detail"] for row in rows_of(again, "rejects") if row["table"] == "options"}
    assert "alice ('Irrelevant: of another bar.') deleted" in details[NAMES[0]]
    assert all(row["applies"] for row in rows_of(again, "reviews"))

    write_review(again, tmp_path / "next")  # a second reviewer, or the first, sees what is left, and it counts
    for who in ("bob", "alice"):
        later = f"{who} later.csv"
        filled(tmp_path / "next" / SHEET, who, lambda name: BAD if name == NAMES[0] else GOOD).rename(tmp_path / later)
        third = built(tmp_path, review=["reviews.csv", later])
        assert {row["question_id"] for row in rows_of(third, "questions")} == set(NAMES) - {NAMES[0], NAMES[2]}
        assert len(rows_of(third, "options")) == 3 + 4 * 3
        given = {(row["question_id"], row["reviewer"], row["flagged"]) for row in rows_of(third, "reviews")}
        assert (NAMES[0], who, True) in given
        assert len(given) == len(rows_of(third, "reviews")) == (8 if who == "bob" else 6)
    rounds = [tmp_path / "reviews.csv", tmp_path / "alice later.csv"]
    words = ["people", "review", "import", "score-questions", *map(str, rounds), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "both.csv"), "--json"])
    assert json.loads(done.stdout)["refused"] == []
    with (tmp_path / "both.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 + 5
    fourth = built(tmp_path, review=["both.csv"])
    assert rows_of(fourth, "options") == rows_of(third, "options")


@pytest.mark.slow
def test_a_reviewer_who_is_withdrawn_is_named_nowhere(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    for number, (who, bad) in enumerate((("alice", NAMES[:1]), ("bob", NAMES[1:2]), ("alice", NAMES[:1]))):
        sheet = filled(tmp_path / "out" / SHEET, who, lambda name, bad=bad: BAD if name in bad else GOOD)  # type: ignore[misc]
        sheet.rename(tmp_path / f"{number}.csv")
    again = built(tmp_path, review=["0.csv", "1.csv", "2.csv"])
    assert {row["reason"] for row in rows_of(again, "rejects")} == {"flagged", "duplicate_id"}
    store, known = Store(tmp_path / "store"), {CORPUS.name: CORPUS}
    withdraw(store, known, search(store, known, "annotator", "alice"), "asked for")
    left = store.find(CORPUS.name)
    assert traces(again, ["alice"]) != traces(left, ["alice"]) == []
    assert [row["item"] for row in rows_of(left, "rejects")] == NAMES[1:2]
    assert {row["reviewer"] for row in rows_of(left, "reviews")} == {"bob"}


def test_the_command_shows_how_far_reviewers_agree(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    sheet = filled(tmp_path / "out" / SHEET, "alice", lambda name: BAD if name in NAMES[:2] else GOOD)
    export = annotated(tmp_path / "out" / TASKS, {3: lambda name: BAD if name == NAMES[0] else GOOD})
    words = [
        "people",
        "review",
        "import",
        "score-questions",
        str(sheet),
        str(export),
        "--store",
        str(tmp_path / "store"),
    ]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.output.splitlines()]
    assert ["flagged", "alice", "annotator-3", "6", "83", "%", "0.57"] in rows
    facts = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [row["criterion"] for row in facts["agreement"]] == [*CRITERIA, "flagged"]
    assert "count as" not in shown.output
    twice = filled(tmp_path / "out" / SHEET, "Alice", lambda name: GOOD).rename(tmp_path / "again.csv")
    filled(tmp_path / "out" / SHEET, "alice", lambda name: GOOD)
    shown = CliRunner().invoke(app, [*words, str(twice)], env={"COLUMNS": "160"})
    assert "Alice, alice count as 2 reviewers" in shown.output


def test_rows_with_one_fault_are_one_line_with_their_number(version: Version, tmp_path: Path) -> None:
    """A spreadsheet wrote ids as numbers; and each of thirty rows has a fault of its own."""
    rows = [f"{1 + at / 1000}E+15,c,alice,yes,yes,no,no," for at in range(1, 60)]
    own = [row for at in range(30) for row in (f"q{at},c,bob,yes,yes,no,no,", f"q{at},c,bob,no,yes,no,no,")]
    sheet = tmp_path / "a.csv"
    sheet.write_text("\n".join([",".join([*REQUIRED, "note"]), *rows, *own, ""]), "utf-8")
    words = ["people", "review", "import", "score-questions", str(sheet), "--store", str(tmp_path / "store")]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output
    said = [line for line in shown.splitlines() if line.startswith("not read: ")]
    assert said[0] == (
        "not read: a.csv, 2 and 58 more rows: expected the id of a question, found a number as spreadsheets write it; "
        "import the column question_id as text"
    )
    assert (len(said), said[-1]) == (21, "not read: 11 more rows; --json lists them")
    assert len(json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["refused"]) == 89


@pytest.mark.slow
def test_no_table_is_written_of_files_without_a_review(version: Version, tmp_path: Path) -> None:
    """A sheet whose every row has an answer in another language."""
    write_review(version, tmp_path / "review")
    sheet = filled(tmp_path / "review" / SHEET, "alice", lambda name: GOOD | {"offensive": "nein"})
    words = ["people", "review", "import", "score-questions", str(sheet), "--store", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "reviews.csv")])
    assert isinstance(done.exception, InputError)
    assert "found none in 1 files" in str(done.exception)
    assert "expected yes or no in offensive" in str(done.exception)
    assert not (tmp_path / "reviews.csv").exists()


def test_reviews_of_another_wording_do_not_count(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    sheet = filled(tmp_path / "out" / SHEET, "alice", lambda name: BAD)
    text = sheet.read_text("utf-8-sig")
    stale = contents_of(version)[NAMES[0]]
    (tmp_path / "alice.csv").write_text(text.replace(stale, "0" * 64), "utf-8")
    again = built(tmp_path, review=["alice.csv"])
    assert {row["question_id"] for row in rows_of(again, "questions")} == {NAMES[0]}
    assert [row["question_id"] for row in rows_of(again, "reviews") if not row["applies"]] == [NAMES[0]]
    (step,) = [step for step in again.manifest.steps if step.name == "review-files"]
    assert step.notes == ("1 of 6 reviews are of questions that read otherwise now, or are none: not counted",)


def test_json_min_is_read_too(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    export = annotated(tmp_path / "out" / TASKS, {4: lambda name: GOOD, 5: lambda name: BAD}, min_=True)
    found = list(read_reviews(export, "min.json"))
    assert len([one for one in found if isinstance(one, ReviewerVerdict)]) == 12
    assert {one.reviewer for one in found if isinstance(one, ReviewerVerdict)} == {"annotator-4", "annotator-5"}


@pytest.mark.parametrize("min_", [False, True])
def test_options_are_deleted_in_label_studio_too(version: Version, tmp_path: Path, min_: bool) -> None:
    wrong = {row["question_id"]: "B" if row["truth_letter"] == "A" else "A" for row in rows_of(version, "questions")}
    texts = {
        row["question_id"]: row["options"]["AB".index(wrong[row["question_id"]])]
        for row in rows_of(version, "questions")
    }
    write_review(version, tmp_path / "out")
    export = annotated(tmp_path / "out" / TASKS, {4: lambda name: GOOD | {DELETES: wrong[name]}}, min_=min_)
    verdicts = [one for one in read_reviews(export, "ls.json") if isinstance(one, ReviewerVerdict)]
    assert {one.question_id: one.deletes for one in verdicts} == {
        name: (hashlib.sha256(text.encode()).hexdigest()[:12],) for name, text in texts.items()
    }


def test_what_goes_out_is_whole(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out", images_at="/data/local-files/?d=images")
    tasks = json.loads((tmp_path / "out" / TASKS).read_text("utf-8"))
    asked = {row["question_id"]: row for row in rows_of(version, "questions")}
    for task in tasks:
        row = asked[task["data"]["question_id"]]
        assert task["data"]["image"] == f"/data/local-files/?d=images/{row['image']['path']}"
        assert (tmp_path / "out/images" / row["image"]["path"]).read_bytes() == row["image"]["bytes"]
    write_review(version, tmp_path / "out", force=True)
    (first, *_) = json.loads((tmp_path / "out" / TASKS).read_text("utf-8"))
    kind, _, data = first["data"]["image"].partition(";base64,")
    assert kind == "data:image/png"
    digest = hashlib.sha256(base64.b64decode(data)).hexdigest()
    assert digest == asked[first["data"]["question_id"]]["image_sha256"]


@pytest.mark.parametrize("changed", [{"path": "outside.webp"}, {"bytes": b"other"}])
def test_a_strangers_images_are_written_by_their_hash_alone(
    version: Version, tmp_path: Path, changed: dict[str, Any]
) -> None:
    """The name is joined to the folder of the test: an absolute path, as a stranger's version may hold it."""
    for path in version.files("questions"):
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            row["image"] |= {name: str(tmp_path / one) if name == "path" else one for name, one in changed.items()}
        path.chmod(0o644)
        pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(path)), path)
    restate(version)
    if "bytes" in changed:
        with pytest.raises(StoreError, match="expected an embedded file of SHA-256"):
            write_review(version, tmp_path / "out")
        return
    write_review(version, tmp_path / "out")
    assert not (tmp_path / "outside.webp").exists()
    assert '"data:image/webp;base64,' in (tmp_path / "out" / TASKS).read_text("utf-8")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out/images").iterdir()}
    rows = rows_of(version, "questions")
    assert written == {f"{row['image_sha256']}.webp": row["image"]["bytes"] for row in rows}


@pytest.mark.slow
def test_label_studios_configuration_asks_what_is_read(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    view = ElementTree.parse(tmp_path / "out" / CONFIG).getroot()
    objects = {node.get("name"): node.get("value") for node in view if node.tag in ("Image", "Text")}
    choices = {node.get("name"): [held.get("value") for held in node] for node in view.iter("Choices")}
    assert choices == {**{name: ["yes", "no"] for name in CRITERIA}, DELETES: list("ABCDEFGH")}
    assert all(node.get("toName") in objects for node in view if node.get("toName"))
    (task, *_) = json.loads((tmp_path / "out" / TASKS).read_text("utf-8"))
    assert {str(value).removeprefix("$") for value in objects.values()} <= task["data"].keys()


def test_review_folder_is_not_overwritten(version: Version, tmp_path: Path) -> None:
    write_review(version, tmp_path / "out")
    with pytest.raises(StoreError, match="--force"):
        write_review(version, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True])
def test_no_export_replaces_filled_in_sheets(tmp_path: Path, older: bool) -> None:
    """An earlier release marked the folder as an export is marked; `people review export` still knows it."""
    version = built(tmp_path)
    out = tmp_path / "out"
    write_review(version, out)
    if older:
        (mark,) = out.glob("prepared.json")
        mark.rename(out / "export.json")
    (out / SHEET).write_text("filled in", "utf-8")
    with pytest.raises(StoreError, match=r"^--out: [^\n]*$"):
        export(version, CORPUS, Store(tmp_path / "store"), out, ExportOptions("jsonl", table="questions", force=True))
    assert (out / SHEET).read_text("utf-8") == "filled in"
    with pytest.raises(StoreError, match=r"reviews\.csv was changed: .*'question_id', found 'filled in'$"):
        write_review(version, out, force=True)
    (out / SHEET).unlink()
    write_review(version, out, force=True)
    assert len((out / SHEET).read_text("utf-8").splitlines()) > len(NAMES)


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        ({NAMES[0]: GOOD, NAMES[3]: {"offensive": "no"}}, "2 rows"),  # a half row is work too
        ({NAMES[1]: {"note": "Which bar?"}}, "1 row"),
        ({NAMES[1]: {DELETES: "A"}}, "1 row"),
    ],
)
@pytest.mark.parametrize("purpose", ["questions", "detection"])
def test_force_replaces_no_sheet_with_answers(
    version: Version, tmp_path: Path, said: dict[str, dict[str, str]], rows: str, purpose: str
) -> None:
    out = tmp_path / "out"
    write_review(version, out)
    sheet = filled(out / SHEET, "alice", lambda name: said.get(name, {}))
    words = ["people", "review", "export", "score-questions", "--for", purpose, "--out", str(out)]
    words += ["--force", "--store", str(tmp_path / "store")]
    beside = CliRunner().invoke(app, words)  # under a name of its own beside the sheet
    assert isinstance(beside.exception, StoreError)
    assert "holds alice.csv too" in str(beside.exception)
    assert sheet.is_file()
    kept = sheet.replace(out / SHEET).read_bytes()
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, StoreError)
    assert f"{out / SHEET} has answers in {rows}; move it away" in str(done.exception)
    assert (out / SHEET).read_bytes() == kept
    assert [path.name for path in tmp_path.glob("*out*")] == ["out"]
    filled(out / SHEET, "bob", lambda name: dict.fromkeys((*CRITERIA, DELETES, "note"), "")).replace(out / SHEET)
    words[words.index(purpose)] = "questions"
    assert CliRunner().invoke(app, words).exit_code == 0  # names alone are no answers
