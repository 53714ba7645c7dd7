"""How well a detector tells scores from what is none, measured on drawings that the repository makes itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image
from scipy.special import betaincinv

from schemas.places import without_place
from schemas.score_questions import Detector, ScoreQuestions
from tasks.build.progress import working
from tasks.score_questions.forum.detection import open_detector
from tasks.score_questions.forum.drawings import NON_SCORES, SCORES, score
from tasks.store.files import write_text
from tasks.store.staging import Stage

FIRST_SEED = 10_000  # the staff-line detector was tuned on none of those from here on
FILE = "detector.json"
GOAL = 0.95  # of precision and recall on clean scores
COVERS = 0.95
AT_ONCE = 4


@dataclass(frozen=True)
class Measure:
    """What a detector said of drawings.

    Attributes:
        model: the detector.
        least: confidence from which it says that a drawing is a score.
        drawings: of each kind, with the seeds from `FIRST_SEED` on.
        told: drawn scores that it told, by kind.
        taken: drawings of something else that it took for scores, by kind.
    """

    model: str
    least: float
    drawings: int
    told: Mapping[str, int]
    taken: Mapping[str, int]

    def recall(self, kind: str) -> float:
        """Share of a kind's scores that were told."""
        return self.told[kind] / self.drawings

    def recall_low(self, kind: str) -> float:
        """What the recall is at least, of all scores that could be drawn so (Clopper and Pearson 1934, 95 %)."""
        told = self.told[kind]
        return float(betaincinv(told, self.drawings - told + 1, (1 - COVERS) / 2)) if told else 0.0

    def precision(self, kind: str) -> float | None:
        """Share of scores in what was called one, were there as many scores of a kind as other drawings, evenly mixed.

        None where nothing was called a score.
        """
        false = sum(self.taken.values()) / len(self.taken)
        called = self.told[kind] + false
        return self.told[kind] / called if called else None

    @property
    def meets_goal(self) -> bool:
        """Whether precision and recall on clean scores reach the goal."""
        return self.recall("clean") >= GOAL and (self.precision("clean") or 0.0) >= GOAL


def measure_detector(config: Detector, base: Path) -> Measure:
    """Have a detector look at `config.drawings` drawings of each kind.

    Args:
        config: which detector, and from which confidence an image counts as a score.
        base: the folder of the config.

    Raises:
        ConfigError: there is no such detector.
        MissingExtraError: it needs an extra that is not installed.
    """
    detector = open_detector(config, base)

    def is_score(drawn: tuple[str, int]) -> bool:
        return detector.look(_draw(*drawn)).confidence >= config.least

    found: dict[str, int] = {}
    kinds = [*SCORES, *NON_SCORES]
    with working("measure the detector", len(kinds) * config.drawings) as work, ThreadPoolExecutor(AT_ONCE) as pool:
        for kind in kinds:
            drawn = ((kind, FIRST_SEED + number) for number in range(config.drawings))
            found[kind] = sum(pool.map(is_score, drawn))
            work.advance(config.drawings)
    told, taken = ({kind: found[kind] for kind in room} for room in (SCORES, NON_SCORES))
    return Measure(without_place(config.model), config.least, config.drawings, told, taken)


def _draw(kind: str, seed: int) -> Image.Image:
    return SCORES[kind](score(seed), seed) if kind in SCORES else NON_SCORES[kind](seed)


def keep_measure(stage: Stage, config: ScoreQuestions) -> None:
    """Measure the build's own detector, unless the config wants no measurement or an interrupted run has done it."""
    path = stage.work / FILE
    if config.detector.drawings and not path.is_file():
        write_text(path, json.dumps(asdict(measure_detector(config.detector, config.base))) + "\n")


def kept_measure(stage: Stage) -> Measure | None:
    """What `keep_measure` left; None if nothing was measured."""
    path = stage.work / FILE
    return Measure(**json.loads(path.read_bytes())) if path.is_file() else None
