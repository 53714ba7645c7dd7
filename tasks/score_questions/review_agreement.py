"""How far reviewers agree: every two of them by Cohen's kappa, all of them by Krippendorff's alpha."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tasks.evaluation.agreement import agreement
from tasks.score_questions.reviews import ASKED, Verdict, applies, left_out

FLAGGED = "flagged"  # asked of no one: whether a reviewer's word speaks for leaving the question out


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How far two reviewers agree on one thing.

    Attributes:
        reviewers: the two, in order.
        asked: which of `ASKED`, or `flagged`.
        both: questions that both looked at.
        share: share of these on which they say the same.
        kappa: Cohen's kappa (Cohen 1960), -1 to 1; None where chance alone would make them agree.
    """

    reviewers: tuple[str, str]
    asked: str
    both: int
    share: float
    kappa: float | None


def agreements(verdicts: Iterable[Verdict]) -> list[PairAgreement]:
    """Every two reviewers who looked at the same questions, by each thing asked and by whether they flag."""
    by_reviewer: dict[str, dict[tuple[str, str], Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        by_reviewer[verdict.reviewer][verdict.question_id, verdict.content_sha256] = verdict
    found = []
    for one, other in combinations(sorted(by_reviewer), 2):
        shared = sorted(by_reviewer[one].keys() & by_reviewer[other].keys())
        for asked in (*ASKED, FLAGGED) if shared else ():
            pairs = [(_said(by_reviewer[one][key], asked), _said(by_reviewer[other][key], asked)) for key in shared]
            share, kappa = cohen_kappa(pairs)
            found.append(PairAgreement((one, other), asked, len(shared), share, kappa))
    return found


def _said(verdict: Verdict, asked: str) -> bool:
    return verdict.flagged if asked == FLAGGED else verdict.said[asked]


def cohen_kappa(pairs: Sequence[tuple[bool, bool]]) -> tuple[float, float | None]:
    """The share on which two agree, and Cohen's kappa: that share above what chance gives (Cohen 1960).

    Args:
        pairs: what both said, one or more.
    """
    count = len(pairs)
    share = sum(one == other for one, other in pairs) / count
    first, second = (sum(pair[place] for pair in pairs) / count for place in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return share, None if chance >= 1 else (share - chance) / (1 - chance)


@dataclass(frozen=True, slots=True)
class Alpha:
    """How far all reviewers agree on one thing.

    Attributes:
        asked: which of `ASKED`, or `flagged`.
        questions: questions with two reviews or more.
        reviews: reviews of these.
        share: share of pairs of reviews of one question that say the same.
        alpha: Krippendorff's alpha, nominal (`tasks/evaluation/agreement.py`); None where all reviews say the same.
        low: lower end of its interval of 95 % by bootstrap over questions; None where there is none.
        high: upper end, likewise.
    """

    asked: str
    questions: int
    reviews: int
    share: float
    alpha: float | None
    low: float | None
    high: float | None


def alphas(verdicts: Iterable[Verdict]) -> list[Alpha]:
    """Agreement of all reviewers, by each thing asked and by whether they flag; none if no question has two reviews."""
    by_question: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_question[verdict.question_id, verdict.content_sha256].append(verdict)
    questions = [by_question[key] for key in sorted(by_question)]
    found = []
    for asked in (*ASKED, FLAGGED):
        said = [sum(_said(verdict, asked) for verdict in held) for held in questions]
        counts = [[len(held) - yes, yes] for held, yes in zip(questions, said, strict=True)]
        if told := agreement(np.array(counts).reshape(-1, 2)):
            facts = (told.comparisons, told.votes, told.rate, told.alpha, told.alpha_low, told.alpha_high)
            found.append(Alpha(asked, *facts))
    return found


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
