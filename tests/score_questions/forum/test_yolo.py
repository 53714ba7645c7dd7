"""YOLO's boxes: its layouts of outputs, its overlaps and its frame, against a second way; and a real ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from earmark.schemas.errors import ConfigError
from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.detection import open_detector
from earmark.tasks.score_questions.forum.yolo import OVERLAP, fitted, read_output, without_overlaps

CORNERS = st.tuples(*[st.integers(0, 60)] * 2, *[st.integers(1, 40)] * 2)
SCORE, CHART = 0, 1


def pixels(box: tuple[float, ...]) -> np.ndarray[Any, Any]:
    covered = np.zeros((110, 110), bool)
    left, top, right, bottom = map(int, box)
    covered[top:bottom, left:right] = True
    return covered


@given(st.lists(st.tuples(CORNERS, st.integers(0, 100), st.integers(0, 1)), max_size=8))
def test_of_overlapping_boxes_the_surest_stay(drawn: list[tuple[tuple[int, ...], int, int]]) -> None:
    """A second way: pixels are counted, and a box falls by any surer one of its class that stays."""
    edges = np.array([[x, y, x + w, y + h] for (x, y, w, h), _, _ in drawn], float).reshape(-1, 4)
    confidences = np.array([sure / 100 for _, sure, _ in drawn])
    kinds = np.array([kind for _, _, kind in drawn], int)
    stay: list[int] = []
    for at in sorted(range(len(drawn)), key=lambda n: (-confidences[n], n)):
        own = pixels(edges[at])
        others = [pixels(edges[one]) for one in stay if kinds[one] == kinds[at]]
        if confidences[at] >= 0.25 and all((own & o).sum() <= OVERLAP * (own | o).sum() + 1e-9 for o in others):
            stay.append(at)
    assert without_overlaps(edges, confidences, kinds, 0.25) == stay


def test_every_layout_says_the_same() -> None:
    """Two boxes of two classes, as each version writes them."""
    edges = np.array([[10.0, 20.0, 110.0, 60.0], [200.0, 50.0, 260.0, 90.0]])
    middles = np.array([[60.0, 40.0, 100.0, 40.0], [230.0, 70.0, 60.0, 40.0]])
    scores = np.array([[0.9, 0.1], [0.2, 0.6]])
    many = np.zeros((2000, 7))
    many[:2] = np.hstack([middles, np.full((2, 1), 0.5), scores * 2])
    final = np.hstack([edges, [[0.9], [0.6]], [[0], [1]]])
    for output in (np.hstack([middles, scores]).T, many, final):
        found, confidences, kinds = read_output(output, 2, "m.onnx")
        assert found[:2] == pytest.approx(edges)
        assert confidences[:2] == pytest.approx([0.9, 0.6])
        assert list(kinds[:2]) == [0, 1]


@pytest.mark.parametrize("shape", [(7, 5), (3,), (2000, 9), (38, 8400)])
def test_another_output_is_one_line(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"expected boxes of 2 classes from 'm.onnx', found an output of"):
        read_output(np.zeros(shape), 2, "m.onnx")


@pytest.mark.parametrize("size", [(640, 640), (1280, 640), (300, 900), (3, 2000)])
def test_an_image_keeps_its_shape_in_the_frame(size: tuple[int, int]) -> None:
    page, scale, left, top = fitted(Image.new("RGB", size, "white"), 640, 640)
    white = np.argwhere(np.asarray(page).min(axis=2) == 255)
    (first_y, first_x), (last_y, last_x) = white.min(axis=0), white.max(axis=0)
    assert (first_x, first_y) == (left, top)
    assert last_x - first_x + 1 == max(1, round(size[0] * scale))
    assert last_y - first_y + 1 == max(1, round(size[1] * scale))
    assert 639 in (last_x - first_x, last_y - first_y)


def test_classes_belong_to_a_model() -> None:
    with pytest.raises(ValidationError, match="expected none with model = 'staff-lines'"):
        Detector(classes=("score",))


def test_a_box_whose_edges_are_no_numbers_is_none() -> None:
    edges = np.array([[0, 0, 9, 9], [0, np.nan, 5, 5], [20, 20, np.inf, 30]], np.float64)
    assert without_overlaps(edges, np.array([0.5, 0.9, 0.9]), np.zeros(3, np.int64), 0.1) == [0]


def model_of(
    path: Path,
    boxes: list[tuple[float, ...]],
    names: str = "{0: 'score', 1: 'chord chart'}",
    images: int = 1,
) -> Path:
    """A model of version 8's layout that finds these boxes (middle, sides, two scores) in what has white."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    found = np.zeros((1, 6, 2000), np.float32)
    found[0, :, : len(boxes)] = np.array(boxes, np.float32).T
    constant = numpy_helper.from_array(found, "found")
    nodes = [  # what it finds grows with how bright the image is: all white, and it is what was asked for
        helper.make_node("ReduceMax", ["images"], ["bright"], keepdims=0),
        helper.make_node("Mul", ["found", "bright"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [images, 3, 640, 640])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 6, 2000])],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"names": names})
    onnx.save(model, path)
    return path


@pytest.mark.models
def test_a_real_model_finds_its_boxes_in_the_image(tmp_path: Path) -> None:
    """The image is twice as wide as high, so that the frame has 160 rows of gray above it."""
    model_of(
        tmp_path / "tiny.onnx",
        [(320, 320, 200, 100, 0.8, 0.1), (321, 320, 200, 100, 0.7, 0.1), (100, 200, 80, 40, 0.1, 0.9)],
    )
    page = Image.new("L", (1280, 640), "white")
    sight = open_detector(Detector(model="tiny.onnx"), tmp_path)(page)
    assert sight.boxes == ((120, 40, 160, 80), (440, 220, 400, 200))
    assert (sight.confidence, sight.kind) == (0.9, "chord chart")
    only = open_detector(Detector(model="tiny.onnx", classes=("score",)), tmp_path)(page)
    assert only.boxes == ((440, 220, 400, 200),)
    assert (only.confidence, only.kind) == (0.8, "chord chart")


@pytest.mark.models
def test_a_class_that_it_lacks_and_a_file_that_is_no_model_are_one_line(tmp_path: Path) -> None:
    model_of(tmp_path / "tiny.onnx", [])
    with pytest.raises(ConfigError, match=r"expected classes of 'tiny.onnx' \(chord chart, score\), found 'staff'"):
        open_detector(Detector(model="tiny.onnx", classes=("staff",)), tmp_path)
    model_of(tmp_path / "eight.onnx", [], images=8)
    with pytest.raises(ConfigError, match=r"expected a model of one image in float32 .* takes tensor\(float\) \[8, 3"):
        open_detector(Detector(model="eight.onnx"), tmp_path)
    (tmp_path / "text.onnx").write_text("no model")
    for name in ("text.onnx", "absent.onnx"):
        with pytest.raises(ConfigError, match=f"expected a YOLO model in ONNX, found '{name}'"):
            open_detector(Detector(model=name), tmp_path)
