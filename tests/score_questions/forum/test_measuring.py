"""A detector is measured on drawings, and report and card tell what came out."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.score_questions import Detector
from earmark.tasks.score_questions.detector_report import HEADING, card_sections, detector_section
from earmark.tasks.score_questions.forum import measuring
from earmark.tasks.score_questions.forum.drawings import NON_SCORES, SCORES
from earmark.tasks.score_questions.forum.measuring import Measure, measure_detector, measure_of, try_detector
from earmark.tasks.store.figures import Grid
from tests.benchmarks import bench_detector
from tests.score_questions.forum.threads_of import forum_config, forum_stage

DRAWINGS = 3


@pytest.mark.slow
def test_the_embedded_detector_meets_its_goal() -> None:
    measure = measure_detector(Detector(drawings=DRAWINGS), Path())
    assert measure.hits == dict.fromkeys(SCORES, DRAWINGS)
    assert measure.false_alarms == dict.fromkeys(NON_SCORES, 0)
    assert measure.meets_goal


def test_a_detector_that_calls_all_a_score_misses_it() -> None:
    measure = measure_detector(Detector(drawings=1, least=0), Path())
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


def test_the_embedded_detector_is_measured_once_for_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = forum_config(tmp_path, detector={"drawings": 1})
    with forum_stage(tmp_path) as stage:
        first = try_detector(stage, config)
    with monkeypatch.context() as patch:
        patch.delattr(measuring, "measure_detector")
        with forum_stage(tmp_path) as stage:
            try_detector.forget(stage)
            assert try_detector(stage, config) == first
    with forum_stage(tmp_path) as stage:
        try_detector.forget(stage)
        anew = try_detector(stage, forum_config(tmp_path, detector={"drawings": 1, "least": 0}))
    assert anew is not None
    assert (anew.least, set(anew.hits.values())) == (0, {1})


@pytest.mark.slow
def test_report_and_card_tell_what_was_measured(tmp_path: Path) -> None:
    config = forum_config(tmp_path, detector={"drawings": 2, "least": 1.0})
    assert "not measured" in card_sections(None)[HEADING]
    with forum_stage(tmp_path) as stage:
        assert measure_of(stage) is None
        measure = try_detector(stage, config)
        assert measure is not None
        assert measure == measure_of(stage) == measure_detector(config.detector, tmp_path)
    section = detector_section(measure)
    scores, others = section.figures
    assert isinstance(scores, Grid)
    assert isinstance(others, Grid)
    assert [row[:3] for row in scores.rows] == [(kind, 2, hits) for kind, hits in measure.hits.items()]
    assert [row[0] for row in others.rows] == list(NON_SCORES)
    assert "bench_detector --drawings 2 --least 1" in section.says
    assert f"clean {measure.recall('clean'):.3f} and" in card_sections(measure)[HEADING]


@pytest.mark.parametrize("model", ["staff-lines", "models/my detector"])
def test_the_told_command_measures_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    least = 0.123456789
    counted = dict.fromkeys(SCORES, 3), dict.fromkeys(NON_SCORES, 0)
    card = card_sections(Measure(model, least, 3, *counted))[HEADING]
    words = shlex.split(card.partition("`python -m ")[2].partition("`")[0])
    monkeypatch.setattr("sys.argv", [str(tmp_path) if word == "FOLDER" else word for word in words])
    asked: list[tuple[Detector, Path]] = []

    def measure(detector: Detector, base: Path) -> Measure:
        asked.append((detector, base))
        return Measure(detector.model, detector.least, detector.drawings, *counted)

    monkeypatch.setattr(bench_detector, "measure_detector", measure)
    bench_detector.main()
    base = Path() if model == "staff-lines" else tmp_path
    assert asked == [(Detector(model=model, least=least, drawings=3), base)]


def test_no_drawings_measure_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench_detector", "--drawings", "0"])
    with pytest.raises(SystemExit):
        bench_detector.main()
    assert "--drawings: expected at least 1, found 0" in capsys.readouterr().err


def test_nothing_is_measured_where_nobody_wants_it(tmp_path: Path) -> None:
    with forum_stage(tmp_path) as stage:
        assert try_detector(stage, forum_config(tmp_path, detector={"drawings": 0})) is None
        assert measure_of(stage) is None
