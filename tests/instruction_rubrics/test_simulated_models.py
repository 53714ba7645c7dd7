"""Labels of a whole build by models with known faults are as right as theory says; `simulation.py` has the world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.instruction_rubrics.simulation import SETTINGS, Counted, Faults, World, bench, build

SIGMAS = 4.0
KINDS = {"pos", "swap", "perturb"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Thirty clips of each source."""
    return World(tmp_path_factory.mktemp("world"), 30)


def built(world: World, faults: Faults) -> Mapping[tuple[str, str], Counted]:
    """The labels of a build, by domain and kind; each of which is there."""
    counts = build(world, faults)
    assert {kind for _, kind in counts} == KINDS | {"judged"}
    assert all({(domain, kind) for kind in KINDS} <= counts.keys() for domain in ("speech", "sound", "music", "mixed"))
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("faults", [one for one in SETTINGS if one.labeller == one.hearing == 0])
def test_a_perfect_labeller_labels_no_item_wrong_whatever_others_do(world: World, faults: Faults) -> None:
    counts = built(world, faults)
    for (domain, kind), one in counts.items():
        assert one.wrong <= 0.01 * one.labels, (domain, kind, one)


@pytest.mark.slow
def test_an_imperfect_labeller_is_as_wrong_as_theory_says(world: World) -> None:
    counts = built(world, SETTINGS[-2])
    for (domain, kind), one in counts.items():
        assert abs(one.wrong - one.expected) <= SIGMAS * one.sigma + 1e-9, (domain, kind, one)
    negative = [one for (_, kind), one in counts.items() if kind != "pos"]
    expected, wrong = sum(one.expected for one in negative), sum(one.wrong for one in negative)
    assert abs(wrong - expected) <= SIGMAS * sum(one.sigma**2 for one in negative) ** 0.5
    assert wrong > 0


@pytest.mark.slow
def test_a_sample_of_the_bench_preset_is_as_wrong_as_theory_says(tmp_path: Path) -> None:
    """Its seven subsets in their shares, in both languages; `simulation.py --rows 7920` is the whole."""
    wanted, counts = bench(tmp_path, 200)
    assert 190 <= wanted <= 210
    assert {domain for domain, _ in counts} == {"speech", "sound", "music", "mixed"}
    assert {kind for _, kind in counts} == KINDS | {"judged"}
    for name, one in counts.items():
        assert abs(one.wrong - one.expected) <= SIGMAS * one.sigma + 1, (name, one)
    expected, wrong = sum(one.expected for one in counts.values()), sum(one.wrong for one in counts.values())
    assert abs(wrong - expected) <= SIGMAS * sum(one.sigma**2 for one in counts.values()) ** 0.5
