"""A scorer as the judge of pairs: the higher number wins, each clip is scored once, and it may sit on a jury."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from pydantic import ValidationError

from earmark.flows.pseudo_preferences import build
from earmark.schemas.errors import ConfigError
from earmark.schemas.pseudo_preferences import CORPUS, PairJudge, PseudoPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.store.versions import Store, Version
from tests.builds import forecast, rows_of
from tests.conftest import ROOT
from tests.runner import run_flow

DEMO = ROOT / "data/demo"
PACKAGE = """
from pathlib import Path
import numpy as np

def score(samples, rate):
    with Path(__file__).with_name("calls.txt").open("a") as file:
        print(len(samples), file=file)
    return {"level": np.sqrt(np.mean(samples.astype(float) ** 2)), "one": 1}
"""
SCORER = 'model = "scorer:lab_judge:score"\nversion = "1"\nscores = ["level", "one"]\n'
LEVEL = SCORER + 'dimensions = { musicality = "level" }\n'
ONE = {"dimensions": ["musicality"], "require": ["musicality"]}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scorer of loudness in a package, and its file; gives the notes of its calls."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/lab_judge.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "level.toml").write_text(LEVEL)
    yield tmp_path / "site/calls.txt"
    sys.modules.pop("lab_judge", None)


def config_with(tmp_path: Path, **values: Any) -> PseudoPreferences:
    """The demo's config with other judges; the scorer's file lies elsewhere."""
    given = {**read_toml(DEMO / "pseudo-preferences.toml"), "known_order": None, **values}
    given = {key: value for key, value in given.items() if value is not None}
    return parse_config(PseudoPreferences, given, DEMO / "pseudo-preferences.toml")


def level_of(clip: dict[str, Any]) -> float:
    samples, _ = soundfile.read(io.BytesIO(clip["audio"]["bytes"]), always_2d=True)
    return float(np.sqrt(np.mean(samples.mean(axis=1) ** 2)))


@pytest.mark.slow
def test_the_clip_with_the_higher_number_is_preferred(calls: Path, tmp_path: Path) -> None:
    """Scores are those measured here; a margin makes ties, and asks nothing; less may be better."""
    judge = {"model": f"scorer:{tmp_path}/level.toml", **ONE}
    store, config = tmp_path / "store", config_with(tmp_path, judge=judge)
    plan = forecast(CORPUS, build.story, config, Store(store))  # type: ignore[attr-defined]
    assert plan is not None
    assert (plan["stage"], calls.exists()) == ("judge", False)
    version = run_flow(build, config, store)
    clips = {row["generation_id"]: row for row in rows_of(version, "clips")}
    pairs = {row["pair_id"]: row for row in rows_of(version, "pairs")}
    heard = {clips[row[side]]["clip_sha256"] for row in pairs.values() for side in ("generation_a", "generation_b")}
    assert plan["to_ask"] == len(calls.read_text().splitlines()) == len(heard)
    labels, judgments = rows_of(version, "labels"), rows_of(version, "judgments")
    assert len(labels) == len(pairs)
    for row in labels:
        a, b = (level_of(clips[row[side]]) for side in ("generation_a", "generation_b"))
        if abs(a - b) > 0.01 * a:
            assert row["musicality"] == ("a" if a > b else "b")
        assert (row["mq_a"], row["alignment"], row["judge"]) == (None, None, "scorer:level.toml")
    assert len(judgments) == 2 * len(pairs)
    for row in judgments:
        generation = pairs[row["pair_id"]]["generation_a"]
        assert row["score_a"] == pytest.approx(level_of(clips[generation]), rel=0.05)
    assert len({row["request_key"] for row in judgments}) == len(heard)
    assert "scorer:lab_judge:score@1" in version.manifest.models

    margin = float(np.median([abs(row["score_a"] - row["score_b"]) for row in judgments]))
    tied = run_flow(build, config_with(tmp_path, judge={**judge, "tie_margin": margin}), store)
    wide = {row["pair_id"] for row in judgments if abs(row["score_a"] - row["score_b"]) > margin}
    assert {row["pair_id"] for row in rows_of(tied, "labels") if row["musicality"] != "tie"} == wide
    (tmp_path / "level.toml").write_text(LEVEL + 'lower = ["level"]\n')
    turned = run_flow(build, config, store)
    other = {"a": "b", "b": "a", "tie": "tie"}
    assert [row["musicality"] for row in rows_of(turned, "labels")] == [other[row["musicality"]] for row in labels]
    assert len(calls.read_text().splitlines()) == len(heard)


@pytest.mark.slow
def test_a_scorer_sits_on_a_jury(calls: Path, tmp_path: Path) -> None:
    """A label of unanimity is where both judges agree; the scorer votes on every pair."""
    judges = [{"model": "builtin:music-pair-2"}, {"model": f"scorer:{tmp_path}/level.toml"}]
    config = config_with(tmp_path, judge=ONE, judges=judges, jury="unanimity")
    version = run_flow(build, config, tmp_path / "store")

    def votes(held: Version) -> dict[str, list[str]]:
        return {row["pair_id"]: row["musicality_votes"] for row in rows_of(held, "labels")}

    assert votes(version)
    assert all(len({*both}) == 1 for both in votes(version).values())
    majority = [row for row in rows_of(version, "judgments") if row["judge"] == "scorer:level.toml"]
    assert len(majority) == 2 * len(rows_of(version, "pairs"))


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ({"model": "scorer:level.onnx"}, "expected scorer:FILE.toml"),
        ({"match": ["loudness"]}, "a scorer hears each clip alone"),
        ({"qualify": {}}, "a scorer hears each clip alone"),
        ({"model": "builtin:music-pair-2", "tie_margin": 0.5}, "tie_margin: expected a scorer"),
        ({"dimensions": ["musicality", "alignment"]}, "no score for alignment"),
    ],
)
def test_what_a_scorer_cannot_do_is_refused(judge: dict[str, Any], said: str, calls: Path, tmp_path: Path) -> None:
    given = {"model": f"scorer:{tmp_path}/level.toml", **ONE, **judge}
    with pytest.raises(ConfigError, match=said):
        run_flow(build, config_with(tmp_path, judge=given), tmp_path / "store")
    assert not calls.exists()
    with pytest.raises(ValidationError, match="expected no scorer among a run's parameters"):
        PairJudge.model_validate({"annotator": "scorer:level.toml"})
