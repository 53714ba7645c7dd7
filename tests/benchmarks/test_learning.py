"""The heads of `bench_learning` on made-up features whose order is known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.bench_learning import accuracy, bradley_terry, judged, least_squares

RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(600, 8))
QUALITY = FEATURES @ np.arange(1.0, 9.0)
PAIRS = RNG.integers(600, size=(2000, 2))
PAIRS = PAIRS[np.abs(QUALITY[PAIRS[:, 0]] - QUALITY[PAIRS[:, 1]]) > 6][:500]  # apart enough that no margin is missed
ORDERED = np.where((QUALITY[PAIRS[:, 0]] < QUALITY[PAIRS[:, 1]])[:, None], PAIRS[:, ::-1], PAIRS)
CHOSEN, REJECTED = FEATURES[ORDERED[:, 0]], FEATURES[ORDERED[:, 1]]


def test_a_separable_order_is_learned_and_a_shuffled_one_is_not() -> None:
    """The weights of a linear quality are found up to their length; labels by the toss of a coin teach nothing."""
    weights = bradley_terry(CHOSEN[:200], REJECTED[:200])
    assert accuracy(weights, CHOSEN[200:], REJECTED[200:]) == 1.0
    assert accuracy(weights, CHOSEN[:200], REJECTED[:200]) == 1.0
    assert np.corrcoef(weights, np.arange(1, 9))[0, 1] > 0.99
    assert accuracy(least_squares(FEATURES, QUALITY), CHOSEN, REJECTED) == 1.0
    shuffled = []
    for seed in range(40):
        turned = np.random.default_rng(seed).random((200, 1)) < 0.5
        weights = bradley_terry(
            np.where(turned, REJECTED[:200], CHOSEN[:200]), np.where(turned, CHOSEN[:200], REJECTED[:200])
        )
        shuffled.append(accuracy(weights, CHOSEN[200:], REJECTED[200:]))
    assert np.mean(shuffled) == pytest.approx(0.5, abs=0.06)


def test_the_head_has_the_closed_form_of_one_feature() -> None:
    """With one feature that differs by 1, the slope of the loss is 0 at the log-odds, but for the penalty."""
    apart = np.where(np.arange(1000) < 750, 1.0, -1.0)[:, None]
    (weight,) = bradley_terry(apart, np.zeros_like(apart))
    assert weight == pytest.approx(np.log(3), abs=0.02)
    assert accuracy(np.zeros(1), apart, -apart) == 0.5


def test_the_judge_leans_and_is_sharper_on_wide_gaps() -> None:
    rng = np.random.default_rng(1)
    assert judged(np.zeros(20_000), rng).mean() == pytest.approx(1 / (1 + np.exp(-1.0)), abs=0.02)
    assert judged(np.full(20_000, 2.0), rng).mean() == pytest.approx(1 / (1 + np.exp(-4.0)), abs=0.02)
