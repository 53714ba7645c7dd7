"""Controls without the image: captions and notation that people bring, by image, and how a model is asked by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.evaluations import Examinee
from earmark.tasks.evaluation import judging
from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.score_questions.transcripts import LONGEST
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer
from tests.score_questions.questions import build_questions, config_of, rows_of, thread
from tests.servers.faults import Faults


@pytest.fixture
def images(tmp_path: Path) -> dict[str, str]:
    """A version without transcripts; gives its images' hashes by question."""
    version = build_questions(config_of(tmp_path), tmp_path / "store", [thread(n) for n in range(6)])
    assert "transcripts" not in version.manifest.rows
    return {row["question_id"]: row["image_sha256"] for row in rows_of(version, "questions")}


@pytest.mark.slow
def test_each_question_is_asked_by_what_was_brought_for_its_image(tmp_path: Path, images: dict[str, str]) -> None:
    brought = tmp_path / "omr"
    brought.mkdir()
    one, two, three, four, five, six = sorted(images)
    (brought / f"{images[one]}.abc").write_text("X:1\nK:G\nGABc|")
    (brought / f"{images[one]}.txt").write_text("\ufeffFour rising notes in G.", "utf-8")
    (brought / f"{images[two]}.musicxml").write_text("<score-partwise/>")
    (brought / f"{images[two]}.xml").write_text("<score-timewise/>")
    (brought / f"{images[three]}.abc").write_bytes(b"X:1\nT:caf\xe9")
    (brought / f"{images[four]}.ABC").write_text(" \n")
    (brought / f"{images[five]}.txt").write_text("a" * (LONGEST + 1))
    (tmp_path / "secret.txt").write_text("not in the folder")
    (brought / f"{images[six]}.txt").symlink_to(tmp_path / "secret.txt")
    (brought / f"{'0' * 64}.abc").write_text("X:1")
    (brought / "README.md").write_text("passed over")
    config = config_of(tmp_path, transcripts="omr")
    version = build_questions(config, tmp_path / "store", [thread(n) for n in range(6)])
    rows = {(row["question_id"], row["form"]): row["text"] for row in rows_of(version, "transcripts")}
    assert rows == {
        (one, "abc"): "X:1\nK:G\nGABc|",
        (one, "caption"): "Four rising notes in G.",
        (two, "musicxml"): "<score-partwise/>",
    }
    refused = {row["item"]: row["reason"] for row in rows_of(version, "rejects") if row["stage"] == "transcripts"}
    assert refused == {
        f"{two}/musicxml": "duplicate_id",
        f"{three}/abc": "bad_encoding",
        f"{four}/abc": "empty",
        f"{five}/caption": "bad_value",
        f"{six}/caption": "file_unreadable",
    }
    named = {row["item"]: row["made_from"] for row in rows_of(version, "rejects") if row["stage"] == "transcripts"}
    assert {"kind": "clip", "id": images[six]} in named[f"{six}/caption"]  # they leave with the image
    assert {"kind": "question", "id": six} in named[f"{six}/caption"]
    (step,) = [step for step in version.manifest.steps if step.name == "transcripts"]
    assert (step.entered, step.kept) == (8, 3)
    assert step.notes == ("1 as abc, 1 as caption, 1 as musicxml", "1 files are of images that no question has")
    facts, asked = judged(version, "abc", "text", tmp_path)
    assert facts["samples"] == 1
    assert ["GABc|" in body and "image_url" not in body for body in asked] == [True]
    assert "GABc|" not in judged(version, "abc", "words", tmp_path)[1][0]


def judged(version: Version, evaluation: str, mode: str, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Facts of a model that answers A, and what it was sent."""
    store = Store(version.folder.parent.parent)
    with LocalServer(Faults()) as server:
        server.keep_bodies = True
        server.answer = lambda body, content: "A"
        config = Examinee(annotator="openai:m", base_url=server.base_url, retry_base_s=0.01)
        wish = MeasurementOptions(evaluation=evaluation, mode=mode)
        facts, _ = judging.judge(
            version, find_corpus(version.corpus), store, config, wish, folder / f"{evaluation}-{mode}"
        )
        return facts, [json.dumps(body) for body in server.bodies]


def test_a_folder_that_is_not_there_and_a_version_without_are_one_line(tmp_path: Path, images: dict[str, str]) -> None:
    with pytest.raises(InputError, match="transcripts: expected a folder"):
        build_questions(config_of(tmp_path, transcripts="nowhere"), tmp_path / "store", [thread(1)])
    with pytest.raises(StoreError, match="no sample"):
        judged(Store(tmp_path / "store").versions("score-questions")[0], "abc", "text", tmp_path)
