"""Score clips by scorers through the ledger, and drop clips by a score (`keep`). No Prefect."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.config import BuildConfig, ClipRule, ClipsConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.questions import Audio, AudioForm, Json
from earmark.schemas.reasons import AudioFault
from earmark.schemas.toml import checked, read_toml
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.request import Outcome, Request, Unanswered
from earmark.tasks.annotation.scorer import ScorerInput, check_scorer, identity
from earmark.tasks.pipeline.ask import FailedRequest, check_failed
from earmark.tasks.pipeline.media import fault_row
from earmark.tasks.pipeline.sessions import open_session
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.staging import Stage

MOST_FAILED = 0.02  # share of clips that may stay without a score, as of an annotator's requests
SIGNS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


def read_scorers(paths: Sequence[Path]) -> list[Scorer]:
    """Read the scorers of TOML files; paths of an ONNX file and in a command are relative to the TOML file.

    Raises:
        ConfigError: a file is not a scorer's, names something missing here, or repeats the name of a score.
        MissingExtraError: onnxruntime is missing.
    """
    scorers = []
    for path in paths:
        scorer = checked(Scorer, read_toml(path), path)
        if scorer.form == "onnx":
            scorer = scorer.model_copy(update={"annotator": f"scorer:{path.parent.absolute() / scorer.model}"})
        folder = path.parent.absolute()
        command = tuple(str(folder / word) if (folder / word).is_file() else word for word in scorer.command)
        scorer = scorer.model_copy(update={"command": command})
        check_scorer(scorer)
        scorers.append(scorer)
    names = [name for scorer in scorers for name in scorer.scores]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"--scorer: two scorers give a score '{twice}'; name one of them otherwise under scores")
    return scorers


def scorer_requests(inputs: Iterable[ScorerInput], scorer: Scorer) -> list[Request]:
    """Return a request for each clip, in the form of sound that the scorer gets."""
    form = AudioForm(**scorer.hearing.model_dump())
    properties = {name: {"type": "number"} for name in scorer.scores}
    ask = Json.of({"type": "object", "properties": properties, "required": [*scorer.scores]}, "scores")
    named = scorer.model_copy(update={"annotator": identity(scorer)})
    formed = (
        one._replace(clip=replace(one.clip, form=form), reference=one.reference and replace(one.reference, form=form))
        for one in inputs
    )
    return [question(named, [one.message(scorer.takes)], ask) for one in formed]


class ClipNumbers(NamedTuple):
    """A clip's numbers in a build, or the fault in their place."""

    request_key: str
    values: Mapping[str, float]  # empty with a fault
    fault: AudioFault | None
    final: bool  # whether another run would give the same


def scorer_name(scorer: Scorer) -> str:
    """Return a scorer's name in requests and manifests."""
    return identity(scorer)


def score_clips(
    stage: Stage, role: str, scorer: Scorer, clips: Iterable[tuple[Audio, str | None, str | None, Audio | None]]
) -> list[ClipNumbers | None]:
    """Return the numbers of each clip of a build; None in a dry run, which counts it, if the ledger has none.

    Args:
        stage: the build.
        role: its name in progress and dry run.
        scorer: gives the numbers.
        clips: each with text, lyrics and reference.

    Raises:
        EarmarkError: too many clips have no score yet.
        StopRun: a fault of every request.
    """
    requests = scorer_requests((ScorerInput(*one) for one in clips), scorer)
    if stage.forecast is not None:
        outcomes: Sequence[Outcome | None] = stage.forecast.known_scores(role, scorer, requests)
    else:
        with open_session(stage.store, scorer, roles=role) as session:
            outcomes = session.ask(requests).outcomes
        lost = (one for one in outcomes if isinstance(one, Unanswered))
        failed: list[FailedRequest] = [{"reason": o.reason, "detail": o.detail, "final": o.final} for o in lost]
        check_failed(MOST_FAILED, len(outcomes), failed)
    return [None if one is None else _numbers_of(one) for one in outcomes]


def _numbers_of(outcome: Outcome) -> ClipNumbers:
    if isinstance(outcome, Unanswered):
        return ClipNumbers(outcome.key, {}, AudioFault(outcome.reason, outcome.detail), outcome.final)
    return ClipNumbers(outcome.key, outcome.value, None, True)


def scores_digest(scorer: Scorer, score: str | None) -> str:
    """Return the digest of everything that decides a scorer's numbers, of one score or of all."""
    said = {"scorer": scorer_name(scorer), "score": score, "hearing": scorer.hearing.model_dump()}
    return digest_of(said)


class ScoreLimit(NamedTuple):
    """Rule of `keep` with its scorer."""

    rule: ClipRule
    scorer: Scorer
    score: str

    @property
    def digests(self) -> dict[str, str]:
        """Return the digest of everything that decides the scores, as an input of the build."""
        return {"keep": scores_digest(self.scorer, self.score)}

    def fault_of(self, scores: ClipNumbers) -> AudioFault | None:
        """Return the reason to drop a clip; None if it stays."""
        if scores.fault is not None:
            return scores.fault._replace(detail=f"keep: no {self.score}: {scores.fault.detail}")
        value = scores.values[self.score]
        if SIGNS[self.rule.sign](value, self.rule.bound):
            return None
        return AudioFault("low_score", f"expected {self.score} {self.rule.sign} {self.rule.bound:g}, found {value:.4g}")


def score_limit(config: BuildConfig) -> ScoreLimit | None:
    """Read the scorer of `keep`; None without one."""
    rule = config.clip_rule if isinstance(config, ClipsConfig) else None
    if rule is None:
        return None
    path = config.path(rule.scorer)
    if not path.is_file():
        raise ConfigError(f"keep: expected the TOML file of a scorer, found no file: {path}")
    (scorer,) = read_scorers([path])
    if scorer.takes:
        raise ConfigError(f"keep: {rule.scorer}: expected a scorer of clips alone, found takes = {[*scorer.takes]}")
    score = rule.score or (scorer.scores[0] if len(scorer.scores) == 1 else None)
    if score not in scorer.scores:
        found = "none named" if score is None else f"'{score}'"
        raise ConfigError(f"keep: expected a score of {rule.scorer} ({', '.join(scorer.scores)}), found {found}")
    return ScoreLimit(rule, scorer, score)


def drop_by_score(
    stage: Stage, config: BuildConfig, files: Sequence[Path | AudioFault], rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Mark measured clips as unusable unless their score fits `keep`; the ledger keeps each clip's scores.

    A dry run counts the clips without a score, and keeps them.
    """
    limit = score_limit(config)
    if limit is None:
        return rows
    clips = {
        str(row[0]): Audio(str(row[0]), str(file), duration_s=row[1])
        for row, file in zip(rows, files, strict=True)
        if row[0] is not None and isinstance(file, Path)
    }
    scores = score_clips(stage, "keep", limit.scorer, ((clip, None, None, None) for clip in clips.values()))
    found = {clip: limit.fault_of(one) for clip, one in zip(clips, scores, strict=True) if one is not None}
    faults = {clip: fault for clip, fault in found.items() if fault}
    return [fault_row(*faults[row[0]]) if row[0] in faults else row for row in rows]
