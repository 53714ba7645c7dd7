"""Who says whether an image is a score: staff lines by image analysis, or an object-detection model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from earmark.schemas.errors import ConfigError, MissingExtraError
from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.staves import confidence, find_staves

STAFF_LINES = "staff-lines"
LEAST_BOX = 0.05  # confidence from which a model's box is kept; the config's `least` decides about the image


@dataclass(frozen=True)
class Sight:
    """What a detector saw in an image.

    Attributes:
        confidence: that it is a score, 0 to 1.
        boxes: left, top, width and height of what was found, in pixels, from top to bottom.
    """

    confidence: float
    boxes: tuple[tuple[int, int, int, int], ...]


class Looks(Protocol):
    """A detector."""

    def look(self, image: Image.Image) -> Sight: ...


class StaffLines:
    """The embedded detector; see `tasks/score_questions/forum/staves.py`."""

    def look(self, image: Image.Image) -> Sight:
        """Find the staves."""
        staves = find_staves(image)
        return Sight(confidence(staves), tuple((s.left, s.top, s.width, s.height) for s in staves if s.confidence))


class DetectionModel:
    """An object-detection model of `transformers`, trained to find scores, systems or staves."""

    def __init__(self, name: str, base: Path) -> None:
        """Load it.

        Args:
            name: a folder, relative to `base`, or a name on the Hub.
            base: the config's folder.

        Raises:
            MissingExtraError: the extra with torch and transformers is not installed.
            ConfigError: there is no such model, or it detects no objects.
        """
        try:
            import torch
            from transformers import AutoImageProcessor, AutoModelForObjectDetection
        except ImportError:
            raise MissingExtraError(f"the detector '{name}'", "audio") from None
        where = str(base / name) if (base / name).is_dir() else name
        try:
            self.processor: Any = AutoImageProcessor.from_pretrained(where)
            self.model: Any = AutoModelForObjectDetection.from_pretrained(where).eval()
        except (OSError, ValueError) as error:
            why = str(error).strip().splitlines()[0]
            raise ConfigError(f"detector.model: expected an object-detection model, found '{name}': {why}") from None
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model.to(self.device)
        self.alone = threading.Lock()

    def look(self, image: Image.Image) -> Sight:
        """Find the boxes; the surest one decides."""
        coloured = image.convert("RGB")
        with self.alone, self.torch.inference_mode():
            tensors = self.processor(images=coloured, return_tensors="pt").to(self.device)
            sizes = self.torch.tensor([[coloured.height, coloured.width]])
            seen = self.processor.post_process_object_detection(
                self.model(**tensors), threshold=LEAST_BOX, target_sizes=sizes
            )[0]
        boxes = sorted({_box(box, image.size) for box in seen["boxes"].tolist()}, key=lambda box: (box[1], box[0]))
        return Sight(round(max(seen["scores"].tolist(), default=0.0), 4), tuple(boxes))


def _box(corners: list[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    left, top, right, bottom = (
        round(min(max(0.0, value), limit)) for value, limit in zip(corners, size * 2, strict=True)
    )
    return left, top, right - left, bottom - top


def open_detector(config: Detector, base: Path) -> Looks:
    """The detector that a config names."""
    return StaffLines() if config.model == STAFF_LINES else DetectionModel(config.model, base)
