"""Judge pairs by a scorer: the clip with the higher number is preferred; the order of a pair means nothing to it."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from earmark.schemas.errors import ConfigError
from earmark.schemas.evaluations import Scorer
from earmark.schemas.pseudo_preferences import PairJudge, PseudoPreferences
from earmark.tasks.pipeline.rows import Rows, read_rows
from earmark.tasks.pipeline.scoring import ClipNumbers, read_scorers, score_clips, scorer_name, scores_digest
from earmark.tasks.pipeline.walk import DRAW, RESULT, Walked
from earmark.tasks.pseudo_preferences.judging import QuestionedPair, dimensions_of, judge_pairs, pair_values
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.staging import Stage

SCORED = {"musicality": "quality", "alignment": "following"}  # names of scores in answers, by dimension


def scorers_of(config: PseudoPreferences) -> dict[str, tuple[Scorer, dict[str, str]]]:
    """Read the scorers among the judges, each with its score by dimension, by the judge's label."""
    scorers = {}
    for judge in config.jurors():
        if judge.scorer_file is not None:
            (scorer,) = read_scorers([config.path(judge.scorer_file)])
            scorers[judge.label] = scorer, _scores_of(scorer, judge)
    return scorers


def _scores_of(scorer: Scorer, judge: PairJudge) -> dict[str, str]:
    only = scorer.scores[0] if len(scorer.scores) == len(judge.dimensions) == 1 else None
    scores: dict[str, str] = {}
    for dimension in judge.dimensions:
        score = scorer.dimensions.get(dimension) or (dimension if dimension in scorer.scores else only)
        if score is None:
            raise ConfigError(
                f"{judge.annotator}: no score for {dimension}: write dimensions = {{ {dimension} = "
                f'"{scorer.scores[0]}" }} in its file, or ask less: judge.dimensions'
            )
        scores[dimension] = score
    return scores


def scorer_digests(config: PseudoPreferences) -> dict[str, str]:
    """Return the digest of everything that decides each scorer's choices, as inputs of the build."""
    return {
        label: scores_digest(scorer, json.dumps([scores, scorer.lower, scorer.takes]))
        for label, (scorer, scores) in scorers_of(config).items()
    }


def judge_or_score(stage: Stage, config: PseudoPreferences, pairs: Rows, *, part: str = "", about: str = "") -> Walked:
    """Ask the judge about every pair in both orders, or a scorer about both clips of each."""
    if config.judge.scorer_file is None:
        return judge_pairs(stage, config, pairs, part=part, about=about)
    ((scorer, scores),) = scorers_of(config).values()
    rows = read_rows(pairs)
    asked = dimensions_of(config)
    heard: list[QuestionedPair] = [row | {"order": "forward", "dimensions": asked} for row in rows]
    shown = [pair_values(config, row).shown for row in heard]
    clips = ((one[side], one["text"], one["lyrics"] or None, one["reference"]) for one in shown for side in "ab")
    held = score_clips(stage, about or "judge", scorer, clips)
    walked = Walked(judge_pairs.name, pairs, stage.work / "scores" / part)
    if stage.forecast is None:
        outcomes = [one for one in held if one is not None]  # all, outside a dry run
        who = ("judge", config.judge.label, scorer_name(scorer))
        draws = [
            (at, "judge", 0, True, value, *who, key, None, *end, row["pair_id"], order, asked)
            for at, (row, a, b) in enumerate(zip(rows, outcomes[::2], outcomes[1::2], strict=True))
            for order, value, key, end in _draws(config.judge, scorer, scores, a, b)
        ]
        write_rows(
            walked.folder / "results" / "all.parquet", RESULT, [(at, "null", *[None] * 3) for at in range(len(rows))]
        )
        write_rows(walked.folder / "draws" / "all.parquet", pa.schema([*DRAW, *judge_pairs.columns]), draws)
    return walked


def _draws(
    judge: PairJudge, scorer: Scorer, scores: dict[str, str], a: ClipNumbers, b: ClipNumbers
) -> Iterator[tuple[Any, ...]]:
    """Yield order, value, request key and end of both orders of a pair, alike by construction.

    Forward names the request about a, reverse that about b.
    """
    lost = next((one for one in (a, b) if one.fault), None)
    end = (*(lost.fault or ()), lost.final) if lost else (None, None, True)
    for order, first, second in (("forward", a, b), ("reverse", b, a)):
        value = None if lost else json.dumps(_answer(judge, scorer, scores, first, second))
        yield order, value, first.request_key, end


def _answer(
    judge: PairJudge, scorer: Scorer, scores: dict[str, str], first: ClipNumbers, second: ClipNumbers
) -> dict[str, Any]:
    """Return the answer that a judge would give: the choice and both scores of each dimension."""
    answer: dict[str, Any] = {"reason": f"by {', '.join(scores.values())} of {scorer.annotator}"}
    for dimension, score in scores.items():
        held = first.values[score], second.values[score]
        lead = (held[1] - held[0]) if score in scorer.lower else (held[0] - held[1])
        answer[dimension] = "tie" if abs(lead) <= judge.tie_margin else "A" if lead > 0 else "B"
        answer |= {f"{SCORED[dimension]}_a": held[0], f"{SCORED[dimension]}_b": held[1]}
    return answer
