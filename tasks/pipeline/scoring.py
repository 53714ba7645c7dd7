"""Score clips by scorers through the ledger, and drop clips by a score (`keep`). No Prefect."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.config import BuildConfig, ClipRule, ClipsConfig, checked, read_toml
from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.questions import Audio, AudioForm, Json
from earmark.schemas.reasons import AudioFault
from earmark.tasks.annotation.backend import question
from earmark.tasks.annotation.request import Request, Unanswered
from earmark.tasks.annotation.scorer import ScorerInput, check_scorer, identity
from earmark.tasks.pipeline.ask import check_failed
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


class ScoreLimit(NamedTuple):
    """Rule of `keep` with its scorer."""

    rule: ClipRule
    scorer: Scorer
    score: str

    @property
    def name(self) -> str:
        """Return the scorer's name in requests."""
        return identity(self.scorer)

    @property
    def digests(self) -> dict[str, str]:
        """Return the digest of everything that decides the scores, as an input of the build."""
        said = {"scorer": self.name, "score": self.score, "hearing": self.scorer.hearing.model_dump()}
        return {"keep": digest_of(said)}

    def fault_of(self, outcome: Any) -> AudioFault | None:
        """Return the reason to drop a clip by its outcome; None if it stays."""
        if isinstance(outcome, Unanswered):
            return AudioFault(outcome.reason, f"keep: no {self.score} of {self.scorer.annotator}: {outcome.detail}")
        value = float(outcome.value[self.score])
        if SIGNS[self.rule.sign](value, self.rule.bound):
            return None
        return AudioFault("low_score", f"expected {self.score} {self.rule.sign} {self.rule.bound:g}, found {value:.4g}")


def score_limit(config: BuildConfig) -> ScoreLimit | None:
    """Read the scorer of `keep`; None without one.

    Raises:
        ConfigError: the file is no scorer's, the scorer takes words, or the score is none of its scores.
    """
    rule = config.clip_rule if isinstance(config, ClipsConfig) else None
    if rule is None:
        return None
    (scorer,) = read_scorers([config.path(rule.scorer)])
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

    Raises:
        EarmarkError: too many clips have no score yet.
        StopRun: a fault of every request.
    """
    limit = score_limit(config)
    if limit is None:
        return rows
    clips = {
        str(row[0]): ScorerInput(Audio(str(row[0]), str(file), duration_s=row[1]))
        for row, file in zip(rows, files, strict=True)
        if row[0] is not None and isinstance(file, Path)
    }
    requests = scorer_requests(clips.values(), limit.scorer)
    if stage.forecast is not None:
        outcomes = stage.forecast.known_scores(limit.scorer, requests)
    else:
        with open_session(stage.store, limit.scorer, roles="keep") as session:
            outcomes = session.ask(requests).outcomes
        check_failed(MOST_FAILED, len(outcomes), [asdict(one) for one in outcomes if isinstance(one, Unanswered)])
    found = {clip: limit.fault_of(one) for clip, one in zip(clips, outcomes, strict=True) if one is not None}
    faults = {clip: fault for clip, fault in found.items() if fault}
    return [fault_row(*faults[row[0]]) if row[0] in faults else row for row in rows]
