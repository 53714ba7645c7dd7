"""How well a detector tells scores from what is none, measured on drawings that the repository makes itself."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from scipy.special import betaincinv

from earmark.schemas.places import without_place
from earmark.schemas.score_questions import Detector, ScoreQuestions
from earmark.tasks.build.code import code_digest
from earmark.tasks.build.fingerprint import library_versions
from earmark.tasks.build.progress import working
from earmark.tasks.build.step import Done, step
from earmark.tasks.score_questions.forum.detection import STAFF_LINES, open_detector
from earmark.tasks.score_questions.forum.drawings import NON_SCORES, SCORES, score
from earmark.tasks.store.files import write_text
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage

FIRST_SEED = 10_000  # the staff-line detector was tuned on none of those from here on
GOAL = 0.95  # of precision and recall on clean scores
COVERS = 0.95
AT_ONCE = 4
MEASURED = "measured-detectors"  # folder of the store that keeps what was measured


@dataclass(frozen=True)
class Measure:
    """What a detector made of drawings."""

    model: str
    least: float  # confidence from which it says that a drawing is a score
    drawings: int  # of each kind, with the seeds from `FIRST_SEED` on
    hits: Mapping[str, int]  # drawn scores that it recognised, by kind
    false_alarms: Mapping[str, int]  # drawings of something else that it took for scores, by kind

    def recall(self, kind: str) -> float:
        """Share of a kind's scores that were recognised."""
        return self.hits[kind] / self.drawings

    def recall_low(self, kind: str) -> float:
        """What the recall is at least, of all scores that could be drawn so (Clopper and Pearson 1934, 95 %)."""
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
        """Whether precision and recall on clean scores reach the goal."""
        return self.recall("clean") >= GOAL and (self.precision("clean") or 0.0) >= GOAL


def measure_detector(config: Detector, base: Path) -> Measure:
    """Have a detector look at `config.drawings` drawings of each kind.

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
    with working("measure the detector", len(kinds) * config.drawings) as work, ThreadPoolExecutor(AT_ONCE) as pool:
        for kind in kinds:
            drawn = ((kind, FIRST_SEED + number) for number in range(config.drawings))
            called[kind] = sum(pool.map(is_score, drawn))
            work.advance(config.drawings)
    hits, false_alarms = ({kind: called[kind] for kind in kinds} for kinds in (SCORES, NON_SCORES))
    return Measure(without_place(config.model), config.least, config.drawings, hits, false_alarms)


@step("detector", label="")
def try_detector(stage: Stage, config: ScoreQuestions) -> Done[Measure | None]:
    """Measure the build's own detector, for report and card, unless the config wants no measurement.

    What was measured of the embedded one stays in the store, since its code and libraries decide every drawing and
    what it sees in it.
    """
    detector = config.detector
    if not detector.drawings:
        return Done(None)
    if detector.model != STAFF_LINES:
        return Done(measure_detector(detector, config.base))
    decides = [code_digest(__name__), library_versions(), detector.model_dump(mode="json")]
    path = stage.store.root / MEASURED / f"{digest_of(decides)[:32]}.json"
    if path.is_file():
        with suppress(ValueError):  # a damaged file: what it held is measured anew
            return Done(TypeAdapter(Measure).validate_json(path.read_bytes()))
    measure = measure_detector(detector, config.base)
    written = stage.work / path.name  # what a killed build leaves there goes with its staging
    write_text(written, TypeAdapter(Measure).dump_json(measure).decode())
    path.parent.mkdir(exist_ok=True)
    written.replace(path)
    return Done(measure)


def measure_of(stage: Stage) -> Measure | None:
    """What a build measured; None if nothing."""
    text = stage.output(try_detector.name)
    return None if text is None else TypeAdapter(Measure | None).validate_json(text)
