"""Systems ranked from pairs: held to choix, scikit-learn, a simulation, and counts of real votes by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.evaluation.ranking import CENTRE, SCALE, board_of, ranking_page, strengths
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.conftest import real_path
from tests.evaluation.test_score_files import exam, human, pseudo
from tests.evaluation.test_vote_scores import REAL
from tests.human_preferences.votes import SALT

Row = dict[str, Any]


def drawn(true: dict[str, float], votes: int, seed: int, ties: float = 0.0) -> list[Row]:
    """Votes between systems of known strengths, three on each prompt."""
    source, names = np.random.default_rng(seed), sorted(true)
    rows = []
    for number in range(votes):
        a, b = (names[place] for place in source.choice(len(names), 2, replace=False))
        wins = source.random() < 1 / (1 + np.exp(true[b] - true[a]))
        said = "tie" if source.random() < ties else "a" if wins else "b"
        rows.append({"system_a": a, "system_b": b, "preference": said, "cluster": f"p{number // 3}"})
    return rows


def arena_scores(rows: list[Row]) -> dict[str, float]:
    """Music Arena's rule by scikit-learn: a row a vote, two of half the weight a tie."""
    names = sorted({row[side] for row in rows for side in ("system_a", "system_b")})
    x, y, weights = [], [], []
    for row in rows:
        line = np.zeros(len(names))
        line[names.index(row["system_a"])], line[names.index(row["system_b"])] = 1, -1
        for outcome in {"a": (1,), "b": (0,), "tie": (1, 0)}[row["preference"]]:
            x.append(line)
            y.append(outcome)
            weights.append(0.5 if row["preference"] == "tie" else 1.0)
    model = LogisticRegression(fit_intercept=False, C=1.0, solver="newton-cholesky", tol=1e-12).fit(
        x, y, sample_weight=weights
    )
    scores = 400 * model.coef_[0] / np.log(10)
    return dict(zip(names, scores - scores.mean() + 1000, strict=True))


def by_system(board: dict[str, Any]) -> dict[str, Row]:
    return {row["system"]: row for row in board["systems"]}


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_strengths_are_those_of_choix(size: int, seed: int) -> None:
    wins = np.random.default_rng(seed).integers(1, 9, (size, size)).astype(float)
    np.fill_diagonal(wins, 0)
    pairs = [(i, j) for i in range(size) for j in range(size) for _ in range(int(wins[i, j]))]
    # choix penalises alpha times the sum of squares; its minimiser stops at a slope of about 1e-5
    assert strengths(wins)[0] == pytest.approx(choix.opt_pairwise(size, pairs, alpha=0.5, tol=1e-12), abs=1e-4)
    assert strengths(wins.T)[0] == pytest.approx(-strengths(wins)[0], abs=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_board_is_music_arenas(seed: int) -> None:
    rows = drawn({"ant": 0.9, "bee": 0.3, "cat": 0.0, "dog": -0.2, "eel": -1.0}, 400, seed, ties=0.2)
    board = board_of(rows)
    theirs = arena_scores(rows)
    assert {name: row["value"] for name, row in by_system(board).items()} == pytest.approx(theirs, abs=1e-6)
    assert [row["system"] for row in board["systems"]] == sorted(theirs, key=lambda name: -theirs[name])
    assert board["ties"] == sum(row["preference"] == "tie" for row in rows)


STRENGTHS = np.array([0.8, 0.4, 0.0, -0.4, -0.8])


def on_prompts(source: np.random.Generator, prompts: int, spread: float = 0.0, *, shared: bool = True) -> Row:
    """The board of six votes on each prompt; a system is better on some prompts than on others, by `spread`.

    Without `shared`, each vote is on a prompt of its own.
    """
    prompt = np.repeat(np.arange(prompts), 6)
    of_prompt = STRENGTHS + spread * source.normal(size=(prompts, 5))
    first = source.integers(0, 5, len(prompt))
    second = (first + source.integers(1, 5, len(prompt))) % 5
    lead = of_prompt[prompt, first] - of_prompt[prompt, second]
    won = source.random(len(prompt)) < 1 / (1 + np.exp(-lead))
    cluster = prompt if shared else np.arange(len(prompt))
    return board_of(
        [
            {"system_a": f"s{a}", "system_b": f"s{b}", "preference": "a" if first else "b", "cluster": int(number)}
            for a, b, first, number in zip(first, second, won, cluster, strict=True)
        ]
    )


def test_a_system_that_always_wins_has_no_interval() -> None:
    """Thirty votes each: whatever the odds of the one are, better odds fit the votes better still."""
    said = [("ant", "bee", "a")] * 30 + [("cat", "dog", "ab"[at % 2]) for at in range(30)]
    rows = [{"system_a": a, "system_b": b, "preference": one, "cluster": at} for at, (a, b, one) in enumerate(said)]
    board = board_of(rows)
    found = by_system(board)
    assert found["ant"]["value"] > found["cat"]["value"] == pytest.approx(CENTRE)
    assert [found[name]["high"] is None for name in ("ant", "bee", "cat", "dog")] == [True, True, False, False]
    facts: Any = {"corpus": "human-preferences", "version": "v1", "boards": [{"board": "b", "modality": None, **board}]}
    said_of = ranking_page(facts).files()["README.md"]
    assert "without interval: systems that won or lost every vote" in said_of
    assert re.search(r"^\| 1 +\| 1 +\| ant .*\n\| 1 +\| 2 +\| bee .*\n\| 2 +\| 1 +\| cat ", said_of, re.MULTILINE)
    assert "systems of different groups cannot be compared" in said_of


def test_ranks_are_within_systems_that_votes_join() -> None:
    """Two arenas on one board: the ranks and scores of each are those that it has alone."""
    large = drawn({"ant": 0.9, "bee": 0.3, "cat": 0.0}, 300, 1)
    small = [{**row, "cluster": f"other {row['cluster']}"} for row in drawn({"asp": 2.0, "zebu": 0.0}, 200, 2)]
    both = by_system(board_of([*small, *large]))
    alone = {**by_system(board_of(large)), **by_system(board_of(small))}
    assert [(name, row["group"], row["rank"]) for name, row in both.items()] == [
        ("ant", 1, 1), ("bee", 1, 2), ("cat", 1, 3), ("asp", 2, 1), ("zebu", 2, 2),
    ]  # fmt: skip
    for end in ("value", "low", "high"):
        assert {name: row[end] for name, row in both.items()} == pytest.approx(
            {name: alone[name][end] for name in both}, abs=1e-6
        )


def test_lopsided_systems_are_said_to_be_drawn_to_the_middle() -> None:
    """The penalized score lies below the odds that bore the votes, 29 to 1 of 30; the interval holds them."""
    for won, drawn in ((29, True), (26, False)):
        said = ["a"] * won + ["b"] * (30 - won)
        board = board_of([{"system_a": "ant", "system_b": "bee", "preference": one, "cluster": at}
                          for at, one in enumerate(said)])  # fmt: skip
        found = by_system(board)
        true = SCALE * np.log(won / (30 - won))
        assert (found["ant"]["value"] - found["bee"]["value"] < 0.8 * true) == drawn
        assert found["ant"]["low"] <= found["ant"]["value"] < CENTRE + true / 2 <= found["ant"]["high"]
        facts: Any = {"corpus": "c", "version": "v1", "boards": [{"board": "b", "modality": None, **board}]}
        assert ("draws systems that won over 90 %" in ranking_page(facts).files()["README.md"]) == drawn


@given(st.integers(2, 6), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_strengths_of_intervals_are_those_of_firth(size: int, seed: int) -> None:
    """With some systems that win or lose all votes, and votes along a line that alone joins the systems."""
    source = np.random.default_rng(seed)
    wins = source.integers(0, 5, (size, size)) * (source.random((size, size)) < 0.5).astype(float)
    wins += np.eye(size, k=1)
    np.fill_diagonal(wins, 0)
    places = list(combinations(range(size), 2))
    x = np.array([np.eye(size)[a] - np.eye(size)[b] for a, b in places])[:, 1:]
    won, lost = (np.array([wins[pair[::step]] for pair in places]) for step in (1, -1))

    def missing(free: Any) -> float:
        p = 1 / (1 + np.exp(-x @ free))
        information = x.T @ (x * ((won + lost) * p * (1 - p))[:, None])
        return float(-(won @ np.log(p) + lost @ np.log1p(-p)) - np.linalg.slogdet(information)[1] / 2)

    theirs = np.r_[0, optimize.minimize(missing, np.zeros(size - 1), method="BFGS", options={"gtol": 1e-8}).x]
    assert strengths(wins, firth=True)[0] == pytest.approx(theirs - theirs.mean(), abs=1e-4)


@pytest.mark.parametrize("votes", [100, 150, 400])
def test_intervals_hold_the_strength_of_a_far_better_system(votes: int) -> None:
    """Three logits above four equal systems: the penalty draws it to the middle, and its interval is not drawn along.

    Where it loses no vote at all, it has no interval.
    """
    true, source = CENTRE + SCALE * np.array([2.4, -0.6, -0.6, -0.6, -0.6]), np.random.default_rng(5)
    best: list[bool] = []
    rest: list[bool] = []
    for _ in range(400):
        a = source.integers(0, 5, votes)
        b = (a + source.integers(1, 5, votes)) % 5
        won = source.random(votes) < 1 / (1 + np.exp((true[b] - true[a]) / SCALE))
        rows = [
            {"system_a": f"s{one}", "system_b": f"s{two}", "preference": "a" if first else "b", "cluster": number}
            for number, (one, two, first) in enumerate(zip(a, b, won, strict=True))
        ]
        for row in board_of(rows)["systems"]:
            if row["low"] is not None and row["high"] is not None:
                assert row["low"] <= row["value"] <= row["high"]
                place = int(row["system"][1:])
                (rest if place else best).append(row["low"] <= true[place] <= row["high"])
    assert 0.92 <= np.mean(best) <= 0.98
    assert 0.93 <= np.mean(rest) <= 0.97


def test_known_strengths_are_met() -> None:
    found = [row["value"] for row in on_prompts(np.random.default_rng(1), 6000)["systems"]]
    assert found == pytest.approx(CENTRE + SCALE * STRENGTHS, abs=12)


@pytest.mark.slow
def test_intervals_hold_the_strengths_where_votes_share_prompts() -> None:
    source = np.random.default_rng(11)
    truth = {name: row["value"] for name, row in by_system(on_prompts(source, 30_000, 1.5)).items()}

    def held(shared: bool) -> float:
        boards = (on_prompts(source, 150, 1.5, shared=shared) for _ in range(200))
        rows = [item for board in boards for item in by_system(board).items()]
        return float(np.mean([row["low"] <= truth[name] <= row["high"] for name, row in rows]))

    assert 0.93 <= held(shared=True) <= 0.97
    assert held(shared=False) < 0.92  # the same votes as if they were independent


def test_votes_on_a_prompt_are_dependent_and_few_votes_are_not_ranked() -> None:
    rows = drawn({"ant": 0.5, "bee": 0.0}, 60, 1)
    rows.append({"system_a": "new", "system_b": "ant", "preference": "a", "cluster": "last"})
    rows.append({"system_a": "far", "system_b": "off", "preference": "tie", "cluster": "last"})
    board = board_of(rows)
    found = by_system(board)
    assert {name: row["rank"] is not None for name, row in found.items()} == {
        "ant": True, "bee": True, "new": False, "far": False, "off": False,
    }  # fmt: skip
    assert found["far"]["votes"] == 1
    assert found["new"]["value"] > CENTRE
    assert found["new"]["low"] is None  # a single vote tells no interval
    assert board["parts"] == 2
    copied = [row for row in rows for _ in range(9)]
    alone = [{**row, "cluster": str(number)} for number, row in enumerate(copied)]
    wide, narrow = (by_system(board_of(one))["ant"] for one in (copied, alone))
    assert wide["high"] - wide["low"] > 2 * (narrow["high"] - narrow["low"])


def test_real_votes_are_ranked_as_scikit_learn_ranks_them() -> None:
    lines = [json.loads(line) for line in real_path(REAL).read_text("utf-8").splitlines()]
    sides = {"model_a": "a", "model_b": "b"}
    rows = [
        {
            "system_a": line["model_a"], "system_b": line["model_b"],
            "preference": sides.get(line["preference-musicality"], "tie"), "cluster": line["prompt id"],
        }
        for line in lines
        if line["model_a"] != line["model_b"]
    ]  # fmt: skip
    theirs = arena_scores(rows)
    found = by_system(board_of(rows))
    assert {name: row["value"] for name, row in found.items()} == pytest.approx(theirs, abs=1e-6)
    assert [*found] == sorted(theirs, key=lambda name: -theirs[name])
    votes = Counter(row[side] for row in rows for side in ("system_a", "system_b"))
    assert {name: row["votes"] for name, row in found.items()} == votes
    assert {name for name, row in found.items() if row["rank"]} == {name for name in votes if votes[name] >= 30}


# -- the command --------------------------------------------------------------------------------------------------


def run(version: Version, *words: str) -> Any:
    """What the command prints as JSON; what it says where it fails."""
    done = CliRunner().invoke(app, ["eval", "rank", version.corpus, *words, "--store", str(version.folder.parents[1])])
    if "--json" in words and done.exit_code == 0:
        return json.loads(done.stdout)
    return done.stdout if done.exit_code == 0 else str(done.exception)


@pytest.mark.slow
@pytest.mark.parametrize("build", [human, pseudo])
def test_a_version_is_ranked_from_its_published_tables(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    version = build(tmp_path / "store")
    facts = run(version, "--json", "--out", str(tmp_path / "out"))
    counted: Counter[tuple[str, str]] = Counter()
    places = {row["comparison_id"]: row for row in rows_of(version, "comparisons")} if build is human else {}
    for row in rows_of(version, "votes" if build is human else "labels"):
        models = places.get(row.get("comparison_id"), row)
        for dimension in ("musicality", "alignment", "overall"):
            said = row.get(dimension)
            if said and models["model_a"] and models["model_b"] and models["model_a"] != models["model_b"]:
                board = f"{row['source']}, {dimension}" if build is human else dimension
                for side in "ab":
                    counted[board, models[f"model_{side}"]] += 1 + (said == side) * 1000 + (said == "tie") * 500
    boards = [board for board in facts["boards"] if board["modality"] is None]
    shown = {
        (board["board"], row["system"]): row["votes"] + round(row["votes"] * row["win_share"] * 2) * 500
        for board in boards
        for row in board["systems"]
    }
    assert shown == counted
    for board in boards:
        parts = [one for one in facts["boards"] if one["board"] == board["board"] and one["modality"]]
        assert sum(one["votes"] for one in parts) in (0, board["votes"])
    page = (tmp_path / "out/README.md").read_text()
    assert all(f"## {board['board']}" in page for board in boards)
    assert "tie half a win" in run(version, "--out", str(tmp_path / "out"))
    assert "go with scored systems" in run(version, "--finalists", "3")


@pytest.mark.slow
def test_a_corpus_without_systems_says_so(tmp_path: Path) -> None:
    assert "score-questions holds no preferences between systems" in run(exam(tmp_path / "store"))
