"""Models side by side: the truth beats its mirror, and a difference is tested as another way would test it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, EarmarkError, InputError
from earmark.tasks.evaluation import reading
from earmark.tasks.evaluation.comparing import Measure, compare_models
from earmark.tasks.evaluation.comparison import ranking
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
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


def test_aurocs_side_by_side_are_of_the_samples_that_every_model_answered(tmp_path: Path) -> None:
    """A model that answers only what is easy is perfect there: the other's figure is of the easy samples too."""
    source = np.random.default_rng(3)
    truth = np.arange(40) % 2 == 1
    other = np.round(np.clip(truth * 0.4 + source.normal(0.3, 0.3, 40), 0, 1), 2)
    easy = np.arange(40) < 28
    about = {"audio": None, "type": "pos", "subset": "mix", "rubric": []}
    lines = [{"uuid": f"u{n}", "caption": f"dog {n}", "label": "yes" if one else "no"} for n, one in enumerate(truth)]
    write(tmp_path / "en.jsonl", [{**line, **about} for line in lines])
    scores = {"picky": np.where(easy, truth * 1.0, np.nan), "other": other}
    for name, held in scores.items():
        rows = [{"id": f"u{n}-en", "score": None if np.isnan(one) else float(one)} for n, one in enumerate(held)]
        write(tmp_path / f"{name}.jsonl", rows)
    command = ["eval", "compare", str(tmp_path / "en.jsonl"), *(str(tmp_path / f"{name}.jsonl") for name in scores)]
    command += ["--layout", "anyaudio-judge-bench", "-e", "alignment", "--store", str(tmp_path / "store"), "--json"]
    (table,) = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)["evaluations"]
    picky, rest = ({name: one["value"] for name, one in row["metrics"].items()} for row in table["rows"])
    assert (picky["auroc"], picky["accuracy"], rest["accuracy"]) == (1, 28 / 40, np.mean((other > 0.5) == truth))
    assert rest["auroc"] == pytest.approx(roc_auc_score(truth[easy], other[easy]))
    assert rest["auroc"] != pytest.approx(roc_auc_score(truth, other), abs=0.01)
    gaps = {one["metric"]: one["value"] for one in table["differences"]}
    assert gaps == pytest.approx({name: picky[name] - rest[name] for name in gaps})
    assert [row["answered"] for row in table["rows"]] == [28, 40]


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
    ends = [gaps["mirror", "mos"][name] for name in ("value", "low", "high")]
    assert ends == [-1.0, None, None]  # each sample differs by the same: no interval
    assert all(one["p_holm"] < 0.01 for one in gaps.values())
    assert gaps["mos", "half"]["low"] < 1 - values["half"] < gaps["mos", "half"]["high"]
    assert [(one["model"], one["mean_rank"], one["borda"]) for one in facts["ranking"]] == [
        ("mos", 1, 2), ("half", 2, 1), ("mirror", 3, 0)
    ]  # fmt: skip
    assert json.loads((folder / "comparison.json").read_bytes()) == facts
    page = (folder / "README.md").read_text("utf-8")
    assert "| mos | " in page
    assert "Student's test of what was sampled" in page
    assert "samples that share a clip, a prompt or a triplet count as dependent" in page
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
@pytest.mark.parametrize(("right", "wrong"), [("模型甲", "模型乙"), ("GRM+SFT", "GRM SFT")])
def test_files_whose_names_differ_in_signs_alone_are_two_models(
    pairs: Version, tmp_path: Path, right: str, wrong: str
) -> None:
    choices = {right: said(pairs, lambda _: True), wrong: said(pairs, lambda _: False)}
    files = [write(tmp_path / f"{name}.jsonl", rows) for name, rows in choices.items()]
    facts, _ = compare_models(place_of(pairs), files, tmp_path / "out")
    (table,) = facts["evaluations"]
    values = {row["value"]: row["metrics"]["accuracy"]["value"] for row in table["rows"]}
    assert values == {right: 1.0, wrong: 0.0}
    assert len({folder["quality"] for folder in facts["runs"].values()}) == 2


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


@pytest.mark.slow
def test_a_file_of_all_dimensions_feeds_one_evaluation_alone(labelled: Version, tmp_path: Path) -> None:
    clips = [row["generation_id"] for row in rows_of(labelled, "clips")]
    lines = [f"{clip},{place},{-place}" for place, clip in enumerate(clips)]
    (tmp_path / "both.csv").write_text("\n".join(["clip,musicality,alignment", *lines]) + "\n")
    wish = MeasurementOptions("musicality", part=SamplePart("all"))
    corpus, store = find_corpus(labelled.corpus), Store(labelled.folder.parents[1])
    ((facts, _),), _ = reading.read_clips(labelled, corpus, store, tmp_path / "both.csv", wish, tmp_path / "out")
    assert facts["evaluation"] == "musicality"


@pytest.mark.parametrize("option", ["threshold", "tune_on"])
def test_a_threshold_that_an_earlier_run_does_not_have_is_refused(pairs: Version, tmp_path: Path, option: str) -> None:
    place, runs = place_of(pairs), []
    for name in ("one", "two"):
        scores = Path(write(tmp_path / f"{name}.jsonl", said(pairs, lambda place: True)))
        _, run = reading.read(place.version, place.corpus, place.store, scores, EVERY, tmp_path / name)
        runs.append(str(run))
    asked = replace(EVERY, **{option: {"threshold": 0.3, "tune_on": "validation"}[option]})
    named = f"--{option.replace('_', '-')}"
    with pytest.raises(ConfigError, match=f"{named}: .*one was measured with no threshold, .*leave {named} out"):
        compare_models(place_of(pairs, asked), runs, tmp_path / "out")


@pytest.mark.slow
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
    record = json.loads((run / "evaluation.json").read_bytes())
    (run / "evaluation.json").write_text(json.dumps({**record, "manifest_sha256": "0" * 64}), encoding="utf-8")
    assert "with other content" in refused(other, str(run))


@pytest.mark.slow
def test_a_judge_of_one_clip_that_is_shown_two_is_told_the_mode(labelled: Version, tmp_path: Path) -> None:
    place = place_of(labelled, MeasurementOptions("musicality", part=SamplePart("all")))
    with pytest.raises(EarmarkError, match=r"^builtin:music-clip-1 rates one clip: add --mode single$"):
        compare_models(place, ["builtin:music-clip-1", "builtin:music-pair-2"], tmp_path / "never")


def test_equal_values_share_a_rank_and_none_is_last() -> None:
    def row(value: float | None) -> dict[str, Any]:
        return {"metrics": {"accuracy": {"value": value}}}

    tables = [{"evaluation": "x", "headline": "accuracy", "rows": [row(0.5), row(0.5), row(None)]}]
    ranks = {one["model"]: (one["mean_rank"], one["borda"]) for one in ranking(["a", "b", "c"], tables)}
    assert ranks == {"a": (1.5, 1.5), "b": (1.5, 1.5), "c": (3.0, 0.0)}
