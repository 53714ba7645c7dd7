"""Ask scorers for numbers about clips, through the ledger like all answers: `earmark eval score --scorer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from earmark.schemas.config import checked, read_toml
from earmark.schemas.errors import ConfigError, EarmarkError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.questions import Audio, AudioForm, Json, Message
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.outcome import Unanswered
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.scorer import check_scorer, identity
from earmark.tasks.annotation.session import Session
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


def read_scorers(paths: Sequence[Path]) -> list[Scorer]:
    """Read the scorers of TOML files; an ONNX file's path is relative to its TOML file.

    Raises:
        ConfigError: a file is not a scorer's, names something missing here, or repeats the name of a score.
        MissingExtraError: onnxruntime is missing.
    """
    scorers = []
    for path in paths:
        scorer = checked(Scorer, read_toml(path), path)
        if scorer.form == "onnx":
            scorer = scorer.model_copy(update={"annotator": f"scorer:{path.parent.absolute() / scorer.model}"})
        check_scorer(scorer)
        scorers.append(scorer)
    names = [name for scorer in scorers for name in scorer.scores]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"--scorer: two scorers give a score '{twice}'; name one of them otherwise under scores")
    return scorers


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


def clip_scores(clips: Mapping[str, Audio], scorers: Sequence[Scorer], store: Store) -> dict[str, list[Scored]]:
    """Score each clip, by the clip's name in messages; scorers decide on the form of its sound.

    Raises:
        EarmarkError: a scorer gave no clip a score.
        StopRun, LedgerError: as `Annotator.ask`.
    """
    scores: dict[str, list[Scored]] = {name: [] for name in clips}
    for scorer in scorers:
        with _session(clips, scorer, store) as (requests, session):
            outcomes = session.ask(requests).outcomes
        if all(isinstance(one, Unanswered) for one in outcomes):
            first = next(one for one in outcomes if isinstance(one, Unanswered))
            raise EarmarkError(f"{scorer.annotator} scored no clip: '{next(iter(clips))}': {first.detail}")
        for name, one in zip(clips, outcomes, strict=True):
            for score in scorer.scores:
                if isinstance(one, Unanswered):
                    scores[name].append(Scored(score, None, one.reason, one.detail, one.key))
                else:
                    scores[name].append(Scored(score, float(one.value[score]), None, None, one.key))
    return scores


def scorer_forecasts(clips: Mapping[str, Audio], scorers: Sequence[Scorer], store: Store) -> Iterator[dict[str, Any]]:
    """Count the requests of `clip_scores` without asking."""
    for scorer in scorers:
        with _session(clips, scorer, store) as (requests, session):
            plan = session.forecast(requests)
        about = f"{', '.join(scorer.scores)} of {len(clips):,} clips"
        yield {"annotator": scorer.annotator, "about": about, **asdict(plan)}


@contextmanager
def _session(clips: Mapping[str, Audio], scorer: Scorer, store: Store) -> Iterator[tuple[list[Request], Session]]:
    model, form = identity(scorer), AudioForm(**scorer.hearing.model_dump())
    properties = {name: {"type": "number"} for name in scorer.scores}
    ask = Json.of({"type": "object", "properties": properties, "required": [*scorer.scores]}, "scores")
    named = scorer.model_copy(update={"annotator": model})
    requests = [
        question(named, [Message.of("user", Audio(one.sha256, one.path, duration_s=one.duration_s, form=form))], ask)
        for one in clips.values()
    ]
    with open_session(store, scorer) as session:
        yield requests, session


def score_in(row: Mapping[str, Any], name: str) -> float | None:
    """Return a score of a row of `clips.parquet`, by its name; None if the clip lacks it."""
    return next((one["value"] for one in row["scores"] if one["name"] == name), None)


def names_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of a row's scores; none in older records."""
    return [one["name"] for one in row.get("scores") or ()]


def unscored(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Count the clips without each score, with the first such clip and its reason; skip complete scores."""
    lacking: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for one in row["scores"]:
            if one["reason"] is not None:
                lacking.setdefault(one["name"], []).append((row["id"], f"{one['reason']}: {one['detail']}"))
    return {name: {"clips": len(held), "first": held[0][0], "why": held[0][1]} for name, held in lacking.items()}
