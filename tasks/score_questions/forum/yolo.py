"""Run a YOLO model in ONNX without its training framework: prepare, run, and read its boxes."""

import ast
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from earmark.schemas.errors import ConfigError, MissingExtraError

Floats = npt.NDArray[np.float64]

SIDE = 640  # of models for any size
PAPER = 114  # gray around an image that is not square, as in YOLO's training
OVERLAP = 0.45  # intersection over union from which only the surer of two boxes of a class stays
MOST_NAMES = 100_000  # characters of a model's list of names
MOST_FINAL = 1000  # rows of models removing overlaps themselves; others return thousands


class DetectedBox(NamedTuple):
    """A box found by a model."""

    edges: tuple[float, float, float, float]  # left, top, right and bottom in pixels of the image, within it
    confidence: float  # 0 to 1
    kind: str  # its class, by name


class Yolo:
    """A detection model of the YOLO family, exported to ONNX.

    Supported outputs: versions 5 and 7 (N x (5 + classes)), 8, 9, 11 and 12 ((4 + classes) x N), and exports
    with overlaps removed (N x 6).
    """

    def __init__(self, path: Path, name: str) -> None:
        """Load the model; `name` is its name in messages.

        Raises:
            MissingExtraError: onnxruntime is not installed.
            ConfigError: not an ONNX model of one square image.
        """
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as faults
        except ImportError:
            raise MissingExtraError(f"the detector '{name}'", "models") from None
        unfit = (faults.Fail, faults.InvalidArgument, faults.InvalidGraph, faults.InvalidProtobuf, faults.NoSuchFile,
                 faults.NotImplemented, ValueError, SyntaxError, TypeError, RecursionError,
                 MemoryError)  # fmt: skip
        try:
            self.session: Any = onnxruntime.InferenceSession(str(path), providers=onnxruntime.get_available_providers())
            names = self.session.get_modelmeta().custom_metadata_map.get("names", "{0: 'score'}")
            listed = ast.literal_eval(names[:MOST_NAMES])
            named = listed.items() if isinstance(listed, dict) else enumerate(listed)
            self.names = {int(number): str(text) for number, text in named}
        except unfit as error:
            why = str(error).strip().splitlines()[0]
            raise ConfigError(f"detector.model: expected a YOLO model in ONNX, found '{name}': {why}") from None
        self.name = name
        (first, *_) = self.session.get_inputs()
        self.input, shape = first.name, list(first.shape)
        many = isinstance(shape[0], int) and shape[0] != 1 if shape else False
        if len(shape) != 4 or shape[1] != 3 or many or first.type != "tensor(float)":
            expected = "expected a model of one image in float32 (1 x 3 x height x width)"
            raise ConfigError(f"detector.model: {expected}, '{name}' takes {first.type} {shape}")
        self.height, self.width = (side if isinstance(side, int) else SIDE for side in shape[2:])

    def boxes(self, image: Image.Image, least: float) -> list[DetectedBox]:
        """Return the boxes with a confidence of at least `least`, the surest first.

        Raises:
            ConfigError: its output has an unknown layout.
        """
        page, scale, x, y = fitted(image.convert("RGB"), self.width, self.height)
        tensor = np.ascontiguousarray(np.asarray(page, np.float32).transpose(2, 0, 1)[None] / 255)
        (output, *_) = self.session.run(None, {self.input: tensor})
        edges, confidences, kinds = read_output(np.asarray(output[0], np.float64), len(self.names), self.name)
        kept = without_overlaps(edges, confidences, kinds, least)
        sides = np.array([image.width, image.height] * 2, np.float64)
        inside = ((edges[kept] - [x, y, x, y]) / scale).clip(0, sides)
        return [
            DetectedBox(
                (left, top, right, bottom), float(confidences[at]), self.names.get(int(kinds[at]), str(kinds[at]))
            )
            for at, (left, top, right, bottom) in zip(kept, inside.tolist(), strict=True)
        ]


def fitted(image: Image.Image, width: int, height: int) -> tuple[Image.Image, float, int, int]:
    """Scale an image into a frame without distortion; return the frame, scale, and the image's corner."""
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    page = Image.new("RGB", (width, height), (PAPER, PAPER, PAPER))
    page.paste(image.resize(size, Image.Resampling.BILINEAR), (left, top))
    return page, scale, left, top


def read_output(output: Floats, classes: int, name: str) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
    """Return edges (N x 4: left, top, right, bottom, in pixels), confidences and classes of a raw output."""
    if output.ndim == 2 and output.shape[1] == 6 and len(output) <= MOST_FINAL:
        return output[:, :4], output[:, 4], output[:, 5].astype(np.int64)
    if output.ndim == 2 and output.shape[0] == 4 + classes:
        middles, scores = output[:4].T, output[4:].T
    elif output.ndim == 2 and output.shape[1] == 5 + classes:
        middles, scores = output[:, :4], output[:, 4:5] * output[:, 5:]
    else:
        found = " x ".join(map(str, output.shape))
        raise ConfigError(
            f"detector.model: expected boxes of {classes} classes from '{name}', found an output of {found}; export it "
            "with its class names and without a mask or pose head"
        )
    half = middles[:, 2:] / 2
    edges = np.concatenate([middles[:, :2] - half, middles[:, :2] + half], axis=1)
    return edges, scores.max(axis=1), scores.argmax(axis=1)


def without_overlaps(edges: Floats, confidences: Floats, kinds: npt.NDArray[np.int64], least: float) -> list[int]:
    """Return the kept boxes of finite edges, the surest first; of two of a class overlapping by `OVERLAP`, the surer
    stays."""
    kept: list[int] = []
    sure = (confidences >= least) & np.isfinite(edges).all(axis=1)
    for at in sorted(np.flatnonzero(sure), key=lambda n: (-confidences[n], n)):
        same = [one for one in kept if kinds[one] == kinds[at]]
        if not same or _overlaps(edges[at], edges[same]).max() <= OVERLAP:
            kept.append(int(at))
    return kept


def _overlaps(one: Floats, others: Floats) -> Floats:
    """Return the intersection over union of a box with others."""
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    shared = (high - low).clip(0).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).clip(0).prod(axis=1) + (one[2:] - one[:2]).clip(0).prod()
    return np.asarray(shared / np.maximum(areas - shared, 1e-9))
