"""A detection model in place of the staff-line detector: real code on a tiny random model."""

from __future__ import annotations

from pathlib import Path

import pytest

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.detection import look_for_staves, open_detector
from tests.benchmarks.detector import measure_detector
from tests.score_questions import drawings


def test_the_embedded_detector_gives_confidence_and_boxes() -> None:
    sight = open_detector(Detector(), Path())(drawings.score(1, staves=2))
    assert sight.confidence >= 0.5
    assert len(sight.boxes) == 2


def test_a_model_without_the_extra_says_what_to_install() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match="pip install"):
            open_detector(Detector(model="some/detector"), Path())
    else:
        pytest.skip("the models extra is installed")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A YOLOS model of a few thousand random weights, saved as any other."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=[64, 64],
        patch_size=16, num_detection_tokens=5, num_labels=1,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "tiny"
    transformers.YolosForObjectDetection(config).save_pretrained(folder)
    processor = getattr(transformers, "YolosImageProcessorPil", None) or transformers.YolosImageProcessor
    processor(size={"height": 64, "width": 64}).save_pretrained(folder)
    return folder


@pytest.mark.models
def test_a_model_gives_boxes_within_the_image(tiny: Path) -> None:
    detector = open_detector(Detector(model=tiny.name), tiny.parent)
    assert detector is not look_for_staves
    page = drawings.score(1)
    sight = detector(page)
    assert 0 <= sight.confidence <= 1
    assert sight == detector(page)
    for left, top, width, height in sight.boxes:
        assert 0 <= left <= left + width <= page.width
        assert 0 <= top <= top + height <= page.height


@pytest.mark.models
def test_a_model_is_measured_in_place_of_the_default(tiny: Path) -> None:
    config = Detector(model=tiny.name, least=0.0)
    measure = measure_detector(config, tiny.parent, 2)
    assert measure.model == tiny.name
    assert set(measure.hits.values()) == set(measure.false_alarms.values()) == {2}  # random weights call all a score
    assert not measure.meets_goal


@pytest.mark.models
def test_a_folder_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="expected an object-detection model, found 'empty'"):
        open_detector(Detector(model="empty"), tmp_path)
