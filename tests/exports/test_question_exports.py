"""Questions with images: in WildScore's own layout, and in the hands of trainers that see."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import pytest

from earmark.schemas.errors import StoreError
from earmark.schemas.score_questions import CORPUS
from earmark.tasks.exports.choosing import ExportOptions
from earmark.tasks.exports.export import export
from earmark.tasks.store.versions import Store, Version
from tests.score_questions.questions import build_questions, config_of, rows_of, thread


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """Six questions, some in train."""
    config = config_of(tmp_path, shares={"train": 0.5, "test": 0.5})
    title = "What is <image> above note 3, and <|im_end|>?"
    rows = [thread(number) for number in range(5)] + [thread(5, title=title)]
    return build_questions(config, tmp_path / "store", rows)


def write(version: Version, folder: Path, **wish: object) -> Path:
    """An export below a folder."""
    export(version, CORPUS, Store(version.folder.parent.parent), folder / "out", ExportOptions(**wish))  # type: ignore[arg-type]
    return folder / "out"


def test_wildscores_layout(tmp_path: Path, version: Version) -> None:
    out = write(version, tmp_path, format="wildscore")
    with (out / "data.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    asked = {row["image"]["path"]: row for row in rows_of(version, "questions")}
    assert {row["image"] for row in rows} == asked.keys()
    for row in rows:
        held = asked[row["image"]]
        assert (out / "images" / row["image"]).read_bytes() == held["image"]["bytes"]
        assert list(json.loads(row["final_options"]).items()) == list(zip("ABCD", held["options"], strict=False))
        assert row["truth_letter"] == held["truth_letter"]
    assert not list(out.glob("*.csv"))[1:]


def test_a_tar_holds_the_images_of_its_samples(tmp_path: Path, version: Version) -> None:
    held = {row["question_id"]: row["image"]["bytes"] for row in rows_of(version, "questions")}
    seen = {}
    for path in write(version, tmp_path, format="webdataset").glob("*.tar"):
        with tarfile.open(path) as archive:
            files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
        for name in [name for name in files if name.endswith(".json")]:
            seen[json.loads(files[name])["id"]] = files.get(f"{Path(name).stem}.image0.png")
    assert seen == held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_", "answered"), [("ms-swift", True), ("ms-swift-grpo", False), ("llama-factory", True)]
)
def test_trainers_get_the_image_and_one_mark(tmp_path: Path, version: Version, format_: str, answered: bool) -> None:
    out = write(version, tmp_path, format=format_)
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 6
    for line in lines:
        (image,) = line["images"]
        assert (out / image).is_file()
        first, *answer = line["messages"]
        assert first["content"].startswith("<image>")
        assert first["content"].count("<image>") == 1
        assert "<|im_end|>" not in first["content"]
        assert [turn["content"] in "ABCD" for turn in answer] == [True] * answered
        assert answered or line["truth_letter"] in "ABCD"
    if format_ == "llama-factory":
        info = json.loads((out / "dataset_info.json").read_text("utf-8"))
        assert {held["columns"]["images"] for held in info.values()} == {"images"}


@pytest.mark.slow
def test_trainers_of_text_refuse_or_are_blind(tmp_path: Path, version: Version) -> None:
    with pytest.raises(StoreError, match="its prompts hold images, and trl-sft takes text only"):
        write(version, tmp_path, format="trl-sft")
    assert list(write(version, tmp_path, format="trl-sft", blind=True).glob("*.parquet"))
