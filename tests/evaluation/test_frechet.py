"""The Fréchet distance: against scipy's `sqrtm`, a formula by hand, and samples of Gaussians with a known distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from earmark.tasks.evaluation.frechet import Gaussian, KernelReference, fad, frechet, kad

DIMENSIONS = 12


def by_sqrtm(first: Any, second: Any) -> float:
    """The formula as it is printed, with a root of a matrix."""
    gap = first.mean(axis=0) - second.mean(axis=0)
    one, two = np.cov(first, rowvar=False), np.cov(second, rowvar=False)
    return float(gap @ gap + np.trace(one) + np.trace(two) - 2 * np.trace(sqrtm(one @ two).real))


def sampled(count: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Any:
    """Samples of a Gaussian with variances 1 to 3 (times scale²) and no correlation, turned by one random rotation."""
    spread = np.sqrt(np.linspace(1, 3, DIMENSIONS)) * scale
    turn = np.linalg.qr(np.random.default_rng(99).standard_normal((DIMENSIONS, DIMENSIONS)))[0]
    return (np.random.default_rng(seed).standard_normal((count, DIMENSIONS)) * spread + shift) @ turn


def known(scale: float, shift: float) -> float:
    """Of such Gaussians from the one without scale and shift: covariances share their axes, so roots are of numbers."""
    return float(DIMENSIONS * shift**2 + np.linspace(1, 3, DIMENSIONS).sum() * (scale - 1) ** 2)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(20, 60), st.integers(20, 60), st.integers(1, 8))
def test_it_is_the_distance_by_the_root_of_a_matrix(seed: int, first: int, second: int, dimensions: int) -> None:
    source = np.random.default_rng(seed)
    one = source.standard_normal((first, dimensions)) @ source.standard_normal((dimensions, dimensions))
    two = source.standard_normal((second, dimensions)) + source.standard_normal(dimensions)
    if dimensions == 1:  # np.cov gives a number there
        expected = (one.mean() - two.mean()) ** 2 + (one.std(ddof=1) - two.std(ddof=1)) ** 2
    else:
        expected = by_sqrtm(one, two)
    assert frechet(Gaussian(one), two) == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert frechet(Gaussian(two), one) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_fewer_samples_than_dimensions_need_no_full_rank() -> None:
    """scipy's root of such a product is off by a hundredth; the eigenvalues of the product are the second way."""
    one, two = (np.random.default_rng(seed).standard_normal((9, 40)) for seed in (1, 2))
    gap = one.mean(axis=0) - two.mean(axis=0)
    covariances = np.cov(one, rowvar=False), np.cov(two, rowvar=False)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(covariances[0] @ covariances[1]).real, 0)).sum()
    expected = gap @ gap + sum(map(np.trace, covariances)) - 2 * roots
    assert frechet(Gaussian(one), two) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1.5, 0.0), (1.0, 0.4), (0.7, -0.3)])
def test_many_samples_come_to_the_known_distance(scale: float, shift: float) -> None:
    found = fad(Gaussian(sampled(40_000, 1)), sampled(8_000, 2, scale, shift))
    assert found["value"] == pytest.approx(known(scale, shift), abs=0.1)
    assert found["infinity"] == pytest.approx(known(scale, shift), abs=0.1)


def test_few_samples_give_too_much_and_the_extrapolation_gives_most_of_it_back() -> None:
    reference, true = Gaussian(sampled(40_000, 1)), known(1.2, 0.2)
    found = [fad(reference, sampled(60, seed, 1.2, 0.2)) for seed in range(2, 42)]
    bias, left = (
        np.mean(values) - true for values in zip(*((one["value"], one["infinity"]) for one in found), strict=True)
    )
    assert bias > 0.5
    assert abs(left) < bias / 4


def test_the_interval_holds_the_expectation_nineteen_times_in_twenty() -> None:
    reference = Gaussian(sampled(20_000, 1))
    found = [fad(reference, sampled(50, seed, 1.2, 0.2)) for seed in range(100, 180)]
    mean = np.mean([one["value"] for one in found])
    assert 0.88 <= np.mean([one["low"] <= mean <= one["high"] for one in found if one["low"] and one["high"]]) < 1


def test_a_set_is_at_no_distance_from_itself_and_a_shift_counts_squared() -> None:
    rows = sampled(50, 3)
    assert frechet(Gaussian(rows), rows) == pytest.approx(0, abs=1e-9)
    assert frechet(Gaussian(rows), rows + 0.5) == pytest.approx(DIMENSIONS * 0.25)
    assert frechet(Gaussian(rows), rows[::-1] * 2 - rows.mean(axis=0)) == pytest.approx(np.trace(np.cov(rows.T)))


def test_an_interval_holds_no_distance_below_0() -> None:
    rows = sampled(4_000, 3)
    found = [fad(Gaussian(rows), rows[np.random.default_rng(seed).permutation(4_000)[:3_900]]) for seed in range(3)]
    found.append(fad(Gaussian(rows[:3]), rows[:3] + np.arange(3)[:, None] * 1e-3))
    assert all(0 <= one["low"] <= one["value"] for one in found if one["low"] is not None)
    assert 0.0 in [one["low"] for one in found]


def test_the_same_embeddings_give_the_same_numbers() -> None:
    reference = Gaussian(sampled(100, 1))
    assert fad(reference, sampled(30, 2)) == fad(reference, sampled(30, 2))
    few = fad(reference, sampled(2, 2))
    assert (few["low"], few["infinity"], few["samples"], few["reference"], few["dimensions"]) == (
        None,
        None,
        2,
        100,
        DIMENSIONS,
    )


@pytest.mark.parametrize("rows", [[[1.0, 2.0]], [[1.0], [float("nan")]], [1.0, 2.0]])
def test_what_are_no_embeddings_is_refused(rows: list[Any]) -> None:
    with pytest.raises(ValueError, match="two or more finite embeddings"):
        Gaussian(rows)
    with pytest.raises(ValueError, match="expected embeddings of 12 dimensions, found 2"):
        frechet(Gaussian(sampled(9, 1)), [[1.0, 2.0], [2.0, 3.0]])


def test_statistics_alone_give_the_distance() -> None:
    """As fadtk writes them. The second implementation is the printed formula with scipy's root of a matrix."""
    one, two = sampled(200, 1), sampled(60, 2, 1.2, 0.3)
    known = Gaussian.of_moments(one.mean(axis=0), np.cov(one, rowvar=False))
    assert frechet(known, two) == pytest.approx(frechet(Gaussian(one), two), abs=1e-9)
    assert frechet(known, two) == pytest.approx(by_sqrtm(one, two), abs=1e-6)
    found = fad(known, two)
    assert (found["reference"], found["dimensions"]) == (None, DIMENSIONS)
    assert found["low"] is not None
    assert found["low"] < found["value"]
    few = sampled(5, 4)  # a matrix without full rank
    singular = Gaussian.of_moments(few.mean(axis=0), np.cov(few, rowvar=False))
    assert frechet(singular, two) == pytest.approx(frechet(Gaussian(few), two), abs=1e-6)


@pytest.mark.parametrize(
    ("mean", "covariance", "said"),
    [
        ([0.0, 1.0], [[1.0]], "expected a mean and its covariances"),
        ([0.0, 1.0], [[1.0, 2.0], [0.0, 1.0]], "expected a mean and its covariances"),
        ([0.0, float("inf")], np.eye(2), "expected finite statistics"),
        ([0.0, 1.0], [[1.0, 0.0], [0.0, -0.5]], "the eigenvalue -0.5"),
    ],
)
def test_what_are_no_statistics_is_refused(mean: Any, covariance: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Gaussian.of_moments(mean, covariance)


def by_loops(reference: Any, rows: Any) -> float:
    """KAD as its paper prints it: the kernel of each pair, no clip with itself."""
    gaps = [np.linalg.norm(reference[i] - reference[j]) for i in range(len(reference)) for j in range(i)]
    width = np.median(gaps)

    def kernel(a: Any, b: Any) -> float:
        return float(np.exp(-(np.linalg.norm(a - b) ** 2) / (2 * width**2)))

    def within(xs: Any) -> float:
        return float(np.mean([kernel(xs[i], xs[j]) for i in range(len(xs)) for j in range(len(xs)) if i != j]))

    across = np.mean([kernel(a, b) for a in reference for b in rows])
    return 100 * (within(reference) + within(rows) - 2 * across)


def test_the_kernel_distance_is_the_printed_one() -> None:
    reference, rows = sampled(30, 1), sampled(12, 2, 1.3, 0.2)
    found = kad(KernelReference(reference), rows)
    assert found["value"] == pytest.approx(by_loops(reference, rows), abs=1e-6)
    assert found["low"] < found["value"] < found["high"]  # type: ignore[operator]
    assert kad(KernelReference(reference), rows[:2])["low"] is None
    with pytest.raises(ValueError, match="two or more finite embeddings"):
        kad(KernelReference(reference), rows[:1])


def test_few_clips_do_not_bias_the_kernel_distance() -> None:
    """Compare the mean over sets of ten clips with that of many clips; it is 0 where both are of one kind."""
    reference = KernelReference(sampled(600, 1))
    for scale, shift in ((1.0, 0.0), (1.2, 0.2)):
        many = kad(reference, sampled(600, 2, scale, shift))["value"]
        few = [kad(reference, sampled(10, seed, scale, shift))["value"] for seed in range(10, 110)]
        error = np.std(few) / len(few) ** 0.5  # type: ignore[arg-type]
        assert many == pytest.approx(np.mean(few), abs=4 * error)  # type: ignore[arg-type]
        assert (abs(many) < 0.4) == (shift == 0)  # type: ignore[arg-type]
