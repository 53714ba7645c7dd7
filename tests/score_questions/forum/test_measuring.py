"""A detector is measured on drawings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.score_questions import Detector
from tests.benchmarks import bench_detector
from tests.benchmarks.detector import Measure, measure_detector
from tests.score_questions.drawings import NON_SCORES, SCORES

DRAWINGS = 3


@pytest.mark.slow
def test_the_embedded_detector_meets_its_goal() -> None:
    measure = measure_detector(Detector(), Path(), DRAWINGS)
    assert measure.hits == dict.fromkeys(SCORES, DRAWINGS)
    assert measure.false_alarms == dict.fromkeys(NON_SCORES, 0)
    assert measure.meets_goal


def test_a_detector_that_calls_all_a_score_misses_it() -> None:
    measure = measure_detector(Detector(least=0), Path(), 1)
    assert all(measure.recall(kind) == 1 for kind in SCORES)
    assert all(measure.precision(kind) == 0.5 for kind in SCORES)
    assert not measure.meets_goal


@given(st.integers(1, 200), st.data())
def test_figures_are_shares(drawings: int, data: st.DataObject) -> None:
    count = st.integers(0, drawings)
    hits, false_alarms = ({kind: data.draw(count) for kind in room} for room in (SCORES, NON_SCORES))
    measure = Measure("one", 0.5, drawings, hits, false_alarms)
    for kind in SCORES:
        assert 0 <= measure.recall_low(kind) <= measure.recall(kind) <= 1
        precision = measure.precision(kind)
        assert (precision is None) == (hits[kind] == sum(false_alarms.values()) == 0)
        assert precision is None or 0 <= precision <= 1


def test_the_lower_end_is_that_of_the_tables() -> None:
    measure = Measure("one", 0.5, 100, dict.fromkeys(SCORES, 100) | {"noisy": 95}, dict.fromkeys(NON_SCORES, 0))
    assert measure.recall_low("clean") == pytest.approx(0.9638, abs=1e-4)
    assert measure.recall_low("noisy") == pytest.approx(0.8872, abs=1e-4)


def test_no_drawings_measure_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench_detector", "--drawings", "0"])
    with pytest.raises(SystemExit):
        bench_detector.main()
    assert "--drawings: expected at least 1, found 0" in capsys.readouterr().err


def test_a_config_that_still_names_drawings_is_read() -> None:
    assert Detector.model_validate({"drawings": 0, "least": 0.4}) == Detector(least=0.4)
