"""Agreement of reviewers: Cohen's kappa and Krippendorff's alpha."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.tasks.score_questions.review_agreement import alphas, cohen_kappa
from earmark.tasks.score_questions.reviews import (
    CRITERIA,
    ReviewerVerdict,
)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_is_bounded_and_even_handed(pairs: list[tuple[bool, bool]]) -> None:
    share, kappa = cohen_kappa(pairs)
    assert (share, kappa) == pytest.approx(cohen_kappa([(other, one) for one, other in pairs]))
    assert kappa is None or -1 <= kappa <= 1
    if all(one == other for one, other in pairs) and len({one for one, _ in pairs}) == 2:
        assert kappa == 1


def test_kappa_as_cohen_reckons() -> None:
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert cohen_kappa(pairs) == (0.7, pytest.approx(0.4))


def test_alpha_needs_two_reviews_of_a_question_and_two_answers() -> None:
    one = ReviewerVerdict("q1", "c", "alice", {name: name in CRITERIA[:2] for name in CRITERIA}, None, "a.csv", 2)
    assert alphas([]) == alphas([one]) == []
    same = alphas([one, replace(one, reviewer="bob"), replace(one, question_id="q2")])
    assert [(told.criterion, told.questions, told.reviews, told.share, told.alpha) for told in same] == [
        (asked, 1, 2, 1.0, None) for asked in (*CRITERIA, "flagged")
    ]
