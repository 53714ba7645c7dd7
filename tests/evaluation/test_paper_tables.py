"""Tables of papers on simulated answers: every cell in closed form, and by pandas."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.score_questions import CATEGORIES
from earmark.tasks.evaluation.comparing import Measure
from earmark.tasks.evaluation.layouts import choose_layout, shipped_layouts
from earmark.tasks.evaluation.released import as_version
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart, find_evaluation, select_samples
from earmark.tasks.evaluation.tabulating import TableOptions, make_table, table_page
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.benchmarks.bench_evaluation import wide_table
from tests.human_preferences.votes import write_jsonl

Row = dict[str, Any]
DATASETS = {"BVCC": 40, "NISQA": 60, "SingMOS": 50, "SOMOS": 80, "TMHINT-QI": 30, "VMC'23": 90}
"""The columns of MOS-RMBench's tables, in their order, with the pairs of the simulation."""
SOURCES = {name: name.replace("'", "").lower() for name in DATASETS}
RIGHT = {"UTMOS": 0.9, "Classic + BT Loss": 0.8, "GRM + SFT": 0.7, "GRM + GRPO": 0.8}
"""The share of right answers of each simulated model; its k-th dataset has k fewer."""


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Pairs of six datasets; each clip stands in several. The gap grows with the number of a pair."""
    ratings, pairs, triplets = [], [], []
    for name, count in DATASETS.items():
        source = SOURCES[name]
        clips = [f"{source}/{number}" for number in range(20)]
        ratings += [{"sample_id": clip, "scale_min": 1.0, "scale_max": 5.0} for clip in clips]
        drawn = itertools.islice(itertools.combinations(clips, 2), count)
        pairs += [
            {
                **{"pair_id": f"{source}-{place:03}", "split": "test", "dataset": source, "category": "both_differ"},
                **{"chosen_id": chosen, "rejected_id": rejected, "mos_gap": (place + 0.5) / count},
                "gap_decile": 1 + 10 * place // count,
            }
            for place, (chosen, rejected) in enumerate(drawn)
        ]
        triplets += [
            {"triplet_id": f"{source}-t{place}", "split": "test", "dataset": source, "category": "both_differ"}
            | {f"{letter}_id": clips[3 * place + at] for at, letter in enumerate("abc")}
            for place in range(6)
        ]
    folder = tmp_path_factory.mktemp("store") / "mos-preferences" / "v1"
    folder.parent.mkdir()
    tables = {"ratings": ratings, "pairs": pairs, "triplets": triplets}
    return as_version(folder, find_corpus("mos-preferences"), tables, {})


def rows_of(version: Version, table: str) -> pd.DataFrame:
    """The rows of a table of a simulated version."""
    return pd.read_parquet(version.folder / f"{table}.parquet")


def measured(version: Version, root: Path) -> Measure:
    """Hold the samples that models are measured on."""
    return Measure(version, find_corpus(version.corpus), Store(root / "store"), MeasurementOptions())


def right(model: str, dataset: str) -> int:
    """Count the pairs of a dataset that a simulated model has right."""
    return round(RIGHT[model] * DATASETS[dataset]) - [*DATASETS].index(dataset)


def answers(version: Version, folder: Path) -> dict[str, list[str]]:
    """A file of choices for each simulated model: its first pairs of a dataset are right."""
    pairs, files = rows_of(version, "pairs"), {}
    place = pairs.groupby("dataset").cumcount()
    for number, model in enumerate(RIGHT):
        most = pairs["dataset"].map({SOURCES[name]: right(model, name) for name in DATASETS})
        chosen = np.where(place < most, "chosen", "rejected")
        pd.DataFrame({"id": pairs["pair_id"], "choice": chosen}).to_csv(folder / f"{number}.csv", index=False)
        files[model] = [str(folder / f"{number}.csv")]
    return files


def table_of(
    version: Version, models: dict[str, list[str]], folder: Path, name: str, rules: Sequence[str] = (), **options: Any
) -> Row:
    """The facts of a shipped table."""
    layout = choose_layout(name, None, (), (), rules)
    facts, _ = make_table(measured(version, folder), models, layout, TableOptions(**options), folder / "out")
    return facts


def cells(facts: Row) -> dict[str, dict[str, float | None]]:
    """The values of a table by model and column, in the units that are printed."""
    return {
        row["model"]: {
            f"{column['over']} {column['heading']}".strip(): cell and cell["value"] * column["scale"]
            for column, cell in zip(facts["columns"], row["cells"], strict=True)
        }
        for row in facts["rows"]
    }


def test_the_papers_accuracies_by_dataset_are_the_truth_of_the_simulation(rated: Version, tmp_path: Path) -> None:
    models = answers(rated, tmp_path)
    facts = table_of(rated, models, tmp_path, "mos-rmbench-2")
    assert [one["heading"] for one in facts["columns"]] == [*DATASETS, "Overall"]
    total = sum(DATASETS.values())
    for model, found in cells(facts).items():
        truth = {name: 100 * right(model, name) / count for name, count in DATASETS.items()}
        truth["Overall"] = 100 * sum(right(model, name) for name in DATASETS) / total
        assert found == pytest.approx(truth)
    pairs = rows_of(rated, "pairs").set_index("pair_id")
    for model, (file,) in models.items():  # the same by another way
        hit = pd.read_csv(file, index_col="id")["choice"].eq("chosen").mul(100)
        by = hit.groupby(pairs["dataset"]).mean().to_dict()
        assert {SOURCES[name]: cells(facts)[model][name] for name in DATASETS} == pytest.approx(by)
    page = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "rule ties=wrong: a predicted tie where the truth is none counts as wrong" in page
    assert "samples that share a clip, a prompt or a triplet count as dependent" in page


def test_differences_stand_beside_the_cells_and_baselines_are_hidden(rated: Version, tmp_path: Path) -> None:
    models = answers(rated, tmp_path)
    of = {"": "UTMOS", "GRM + GRPO": "GRM + SFT"}
    facts = table_of(rated, models, tmp_path, "mos-rmbench-3", baselines=of)
    assert [row["model"] for row in facts["rows"]] == ["Classic + BT Loss", "GRM + GRPO"]
    for row in facts["rows"]:
        base = of.get(row["model"], of[""])
        for name, cell in zip(DATASETS, row["cells"], strict=False):
            lead = (right(row["model"], name) - right(base, name)) / DATASETS[name]
            assert cell["difference"]["value"] == pytest.approx(lead)
            assert cell["difference"]["low"] <= lead <= cell["difference"]["high"]
            assert cell["difference"]["p"] <= cell["difference"]["p_holm"]
    tabled = table_page({**facts, "intervals": False}).tables[0]
    first = 100 * right("Classic + BT Loss", "BVCC") / DATASETS["BVCC"]
    assert re.fullmatch(rf"{first:.2f} \(-10\.00\)\*?", tabled.drawn()[0][1].text)


@pytest.mark.parametrize(
    ("table", "bound", "mark"),
    [
        *(("mos-rmbench-6", 0.2, None), ("mos-rmbench-7", 0.2, None), ("mos-rmbench-figure-4", 0.5, None)),
        ("mos-rmbench-figure-3", None, "error"),
    ],
)
def test_small_gaps_are_chosen_as_the_papers_tables_do(
    rated: Version, tmp_path: Path, table: str, bound: float | None, mark: str | None
) -> None:
    """The first pairs of a dataset have the smallest gaps, and are those that a model has right."""
    models = answers(rated, tmp_path)
    found = cells(table_of(rated, models, tmp_path, table))
    for model in models:
        if bound is None:
            truth = {
                f"dataset+gap_decile {SOURCES[name]} / {tenth}": 100.0
                * sum(place >= right(model, name) for place in range((tenth - 1) * count // 10, tenth * count // 10))
                / (count // 10)
                for name, count in DATASETS.items()
                for tenth in range(1, 11)
            }
        else:
            edges = {
                name: sum((place + 0.5) / count <= bound if bound == 0.5 else (place + 0.5) / count < bound
                          for place in range(count))
                for name, count in DATASETS.items()
            }  # fmt: skip
            within = {name: min(edges[name], right(model, name)) for name in DATASETS}
            truth = {name: 100 * within[name] / edges[name] for name in DATASETS}
            truth["Overall"] = 100 * sum(within.values()) / sum(edges.values())
        assert found[model] == pytest.approx(truth)


def test_triplets_give_accuracy_and_cycles_by_dataset(rated: Version, tmp_path: Path) -> None:
    """A model turns in the first triplets of a dataset: a beats b, b beats c, c beats a."""
    rows = []
    turning = {name: place for place, name in enumerate(DATASETS)}
    for name, turns in turning.items():
        for place in range(6):
            for leg in ("ab", "bc", "ac"):
                wrong = leg == "ac" and place < turns
                rows.append({"id": f"{SOURCES[name]}-t{place}-{leg}", "choice": "rejected" if wrong else "chosen"})
    write_jsonl(tmp_path / "turning.jsonl", rows)
    models = {"turning": [str(tmp_path / "turning.jsonl")]}
    of_pairs = cells(table_of(rated, models, tmp_path, "mos-rmbench-4"))["turning"]
    facts = table_of(rated, models, tmp_path, "mos-rmbench-5")
    of_cycles, none = cells(facts)["turning"], facts["rows"][0]["cells"][0]
    assert none["low"] == none["value"] == 0 < none["high"] < 0.6
    assert of_pairs == pytest.approx(
        {name: 100 * (18 - turns) / 18 for name, turns in turning.items()} | {"Overall": 100 * (108 - 15) / 108}
    )
    assert of_cycles == pytest.approx(
        {name: 100 * turns / 6 for name, turns in turning.items()} | {"Overall": 100 * 15 / 36}
    )


def test_a_limit_draws_whole_triplets_so_that_a_model_which_always_circles_has_100(
    rated: Version, tmp_path: Path
) -> None:
    rows = [
        {"id": f"{one}-{leg}", "choice": "rejected" if leg == "ac" else "chosen"}
        for one in rows_of(rated, "triplets")["triplet_id"]
        for leg in ("ab", "bc", "ac")
    ]
    write_jsonl(tmp_path / "m.jsonl", rows)
    evaluation = find_evaluation(find_corpus("mos-preferences"), "cycles")
    drawn: dict[int, set[str]] = {}
    for limit, most in ((1, 3), (31, 30), (60, 60)):
        part = SamplePart(limit=limit)
        with select_samples(rated, find_corpus("mos-preferences"), evaluation, part) as samples:
            drawn[limit] = {row["id"] for batch in samples.batches(100, ["id"]) for row in batch}
        legs = pd.Series([*drawn[limit]]).str.rsplit("-", n=1)
        assert legs.str[0].value_counts().tolist() == [3] * (most // 3)
        measure = replace(measured(rated, tmp_path), wish=MeasurementOptions(part=part))
        layout = choose_layout("mos-rmbench-5", None, (), (), ())
        facts, _ = make_table(
            measure, {"m": [str(tmp_path / "m.jsonl")]}, layout, TableOptions(), tmp_path / f"{limit}"
        )
        assert facts["columns"][-1]["samples"] == most
        assert cells(dict(facts))["m"]["Overall"] == 100
    assert drawn[1] < drawn[31] < drawn[60]
    command = ["eval", "run", "mos-preferences", "-e", "cycles", "--scores", str(tmp_path / "m.jsonl"), "--limit", "31"]
    command += ["--json", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*command, "--store", str(rated.folder.parents[1])], catch_exceptions=False)
    counted = json.loads(done.stdout)["cycles"]
    assert (counted["triplets"], counted["decided"], counted["per_100"]) == (10, 10, 100)


def test_scores_of_rated_clips_are_tabled_by_clip_and_by_system_within_listening_tests(tmp_path: Path) -> None:
    """Three tests in two datasets on two scales, each with systems of one name; some clips lack a system or a score.

    Listeners of the one test of `b` are stricter than those of the other.
    """
    source = np.random.default_rng(8)
    ratings = [
        {"sample_id": f"{dataset}{at}", "dataset": dataset, "split": "test", "scale_min": low, "scale_max": high}
        | {"mos": float(source.uniform(low, (low + high) / 2 if subset == "strict" else high)), "subset": subset}
        | {"system_id": None if at % 9 == 0 else f"s{at % 7}"}
        for dataset, low, high in (("a", 1.0, 5.0), ("b", 0.0, 100.0))
        for at in range(60)
        for subset in [None if dataset == "a" else "strict" if at % 2 else "mild"]
    ]
    version = written(tmp_path, "mos-preferences", ratings=ratings)
    frame = pd.DataFrame(ratings)
    frame["test"] = ["/".join(filter(None, (row["dataset"], row["subset"]))) for row in ratings]
    frame["y"] = 1 + 4 * (frame["mos"] - frame["scale_min"]) / (frame["scale_max"] - frame["scale_min"])
    frame["x"] = (frame["y"] + source.normal(size=120)).where(frame.index % 11 > 0)
    frame.rename(columns={"sample_id": "clip", "x": "quality"})[["clip", "quality"]].to_csv(
        tmp_path / "m.csv", index=False
    )
    found = cells(table_of(version, {"m": [str(tmp_path / "m.csv")]}, tmp_path, "voicemos"))["m"]
    scored = frame.dropna(subset=["x"])
    systems = scored.groupby(["test", "system_id"], as_index=False)[["x", "y"]].mean()
    ways = {"LCC": "pearson", "SRCC": "spearman", "KTAU": "kendall"}
    for over, rows in (("Clip", scored), ("System", systems)):
        sets = [rows[rows["test"] == name] for name in ("a", "b/mild", "b/strict")]
        expected = {f"{over} MSE": np.mean([((one["x"] - one["y"]) ** 2).mean() for one in sets])}
        expected |= {
            f"{over} {name}": np.mean([one["x"].corr(one["y"], method=way) for one in sets])
            for name, way in ways.items()
        }
        assert {name: found[name] for name in expected} == pytest.approx(expected)
    run = ["eval", "run", "mos-preferences", "-e", "mos", "--scores", str(tmp_path / "m.csv"), "--json"]
    done = CliRunner().invoke(app, [*run, "--store", str(tmp_path)], catch_exceptions=False)
    by = {(row["group"], row["value"]): row["metrics"] for row in json.loads(done.stdout)[0]["rows"]}
    assert by["means by", "system"]["srcc"]["value"] == pytest.approx(
        systems["x"].corr(systems["y"], method="spearman")
    )
    for column, value in (("dataset", "b"), ("test", "a"), ("test", "b/strict")):
        held = scored[scored[column] == value]
        assert by[column, value]["lcc"]["value"] == pytest.approx(held["x"].corr(held["y"]))


def written(folder: Path, corpus: str, **tables: list[Row]) -> Version:
    """A version of these rows."""
    (folder / corpus).mkdir()
    return as_version(folder / corpus / "v1", find_corpus(corpus), tables, {})


SUBCATEGORIES = ("CP", "MP", "MM", "MS", "RP", "HTx", "PT", "OT", "DA", "TI", "PS", "CF")


def test_questions_on_scores_are_tabled_by_category_and_subcategory(tmp_path: Path) -> None:
    """The first questions of a subcategory are right, the k-th has k of them, with 20 each."""
    rows = [
        {"question_id": f"{at}-{number:02}", "split": "test", "truth_letter": "B", "options": ["x", "y"]}
        | {"category": category, "subcategory": name, "at": at}
        for at, (category, name) in enumerate((one, name) for one, held in CATEGORIES.items() for name in held)
        for number in range(20)
    ]
    version = written(tmp_path, "score-questions", questions=rows)
    frame = pd.DataFrame(rows)
    place = frame.groupby("at").cumcount()
    frame["choice"] = np.where(place < frame["at"] + 3, "B", "A")
    frame[["question_id", "choice"]].rename(columns={"question_id": "id"}).to_csv(tmp_path / "m.csv", index=False)
    models = {"GPT|w/ Image": [str(tmp_path / "m.csv")]}
    hit = 100 * frame["choice"].eq("B")
    of_categories = cells(table_of(version, models, tmp_path, "wildscore-3"))["GPT|w/ Image"]
    assert [*of_categories] == ["Expr. & Perf.", "Form", "Harmo. & Ton.", "Rhythm & Meter", "Texture", "Average"]
    by = hit.groupby(frame["category"]).mean()  # in the order of their names, as the paper's
    assert [*of_categories.values()] == pytest.approx([*by, hit.mean()])
    of_kinds = cells(table_of(version, models, tmp_path, "wildscore-4"))["GPT|w/ Image"]
    assert [name.split()[-1] for name in of_kinds] == [*SUBCATEGORIES, "Average"]
    expected = [5.0 * (at + 3) for at in range(12)]
    assert [*of_kinds.values()] == pytest.approx([*expected, np.mean(expected)])
    parts = table_of(version, {**models, "InternVL": models["GPT|w/ Image"]}, tmp_path, "wildscore-9")
    assert cells(parts)["InternVL"] == pytest.approx({"Accuracy (%)": np.mean(expected), "n": 240})
    (tabled,) = table_page(table_of(version, models, tmp_path, "wildscore-3", intervals=False)).tables
    assert tabled.headings[:3] == ("Model", "Modality", "Expr. & Perf.")
    assert [cell.text for cell in tabled.drawn()[0]][:2] == ["GPT", "w/ Image"]
    (tabled,) = table_page(parts).tables
    assert (tabled.headings, tabled.drawn()[0][-1].text) == (("Model", "Accuracy (%)", "n"), "240")
    only = table_of(version, models, tmp_path, "wildscore-5")
    assert cells(only)["GPT|w/ Image"] == pytest.approx({"Accuracy (%)": np.mean(expected)})


def test_votes_are_tabled_by_the_length_of_the_longer_clip(tmp_path: Path) -> None:
    """An edge belongs to the bin that it begins; a longer clip is in the total alone."""
    lengths = [1.0, 9.99, 10.0, 29.9, 30.0, 59.0, 60.0, 119.0, 120.0, 499.0, 500.0, 700.0]
    right = [at % 3 != 1 for at in range(12)]
    clips = [
        {"clip_id": f"{side}{at}", "source": "s", "file": f"{side}{at}.wav", "duration_s": length / (1 + (side == "a"))}
        for at, length in enumerate(lengths)
        for side in "ab"
    ]
    comparisons = [
        {"comparison_id": f"c{at}", "split": "test", "source": "s", "task": "cmi-pref", "prompt_id": f"p{at}"}
        | {"clip_a": f"a{at}", "clip_b": f"b{at}", "votes": 1}
        for at in range(12)
    ]
    benchmark = [
        {**row, "sample_id": f"{row['comparison_id']}-{dimension}", "dimension": dimension, "preference": "a"}
        for row in comparisons
        for dimension in ("musicality", "alignment")
    ]
    version = written(tmp_path, "human-preferences", clips=clips, comparisons=comparisons, benchmark=benchmark)
    frame = pd.DataFrame(benchmark)[["sample_id"]].rename(columns={"sample_id": "id"})
    frame["choice"] = np.where(np.repeat(right, 2), "a", "b")
    frame.to_csv(tmp_path / "m.csv", index=False)
    found = cells(table_of(version, {"m": [str(tmp_path / "m.csv")]}, tmp_path, "cmi-rewardbench-length"))["m"]
    bins = pd.cut(pd.Series(lengths), [0, 10, 30, 60, 120, 500], right=False, labels=False)
    shares = 100 * pd.Series(right).groupby(bins).mean()
    names = ["0-10 s", "10-30 s", "30-60 s", "60-120 s", "120-500 s"]
    assert found == pytest.approx(
        {
            f"{over} {name}": value
            for over in ("Musicality", "Alignment")
            for name, value in zip(
                ["Total (12)", *(f"{one} (2)" for one in names)], [100 * np.mean(right), *shares], strict=True
            )
        }
    )


def test_instructions_are_tabled_by_subset_with_the_mean_over_subsets(tmp_path: Path) -> None:
    """Err on a quarter of a subset's samples in English, on half in Chinese, on none of the mix."""
    names = ["speech-real", "speech-gen", "sound-real", "sound-gen", "music-real", "music-gen", "mix"]
    samples, items = [], []
    for at, subset in enumerate(names):
        for number in range(8 + 4 * (at % 4)):
            one = f"{subset}-{number}"
            row = {"sample_id": one, "instruction_id": one, "split": "test", "subset": subset, "follows": True}
            samples += [{**row, "pair_id": one, "language": language} for language in ("en", "zh")]
            items += [{"instruction_id": one, "item": 1, "language": language} for language in ("en", "zh")]
    version = written(tmp_path, "instruction-rubrics", samples=samples, items=items)
    parts = {"en": 4, "zh": 2}
    answers = [
        {"id": f"{row['sample_id']}-{row['language']}", "choice": "no" if wrong else "yes"}
        for row in samples
        for number in [int(str(row["sample_id"]).split("-")[-1])]
        for wrong in [number % parts[str(row["language"])] == 0 and row["subset"] != "mix"]
    ]
    write_jsonl(tmp_path / "m.jsonl", answers)
    models = {"m": [str(tmp_path / "m.jsonl")]}
    for table, share in (("anyaudio-judge-1", 50.0), ("anyaudio-judge-2", 75.0)):
        found = cells(table_of(version, models, tmp_path, table))["m"]
        headings = ["Speech-Real", "Speech-Gen", "Sound-Real", "Sound-Gen", "Music-Real", "Music-Gen", "Mix", "Avg"]
        assert [*found] == headings
        assert [*found.values()] == pytest.approx([*[share] * 6, 100.0, (6 * share + 100) / 7])
    both = cells(table_of(version, models, tmp_path, "anyaudio-judge-4"))["m"]
    assert both == pytest.approx({"Chinese ACC": 400 / 7, "English ACC": 550 / 7})


def test_every_shipped_layout_is_of_a_paper_and_of_a_corpus() -> None:
    names = [*shipped_layouts()]
    papers = {"mos-rmbench": 8, "cmi-rewardbench": 8, "anyaudio-judge": 4, "wildscore": 4}
    assert {paper: sum(name.startswith(paper) for name in names) for paper in papers} == papers
    for name in names:
        layout = choose_layout(name, None, (), (), ())
        assert layout.corpus is not None
        known = {one.name for one in find_corpus(layout.corpus).evaluations}
        of_columns = [one.evaluation or layout.evaluation for one in layout.columns]
        named = {one for held in of_columns for one in ([held] if isinstance(held, str) else held or [])}
        assert named
        assert named <= known


@pytest.mark.slow
def test_20_models_by_40_groups_of_10_000_samples_take_a_minute_at_most(tmp_path: Path) -> None:
    seconds, facts = wide_table(tmp_path)
    assert seconds < 60
    assert [len(row["cells"]) for row in facts["rows"]] == [40] * 20
