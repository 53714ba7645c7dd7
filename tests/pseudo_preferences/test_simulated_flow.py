"""The simulated judge of `simulated.py`, small; `python -m tests.benchmarks.bench_judge` runs it at 5,000 pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pseudo_preferences.simulated import Judge, build, figures, make_music

SIGMAS = 4.0


@pytest.mark.slow
def test_labels_bias_and_ties_are_what_the_judge_makes_them(tmp_path: Path) -> None:
    judge = Judge(0.8, lean=0.15, ties=0.05, halo=0.2)
    known = make_music(tmp_path / "pool", 100)
    found = figures(judge, build(judge, tmp_path / "pool", tmp_path / "store"), known)
    assert [one for one in found if one.sigmas > SIGMAS] == []
    other = figures(judge._replace(accuracy=0.5), build(judge, tmp_path / "pool", tmp_path / "store"), known)
    assert any(one.sigmas > SIGMAS for one in other), "figures of another judge are told apart"
