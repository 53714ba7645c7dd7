"""Scores and rewards of AnyAudio-Judge."""

from __future__ import annotations

import ast
import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.rubric_rewards import (
    SHARE,
    accuracy,
    balanced_item_reward,
    decide,
    format_reward,
    global_reward,
    item_probability,
    read_answers,
    rubric_reward,
    sample_score,
    trl_balanced_item_reward,
    trl_format_reward,
    trl_global_reward,
    trl_reward,
    worth_training,
)
from tests.conftest import ROOT

LOGIT = st.floats(-200, 200)
ANSWERS = st.lists(st.booleans(), min_size=1, max_size=8)


def written(answers: list[bool]) -> str:
    rows = [{"id": at, "answer": "yes" if yes else "no", "evidence": "heard"} for at, yes in enumerate(answers, 1)]
    return json.dumps(rows)


@given(LOGIT, LOGIT)
def test_an_items_probability_is_the_softmax_of_two(yes: float, no: float) -> None:
    most = max(yes, no)
    expected = math.exp(yes - most) / (math.exp(yes - most) + math.exp(no - most))
    assert item_probability(yes, no) == pytest.approx(expected)
    assert item_probability(yes, no) + item_probability(no, yes) == pytest.approx(1)


def test_logits_out_of_reach_do_not_overflow() -> None:
    assert item_probability(1e6, -1e6) == 1
    assert item_probability(-1e6, 1e6) == 0


def test_a_samples_score_is_the_mean_and_accuracy_counts_decisions() -> None:
    assert sample_score([1.0, 0.5, 0.0]) == 0.5
    assert decide([0.9, 0.51])
    assert not decide([0.9, 0.5])
    assert decide([0.9, 0.9, 0.9, 0.9, 0.1], SHARE)
    assert not decide([0.9, 0.9, 0.9, 0.1], SHARE)
    perfect = [[1.0] * 5, [1.0, 1.0, 0.0], [1.0] * 4 + [0.0]]
    assert accuracy(perfect, [True, False, False]) == 1
    assert accuracy(perfect, [False, True, True]) == 0
    assert accuracy(perfect, [True, False, False], SHARE) == pytest.approx(2 / 3)
    for wrong in (lambda: sample_score([]), lambda: decide([]), lambda: accuracy([], []), lambda: accuracy([[1]], [])):
        with pytest.raises(ValueError):  # noqa: PT011
            wrong()


@given(ANSWERS)
def test_answers_are_read_as_written(answers: list[bool]) -> None:
    assert read_answers(written(answers)) == dict(enumerate(answers, 1))
    assert read_answers(f"<think>[1, 2] is it?</think>\n {written(answers)}\n") == dict(enumerate(answers, 1))


RIGHT = '[{"id": 1, "answer": "yes", "evidence": "x"}, {"id": 2, "answer": "no", "evidence": "y"}]'


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (RIGHT, 1),
        (RIGHT.replace('"id": 1', '"id": 0').replace('"id": 2', '"id": 1'), 1),  # as the authors count
        (RIGHT.replace('"x"', '"x", "dimension": "d"'), 1),
        (f"<think>{RIGHT.replace('yes', 'no')}</think> {RIGHT}", 1),
        (f"```json\n{RIGHT}\n```", 0),
        (f"Here: {RIGHT} That is all.", 0),
        (f'{RIGHT[:-1]}, {{"id": 3, "ans', 0),  # broken off
        (f'{{"items": {RIGHT}}}', 0),
        (RIGHT.replace('"yes"', '" Yes"'), 0),
        (RIGHT.replace('"x"', '" "'), 0),
        (RIGHT.replace(', "evidence": "y"', ""), 0),
    ],
)
def test_format_is_a_tenth_and_the_rest_is_judged_where_it_can_be_read(text: str, form: int) -> None:
    assert read_answers(text) == {1: True, 2: False}
    assert rubric_reward(text, [True, False], False) == pytest.approx(0.9 + 0.1 * form)
    assert rubric_reward(text, [False, True], False) == pytest.approx(0.2 + 0.1 * form)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "yes",
        '[{"id": "1", "answer": "yes", "evidence": "x"}]',
        '[{"id": true, "answer": "yes", "evidence": "x"}]',
        '[{"id": 1, "answer": ["yes"], "evidence": "x"}]',
        '[{"id": 1, "answer": "maybe", "evidence": "x"}]',
        '[{"id": 1, "answer": "yes", "evidence": "x"}, {"id": 1, "answer": "no", "evidence": "x"}]',
        "[" * 100_000,
        '{"a":' * 10_000,
    ],
)
def test_what_cannot_be_read_earns_nothing(text: str) -> None:
    assert read_answers(text) is None
    assert rubric_reward(text, [True], True) == 0


@given(
    st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps), ANSWERS, st.booleans()
)
def test_rewards_never_raise_and_stay_in_range(text: str, answers: list[bool], follows: bool) -> None:
    assert 0 <= rubric_reward(text, answers, follows) <= 1


@given(ANSWERS, ANSWERS)
def test_rewards_are_the_papers(answers: list[bool], said: list[bool]) -> None:
    follows, text = all(answers), written(said)
    fits = len(said) == len(answers)
    assert format_reward(text, answers) == fits
    assert global_reward(text, answers, follows) == (fits and all(said) == follows)
    shares = []
    for truth in {True, False} & set(answers):
        asked = [at for at, answer in enumerate(answers) if answer is truth]
        shares.append(sum(at < len(said) and said[at] is truth for at in asked) / len(asked))
    assert balanced_item_reward(text, answers) == pytest.approx(sum(shares) / len(shares))
    parts = (format_reward(text, answers), global_reward(text, answers, follows), balanced_item_reward(text, answers))
    assert rubric_reward(text, answers, follows) == pytest.approx(0.1 * parts[0] + 0.2 * parts[1] + 0.7 * parts[2])
    assert rubric_reward(written(answers), answers, follows) == pytest.approx(1)


def test_always_yes_earns_half_of_a_negative() -> None:
    answers = [True] * 7 + [False]
    assert balanced_item_reward(written([True] * 8), answers) == 0.5
    assert balanced_item_reward(written([True] * 8), [True] * 8) == 1
    swapped = json.loads(written(answers))[::-1]
    assert format_reward(json.dumps(swapped), answers) == 0  # out of order, yet right
    assert balanced_item_reward(json.dumps(swapped), answers) == 1


@given(st.lists(st.tuples(ANSWERS, st.integers(0, 2)), max_size=5))
def test_as_trl_calls_them(rows: list[tuple[list[bool], int]]) -> None:
    answers, follows = [row[0] for row in rows], [all(row[0]) for row in rows]
    texts = [written(held) for held in answers]

    def form(text: str, kind: int) -> Any:
        content: Any = [{"type": "text", "text": text}] if kind == 1 else text
        return text if kind == 2 else [{"role": "assistant", "content": content}]

    columns: dict[str, Any] = {
        "prompts": texts,
        "completions": [form(text, row[1]) for text, row in zip(texts, rows, strict=True)],
        "trainer_state": None,
        "answers": answers,
        "follows": follows,
    }
    assert trl_reward(**columns) == pytest.approx([1.0] * len(rows))
    for part in (trl_format_reward, trl_global_reward, trl_balanced_item_reward):
        assert part(**columns) == [1.0] * len(rows)


def test_samples_that_are_always_right_are_dropped() -> None:
    rollouts = [("b", True)] * 4 + [("a", False)] * 4 + [("c", True), ("c", False), ("c", True), ("c", True)]
    assert worth_training(rollouts) == ["a", "c"]
    assert worth_training([]) == []
    with pytest.raises(ValueError, match="expected 3 rollouts of each sample, found 4 of b"):
        worth_training(rollouts, 3)


def test_the_file_can_be_copied_into_a_trainer() -> None:
    tree = ast.parse((ROOT / "schemas/rubric_rewards.py").read_text("utf-8"))
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in named} <= sys.stdlib_module_names
