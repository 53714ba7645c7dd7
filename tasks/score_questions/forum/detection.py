"""Detect scores in images: staff lines by image analysis, or an object-detection model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from earmark.schemas.errors import ConfigError, MissingExtraError, model_fault
from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.staves import confidence, find_staves
from earmark.tasks.score_questions.forum.yolo import DetectedBox, Yolo

STAFF_LINES = "staff-lines"
LEAST_BOX = 0.05  # lowest confidence of a model's box; the config's `least` decides about the image


@dataclass(frozen=True)
class Sight:
    """A detector's findings in an image."""

    confidence: float  # that it is a score, 0 to 1
    # left, top, width and height of counted boxes, in pixels, from top to bottom
    boxes: tuple[tuple[int, int, int, int], ...]
    kind: str  # class of the surest box, counted or not; empty without a finding


Look: TypeAlias = Callable[[Image.Image], Sight]


def look_for_staves(image: Image.Image) -> Sight:
    """Detect staves by the embedded detector; see `tasks/score_questions/forum/staves.py`."""
    staves = find_staves(image)
    boxes = tuple((s.left, s.top, s.width, s.height) for s in staves if s.confidence)
    return Sight(confidence(staves), boxes, "score" if boxes else "")


def look_by_model(model: TransformersModel | Yolo, name: str, classes: Sequence[str]) -> Look:
    """Return a detector from an object-detection model trained on scores, systems or staves: its surest box decides.

    Args:
        name: the model's name in messages.
        classes: the classes counting as a score; without any, all.
    """
    known = sorted(set(model.names.values()))
    if stray := [one for one in classes if one not in known]:
        raise ConfigError(f"detector.classes: expected classes of '{name}' ({', '.join(known)}), found '{stray[0]}'")
    wanted, alone = frozenset(classes or known), threading.Lock()

    def look(image: Image.Image) -> Sight:
        with alone:
            seen = model.boxes(image, LEAST_BOX)
        counted = [box for box in seen if box.kind in wanted]
        confidence = max((box.confidence for box in counted), default=0.0)
        boxes = sorted({_box(box.edges) for box in counted}, key=lambda box: (box[1], box[0]))
        surest = max(seen, key=lambda box: box.confidence, default=None)
        return Sight(round(confidence, 4), tuple(boxes), surest.kind if surest else "")

    return look


class TransformersModel:
    """An object-detection model of `transformers`."""

    def __init__(self, name: str, base: Path) -> None:
        """Load a folder, relative to `base`, or a model of the Hub.

        Raises:
            MissingExtraError: the extra with torch and transformers is not installed.
            ConfigError: there is no such model, or it detects no objects.
        """
        try:
            import torch
            from transformers import AutoImageProcessor, AutoModelForObjectDetection
        except ImportError:
            raise MissingExtraError(f"the detector '{name}'", "models") from None
        where = str(base / name) if (base / name).is_dir() else name
        try:
            self.processor: Any = AutoImageProcessor.from_pretrained(where, trust_remote_code=False)
            self.model: Any = AutoModelForObjectDetection.from_pretrained(where, trust_remote_code=False).eval()
        except Exception as error:  # noqa: BLE001 - pickle, safetensors and transformers share no base class
            why = model_fault(error)
            raise ConfigError(f"detector.model: expected an object-detection model, found '{name}': {why}") from None
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(self.device)
        self.names = {int(number): str(label) for number, label in self.model.config.id2label.items()}

    def boxes(self, image: Image.Image, least: float) -> list[DetectedBox]:
        """Return the boxes with a confidence of at least `least`."""
        coloured = image.convert("RGB")
        with self.torch.inference_mode():
            tensors = self.processor(images=coloured, return_tensors="pt").to(self.device)
            sizes = self.torch.tensor([[coloured.height, coloured.width]])
            seen = self.processor.post_process_object_detection(
                self.model(**tensors), threshold=least, target_sizes=sizes
            )[0]
        detections = zip(seen["boxes"].tolist(), seen["scores"].tolist(), seen["labels"].tolist(), strict=True)
        sides = image.size * 2
        return [
            DetectedBox(tuple(np.clip(edges, 0.0, sides).tolist()), score, self.names[label])
            for edges, score, label in detections
        ]


def _box(edges: Sequence[float]) -> tuple[int, int, int, int]:
    left, top, right, bottom = map(round, edges)
    return left, top, right - left, bottom - top


def open_detector(config: Detector, base: Path) -> Look:
    """Open the config's detector."""
    name = config.model
    if name == STAFF_LINES:
        return look_for_staves
    model = Yolo(base / name, name) if name.lower().endswith(".onnx") else TransformersModel(name, base)
    return look_by_model(model, name, config.classes)
