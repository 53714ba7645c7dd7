"""WildScore's released form: read as it is published, written back, and kept out of what is built."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.score_questions import CORPUS
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.released import released
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart, find_evaluation, select_samples
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.score_questions.forum.images import find_scores
from earmark.tasks.score_questions.released import WANTED, read
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import Store, open_store
from tests.score_questions import drawings
from tests.score_questions.forum.threads_of import (
    SALT,
    comment,
    forum_config,
    read_threads,
    submission,
    write_dump,
)
from tests.score_questions.questions import build_questions, config_of, picture, thread

OPTIONS = {"A": "a slur", "B": "a tie", "C": "a phrase mark"}


def page(seed: int) -> bytes:
    """The file of a drawn page of staves."""
    out = io.BytesIO()
    drawings.score(seed).save(out, "PNG")
    return out.getvalue()


def line(number: int, **other: Any) -> dict[str, str]:
    """A row of `data.csv`, whose picture's name stands with its folder."""
    row = {"image": f"images/p{number}.png", "question": f"What is arc {number}?", "final_options": OPTIONS} | other
    return {"truth_letter": "B", **row, "final_options": json.dumps(row["final_options"])}


def write_set(folder: Path, rows: list[dict[str, str]]) -> Path:
    """A released set of these rows with a picture for each but the last."""
    (folder / "images").mkdir(parents=True)
    for number in range(len(rows) - 1):
        (folder / f"images/p{number}.png").write_bytes(picture(number))
    with (folder / "data.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*dict.fromkeys(name for row in rows for name in row)])
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_a_set_is_read_as_it_is_published(tmp_path: Path) -> None:
    gap = {"D": "a hairpin", "A": "a slur", "C": "a tie"}
    rows = [line(0), line(1, image="p1.png", final_options=gap, truth_letter=" c", category="Form"), line(0), line(9)]
    (tmp_path / "p9.png").symlink_to(tmp_path / "data.csv")
    found = read(write_set(tmp_path / "set", rows), tmp_path)["questions"]
    assert [row["question_id"] for row in found] == ["p0", "p1", "p0-2", "p9"]
    assert [row["truth_letter"] for row in found] == ["B", "B", "B", "B"]
    assert [row["options"] for row in found][:2] == [[*OPTIONS.values()], ["a slur", "a tie", "a hairpin"]]
    assert [row["category"] for row in found] == [None, "Form", None, None]
    assert [row["image"] and row["image"]["bytes"] for row in found] == [picture(0), picture(1), picture(0), None]
    embedded = [{**row, "image": {"bytes": picture(at), "path": f"p{at}.png"}} for at, row in enumerate(rows[::2])]
    plain = [{name: row[name] for name in WANTED} for row in embedded]
    pq.write_table(pa.Table.from_pylist(plain), tmp_path / "train.parquet")
    again = read(tmp_path / "train.parquet", tmp_path)["questions"]
    assert [row["image"]["bytes"] for row in again] == [picture(0), picture(1)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"truth_letter": "E"}, "line 3: expected a question, and one of A, B, C as truth_letter: 'E'"),
        ({"question": ""}, "line 3: expected a question"),
        ({"final_options": "A. this"}, "line 3: expected JSON of letters and texts as final_options, found 'A. this'"),
        ({"final_options": {"A": 3}}, "line 3: expected JSON of letters and texts"),
    ],
)
def test_a_row_of_another_form_is_one_line(tmp_path: Path, values: dict[str, Any], says: str) -> None:
    with pytest.raises(EarmarkError, match=says):
        read(write_set(tmp_path / "set", [line(0), line(1, **values)]), tmp_path)


def test_pictures_outside_the_set_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture(7))
    names = ["../secret.png", str(tmp_path / "secret.png"), "p2.png", "../../secret.png"]
    folder = write_set(tmp_path / "set", [line(0, image=name) for name in names])
    (folder / "images/p2.png").unlink()
    (folder / "images/p2.png").symlink_to(tmp_path / "secret.png")
    assert [row["image"] for row in read(folder, tmp_path)["questions"]] == [None] * 4


def test_questions_about_one_picture_depend_on_each_other_without_the_pictures_too(tmp_path: Path) -> None:
    """Ten questions on each of four pictures, as with the pictures at hand; a row without a name stands alone."""
    rows = [line(at // 10, image=f"{'images/' if at % 2 else ''}p{at // 10}.png") for at in range(40)]
    beside = write_set(tmp_path / "with", [*rows, line(0, image="")])
    shutil.copytree(beside, tmp_path / "without", ignore=shutil.ignore_patterns("*.png"))
    drawn = []
    for folder in (beside, tmp_path / "without"):
        with released(folder, "wildscore", Store(tmp_path / "store"), ()) as (version, corpus):
            asked = select_samples(version, corpus, find_evaluation(corpus, "questions"), SamplePart())
            with asked as samples:
                rows_of_units = samples.connection.execute("SELECT cluster, id FROM judged.samples").fetchall()
        drawn.append({unit: {name for of, name in rows_of_units if of == unit} for unit, _ in rows_of_units})
    assert [len(names) for names in drawn[1].values()] == [10, 10, 10, 10, 1]
    assert None in drawn[1]
    assert sorted(map(sorted, drawn[0].values())) == sorted(map(sorted, drawn[1].values()))


@pytest.mark.slow
def test_an_export_asks_what_its_version_asks(tmp_path: Path) -> None:
    """The same request keys: what was asked of the version is not paid again."""
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(number) for number in range(6)])
    store = Store(tmp_path / "store")
    export(version, CORPUS, store, tmp_path / "out", ExportOptions(format="wildscore"))
    examinee, asked = Examinee(annotator="builtin:score-judge-1"), []
    with released(tmp_path / "out", "wildscore", store, ()) as (theirs, known):
        for place, corpus in ((version, CORPUS), (theirs, known)):
            for mode in ("image", "text"):
                wish = MeasurementOptions("questions", mode)
                facts, folder = judging.judge(place, corpus, store, examinee, wish, tmp_path / f"{corpus.name}-{mode}")
                (table,) = folder.glob("*.parquet")
                requests = {tuple(row["request_keys"]) for row in pq.read_table(table).to_pylist()}
                asked.append((facts["samples"], facts["rows"][0]["metrics"]["accuracy"]["value"], requests))
    assert asked[0] == asked[2]
    assert asked[1] == asked[3]
    assert asked[0][2] != asked[1][2]


@pytest.mark.slow
def test_pictures_of_a_released_set_are_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are those of a version; a copy in another size and encoding is a reject of its own, and the others stay."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    monkeypatch.setattr("tests.score_questions.questions.picture", page)
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(3)])
    for name in ("images", "set/images"):
        (tmp_path / name).mkdir(parents=True)
    for number in range(4):
        drawings.score(number).save(tmp_path / f"images/s{number:04d}.png")
    copy = drawings.score(2)
    copy.resize((copy.width // 2, copy.height // 2)).save(tmp_path / "set/images/p0.jpg")
    rows = [line(0, image="p0.jpg"), line(1)]
    write_set(tmp_path / "other", rows)
    (tmp_path / "other/data.csv").rename(tmp_path / "set/data.csv")
    write_dump(tmp_path / "RS.ndjson", [submission(number) for number in range(4)])
    write_dump(tmp_path / "RC.ndjson", [comment(4 * n + m, n) for n in range(4) for m in range(3)])
    for against, lost in (([], 0), (["wildscore:set"], 1), (["wildscore:set", f"score-questions@{version.name}"], 2)):
        more = {"decontaminate": {"against": against}} if against else {}
        config = forum_config(tmp_path, images="images", **more)
        with staging(open_store(str(tmp_path / "store")), "score-questions", f"{lost}" * 64, say=print) as stage:
            candidates, texts = read_threads(stage, config)
            images = pq.read_table(find_scores(stage, config, texts.threads, candidates)).num_rows
            step = next(step for step in stage.steps() if step.name == "images")
        assert (images, step.rejected.get("decontaminated", 0)) == (4 - lost, lost)
        assert any("1 released questions have no picture" in note for note in step.notes) == bool(lost)
    (tmp_path / "set/images/p0.jpg").unlink()
    config = forum_config(tmp_path, images="images", decontaminate={"against": ["wildscore:set"]})
    with staging(open_store(str(tmp_path / "store")), "score-questions", "9" * 64, say=print) as stage:
        candidates, texts = read_threads(stage, config)
        with pytest.raises(InputError, match="found none that can be read for 2 questions"):
            find_scores(stage, config, texts.threads, candidates)
