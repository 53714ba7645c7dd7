"""Measure the agreement of reviewers: every pair by Cohen's kappa, all of them by Krippendorff's alpha."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from earmark.tasks.score_questions.reviews import CRITERIA, ReviewerVerdict, applies, left_out
from earmark.tasks.store.agreement import agreement
from earmark.tasks.store.result_table import Interval, ResultColumn, ResultTable, percent

FLAGGED = "flagged"  # not filled in by reviewers: whether a verdict rejects the question


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Agreement of two reviewers on a criterion."""

    reviewers: tuple[str, str]  # the two, in order
    criterion: str  # from `CRITERIA`, or `flagged`
    both: int  # questions reviewed by both
    share: float  # share of these with equal answers
    kappa: float | None  # Cohen's kappa (Cohen 1960), -1 to 1; None if chance alone gives full agreement


def agreements(verdicts: Iterable[ReviewerVerdict]) -> list[PairAgreement]:
    """Return the agreement of every two reviewers of shared questions, by criterion and by flag."""
    by_reviewer: dict[str, dict[tuple[str, str], ReviewerVerdict]] = defaultdict(dict)
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


def _answer(verdict: ReviewerVerdict, criterion: str) -> bool:
    return verdict.flagged if criterion == FLAGGED else verdict.answers[criterion]


def cohen_kappa(pairs: Sequence[tuple[bool, bool]]) -> tuple[float, float | None]:
    """Return the share of agreement, and Cohen's kappa: the share above chance (Cohen 1960)."""
    count = len(pairs)
    share = sum(one == other for one, other in pairs) / count
    first, second = (sum(pair[place] for pair in pairs) / count for place in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    return share, None if chance >= 1 else (share - chance) / (1 - chance)


@dataclass(frozen=True, slots=True)
class Alpha:
    """Agreement of all reviewers on a criterion."""

    criterion: str  # from `CRITERIA`, or `flagged`
    questions: int  # questions with two reviews or more
    reviews: int  # reviews of these
    share: float  # share of pairs of reviews of a question with equal answers
    # Krippendorff's alpha, nominal (`tasks/store/agreement.py`); None if all reviews are equal
    alpha: float | None
    low: float | None  # lower end of its interval of 95 % by bootstrap over questions; None without an interval
    high: float | None  # upper end, likewise


def alphas(verdicts: Iterable[ReviewerVerdict]) -> list[Alpha]:
    """Return the agreement of all reviewers, by criterion and by flag; none if no question has two reviews."""
    by_question: dict[tuple[str, str], list[ReviewerVerdict]] = defaultdict(list)
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


def agreement_tables(agreements: Sequence[PairAgreement], alphas: Sequence[Alpha]) -> tuple[ResultTable, ResultTable]:
    """Tabulate how far all reviewers agree, and every two of them."""
    agree, alpha, kappa = percent("agree", 0), "Krippendorff's alpha", "Cohen's kappa"
    everyone = ResultTable(
        "How far all reviewers agree",
        ("criterion", "questions", "reviews", agree, ResultColumn(alpha, decimals=2)),
        tuple(
            (one.criterion.replace("_", " "), one.questions, one.reviews, one.share,
             None if one.alpha is None else Interval(one.alpha, one.low, one.high)) for one in alphas
        ),
        "Questions with two reviews or more. Alpha is nominal: 1 is agreement, 0 what chance gives; in brackets 95 % "
        "by bootstrap; a dash where all say the same.",
    )  # fmt: skip
    pairs = ResultTable(
        "How far two reviewers agree",
        ("criterion", "reviewer", "and", "questions of both", agree, ResultColumn(kappa, decimals=2)),
        tuple((one.criterion.replace("_", " "), *one.reviewers, one.both, one.share, one.kappa) for one in agreements),
        "Kappa is the agreement above chance: 1 is full, 0 what chance gives; a dash where chance alone would agree.",
    )
    return everyone, pairs


@dataclass(frozen=True)
class ReviewSummary:
    """Counts of returned reviews, and the reviewers' agreement."""

    reviews: int
    counted: int
    reviewers: list[str]
    reviewed_questions: int
    questions: int
    flagged: dict[str, list[str]]  # questions, by the rule that leaves them out
    agreement: list[PairAgreement]
    alpha: list[Alpha]


def summary_of(verdicts: Sequence[ReviewerVerdict], contents: Mapping[str, str]) -> ReviewSummary:
    """Summarise returned reviews."""
    counted = [verdict for verdict in verdicts if applies(verdict, contents)]
    return ReviewSummary(
        len(verdicts),
        len(counted),
        sorted({verdict.reviewer for verdict in verdicts}),
        len({verdict.question_id for verdict in counted}),
        len(contents),
        {by: sorted(left_out(counted, by)) for by in ("any", "majority", "all")},
        agreements(counted),
        alphas(counted),
    )
