"""Boxes for a detector: out to Label Studio, drawn by people, and back as COCO and YOLO text, in the same pixels."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.boxes import folder_images, version_images, write_boxes, write_training_data
from earmark.tasks.store.versions import Version
from tests.score_questions import drawings

SIDES = (400, 200)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Ten drawn pages and a blank one, with the detector's boxes."""
    scans = tmp_path / "scans"
    scans.mkdir()
    for seed in range(10):
        drawings.score(seed, staves=2).save(scans / f"page {seed}.png")
    Image.new("L", SIDES, "white").save(scans / "zz blank.png")
    (scans / "zzz text.png").write_text("no image")
    (scans / "notes.txt").write_text("of another kind")
    out = tmp_path / "boxes"
    found = write_boxes(folder_images(scans), Detector(), tmp_path, out, images_at=None, force=False)
    assert found == (
        11,
        ["zzz text.png: expected an image (PNG, JPEG, GIF, WEBP, BMP, TIFF), found none that can be decoded"],
    )
    return out


def returned(path: Path, tasks: list[dict[str, Any]]) -> Path:
    """A file as Label Studio exports it."""
    path.write_text(json.dumps(tasks), "utf-8")
    return path


def accepted(exported: Path) -> list[dict[str, Any]]:
    """The tasks as a person leaves them who finds every box right."""
    tasks = json.loads((exported / "label-studio-tasks.json").read_text("utf-8"))
    for at, task in enumerate(tasks):
        result = task.pop("predictions")[0]["result"]
        task["annotations"] = [{"result": result, "updated_at": f"2026-01-{at + 1:02}", "was_cancelled": False}]
    return tasks


def painted(size: tuple[int, int], boxes: list[tuple[float, float, float, float]]) -> np.ndarray[Any, Any]:
    """Boxes (edges in pixels) as a mask: what is compared is the picture, not the numbers."""
    page = Image.new("1", size)
    for left, top, right, bottom in boxes:
        ImageDraw.Draw(page).rectangle([round(left), round(top), round(right), round(bottom)], fill=1)
    return np.asarray(page)


def test_what_a_detector_drew_comes_back_where_it_was(exported: Path, tmp_path: Path) -> None:
    counts = write_training_data(
        exported, returned(tmp_path / "ls.json", accepted(exported)), tmp_path / "out", force=False
    )
    assert counts == {"images": 11, "score": 20}
    out = tmp_path / "out"
    coco = json.loads((out / "coco.json").read_text("utf-8"))
    assert [one["name"] for one in coco["categories"]] == ["score"]
    assert (out / "data.yaml").read_text("utf-8").splitlines()[-2:] == ["names:", '  0: "score"']
    empty = 0
    for image in coco["images"]:
        path = out / image["file_name"]
        with Image.open(path) as page:
            ink = np.asarray(page.convert("L")) < 128
        assert page.size == (image["width"], image["height"])
        boxes = [one["bbox"] for one in coco["annotations"] if one["image_id"] == image["id"]]
        mask = painted(page.size, [(x, y, x + w, y + h) for x, y, w, h in boxes])
        text = (out / "labels" / path.parent.name / f"{path.stem}.txt").read_text("utf-8")
        shares = [list(map(float, line.split()[1:])) for line in text.splitlines()]
        by_yolo = [
            ((x - w / 2) * page.width, (y - h / 2) * page.height, (x + w / 2) * page.width, (y + h / 2) * page.height)
            for x, y, w, h in shares
        ]
        assert (painted(page.size, by_yolo) != mask).mean() < 0.002
        empty += not boxes
        if boxes:  # two staves of a drawn page: there the ink is
            assert ink[mask].mean() > 2 * ink[~mask].mean()
    assert empty == 1
    assert {path.name for path in (out / "images").iterdir()} <= {"train", "val"}


def test_the_newest_annotation_counts_and_a_cancelled_one_does_not(exported: Path, tmp_path: Path) -> None:
    (task, *_) = accepted(exported)
    (annotation,) = task["annotations"]
    chart = json.loads(json.dumps(annotation["result"][:1]))
    chart[0]["value"]["rectanglelabels"] = ["chord chart"]
    task["annotations"] = [
        {"result": chart, "updated_at": "2026-03-02", "was_cancelled": False},
        {"result": annotation["result"], "updated_at": "2026-03-01", "was_cancelled": False},
        {"result": [], "updated_at": "2026-03-03", "was_cancelled": True},
    ]
    counts = write_training_data(exported, returned(tmp_path / "ls.json", [task]), tmp_path / "out", force=False)
    assert counts == {"images": 1, "chord chart": 1}


@pytest.mark.parametrize("degrees", [0, 30, 90, 200])
def test_a_turned_box_is_the_upright_one_around_it(exported: Path, tmp_path: Path, degrees: int) -> None:
    """A second way: complex numbers; Label Studio turns about the corner at the upper left."""
    blank = next(task for task in accepted(exported) if task["data"]["name"] == "zz blank.png")
    value = {"x": 50, "y": 50, "width": 10, "height": 10, "rotation": degrees, "rectanglelabels": ["score"]}
    task = {**blank["data"], "boxes": [value], "updated_at": "2026-01-01"}
    write_training_data(exported, returned(tmp_path / "min.json", [task]), tmp_path / "out", force=False)
    (box,) = json.loads((tmp_path / "out/coco.json").read_text("utf-8"))["annotations"]
    turn = complex(math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    corners = [complex(200, 100) + turn * complex(x, y) for x in (0, 40) for y in (0, 20)]
    low = min(c.real for c in corners), min(c.imag for c in corners)
    high = max(c.real for c in corners), max(c.imag for c in corners)
    assert box["bbox"] == pytest.approx([*low, high[0] - low[0], high[1] - low[1]], abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: task["data"].update(file="../../etc/passwd"), "task 1: expected an image of boxes in 'file'"),
        (lambda task: task["data"].update(file="other.png"), "expected an image of boxes in 'file', found 'other.png'"),
        (lambda task: task["annotations"][0]["result"][0]["value"].pop("x"), "task 1: expected boxes with a label"),
        (lambda task: task["annotations"][0]["result"][0]["value"].update(width=-1), "expected boxes with a label"),
        (lambda task: task["annotations"][0]["result"][0]["value"].update(rectanglelabels=[]), "expected boxes with a"),
        (lambda task: task["annotations"][0]["result"][0]["value"].update(x=10**400), "expected boxes with a label"),
        (lambda task: task["annotations"][0].update(result=["odd"]), "expected boxes with a label"),
        (lambda task: task["annotations"][0].update(result=7), "expected boxes with a label"),
        (lambda task: task.pop("annotations"), "expected images with boxes, found none"),
    ],
)
def test_what_is_no_such_export_is_one_line(exported: Path, tmp_path: Path, change: Any, message: str) -> None:
    (task, *_) = accepted(exported)
    change(task)
    with pytest.raises(InputError, match=message):
        write_training_data(exported, returned(tmp_path / "ls.json", [task]), tmp_path / "out", force=False)
    assert not (tmp_path / "out").exists()


def test_the_command(exported: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    again = run(
        app,
        [
            "people",
            "review",
            "export",
            "score-questions",
            "--for",
            "detection",
            "--images",
            str(tmp_path / "scans"),
            "--out",
            str(tmp_path / "b2"),
        ],
    )
    assert again.exit_code == 0, again.output
    assert "11 images to draw boxes in" in again.output
    file = returned(tmp_path / "ls.json", accepted(tmp_path / "b2"))
    made = run(app, ["people", "review", "boxes", str(tmp_path / "b2"), str(file), "--out", str(tmp_path / "training")])
    assert made.exit_code == 0, made.output
    assert "11 images in" in made.output
    assert "20 score" in made.output
    with pytest.raises(InputError, match="expected images with boxes, found none"):
        write_training_data(exported, returned(tmp_path / "none.json", []), tmp_path / "out", force=False)


def test_force_replaces_no_work_of_people(exported: Path, tmp_path: Path) -> None:
    """Neither corrected labels nor a training's weights, and no project with its sheet."""
    file, out = returned(tmp_path / "ls.json", accepted(exported)), tmp_path / "training"
    write_training_data(exported, file, out, force=False)
    before = (out / "coco.json").read_bytes()
    write_training_data(exported, file, out, force=True)
    assert (out / "coco.json").read_bytes() == before
    label = next((out / "labels" / "train").glob("*.txt"))
    label.write_text("0 0.5 0.5 1 1\n", "utf-8")
    with pytest.raises(StoreError, match=rf"replaces no changed file, and .*{label.name} was changed; move it away"):
        write_training_data(exported, file, out, force=True)
    assert label.read_text("utf-8") == "0 0.5 0.5 1 1\n"
    label.unlink()
    (out / "runs").mkdir()
    with pytest.raises(StoreError, match="training holds runs too; move it away"):
        write_training_data(exported, file, out, force=True)
    with pytest.raises(StoreError, match=r"boxes holds label-studio-tasks\.json too and 1 more; move it away"):
        write_training_data(exported, file, exported, force=True)
    assert {"label-studio-tasks.json", "images"} <= {path.name for path in exported.iterdir()}


def test_an_image_of_several_questions_is_drawn_on_once(tmp_path: Path) -> None:
    rows = [{"question_id": f"q{at}", "image": {"bytes": content}} for at, content in enumerate((b"a", b"b", b"a"))]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "questions.parquet")
    version = SimpleNamespace(files=lambda name: [tmp_path / f"{name}.parquet"])
    assert [*version_images(cast(Version, version))] == [("q0", b"a"), ("q1", b"b")]
