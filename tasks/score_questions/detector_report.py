"""What report and card say of the detector: how well it recognises scores, measured by the build itself."""

from __future__ import annotations

import shlex

from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.forum.measuring import FIRST_SEED, GOAL, Measure
from earmark.tasks.store.figures import Grid, Section

HEADING = "How well scores are recognised"
UNLIKE = (
    "Drawings are tamer than what people scan and photograph: expect less on those, and look at the questions below."
)


def card_sections(measure: Measure | None) -> dict[str, str]:
    """The card's own section: a sentence with the detector's figures, or that there are none."""
    if measure is None:
        return {HEADING: "The detector was not measured by this build (`detector.drawings` is 0)."}
    precision = {kind: measure.precision(kind) for kind in measure.hits}
    kinds = "; ".join(
        f"{kind} {measure.recall(kind):.3f} and {'none' if share is None else f'{share:.3f}'}"
        for kind, share in precision.items()
    )
    text = (
        f"Recall and precision of `{_safe(measure.model)}` on {measure.drawings:,} drawn scores a kind, beside as many "
        f"drawings of each of {', '.join(measure.false_alarms)}: {kinds}. {_goal(measure)} {_how(measure)} "
        f"{UNLIKE.partition(',')[0]}."
    )
    return {HEADING: text}


def detector_section(measure: Measure) -> Section:
    """The report's section."""
    scores = Grid(
        "Drawn scores",
        ("kind", "drawn", "recognised", "recall", "recall, at least", "precision"),
        tuple(
            (kind, measure.drawings, hits, measure.recall(kind), measure.recall_low(kind), measure.precision(kind))
            for kind, hits in measure.hits.items()
        ),
        ("recall", "recall, at least", "precision"),
        f"{_goal(measure)} At least: the lower end of a 95 % interval (Clopper and Pearson). Precision is that of as "
        "many scores as other drawings, the kinds of these in equal parts.",
    )
    others = Grid(
        "Drawn, and no score",
        ("kind", "drawn", "taken for scores", "share"),
        tuple(
            (kind, measure.drawings, false, false / measure.drawings) for kind, false in measure.false_alarms.items()
        ),
        ("share",),
    )
    command = _how(measure).replace("`", "")  # the page is no Markdown
    says = f"The detector {measure.model}: an image is a score from confidence {measure.least!r} on. {command}"
    return Section(HEADING, (scores, others), f"{says} {UNLIKE}")


def _goal(measure: Measure) -> str:
    return f"The goal, {GOAL} for both on clean ones, is {'met' if measure.meets_goal else 'MISSED'}."


def _how(measure: Measure) -> str:
    last = FIRST_SEED + measure.drawings - 1
    default = Detector()
    named = measure.model != default.model
    model = f" --model {shlex.quote(_safe(measure.model))} --base FOLDER" if named else ""
    least = "" if measure.least == default.least else f" --least {measure.least!r}"
    return (
        f"Measured by this build on drawings of the repository's own (seeds {FIRST_SEED} to {last}); the same figures: "
        f"`python -m tests.benchmarks.bench_detector --drawings {measure.drawings}{model}{least}`"
        f"{', FOLDER being the one that the config lies in' if named else ''}."
    )


def _safe(name: str) -> str:
    """A name as it may stand in Markdown's code."""
    return name.replace("`", "'")
