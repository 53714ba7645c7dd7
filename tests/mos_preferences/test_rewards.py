"""MOS-RMBench's rewards, and the parser that they stand on."""

from __future__ import annotations

import ast
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas import rewards
from earmark.schemas.rewards import (
    UNREADABLE,
    Position,
    accuracy_reward,
    critique_reward,
    final_scores,
    mos_difference_reward,
    prefers,
    trl_accuracy_reward,
    trl_mos_difference_reward,
    trl_reward,
)
from tests.conftest import ROOT

SCORE = st.integers(1, 10)
GAP = st.floats(0, 1)
BETTER: st.SearchStrategy[Position] = st.sampled_from(["first", "second"])


def written(first: int, second: int, before: str = "Noise: none.") -> str:
    """A completion with these scores."""
    return f"{before}\nFinal Scores: [[{first}, {second}]]"


@given(SCORE, SCORE, st.text())
def test_scores_on_the_last_line_are_read_whatever_stands_before(first: int, second: int, before: str) -> None:
    assert final_scores(written(first, second, before)) == (first, second)
    assert final_scores(written(first, second, before) + " \n\n") == (first, second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Final Scores: [[0, 5]]",
        "Final Scores: [[5, 11]]",
        "Final Scores: [[05, 1]]",
        "Final Scores: [[5.0, 4]]",
        "Final Scores: [[-5, 4]]",
        "Final Scores: [5, 4]",
        "Final Scores: [[5,4]]",
        "Final scores: [[5, 4]]",
        "Final Scores: [[5, 4]].",
        "**Final Scores: [[5, 4]]**",
        "Scores follow. Final Scores: [[5, 4]]",
        "Final Scores: [[5, 4]]\nClip 1 is better.",
        "Final Scores: [[5, 4, 3]]",
        "Final Scores: [[٥, ٤]]",
        "Final Scores: [[clip1_score, clip2_score]]",
    ],
)
def test_any_other_last_line_is_not_read(text: str) -> None:
    assert final_scores(text) is None
    assert accuracy_reward(text, "first") == mos_difference_reward(text, "first", 0.0) == UNREADABLE


@given(st.text(alphabet="Final Scores: [[10, 9]]\n\r\u2028x") | st.text())
def test_reading_never_raises_and_gives_scores_in_range_only(text: str) -> None:
    scores = final_scores(text)
    assert scores is None or all(1 <= score <= 10 for score in scores)
    if scores:
        assert text.strip().endswith(f"Final Scores: [[{scores[0]}, {scores[1]}]]")


@given(SCORE, SCORE)
def test_a_tie_prefers_nothing(first: int, second: int) -> None:
    assert prefers((first, second)) == (None if first == second else "first" if first > second else "second")


@given(SCORE, SCORE, BETTER, GAP)
def test_rewards_are_the_papers(first: int, second: int, better: Position, gap: float) -> None:
    text = written(first, second)
    right = (first > second) if better == "first" else (second > first)
    assert accuracy_reward(text, better) == (1 if right else -1)
    expected = 0.5 * ((1 if right else -1) + math.cos(gap * math.pi))
    assert mos_difference_reward(text, better, gap) == pytest.approx(expected)
    assert critique_reward(text, better, gap) == pytest.approx((1 if right else -1) + expected)


@given(SCORE, SCORE, BETTER, GAP)
def test_right_pays_more_than_wrong_and_nothing_less_than_silence(
    first: int, second: int, better: Position, gap: float
) -> None:
    reward = critique_reward(written(first, second), better, gap)
    right = accuracy_reward(written(first, second), better) == 1
    assert 1 <= reward <= 2 if right else -2 <= reward <= -1
    assert critique_reward("no scores", better, gap) == -2 <= reward


@given(GAP, GAP, st.booleans())
def test_the_larger_the_gap_the_less_a_pair_pays(one: float, other: float, right: bool) -> None:
    text = written(7, 3) if right else written(3, 7)
    small, large = sorted((one, other))
    assert mos_difference_reward(text, "first", small) >= mos_difference_reward(text, "first", large)


@pytest.mark.parametrize(("gap", "right", "wrong"), [(0.0, 1.0, 0.0), (0.5, 0.5, -0.5), (1.0, 0.0, -1.0), (7, 0, -1)])
def test_known_values(gap: float, right: float, wrong: float) -> None:
    assert mos_difference_reward(written(9, 2), "first", gap) == pytest.approx(right)
    assert mos_difference_reward(written(9, 2), "second", gap) == pytest.approx(wrong)


@given(st.lists(st.tuples(SCORE, SCORE, BETTER, GAP, st.integers(0, 2)), max_size=6))
def test_as_trl_calls_them(rows: list[tuple[int, int, Position, float, int]]) -> None:
    texts = [written(first, second) for first, second, *_ in rows]
    better, gaps = [row[2] for row in rows], [row[3] for row in rows]

    def form(text: str, kind: int) -> Any:
        content: Any = [{"type": "text", "text": text}] if kind == 1 else text
        return text if kind == 2 else [{"role": "assistant", "content": content}]

    columns: dict[str, Any] = {
        "prompts": texts,
        "completions": [form(text, row[4]) for text, row in zip(texts, rows, strict=True)],
        "completion_ids": [[1]] * len(rows),
        "trainer_state": None,
        "better": better,
        "mos_gap_normalized": gaps,
    }
    expected = [critique_reward(text, right, gap) for text, right, gap in zip(texts, better, gaps, strict=True)]
    assert trl_reward(**columns) == expected
    parts = zip(trl_accuracy_reward(**columns), trl_mos_difference_reward(**columns), strict=True)
    assert [sum(pair) for pair in parts] == pytest.approx(expected)


def test_the_file_can_be_copied_into_a_trainer() -> None:
    tree = ast.parse((ROOT / "schemas/rewards.py").read_text("utf-8"))
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in named} <= sys.stdlib_module_names
    assert rewards.__doc__
