"""Prepare detector training data: export images with boxes to correct in Label Studio, and write COCO and YOLO from
it."""

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.reasons import shown
from earmark.schemas.score_questions import Detector
from earmark.tasks.importers.cells import BadRow
from earmark.tasks.pipeline.progress import working
from earmark.tasks.score_questions.forum.detection import open_detector
from earmark.tasks.score_questions.forum.links import SUFFIXES
from earmark.tasks.score_questions.forum.pictures import read_picture
from earmark.tasks.score_questions.review_files import (
    CONFIG,
    TASKS,
    address_of,
    questions_of,
    refuse_work,
    template,
    write_mark,
)
from earmark.tasks.score_questions.reviews import json_annotations, several
from earmark.tasks.store.folder import PREPARED, building
from earmark.tasks.store.versions import Version

BOXES_CONFIG = "label-studio-boxes.xml"
CONTROL = "boxes"  # the control for rectangles in it
_TRAINING = ("coco.json", "data.yaml", "images", "labels")
VALIDATION = 0.2  # share of images, by their hash

Size = tuple[int, int]  # width and height, pixels


class LabelledImage(NamedTuple):
    """A box drawn by a person."""

    kind: str
    left: float  # left, top, width, height: in pixels of the image
    top: float
    width: float
    height: float


def write_boxes(
    images: Iterable[tuple[str, bytes]],
    detector: Detector,
    base: Path,
    folder: Path,
    *,
    images_at: str | None,
    force: bool,
) -> tuple[int, list[str]]:
    """Write images with a detector's boxes as a Label Studio project: its configuration, tasks, and `images/`.

    Args:
        images_at: Label Studio's address of the images, before their file's name; without it the tasks embed them.

    Returns:
        The number of images, and a line for each unreadable one.

    Raises:
        StoreError: the folder is taken or holds answers, or there is no image.
    """
    look, refused, tasks = open_detector(detector, base), [], []
    free = building(folder.absolute(), force=force, record=PREPARED, check=refuse_work)
    with free as place, working("look at images") as work:
        (place / "images").mkdir()
        for name, content in images:
            work.advance()
            try:
                picture = read_picture(content)
            except BadRow as why:
                refused.append(f"{name}: {why.detail}")
                continue
            file = f"{picture.sha256}.{picture.extension}"
            (place / "images" / file).write_bytes(picture.content)
            sight = look(picture.image)
            first = [_drawn(box, picture.image.size, sight.kind) for box in sight.boxes]
            data = {"image": address_of(file, picture.content, images_at), "file": file, "name": name}
            tasks.append({"data": data, "predictions": [{"model_version": detector.model, "result": first}]})
        if not tasks:
            raise StoreError("expected images to draw boxes in, found none that can be read")
        pages = {TASKS: json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", CONFIG: template(BOXES_CONFIG)}
        write_mark(place, {"images": len(tasks), "detector": detector.model}, pages)
    return len(tasks), refused


def version_images(version: Version) -> Iterator[tuple[str, bytes]]:
    """Yield each image of a version once, with the id of its first question."""
    seen = set[bytes]()
    for row in questions_of(version, ["question_id", "image"]):
        if (image := row["image"]) and (mark := hashlib.sha256(image["bytes"]).digest()) not in seen:
            seen.add(mark)
            yield row["question_id"], image["bytes"]


def folder_images(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the images of a folder, sorted by name.

    Raises:
        InputError: the folder does not exist.
    """
    if not folder.is_dir():
        raise InputError(f"--images: expected a folder, found none at {folder}")
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink():
            yield path.name, path.read_bytes()


def write_training_data(exported: Path, returned: Path, folder: Path, *, force: bool) -> dict[str, int]:
    """Write Label Studio's export as training data: `coco.json`, and YOLO's `data.yaml`, `images/`, `labels/`.

    A fifth of the images, by hash, is for validation. Images without a box are kept as negative examples. Of
    several people's annotations of an image the newest counts.

    Args:
        exported: the folder written by `write_boxes`, for its images.
        returned: Label Studio's export, JSON or JSON-MIN.

    Returns:
        Boxes by label, most first, and the number of images under `images`.

    Raises:
        InputError: the export cannot be read, names an unknown image, holds an invalid box, or has no boxes.
        StoreError: the folder is taken, or holds files of others.
    """
    labelled = _labelled(returned, exported)
    counts = Counter(box.kind for _, boxes in labelled.values() for box in boxes)
    if not counts:
        raise InputError(f"{returned.name}: expected images with boxes, found none")
    kinds = {kind: number for number, kind in enumerate(sorted(counts))}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    check = partial(refuse_work, written=_TRAINING)
    with building(folder.absolute(), force=force, record=PREPARED, check=check) as place:
        for file, (size, boxes) in sorted(labelled.items()):
            split = "val" if _spot(file) < VALIDATION else "train"
            for kind in ("images", "labels"):
                (place / kind / split).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(exported / "images" / file, place / "images" / split / file)
            lines = (f"{kinds[box.kind]} {_yolo(box, size)}\n" for box in boxes)
            (place / "labels" / split / f"{Path(file).stem}.txt").write_text("".join(lines), "utf-8")
            image, name = len(images) + 1, f"images/{split}/{file}"
            images.append({"id": image, "file_name": name, "width": size[0], "height": size[1]})
            for box in boxes:
                annotations.append({"id": len(annotations) + 1, "image_id": image, **_coco(box, kinds[box.kind])})
        names = "".join(f"  {number}: {json.dumps(kind)}\n" for kind, number in kinds.items())
        data = f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}"
        categories = [{"id": number, "name": kind} for kind, number in kinds.items()]
        coco = {"images": images, "annotations": annotations, "categories": categories}
        pages = {"coco.json": json.dumps(coco, indent=1) + "\n", "data.yaml": data}
        write_mark(place, {"images": len(labelled), "boxes": counts}, pages)
    return {"images": len(labelled), **dict(counts.most_common())}


def _labelled(path: Path, exported: Path) -> dict[str, tuple[Size, list[LabelledImage]]]:
    """Return size and boxes of each image from its newest annotation."""
    entries: list[tuple[str, str, tuple[Size, list[LabelledImage]]]] = []
    for number, data, annotation in json_annotations(path, path.name):
        where, file = f"{path.name}, task {number}", data.get("file")
        if not isinstance(file, str) or Path(file).name != file or not (exported / "images" / file).is_file():
            raise InputError(f"{where}: expected an image of {exported.name} in 'file', found '{shown(str(file))}'")
        with Image.open(exported / "images" / file) as image:
            size = image.size
        drawn = several(data.get(CONTROL) if annotation is None else annotation.get("result"))
        if annotation is not None:
            drawn = [part.get("value") if isinstance(part, dict) else part for part in drawn]
        date = str((annotation or data).get("updated_at", ""))
        entries.append((date, file, (size, _boxes(drawn, size, where))))
    return {file: boxes for _, file, boxes in sorted(entries, key=lambda one: one[0])}


def _boxes(values: Sequence[Any], size: Size, where: str) -> list[LabelledImage]:
    """Return boxes in pixels; for a rotated box the upright box around it."""
    boxes = []
    for value in values:
        try:
            (kind, *_) = value["rectanglelabels"]
            shares = np.array([float(value[name]) for name in ("x", "y", "width", "height")]) / 100
            turned = math.radians(float(value.get("rotation") or 0))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            shares, kind, turned = np.array([np.nan]), "", 0.0
        if not np.isfinite(shares).all() or not math.isfinite(turned) or (shares[2:] < 0).any():
            raise InputError(
                f"{where}: expected boxes with a label, in per cent of the image, found '{shown(str(value))}'"
            )
        left, top, width, height = shares * (*size, *size)
        along, down = np.array([math.cos(turned), math.sin(turned)]), np.array([-math.sin(turned), math.cos(turned)])
        corners = np.array([left, top]) + [x * along + y * down for x in (0, width) for y in (0, height)]
        (x0, y0), (x1, y1) = corners.min(axis=0).clip(0, size), corners.max(axis=0).clip(0, size)
        boxes.append(LabelledImage(str(kind), float(x0), float(y0), float(x1 - x0), float(y1 - y0)))
    return boxes


def _drawn(box: tuple[int, int, int, int], size: tuple[int, int], kind: str) -> dict[str, Any]:
    """Return a box in Label Studio's form."""
    x, y, width, height = (100 * part / side for part, side in zip(box, size * 2, strict=True))
    value = {"x": x, "y": y, "width": width, "height": height, "rotation": 0, "rectanglelabels": [kind or "score"]}
    named = {"type": "rectanglelabels", "from_name": CONTROL, "to_name": "image"}
    return {**named, "original_width": size[0], "original_height": size[1], "image_rotation": 0, "value": value}


def _yolo(box: LabelledImage, size: Size) -> str:
    """Return a box's centre and sides as shares of the image."""
    middle = (box.left + box.width / 2, box.top + box.height / 2)
    edges = zip((*middle, box.width, box.height), size * 2, strict=True)
    return " ".join(f"{edge / side:.6f}" for edge, side in edges)


def _coco(box: LabelledImage, category: int) -> dict[str, Any]:
    edges = [round(edge, 2) for edge in box[1:]]
    return {"category_id": category, "bbox": edges, "area": round(box.width * box.height, 2), "iscrowd": 0}


def _spot(file: str) -> float:
    return int.from_bytes(hashlib.sha256(file.encode()).digest()[:8], "big") / 2**64
