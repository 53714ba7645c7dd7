"""Scores of a published reward model over the released votes, beside counts by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.store.versions import Version
from tests.builds import rows_of
from tests.conftest import real_path
from tests.evaluation.test_score_files import Row, measure, measure_clips, metrics_of
from tests.human_preferences.votes import SALT, build_votes, config_of

REAL = "cmi-pref/test_500_votes_with_model_scores.jsonl"


@pytest.fixture(scope="module")
def voted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Version, list[Row]]:
    """The test set of CMI-Pref with the scores of its authors' reward model, and the lines of the file."""
    path = real_path(REAL)
    root = tmp_path_factory.mktemp("voted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_SALT", SALT)
        source = {"name": "cmi", "format": "cmi-pref", "files": [str(path)], "split": "native"}
        version = build_votes(config_of(root, source), root / "store")
    return version, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


COUNTED = [
    ("musicality", "predicted_musicality", 0.780, 0.781),
    ("alignment", "predicted_text-music alignment", 0.738, 0.740),
]
"""By hand: of the 500 votes, the share whose better clip scores higher, strictly, and with equal scores at one half."""


@pytest.mark.slow
@pytest.mark.parametrize(("dimension", "field", "strict", "half"), COUNTED)
def test_real_votes_and_a_published_models_scores(
    voted: tuple[Version, list[Row]], tmp_path: Path, dimension: str, field: str, strict: float, half: float
) -> None:
    version, lines = voted
    votes = {row["vote_id"]: lines[row["source_line"] - 1] for row in rows_of(version, "votes")}
    rows = []
    for row in rows_of(version, "benchmark"):
        if row["dimension"] != dimension:
            continue
        vote = votes[row["vote_id"]]
        score = {f"cmi/{vote['audio-path']}": vote[field], f"cmi/{vote['audio2']}": vote[f"{field}_b"]}
        rows.append({"id": row["sample_id"], "score_a": score[row["clip_a"]], "score_b": score[row["clip_b"]]})
    assert len(rows) == 500
    facts = measure(version, rows, MeasurementOptions(f"cmi-pref-{dimension}"), tmp_path)
    assert metrics_of(facts)["accuracy"] == strict
    voice = {row["value"]: row["samples"] for row in facts["rows"] if row["group"] == "vocals"}
    assert voice == {"instrumental": 250, "vocal": 250}  # grep -c '"lyrics": ""' counts 250
    assert metrics_of(facts)["accuracy_tie_half"] == pytest.approx(half, abs=5e-4)
    if dimension == "musicality":
        bands = {row["value"]: (row["samples"], row["metrics"]["accuracy"]["value"]) for row in facts["rows"]}
        assert bands["<3"] == (66, pytest.approx(0.667, abs=5e-4))
        assert bands["3"] == (128, pytest.approx(0.750, abs=5e-4))
        assert bands[">3"] == (306, pytest.approx(0.817, abs=5e-4))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["clip_id", "file"])
def test_one_file_of_clips_scores_feeds_both_dimensions(
    voted: tuple[Version, list[Row]], tmp_path: Path, by: str
) -> None:
    """Some clips stand in two votes and have two scores: the mean of them is taken, as a user would have to."""
    version, lines = voted
    scores: dict[str, dict[str, list[float]]] = {}
    for line in lines:
        for path, end in ((line["audio-path"], ""), (line["audio2"], "_b")):
            held = scores.setdefault(path, {})
            for dimension, field, *_ in COUNTED:
                held.setdefault(dimension, []).append(line[field + end])
    named = {row["file"]: row[by] for row in rows_of(version, "clips") if row["file"] in scores}
    rows = [
        {"clip": named[path], **{name: sum(values) / len(values) for name, values in held.items()}}
        for path, held in scores.items()
    ]
    tables = measure_clips(version, rows, MeasurementOptions(), tmp_path)
    assert tables.keys() == {"cmi-pref-musicality", "cmi-pref-alignment"}
    for dimension, _, strict, half in COUNTED:
        facts = tables[f"cmi-pref-{dimension}"]
        votes = [(line["audio-path"], line["audio2"], line[f"preference-{dimension}"]) for line in lines]
        mean = {path: sum(held[dimension]) / len(held[dimension]) for path, held in scores.items()}
        right = sum(mean[a] > mean[b] if said == "model_a" else mean[b] > mean[a] for a, b, said in votes)
        assert metrics_of(facts)["accuracy"] == pytest.approx(right / 500)
        assert facts["reachable"]["accuracy"] >= right / 500
        assert abs(right / 500 - strict) < 0.02
        assert metrics_of(facts)["accuracy_tie_half"] == pytest.approx(half, abs=0.02)
