"""How far reviewers agree: every two of them by Cohen's kappa, all of them by Krippendorff's alpha."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from earmark.tasks.evaluation.agreement import agreement
from earmark.tasks.score_questions.reviews import CRITERIA, Verdict, applies, left_out

FLAGGED = "flagged"  # no reviewer fills it in: whether a verdict speaks for leaving the question out


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How far two reviewers agree on one thing."""

    reviewers: tuple[str, str]  # the two, in order
    criterion: str  # which of `CRITERIA`, or `flagged`
    both: int  # questions that both looked at
    share: float  # share of these on which they say the same
    kappa: float | None  # Cohen's kappa (Cohen 1960), -1 to 1; None where chance alone would make them agree


def agreements(verdicts: Iterable[Verdict]) -> list[PairAgreement]:
    """Every two reviewers who looked at the same questions, by criterion and by whether they flag."""
    by_reviewer: dict[str, dict[tuple[str, str], Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        by_reviewer[verdict.reviewer][verdict.question_id, verdict.content_sha256] = verdict
    rows = []
    for one, other in combinations(sorted(by_reviewer), 2):
        shared = sorted(by_reviewer[one].keys() & by_reviewer[other].keys())
        for criterion in (*CRITERIA, FLAGGED) if shared else ():
            both = ([_answer(by_reviewer[who][key], criterion) for key in shared] for who in (one, other))
            share, kappa = cohen_kappa(list(zip(*both, strict=True)))
            rows.append(PairAgreement((one, other), criterion, len(shared), share, kappa))
    return rows


def _answer(verdict: Verdict, criterion: str) -> bool:
    return verdict.flagged if criterion == FLAGGED else verdict.answers[criterion]


def cohen_kappa(pairs: Sequence[tuple[bool, bool]]) -> tuple[float, float | None]:
    """The share on which two agree, and Cohen's kappa: that share above what chance gives (Cohen 1960)."""
    count = len(pairs)
    share = sum(one == other for one, other in pairs) / count
    first, second = (sum(pair[place] for pair in pairs) / count for place in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return share, None if chance >= 1 else (share - chance) / (1 - chance)


@dataclass(frozen=True, slots=True)
class Alpha:
    """How far all reviewers agree on one thing."""

    criterion: str  # which of `CRITERIA`, or `flagged`
    questions: int  # questions with two reviews or more
    reviews: int  # reviews of these
    share: float  # share of pairs of reviews of one question that say the same
    # Krippendorff's alpha, nominal (`tasks/evaluation/agreement.py`); None where all reviews say the same
    alpha: float | None
    low: float | None  # lower end of its interval of 95 % by bootstrap over questions; None where there is none
    high: float | None  # upper end, likewise


def alphas(verdicts: Iterable[Verdict]) -> list[Alpha]:
    """Agreement of all reviewers, by criterion and by whether they flag; none if no question has two reviews."""
    by_question: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_question[verdict.question_id, verdict.content_sha256].append(verdict)
    questions = [by_question[key] for key in sorted(by_question)]
    rows = []
    for criterion in (*CRITERIA, FLAGGED):
        yeses = [sum(_answer(verdict, criterion) for verdict in own) for own in questions]
        counts = [[len(own) - yes, yes] for own, yes in zip(questions, yeses, strict=True)]
        if one := agreement(np.array(counts).reshape(-1, 2)):
            facts = (one.comparisons, one.votes, one.rate, one.alpha, one.alpha_low, one.alpha_high)
            rows.append(Alpha(criterion, *facts))
    return rows


def summary_of(verdicts: Sequence[Verdict], contents: Mapping[str, str]) -> dict[str, Any]:
    """What a person wants to know of reviews that came back."""
    counted = [verdict for verdict in verdicts if applies(verdict, contents)]
    return {
        "reviews": len(verdicts),
        "counted": len(counted),
        "reviewers": sorted({verdict.reviewer for verdict in verdicts}),
        "reviewed_questions": len({verdict.question_id for verdict in counted}),
        "questions": len(contents),
        "flagged": {by: sorted(left_out(counted, by)) for by in ("any", "majority", "all")},
        "agreement": agreements(counted),
        "alpha": alphas(counted),
    }
