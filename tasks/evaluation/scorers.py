"""Ask scorers for numbers about clips, through the ledger like all answers: `--scorer` of `earmark eval`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import pyarrow as pa

from earmark.schemas.errors import EarmarkError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.questions import Audio
from earmark.schemas.results import LackingScore
from earmark.tasks.annotation.request import AskPlan, Outcome, Unanswered
from earmark.tasks.annotation.scorer import ScorerInput, identity
from earmark.tasks.evaluation.clip_scores import columns_for, predicted
from earmark.tasks.evaluation.kinds import Prediction, find_kind, values_of
from earmark.tasks.evaluation.samples import Samples
from earmark.tasks.evaluation.scores import NotCovered
from earmark.tasks.pipeline.scoring import scorer_requests
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.versions import Store

SCORES = pa.list_(
    pa.struct([("name", pa.string()), ("value", pa.float64()), ("reason", pa.string()), ("detail", pa.string())])
)
"""Type of the column `scores` of `clips.parquet`."""


class Scored(NamedTuple):
    """A clip's number, or the reason for its absence."""

    name: str
    value: float | None  # the number, if any
    reason: str | None  # reason, detail: of a missing number
    detail: str | None
    request_key: str


def described(scorers: Sequence[Scorer]) -> dict[str, Any]:
    """Describe each score: its scorer and sound, whether lower is better, and whether it counts in ranks."""
    return {
        name: {
            "scorer": identity(scorer),
            "hearing": scorer.hearing.model_dump(),
            "lower_is_better": name in scorer.lower,
            "ranked": name in scorer.ranked,
        }
        for scorer in scorers
        for name in scorer.scores
    }


class ClipScore(TypedDict):
    """A score of a clip, or the reason for its absence."""

    name: str
    value: float | None
    reason: str | None
    detail: str | None


class HeardConcept(TypedDict):
    """Probability of a concept in a clip, or the reason for its absence."""

    concept: str
    p_yes: float | None
    reason: str | None


class ScoredRow(TypedDict):
    """A row of `clips.parquet`; older records have no scores."""

    id: str
    groups: list[str]
    clip_sha256: str
    duration_s: float
    level_dbfs: float
    silent_share: float
    clipped_share: float
    faults: list[str]
    clap: float | None
    concepts: list[HeardConcept]
    coverage: float | None
    request_keys: list[str]
    scores: NotRequired[list[ClipScore] | None]


def clip_scores(clips: Mapping[str, ScorerInput], scorers: Sequence[Scorer], store: Store) -> dict[str, list[Scored]]:
    """Score each clip, by the clip's name in messages; scorers decide on the form of its sound."""
    scores: dict[str, list[Scored]] = {name: [] for name in clips}
    for scorer in scorers:
        with open_session(store, scorer) as session:
            outcomes = session.ask(scorer_requests(clips.values(), scorer)).outcomes
        if outcomes and all(isinstance(one, Unanswered) for one in outcomes):
            first = next(one for one in outcomes if isinstance(one, Unanswered))
            raise EarmarkError(f"{scorer.annotator} scored no clip: '{next(iter(clips))}': {first.detail}")
        for name, one in zip(clips, outcomes, strict=True):
            scores[name] += scored(one, scorer)
    return scores


def scored(outcome: Outcome, scorer: Scorer) -> list[Scored]:
    """Return the scores of an outcome, or the reason for each one's absence."""
    if isinstance(outcome, Unanswered):
        return [Scored(score, None, outcome.reason, outcome.detail, outcome.key) for score in scorer.scores]
    return [Scored(score, float(outcome.value[score]), None, None, outcome.key) for score in scorer.scores]


def scorer_forecasts(clips: Mapping[str, ScorerInput], scorers: Sequence[Scorer], store: Store) -> Iterator[AskPlan]:
    """Count the requests of `clip_scores` without asking."""
    for scorer in scorers:
        with open_session(store, scorer) as session:
            plan = session.forecast(scorer_requests(clips.values(), scorer))
        about = f"{', '.join(scorer.scores)} of {len(clips):,} clips"
        yield {"annotator": scorer.annotator, "about": about, **plan}


def scorer_predictions(
    samples: Samples, scorer: Scorer, store: Store, roots: Sequence[Path], overall: Sequence[str] = ()
) -> dict[str, Prediction]:
    """Predict an evaluation's samples by the scores of their clips; less is better of `lower` scores."""
    names, sides = scores_for(scorer, samples, overall), sides_of(samples)
    inputs = {key: one for key, one in scorer_inputs(samples, store, roots).items() if one is not None}
    scores = {key: {one.name: one for one in held} for key, held in clip_scores(inputs, [scorer], store).items()}
    found = {}
    for name in (row["id"] for batch in samples.batches(10_000, ["id"]) for row in batch):
        heard = [scores[f"{name} {side}"] for side in sides if f"{name} {side}" in scores]
        lacking = [one[score] for one in heard for score in names if one[score].value is None]
        if len(heard) < len(sides):
            found[name] = Prediction(name, reason="no_media", detail="the version does not hold the clip")
        elif lacking:
            found[name] = Prediction(name, reason=lacking[0].reason, detail=lacking[0].detail)
        else:
            sums = [sum(-(one[score].value or 0.0) if score in scorer.lower else one[score].value or 0.0
                        for score in names) for one in heard]  # fmt: skip
            found[name] = predicted(name, sums, samples.evaluation)
        found[name].requests = [one[names[0]].request_key for one in heard]
    return found


def scores_for(scorer: Scorer, samples: Samples, overall: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the scores that stand for an evaluation's dimension; several are added up."""
    evaluation = samples.evaluation
    if not {*(sides := sides_of(samples))} <= {*samples.columns} or not sides:
        raise NotCovered(f"{evaluation.name}, which asks for more than numbers of clips")
    if wished := scorer.dimensions.get(evaluation.dimension):
        return (wished,)
    only = scorer.scores if len(scorer.scores) == 1 else None
    columns = columns_for(evaluation, scorer.scores, overall) or only
    if columns is None:
        raise NotCovered(
            f"{evaluation.name}, for which {scorer.annotator} has no score '{evaluation.dimension}': write "
            f'dimensions = {{ {evaluation.dimension} = "{scorer.scores[0]}" }}, or another of its scores'
        )
    return columns


def sides_of(samples: Samples) -> tuple[str, ...]:
    """Return the columns of the rated clips."""
    return tuple(f"{side}audio" for side in find_kind(samples.evaluation.kind).clips)


def scorer_inputs(samples: Samples, store: Store, roots: Sequence[Path]) -> dict[str, ScorerInput | None]:
    """Return each sample's clips with its text, lyrics and reference, by id and column; None for a missing clip."""
    sides = sides_of(samples)
    words = [name for name in ("text", "lyrics") if name in samples.columns]
    heard = [name for name in (*sides, "reference_audio") if name in samples.columns]
    files = samples.files(heard, store, roots)
    clips = {sha256: Audio(sha256, str(one.path), duration_s=one.duration_s) for sha256, one in files.items()}
    inputs: dict[str, ScorerInput | None] = {}
    for row in (row for batch in samples.batches(10_000, ["id", *words, *heard]) for row in batch):
        reference = clips[heard_with] if (heard_with := row.get("reference_audio")) else None
        more = dict(zip(words, values_of(row, words), strict=True))
        for side, sha256 in zip(sides, values_of(row, sides), strict=True):
            held = ScorerInput(clips[sha256], reference=reference, **more) if sha256 else None
            inputs[f"{row['id']} {side}"] = held
    return inputs


def score_in(row: ScoredRow, name: str) -> float | None:
    """Return a score of a row of `clips.parquet`, by its name; None if the clip lacks it."""
    return next((one["value"] for one in row["scores"] or () if one["name"] == name), None)


def names_of(row: ScoredRow) -> list[str]:
    """Return the names of a row's scores; none in older records."""
    return [one["name"] for one in row.get("scores") or ()]


def unscored(rows: Sequence[ScoredRow]) -> dict[str, LackingScore]:
    """Count the clips without each score, with the first such clip and its reason; skip complete scores."""
    lacking: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for one in row["scores"] or ():
            if one["reason"] is not None:
                lacking.setdefault(one["name"], []).append((row["id"], f"{one['reason']}: {one['detail']}"))
    return {name: {"clips": len(held), "first": held[0][0], "why": held[0][1]} for name, held in lacking.items()}
