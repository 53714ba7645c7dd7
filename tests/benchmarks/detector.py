"""Measure a detector of scores on drawings that the repository makes itself, and draw pages to train one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scipy.special import betaincinv

from earmark.schemas.places import without_place
from earmark.schemas.score_questions import Detector
from earmark.tasks.pipeline.progress import working
from earmark.tasks.score_questions.boxes import folder_images, write_boxes, write_training_data
from earmark.tasks.score_questions.forum.detection import open_detector
from tests.score_questions.drawings import NON_SCORES, SCORES, score

FIRST_SEED = 10_000  # the staff-line detector was tuned on none of those from here on
GOAL = 0.95  # of precision and recall on clean scores
COVERS = 0.95
AT_ONCE = 4


@dataclass(frozen=True)
class Measure:
    """Count the drawings that a detector took for scores."""

    model: str
    least: float  # confidence from which it says that a drawing is a score
    drawings: int  # of each kind, with the seeds from `FIRST_SEED` on
    hits: Mapping[str, int]  # drawn scores that it recognised, by kind
    false_alarms: Mapping[str, int]  # drawings of something else that it took for scores, by kind

    def recall(self, kind: str) -> float:
        """Share of a kind's scores that were recognised."""
        return self.hits[kind] / self.drawings

    def recall_low(self, kind: str) -> float:
        """Return the lower end of the recall's 95 % interval (Clopper and Pearson 1934)."""
        hits = self.hits[kind]
        return float(betaincinv(hits, self.drawings - hits + 1, (1 - COVERS) / 2)) if hits else 0.0

    def precision(self, kind: str) -> float | None:
        """Share of scores in what was called one, were there as many scores of a kind as other drawings, evenly mixed.

        None where nothing was called a score.
        """
        false = sum(self.false_alarms.values()) / len(self.false_alarms)
        called = self.hits[kind] + false
        return self.hits[kind] / called if called else None

    @property
    def meets_goal(self) -> bool:
        """Return whether precision and recall on clean scores reach the goal."""
        return self.recall("clean") >= GOAL and (self.precision("clean") or 0.0) >= GOAL


def measure_detector(config: Detector, base: Path, drawings: int) -> Measure:
    """Have a detector look at so many drawings of each kind.

    Raises:
        ConfigError: there is no such detector.
        MissingExtraError: it needs an extra that is not installed.
    """
    look = open_detector(config, base)

    def is_score(drawn: tuple[str, int]) -> bool:
        kind, seed = drawn
        image = SCORES[kind](score(seed), seed) if kind in SCORES else NON_SCORES[kind](seed)
        return look(image).confidence >= config.least

    called: dict[str, int] = {}
    kinds = [*SCORES, *NON_SCORES]
    with working("measure the detector", len(kinds) * drawings) as work, ThreadPoolExecutor(AT_ONCE) as pool:
        for kind in kinds:
            drawn = ((kind, FIRST_SEED + number) for number in range(drawings))
            called[kind] = sum(pool.map(is_score, drawn))
            work.advance(drawings)
    hits, false_alarms = ({kind: called[kind] for kind in kinds} for kinds in (SCORES, NON_SCORES))
    return Measure(without_place(config.model), config.least, drawings, hits, false_alarms)


TRAINED_ON = ("clean", "clean", "clean", None, "skewed", "noisy", "photographed", None)
"""The kinds of drawn pages that a detector learns from, in turn; None for something else."""


def write_drawn_training(folder: Path, pages: int) -> dict[str, int]:
    """Draw pages, take the staff-line detector's boxes as a person's, and write `training/`; return its counts."""
    scans, boxes, returned = folder / "scans", folder / "boxes", folder / "label-studio.json"
    scans.mkdir(parents=True)
    others = list(NON_SCORES.values())
    for seed in range(pages):
        kind = TRAINED_ON[seed % len(TRAINED_ON)]
        page = SCORES[kind](score(seed), seed) if kind else others[seed // 4 % len(others)](seed)
        page.save(scans / f"{seed:04}.png")
    write_boxes(folder_images(scans), Detector(), folder, boxes, images_at=None, force=False)
    tasks = json.loads((boxes / "label-studio-tasks.json").read_text("utf-8"))
    for task in tasks:
        task["annotations"] = [{"result": task.pop("predictions")[0]["result"], "updated_at": "2026-01-01"}]
    returned.write_text(json.dumps(tasks), "utf-8")
    return write_training_data(boxes, returned, folder / "training", force=False)
