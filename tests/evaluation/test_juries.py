"""What votes come to, against the rules in plain Python; and weights against Bayes' rule."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, get_args

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.judges import Jury
from earmark.tasks.evaluation.juries import alphas, combine_votes
from earmark.tasks.evaluation.qualification import Given, figures_of, log_odds
from tests.conftest import examples

JUDGES = ("x", "y", "z", "w")
VOTES = pa.schema([(name, pa.string()) for name in ("item", "dimension", "judge", "choice")])
CHOICE = st.sampled_from(["a", "b", "tie", None])


def combined(jury: Jury, votes: dict[tuple[str, str], str | None], judges: int, weights: dict[str, float]) -> Any:
    """What the SQL says of votes by item and judge."""
    rows = [{"item": i, "dimension": "d", "judge": j, "choice": choice} for (i, j), choice in votes.items()]
    gold = [
        {"domain": domain, "control": "all", "judge": judge, "dimension": "d", "weight": weight}
        for judge, weight in weights.items()
        for domain in ("all", "other")
    ]
    with duckdb.connect() as connection:
        connection.register("votes", pa.Table.from_pylist(rows, VOTES))
        combine_votes(connection, jury, judges, gold)
        return dict(connection.execute("SELECT item, choice FROM combined").fetchall())


@pytest.mark.slow
@examples(60)
@given(
    votes=st.dictionaries(st.tuples(st.sampled_from("pqr"), st.sampled_from(JUDGES)), CHOICE, min_size=1),
    weights=st.fixed_dictionaries({name: st.sampled_from([0.0, 0.5, 1.0, 2.25]) for name in JUDGES}),
)
def test_votes_come_to_what_the_rule_says(votes: dict[tuple[str, str], str | None], weights: dict[str, float]) -> None:
    for combine in get_args(Jury):
        found = combined(combine, votes, len(JUDGES), weights)
        for item in {item for item, _ in votes}:
            cast = {judge: choice for (one, judge), choice in votes.items() if one == item and choice is not None}
            expected = None
            if combine == "unanimity":
                expected = next(iter(cast.values())) if len(cast) == 4 and len(set(cast.values())) == 1 else None
            elif combine == "majority":
                expected = next((c for c, n in Counter(cast.values()).items() if n >= 3), None)
            elif cast:
                sums = {c: sum(weights[j] for j, one in cast.items() if one == c) for c in set(cast.values())}
                first, second = (*sorted(sums.values(), reverse=True), 0.0)[:2]
                expected = max(sums, key=lambda c: sums[c]) if first > second else None
            assert found.get(item) == expected


def test_weights_are_those_of_bayes() -> None:
    """Two judges of 70 % who agree are outvoted by one of 90 %: 9 is more than (7 / 3) squared."""
    good, fair = log_odds(0.9, 10**9), log_odds(0.7, 10**9)
    assert good == pytest.approx(math.log(9), abs=1e-6)
    assert good > 2 * fair
    votes = {("p", "x"): "a", ("p", "y"): "b", ("p", "z"): "b"}
    assert combined("weighted", votes, 3, {"x": good, "y": fair, "z": fair}) == {"p": "a"}
    assert combined("majority", votes, 3, {}) == {"p": "b"}
    # one judge more of 70 % turns it
    more: dict[tuple[str, str], str | None] = {**votes, ("p", "w"): "b"}
    all_weights = {"x": good, "y": fair, "z": fair, "w": fair}
    assert combined("weighted", more, 4, all_weights) == {"p": "b"}


def test_a_judge_no_better_than_chance_has_no_weight() -> None:
    assert log_odds(0.5, 100) == log_odds(0.2, 100) == log_odds(None, 0) == 0.0
    assert 0 < log_odds(1.0, 3) < log_odds(1.0, 300) < 10


def test_alpha_by_group_is_krippendorffs() -> None:
    """His own example of two observers and ten items, 2011, section A: 0.095; beside it a group without two votes."""
    first, second = "0100000010", "1110010000"
    pairs = [f"{a}{b}" for a, b in zip(first, second, strict=True)]
    counts = [(pair.count("0"), pair.count("1")) for pair in pairs]
    rows = " UNION ALL ".join(f"SELECT 'his' AS scope, [{no}, {yes}] AS votes, 1 AS items" for no, yes in counts)
    with duckdb.connect() as connection:
        found = alphas(connection, f"{rows} UNION ALL SELECT 'single', [1, 0], 5").to_pylist()
    by_scope = {row["scope"]: row["alpha"] for row in found}
    assert by_scope == {"his": pytest.approx(0.095, abs=5e-4), "single": None}


def test_figures_of_a_judge_who_says_yes_or_no() -> None:
    """TPR and FPR of yes; who always says yes is right where yes is."""
    said = [("yes", "yes")] * 6 + [("no", "yes")] * 2 + [("yes", "no")] + [("no", "no")] * 3
    answers = [
        ({"at": n, "alike": n, "truth": {"fits": truth}}, Given("fits", choice, "yes", "no"))
        for n, (choice, truth) in enumerate(said)
    ]
    figures = figures_of([*answers, ({"at": 12, "alike": 12, "truth": {}}, Given("fits", "yes", "yes", "no"))])
    assert (figures["tpr"], figures["fpr"], figures["accuracy"]) == (6 / 8, 1 / 4, 9 / 12)
    assert (figures["answers"], figures["known"], figures["agreed"], figures["share_first"]) == (13, 12, 12, 8 / 13)
