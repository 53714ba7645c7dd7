"""The recipe of `flows/command/detector.md`: it trains on drawn pages, and what it exports is read by Earmark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.detection import open_detector
from earmark.tasks.score_questions.forum.yolo import Yolo
from tests.benchmarks.detector import write_drawn_training
from tests.conftest import ROOT
from tests.score_questions import drawings

pytestmark = pytest.mark.models

GUIDE = (ROOT / "flows/command/detector.md").read_text("utf-8")
(SCRIPT,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
SIDE = 128


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    for module in ("torch", "transformers", "onnx", "onnxruntime", "scipy"):
        pytest.importorskip(module)
    made = ModuleType("train_detector")
    exec(compile(SCRIPT, "train_detector.py", "exec"), made.__dict__)
    return made


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """Write drawn pages, some of them no scores, as `review boxes` does."""
    assert write_drawn_training(tmp_path, 12)["images"] == 12
    return tmp_path / "training"


def test_a_model_learns_from_drawn_boxes(recipe: ModuleType, training: Path) -> None:
    import torch

    train, held_out, names = recipe.read(training, SIDE)
    assert (len(train) + len(held_out), names) == (12, {0: "score"})
    assert 0 < len(held_out) < len(train)
    torch.manual_seed(1)
    model = recipe.small(names)
    (pixels, label), *_ = train
    before = model(pixel_values=pixels[None], labels=[label]).loss.item()
    recipe.learn(model, train, 8, 1e-3)
    assert model(pixel_values=pixels[None], labels=[label]).loss.item() < before


def test_the_exported_model_finds_the_same_boxes_here(recipe: ModuleType, tmp_path: Path) -> None:
    """In the picture's pixels, by another way than the reader's; random weights tell the boxes well apart."""
    import torch

    torch.manual_seed(1)
    boxes = recipe.Boxes(recipe.small({0: "score"}), SIDE).eval()
    recipe.export(boxes, tmp_path / "score.onnx", {0: "score"})
    page = drawings.score(99, staves=2)
    page.save(tmp_path / "page.png")
    with torch.inference_mode():
        rows = boxes(recipe.framed(tmp_path / "page.png", [], SIDE)[0][None])[0].numpy().astype(np.float64)
    scale = max(page.size) / SIDE
    pad = np.array([(SIDE - round(edge / scale)) // 2 for edge in page.size] * 2)
    expected = np.column_stack([((rows[:, :4] - pad) * scale).clip(0, [*page.size] * 2), rows[:, 4]])
    found = Yolo(tmp_path / "score.onnx", "score.onnx").boxes(page, 0.0)
    assert found
    for box in found:
        assert np.abs(expected - [*box.edges, box.confidence]).max(axis=1).min() < 0.02
        assert box.kind == "score"


def test_precision_and_recall_are_of_the_boxes_held_out(recipe: ModuleType) -> None:
    """One of three boxes is found, one missed by its place and one by its class; a second find is wrong."""
    import torch

    known = [[0.3, 0.3, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2], [0.3, 0.7, 0.2, 0.2]]
    label = {"boxes": torch.tensor(known), "class_labels": torch.tensor([0, 0, 1])}
    rows = [[20, 20, 40, 40, 0.9, 0], [20, 22, 40, 40, 0.8, 0], [40, 40, 60, 60, 0.7, 0], [20, 60, 40, 80, 0.6, 0],
            [60, 60, 80, 80, 0.4, 0]]  # fmt: skip

    def boxes(_: torch.Tensor) -> torch.Tensor:
        return torch.tensor([rows])

    boxes.side = 100  # type: ignore[attr-defined]
    counts = recipe.measured(boxes, [(torch.zeros(3, 100, 100), label)])
    assert counts == {"right": 1, "wrong": 3, "missed": 2, "pictures with boxes, some found": 1}


def test_the_script_runs_on_a_base_and_its_card_tells_the_figures(
    recipe: ModuleType, training: Path, tmp_path: Path
) -> None:
    recipe.small({0: "score"}).save_pretrained(tmp_path / "base")
    (tmp_path / "train_detector.py").write_text(SCRIPT)
    words = ["train_detector.py", training.name, "score.onnx", "--base", "base", "--side", str(SIDE), "--steps", "2"]
    subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, timeout=300)
    card = (tmp_path / "score.md").read_text("utf-8")
    assert re.search(r"precision \d[.]\d{3}, recall \d[.]\d{3}[.]\n", card)
    assert "From base, 2 steps of 8" in card
    look = open_detector(Detector(model="score.onnx", classes=("score",)), tmp_path)
    assert 0 <= look(Image.new("RGB", (300, 200), "white")).confidence <= 1
