"""Models side by side: the truth beats its mirror, and a difference is tested as another way would test it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import EarmarkError, InputError
from earmark.tasks.evaluation import reading, statistics
from earmark.tasks.evaluation.comparing import Measure, compare_models
from earmark.tasks.evaluation.comparison import ranking
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.evaluation.statistics import difference, holm, resample
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests import builds
from tests.annotation.conftest import LocalServer, model_server
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.pseudo_preferences import music
from tests.servers.faults import Faults
from tests.servers.openai_server import OpenAIServer, listening_answer

EVERY = MeasurementOptions(part=SamplePart("all"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Pairs of rated clips."""
    config = builds.read_config(ROOT / "data/demo/mos-preferences.toml")
    return builds.build_version(config, tmp_path_factory.mktemp("pairs") / "store")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Labels on two dimensions by a judge that listens."""
    base = tmp_path_factory.mktemp("labelled")
    music.make_pool(base / "pool", 6)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        return music.build_judged(music.config_of(base / "pool", server.base_url), base / "store")


server = model_server(listening_answer)


def place_of(version: Version, wish: MeasurementOptions = EVERY) -> Measure:
    """Where models are measured."""
    return Measure(version, find_corpus(version.corpus), Store(version.folder.parents[1]), wish)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    """A file of scores."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def said(version: Version, right: Any) -> list[dict[str, Any]]:
    """A choice for each pair, by whether it is right, given the pair's place."""
    names = sorted(row["pair_id"] for row in rows_of(version, "pairs"))
    return [{"id": name, "choice": "chosen" if right(place) else "rejected"} for place, name in enumerate(names)]


@pytest.mark.slow
def test_the_truth_beats_a_coin_and_a_coin_its_mirror(pairs: Version, tmp_path: Path) -> None:
    """Through a score a sample, a score a clip, and an earlier run."""
    place = place_of(pairs)
    mirror = write(tmp_path / "mirror.jsonl", said(pairs, lambda place: False))
    mos = write(
        tmp_path / "mos.jsonl", [{"clip": r["sample_id"], "score": r["mos"]} for r in rows_of(pairs, "ratings")]
    )
    half = Path(write(tmp_path / "half.jsonl", said(pairs, lambda place: place % 2)))
    _, run = reading.read(place.version, place.corpus, place.store, half, EVERY, tmp_path / "earlier")
    facts, folder = compare_models(place, [mirror, mos, str(run)], tmp_path / "out")
    (table,) = facts["evaluations"]
    values = {row["value"]: row["metrics"]["accuracy"]["value"] for row in table["rows"]}
    assert values == {"mirror": 0.0, "mos": 1.0, "half": pytest.approx(0.5, abs=0.02)}
    assert table["samples"] == len(rows_of(pairs, "pairs"))
    gaps = {(one["first"], one["second"]): one for one in table["differences"]}
    assert gaps["mirror", "mos"]["value"] == gaps["mirror", "mos"]["low"] == gaps["mirror", "mos"]["high"] == -1.0
    assert all(one["p_holm"] < 0.01 for one in gaps.values())
    assert gaps["mos", "half"]["low"] < 1 - values["half"] < gaps["mos", "half"]["high"]
    assert [(one["model"], one["mean_rank"], one["borda"]) for one in facts["ranking"]] == [
        ("mos", 1, 2), ("half", 2, 1), ("mirror", 3, 0)
    ]  # fmt: skip
    assert json.loads((folder / "comparison.json").read_bytes()) == facts
    page = (folder / "README.md").read_text("utf-8")
    assert "| mos | " in page
    assert "paired bootstrap over clusters" in page
    assert "(intervals.svg)" in page
    drawn = ElementTree.parse(folder / "intervals.svg").getroot()
    words = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{pairs.corpus} {pairs.name}: values with intervals of 95 %" in words
    assert f"quality, accuracy, n = {table['samples']:,}" in words
    (chance,) = [float(one.get("x1", "nan")) for one in drawn.iter("{http://www.w3.org/2000/svg}line")
                 if one.get("class") == "g"]  # fmt: skip
    marks = {mark[0].text: float(mark.get("cx", "nan")) for mark in drawn.iter("{http://www.w3.org/2000/svg}circle")}
    assert marks.keys() == {"mirror: 0.000", "mos: 1.000", f"half: {values['half']:.3f}"}
    assert chance == pytest.approx((marks["mirror: 0.000"] + marks["mos: 1.000"]) / 2, abs=0.2)
    assert marks["half: 0.500"] == pytest.approx((marks["mirror: 0.000"] + marks["mos: 1.000"]) / 2, abs=0.2)


@pytest.mark.slow
def test_models_are_asked_and_stand_beside_a_file_on_every_evaluation(
    labelled: Version, server: OpenAIServer, tmp_path: Path
) -> None:
    ids = sorted({row[f"generation_{side}"] for row in rows_of(labelled, "labels") for side in "ab"})
    scores = write(tmp_path / "by <name>.jsonl", [{"clip": one, "score": place} for place, one in enumerate(ids)])
    command = [
        "eval",
        "compare",
        f"{labelled.corpus}@{labelled.name}",
        "--store",
        str(labelled.folder.parents[1]),
        "--split",
    ]
    command += ["all", "--base-url", server.base_url, "openai:ear", scores]
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    facts = json.loads(done.stdout)
    asked = sum(server.faults.asked.values())
    assert asked == sum(table["samples"] for table in facts["evaluations"])
    assert [table["evaluation"] for table in facts["evaluations"]] == ["musicality", "alignment"]
    assert {one["model"] for one in facts["ranking"]} == {"openai:ear", "by <name>"}
    assert "by &lt;name&gt;" in (Path(facts["folder"]) / "intervals.svg").read_text("utf-8")
    for table in facts["evaluations"]:
        run = Path(facts["runs"]["openai:ear"][table["evaluation"]])
        alone = json.loads((run / "evaluation.json").read_bytes())["rows"][0]
        beside = next(row for row in table["rows"] if row["value"] == "openai:ear")
        assert alone["metrics"] == beside["metrics"]
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert sum(server.faults.asked.values()) == asked
    assert "mean rank" in text


def test_a_file_of_all_dimensions_feeds_one_evaluation_alone(labelled: Version, tmp_path: Path) -> None:
    clips = [row["generation_id"] for row in rows_of(labelled, "clips")]
    lines = [f"{clip},{place},{-place}" for place, clip in enumerate(clips)]
    (tmp_path / "both.csv").write_text("\n".join(["clip,musicality,alignment", *lines]) + "\n")
    wish = MeasurementOptions("musicality", part=SamplePart("all"))
    corpus, store = find_corpus(labelled.corpus), Store(labelled.folder.parents[1])
    ((facts, _),), _ = reading.read_clips(labelled, corpus, store, tmp_path / "both.csv", wish, tmp_path / "out")
    assert facts["evaluation"] == "musicality"


def test_what_cannot_be_compared_is_one_line(pairs: Version, labelled: Version, tmp_path: Path) -> None:
    place = place_of(pairs)
    good = write(tmp_path / "good.jsonl", said(pairs, lambda place: True))

    def refused(*entrants: str, wish: MeasurementOptions = EVERY) -> str:
        with pytest.raises(InputError) as raised:
            compare_models(place_of(pairs, wish), entrants, tmp_path / "never")
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "never").exists()
        return str(raised.value)

    assert "two models or more" in refused(good)
    (tmp_path / "other").mkdir()
    twin = write(tmp_path / "other/good.jsonl", said(pairs, lambda place: False))
    assert "'good' stands there twice" in refused(good, twin)
    assert "no such file or folder" in refused(good, "gold.jsonl")
    assert "expected the folder of an earlier run" in refused(good, str(tmp_path / "other"))
    fewer = MeasurementOptions(part=SamplePart("all", limit=10))
    _, run = reading.read(pairs, place.corpus, place.store, Path(twin), fewer, tmp_path / "fewer")
    Path(twin).unlink()
    other = write(tmp_path / "all.jsonl", said(pairs, lambda place: True))
    total = len(rows_of(pairs, "pairs"))
    assert f"'good' was measured on 10 samples of 'quality', 'all' on {total}; the first" in refused(other, str(run))
    table = pq.read_table(run / "predictions.parquet")
    pq.write_table(table.drop_columns(["cluster"]), run / "predictions.parquet")
    assert "run it again" in refused(other, str(run))
    record = json.loads((run / "evaluation.json").read_bytes())
    (run / "evaluation.json").write_text(json.dumps({**record, "manifest_sha256": "0" * 64}), encoding="utf-8")
    assert "with other content" in refused(other, str(run))


@pytest.mark.slow
def test_a_judge_of_one_clip_that_is_shown_two_is_told_the_mode(labelled: Version, tmp_path: Path) -> None:
    place = place_of(labelled, MeasurementOptions("musicality", part=SamplePart("all")))
    with pytest.raises(EarmarkError, match=r"^builtin:music-clip-1 rates one clip: add --mode single$"):
        compare_models(place, ["builtin:music-clip-1", "builtin:music-pair-2"], tmp_path / "never")


# -- the test of a difference ---------------------------------------------------------------------------------------


def drawn_models(seed: int, size: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is true, and what two models that err alike give."""
    source = np.random.default_rng(seed)
    truth = source.normal(size=size)
    shared = source.normal(size=size)
    return truth, truth + shared + 0.3 * source.normal(size=size), truth + 1.3 * shared + 0.3 * source.normal(size=size)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["lcc", "srcc", "accuracy"])
def test_a_difference_has_the_interval_of_scipys_paired_bootstrap(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 400)
    truth, first, second = drawn_models(1)
    found: Any = {"lcc": stats.pearsonr, "srcc": stats.spearmanr}.get(metric)
    if metric == "accuracy":
        first, second = (
            (np.sign(first) == np.sign(truth)).astype(float),
            (np.sign(second) == np.sign(truth)).astype(float),
        )

    def gap(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> float:
        return float(a.mean() - b.mean()) if found is None else found(a, t).statistic - found(b, t).statistic

    theirs = stats.bootstrap(
        (first, second, truth), gap, paired=True, method="percentile", n_resamples=300, vectorized=False,
        rng=np.random.default_rng(3),
    ).confidence_interval  # fmt: skip
    way = "accuracy" if metric == "accuracy" else "correlations"
    one, other = resample(way, first, truth)[metric], resample(way, second, truth)[metric]
    value = gap(first, second, truth)
    ours = difference(value, 0.0, one - other, len(first))
    assert ours.value == value
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.2 * (theirs.high - theirs.low))
    alone = np.quantile(one, [0.025, 0.975])
    assert ours.high - ours.low < alone[1] - alone[0]  # models that err alike differ less than either is uncertain


def test_p_is_mcnemars_where_there_is_a_choice_to_be_right() -> None:
    first, second = np.zeros(300), np.zeros(300)
    first[:150], second[:120] = 1, 1
    first[200:212], second[220:240] = 1, 1
    only = int(np.sum(first > second)), int(np.sum(first < second))
    exact = stats.binomtest(only[0], sum(only)).pvalue
    drawn = resample("accuracy", first, first)["accuracy"] - resample("accuracy", second, first)["accuracy"]
    ours = difference(first.mean(), second.mean(), drawn, len(first))
    assert ours.p == pytest.approx(exact, abs=0.02)


def test_equal_models_differ_as_rarely_as_the_test_says() -> None:
    source = np.random.default_rng(9)
    below = 0
    for _ in range(120):
        first, second = (source.random((2, 100)) < 0.7).astype(float)
        drawn = resample("accuracy", first, first)["accuracy"] - resample("accuracy", second, first)["accuracy"]
        p = difference(first.mean(), second.mean(), drawn, len(first)).p
        below += p is not None and p < 0.1
    assert stats.binomtest(below, 120, 0.1).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [2, 4, 6])
def test_equal_models_do_not_differ_by_a_few_clusters(clusters: int) -> None:
    """Two clusters that happen to lean one way made every resample lean that way: p was below 0.001."""
    source = np.random.default_rng(clusters)
    below = 0
    for _ in range(150):
        labels = np.repeat(np.arange(clusters), 20)
        levels = np.clip(0.7 + 0.2 * source.standard_normal((2, clusters)), 0, 1)  # clusters are easy or hard
        first, second = (source.random(len(labels)) < level[labels] for level in levels)
        one, other = (resample("accuracy", part.astype(float), part, labels)["accuracy"] for part in (first, second))
        p = difference(first.mean(), second.mean(), one - other, clusters).p
        below += p is not None and p <= 0.05
    assert below <= stats.binom.ppf(0.999, 150, 0.05 if clusters > 5 else 0.0) + (12 if clusters > 5 else 0)


def test_clusters_are_drawn_whole() -> None:
    source = np.random.default_rng(5)
    few = source.random(20) < 0.7, source.random(20) < 0.6
    labels = np.repeat(np.arange(20), 25)
    wide = [resample("accuracy", np.repeat(one, 25), np.zeros(500), labels)["accuracy"] for one in few]
    once = [resample("accuracy", one, np.zeros(20))["accuracy"] for one in few]
    bounds = [np.quantile(one - other, [0.05, 0.5, 0.95]) for one, other in (wide, once)]
    assert bounds[0] == pytest.approx(bounds[1], abs=0.05)  # copies tell nothing new
    alone = resample("accuracy", np.repeat(few[0], 25), np.zeros(500))["accuracy"]
    assert wide[0].std() > 3 * alone.std()


def test_what_is_not_defined_has_no_difference() -> None:
    drawn = resample("correlations", np.ones(10), np.arange(10.0))["srcc"]
    assert difference(None, 0.5, drawn, 10) == statistics.Difference(None, None, None, None)
    assert difference(0.4, 0.5, drawn, 10).p is None


def test_holm_is_worked_out_by_hand() -> None:
    """Holm 1979: the least of four times four, the next times three …, and none below one before it."""
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_equal_values_share_a_rank_and_none_is_last() -> None:
    def row(value: float | None) -> dict[str, Any]:
        return {"metrics": {"accuracy": {"value": value}}}

    tables = [{"evaluation": "x", "headline": "accuracy", "rows": [row(0.5), row(0.5), row(None)]}]
    ranks = {one["model"]: (one["mean_rank"], one["borda"]) for one in ranking(["a", "b", "c"], tables)}
    assert ranks == {"a": (1.5, 1.5), "b": (1.5, 1.5), "c": (3.0, 0.0)}
