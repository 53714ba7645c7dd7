"""Tables of models by groups: every cell in closed form, by a second method, and on real votes to the digit."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.tables import TextTable
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, StoreError
from earmark.schemas.score_questions import CATEGORIES
from earmark.tasks.evaluation.comparing import Measure
from earmark.tasks.evaluation.layouts import choose_layout, shipped_layouts
from earmark.tasks.evaluation.released import as_version
from earmark.tasks.evaluation.samples import MeasurementOptions
from earmark.tasks.evaluation.tabulating import TableOptions, make_table, table_page
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests.conftest import real_path
from tests.evaluation.test_vote_scores import REAL
from tests.human_preferences.votes import vote, write_jsonl

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


def real_scores(path: Path, out: Path) -> str:
    """The scores of the paper's reward model as a file by sample: a clip of two votes has two scores."""
    rows = []
    for line, row in enumerate(map(json.loads, path.read_text("utf-8").splitlines()), 1):
        for name, field in (("musicality", "musicality"), ("alignment", "text-music alignment")):
            scores = {"score_a": row[f"predicted_{field}"], "score_b": row[f"predicted_{field}_b"]}
            rows.append({"id": f"cmi-pref-{line}-{name}", **scores})
    write_jsonl(out, rows)
    return str(out)


@pytest.mark.slow
def test_real_votes_give_the_row_of_table_11_to_the_digit(tmp_path: Path) -> None:
    path = real_path(REAL)
    scores = real_scores(path, tmp_path / "scores.jsonl")
    command = ["eval", "tables", str(path), "--layout", "cmi-rewardbench", "-m", f"CMI-RM={scores}"]
    command += ["--table", "cmi-rewardbench-11", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    said = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    facts = json.loads(said.stdout)
    sizes = {"Total": 500, "Conf < 3": 66, "Conf = 3": 128, "Conf > 3": 306, "Instru": 250, "Vocal": 250}
    assert [one["heading"] for one in facts["columns"]] == [f"{name} ({count})" for name, count in sizes.items()]
    lines = pd.read_json(path, lines=True)
    lead = lines["predicted_musicality"] - lines["predicted_musicality_b"]
    hit = np.where(lines["preference-musicality"] == "model_a", lead > 0, lead < 0)
    sure = lines["confidence_preference-musicality"].astype(float)
    parts = [hit, hit[sure < 3], hit[sure == 3], hit[sure > 3], hit[lines["lyrics"] == ""], hit[lines["lyrics"] != ""]]
    found = [cell["value"] for cell in facts["rows"][0]["cells"]]
    assert found == pytest.approx([part.mean() for part in parts])
    assert [round(value, 3) for value in found[:4]] == [0.780, 0.667, 0.750, 0.817]
    text = CliRunner().invoke(app, [*command, "--no-intervals"], catch_exceptions=False).stdout
    assert re.search(r"CMI-RM +78\.00 +66\.67 +75\.00 +81\.70", text)


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
    of_cycles = cells(table_of(rated, models, tmp_path, "mos-rmbench-5"))["turning"]
    assert of_pairs == pytest.approx(
        {name: 100 * (18 - turns) / 18 for name, turns in turning.items()} | {"Overall": 100 * (108 - 15) / 108}
    )
    assert of_cycles == pytest.approx(
        {name: 100 * turns / 6 for name, turns in turning.items()} | {"Overall": 100 * 15 / 36}
    )


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
    models = {"w/ Image": [str(tmp_path / "m.csv")]}
    hit = 100 * frame["choice"].eq("B")
    of_categories = cells(table_of(version, models, tmp_path, "wildscore-3"))["w/ Image"]
    assert [*of_categories] == ["Expr. & Perf.", "Form", "Harmo. & Ton.", "Rhythm & Meter", "Texture", "Average"]
    by = hit.groupby(frame["category"]).mean()  # in the order of their names, as the paper's
    assert [*of_categories.values()] == pytest.approx([*by, hit.mean()])
    of_kinds = cells(table_of(version, models, tmp_path, "wildscore-4"))["w/ Image"]
    assert [name.split()[-1] for name in of_kinds] == [*SUBCATEGORIES, "Average"]
    expected = [5.0 * (at + 3) for at in range(12)]
    assert [*of_kinds.values()] == pytest.approx([*expected, np.mean(expected)])


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


def test_figures_of_systems_are_of_their_means_and_systems_may_be_the_sample(bench: Path, tmp_path: Path) -> None:
    """Twelve rated clips of six systems: scores that are right by system and shuffled within it."""
    lines = [json.loads(line) for line in bench.read_text("utf-8").splitlines()]
    rated = [row for row in lines if row["source"] == "PAM"]
    for number, row in enumerate(rated):
        row["model_a"] = f"S{number // 2}"
    write_jsonl(tmp_path / "pam.jsonl", rated)
    scores = [number // 2 * 10.0 - number % 2 for number in range(12)]
    rows = [{"clip": row["audio-path"], "musicality": score} for row, score in zip(rated, scores, strict=True)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    (tmp_path / "own.toml").write_text(
        'title = "own"\nevaluation = "pam-musicality"\ncolumns = [{ metric = "srcc", level = "system" }, '
        '{ metric = "srcc" }]\n'
    )
    models = {"m": str(tmp_path / "m.jsonl")}
    facts = bench_table(tmp_path / "pam.jsonl", tmp_path, models, "--table", str(tmp_path / "own.toml"))
    of_systems, of_clips = (cell["value"] for cell in facts["rows"][0]["cells"])
    truth = [row["musicality"] for row in rated]
    assert of_systems == pytest.approx(1.0)
    assert of_clips == pytest.approx(stats.spearmanr(scores, truth).statistic)
    assert any("means by system are correlated" in note for note in facts["notes"])
    more = ("-e", "pam-musicality", "--metric", "lcc")
    by_clip = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more)["rows"][0]["cells"][0]
    by_system = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more, "--sampled", "system")
    cell = by_system["rows"][0]["cells"][0]
    assert cell["value"] == by_clip["value"]
    assert cell["high"] - cell["low"] > by_clip["high"] - by_clip["low"]
    assert any("share the same system" in note for note in by_system["notes"])
    both = bench_table(tmp_path / "pam.jsonl", tmp_path, models, *more, "--sampled", "clips+system")
    assert any("share a clip, a prompt or a triplet or the same system" in note for note in both["notes"])
    assert both["rows"][0]["cells"][0]["value"] == cell["value"]


MONTHS = ("2025-07", "2025-08", "2025-09", "2025-10", "2025-11", "2025-12")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the layout of CMI-RewardBench: votes of every kind, battles of six months, and rated clips."""
    lines: list[Row] = []
    for number in range(48):
        sure = ["1.5", "3.0", "4.5"][number // 4 % 3]
        lines.append(
            vote(
                number,
                **{"id": f"v{number}", "source": "cmi-arena-annotation", "lyrics": "la" if number % 2 else ""},
                **{"ref-audio-path": f"ref-{number}.wav" if number // 2 % 2 else ""},
                **{"confidence_preference-musicality": sure, "confidence_preference-alignment": sure},
                **{"preference-musicality": "model_a", "preference-alignment": "model_a"},
            )
        )
    for number in range(36):
        battle = {"audio-path": f"arena-{number}-a.wav", "audio2": f"arena-{number}-b.wav", "preference": "model_a"}
        more = {"source": "Music Arena", "id": f"m{number}", "prompt": f"battle {number}", "prompt id": f"b{number}"}
        lyrics = {"lyrics": "la" if number % 2 else ""}
        lines.append({**battle, **more, **lyrics, "date": f"{MONTHS[number // 2 % 6]}-01", "user id": "x"})
    for task in ("PAM", "MusicEval"):
        for number in range(12):
            rated = {"audio-path": f"{task}/{number}.wav", "musicality": 1 + number / 4, "prompt": f"{task} {number}"}
            lines.append({"source": task, "id": f"{task}{number}", **rated, "text-music alignment": 4 - number / 6})
    path = tmp_path_factory.mktemp("bench") / "all_test.jsonl"
    write_jsonl(path, lines)
    return path


def clip_scores(path: Path, out: Path, wrong: Callable[[int], bool]) -> str:
    """Scores by clip: the truth of rated clips, and the first clip of a vote unless its number is wrong.

    Musicality likes the second clip of every third battle, alignment likes the first twice as much.
    """
    rows: dict[str, Row] = {}
    for row in map(json.loads, path.read_text("utf-8").splitlines()):
        number = int(re.findall(r"\d+", row["id"])[0])
        if row["source"] in ("PAM", "MusicEval"):
            scores = {"musicality": row["musicality"], "alignment": -row["text-music alignment"]}
            rows[row["audio-path"]] = scores
            continue
        lead = 1 - 2 * wrong(number)
        scores = {"musicality": lead, "alignment": lead}
        if row["source"] == "Music Arena":
            scores = {"musicality": -1 if number % 3 == 0 else 1, "alignment": 2}
        rows[row["audio-path"]], rows[row["audio2"]] = scores, {"musicality": 0, "alignment": 0}
    write_jsonl(out, ({"clip": clip, **scores} for clip, scores in rows.items()))
    return str(out)


def bench_table(bench: Path, folder: Path, models: dict[str, str], *more: str) -> Row:
    """The facts of a table on the benchmark's file."""
    command = ["eval", "tables", str(bench), "--layout", "cmi-rewardbench", "--store", str(folder / "store")]
    command += [*more, "--json", *(f"-m{name}={file}" for name, file in models.items())]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: Row = json.loads(done.stdout)
    return found


def test_every_cell_of_the_music_tables_is_the_truth_of_the_simulation(bench: Path, tmp_path: Path) -> None:
    wrong = {"half": lambda n: n % 8 < 4, "seventh": lambda n: n % 7 == 0}
    models = {name: clip_scores(bench, tmp_path / f"{name}.jsonl", one) for name, one in wrong.items()}
    told = {number: bench_table(bench, tmp_path, models, "--table", f"cmi-rewardbench-{number}")
            for number in (2, 3, 4, 10, 11, 12, 13)}  # fmt: skip
    shown = {number: cells(facts) for number, facts in told.items()}

    def share(model: str, kept: Callable[[int], bool]) -> float:
        numbers = [number for number in range(48) if kept(number)]
        return 100 * sum(not wrong[model](number) for number in numbers) / len(numbers)

    def band(number: int) -> int:
        return number // 4 % 3

    def sung(number: int) -> bool:
        return number % 2 == 1

    def heard(number: int) -> bool:
        return number // 2 % 2 == 1

    for model in wrong:
        whole = share(model, lambda n: True)
        rated = {f"{task} {name}": 1.0 for task in ("PAM", "MusicEval") for name in ("LCC", "SRCC", "K-Tau")}
        arena = 100 * 2 / 3
        truth: dict[int, dict[str, float | None]] = {  # of a battle without lyrics such a file does not tell the type
            2: {**rated, "Music Arena ACC (%)": arena, "CMI-Pref ACC (%)": whole},
            3: {
                **{f"PAM {name}": -1.0 for name in ("LCC", "SRCC", "K-Tau")},
                "CMI-Pref text": share(model, lambda n: not heard(n) and not sung(n)),
                "CMI-Pref text + lyrics": share(model, lambda n: not heard(n) and sung(n)),
                "CMI-Pref text + audio": share(model, lambda n: heard(n) and not sung(n)),
                "CMI-Pref text + lyrics + audio": share(model, lambda n: heard(n) and sung(n)),
                "CMI-Pref w/o Audio": share(model, lambda n: not heard(n)),
                "CMI-Pref w/ Audio": share(model, heard),
            },
            4: {"PAM Mean SRCC": 0.0, "MusicEval SRCC": 1.0, "Music Arena Acc. (%)": 100.0,
                "CMI-Pref Mean Acc. (%)": whole},
        }  # fmt: skip
        months = {"Jul-Aug": (0, 1), "Sep": (2,), "Oct": (3,), "Nov": (4,), "Dec": (5,)}

        def battles(kept: Callable[[int], bool]) -> float:
            numbers = [number for number in range(36) if kept(number)]
            return 100 * sum(number % 3 != 0 for number in numbers) / len(numbers)

        of_months = {
            f"Time Period (Month) {name}": battles(lambda n, held=held: n // 2 % 6 in held)
            for name, held in months.items()
        }
        truth[10] = {"Total": arena, **of_months, "Data Type Instru": None,
                     "Data Type Vocal": battles(sung)}  # fmt: skip
        for number, kept in ((11, lambda n: True), (12, lambda n: not heard(n)), (13, heard)):
            groups: dict[str, Callable[[int], bool]] = {
                "Total": lambda n: True,
                **{f"Confidence Level Conf {sign} 3": lambda n, at=at: band(n) == at for at, sign in enumerate("<=>")},
                **{"Data Type Instru": lambda n: not sung(n), "Data Type Vocal": sung},
            }
            truth[number] = {}
            for name, group in groups.items():
                held = [n for n in range(48) if kept(n) and group(n)]
                truth[number][f"{name} ({len(held)})"] = share(model, lambda n, held=held: n in held)
        for number, expected in truth.items():
            assert shown[number][model] == pytest.approx(expected, abs=1e-9), number
    facts = bench_table(bench, tmp_path, models, "--table", "anyaudio-judge-3")
    assert cells(facts)["half"] == pytest.approx({"PAM LCC": -1.0, "PAM SRCC": -1.0, "PAM KTAU": -1.0})
    assert any("paper's test set 47, 58 and 145" in note for note in told[12]["notes"])
    assert any("goes by musicality plus alignment" in note for note in told[4]["notes"])


def latex_rows(text: str) -> tuple[str, list[int]]:
    """The specification of columns of a booktabs table, and the width of each line, spans counted."""
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    spec = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)[0]
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    widths = []
    for line in text.splitlines():
        if line.endswith(r"\\"):
            parts = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
            spans = [int((re.findall(r"\\multicolumn\{(\d+)\}", part) or [1])[0]) for part in parts]
            widths.append(sum(spans))
            assert line.count("{") == line.count("}")
    return spec, widths


def render(table: TextTable, width: int) -> str:
    """A table as a pipe gets it: without styles."""
    place = io.StringIO()
    Console(file=place, width=width).print(table)
    return place.getvalue()


def test_the_best_is_bold_the_second_underlined_and_upper_headings_span(bench: Path, tmp_path: Path) -> None:
    wrong = {"a & b": lambda n: n % 8 < 4, "seventh": lambda n: n % 7 == 0, "none": lambda n: False}
    models = {name: clip_scores(bench, tmp_path / f"{at}.jsonl", one) for at, (name, one) in enumerate(wrong.items())}
    out = tmp_path / "out"
    more = ("--table", "cmi-rewardbench-11", "--no-intervals", "--baseline", "seventh", "--out", str(out))
    bench_table(bench, tmp_path, models, *more)
    text = (out / "tables.tex").read_text("utf-8")
    spec, widths = latex_rows(text)
    assert {len(spec)} == {*widths} == {7}
    assert r"\multicolumn{3}{c}{Confidence Level} & \multicolumn{2}{c}{Data Type}" in text
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-7}" in text
    assert r"a \& b & 50.00 (-35.42)* &" in text
    assert r"seventh & \underline{85.42} &" in text
    assert r"none & \textbf{100.00 (+14.58)*} &" in text
    page = (out / "README.md").read_text("utf-8")
    assert r"| seventh | *85.42* |" in page
    lines = render(TextTable(table_page(json.loads((out / "table.json").read_bytes())).tables[0]), 400).splitlines()
    assert re.search(r"seventh +85\.42 △", next(line for line in lines if "seventh" in line))
    assert re.search(r"none +100\.00 \(\+14\.58\)\* ▲", next(line for line in lines if line.startswith("none")))
    table = list(csv.DictReader(io.StringIO((out / "table-1.csv").read_text("utf-8"))))
    first = {name: value for name, value in table[0].items() if name.startswith("Total (48)")}
    assert [*first] == ["Total (48)", "Total (48) low", "Total (48) high", "Total (48) difference", "Total (48) p"]
    assert float(first["Total (48)"]) == 50
    assert float(first["Total (48) difference"]) == pytest.approx(100 * (24 - 41) / 48)


def test_groups_are_named_at_call_time(bench: Path, tmp_path: Path) -> None:
    models = {"half": clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)}
    facts = bench_table(bench, tmp_path, models, "-e", "cmi-pref-musicality", "--by", "reference+confidence_band")
    assert [(one["over"], one["heading"], one["samples"]) for one in facts["columns"]] == [
        ("", "all", 48),
        *(
            ("reference+confidence_band", f"{ref} / {band}", 8)
            for ref in ("with", "without")
            for band in ("3", "<3", ">3")
        ),
    ]
    levels = bench_table(bench, tmp_path, models, "-e", "pam-musicality", "--metric", "mse", "--metric", "srcc")
    assert [cell["value"] for cell in levels["rows"][0]["cells"]] == [0, 1]


def test_rules_of_ties_and_of_missing_answers_are_chosen_by_name(bench: Path, tmp_path: Path) -> None:
    """Divide 48 votes into 12 each: tied, without an answer, right, wrong."""
    said = ["tie", "", "a", "b"]
    rows = [{"id": f"v{number}-musicality", "choice": said[number % 4]} for number in range(48)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    expected = {("wrong", "wrong"): 12 / 48, ("half", "wrong"): 18 / 48, ("wrong", "left-out"): 12 / 36,
                ("half", "left-out"): 18 / 36}  # fmt: skip
    for (ties, unanswered), share in expected.items():
        rules = ("--rule", f"ties={ties}", "--rule", f"unanswered={unanswered}")
        facts = bench_table(bench, tmp_path, {"m": str(tmp_path / "m.jsonl")}, "-e", "cmi-pref-musicality", *rules)
        assert facts["rows"][0]["cells"][0]["value"] == pytest.approx(share)
        assert sum(f"ties={ties}" in note or f"unanswered={unanswered}" in note for note in facts["notes"]) == 2


def test_true_ties_stay_or_are_left_out(tmp_path: Path) -> None:
    """Of 8 votes 2 are ties; the model says a, and once tie."""
    ways = ["tie", "tie", *["model_a"] * 4, *["model_b"] * 2]
    lines = [
        vote(at, **{"id": f"v{at}", "source": "cmi-arena-annotation", "preference-musicality": way})
        for at, way in enumerate(ways)
    ]
    write_jsonl(tmp_path / "all_test.jsonl", lines)
    rows = [{"id": f"v{at}-musicality", "choice": "a" if at else "tie"} for at in range(8)]
    write_jsonl(tmp_path / "m.jsonl", rows)
    for rule, share in (("kept", 5 / 8), ("left-out", 4 / 6)):
        more = ("-e", "cmi-pref-musicality", "--rule", f"true_ties={rule}")
        facts = bench_table(tmp_path / "all_test.jsonl", tmp_path, {"m": str(tmp_path / "m.jsonl")}, *more)
        assert facts["rows"][0]["cells"][0]["value"] == pytest.approx(share)


def test_an_earlier_run_gives_the_cells_of_its_file_and_two_files_one_row(bench: Path, tmp_path: Path) -> None:
    file = clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)
    run = ["eval", "run", str(bench), "--layout", "cmi-rewardbench", "--scores", file, "--out", str(tmp_path / "run")]
    CliRunner().invoke(
        app, [*run, "--store", str(tmp_path / "store"), "-e", "cmi-pref-musicality"], catch_exceptions=False
    )
    rows = [{"id": f"v{at}-alignment", "choice": "a" if at % 8 >= 4 else "b"} for at in range(48)]
    write_jsonl(tmp_path / "alignment.jsonl", rows)
    models = {"file": file, "run": str(tmp_path / "run")}
    more = ("--table", "cmi-rewardbench-4", f"-mrun={tmp_path / 'alignment.jsonl'}")
    of_run, of_file = (row["cells"] for row in bench_table(bench, tmp_path, models, *more)["rows"])
    assert of_file[3] == of_run[3]
    assert of_file[3]["value"] == 0.5
    assert of_run[:3] == [None] * 3


def test_a_file_with_the_clips_and_without_the_column_says_so(bench: Path, tmp_path: Path) -> None:
    rows = [{"clip": f"{number}-{side}.wav", "musicality": number} for number in range(48) for side in "ab"]
    write_jsonl(tmp_path / "m.jsonl", rows)
    facts = bench_table(bench, tmp_path, {"m": str(tmp_path / "m.jsonl")}, "--table", "cmi-rewardbench-4")
    assert [cell for cell in facts["rows"][0]["cells"] if cell] == []
    told = "\n".join(facts["notes"])
    assert re.search(r"no figure of m on cmi-pref-alignment, for which .*m.jsonl has no column alignment", told)
    assert re.search(r"no figure of m on musiceval-musicality, for which .*m.jsonl has none of its clips", told)
    command = ["eval", "run", str(bench), "--layout", "cmi-rewardbench", "--scores", str(tmp_path / "m.jsonl")]
    shown = CliRunner().invoke(app, [*command, "--store", str(tmp_path / "store")], catch_exceptions=False)
    assert re.search(r"not measured: cmi-pref-alignment, for which\s.*has\sno\scolumn\salignment", shown.output, re.S)


def test_every_shipped_layout_is_of_a_paper_and_of_a_corpus() -> None:
    names = [*shipped_layouts()]
    papers = {"mos-rmbench": 8, "cmi-rewardbench": 7, "anyaudio-judge": 4, "wildscore": 2}
    assert {paper: sum(name.startswith(paper) for name in names) for paper in papers} == papers
    for name in names:
        layout = choose_layout(name, None, (), (), ())
        assert layout.corpus is not None
        known = {one.name for one in find_corpus(layout.corpus).evaluations}
        of_columns = [one.evaluation or layout.evaluation for one in layout.columns]
        named = {one for held in of_columns for one in ([held] if isinstance(held, str) else held or [])}
        assert named
        assert named <= known


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (("--table", "mos-rmbench-22"), ConfigError, "no table 'mos-rmbench-22'; did you mean 'mos-rmbench-2'"),
        (("--table", "mos-rmbench-2"), StoreError, "is a table of mos-preferences"),
        (("--table", "mos-rmbench-3"), ConfigError, r"has differences: name the model .*\(--baseline\)"),
        (("--table", "cmi-rewardbench-11", "--by", "month"), ConfigError, "leave --evaluation, --by and --metric out"),
        (("-e", "cmi-pref-musicality", "--by", "mood"), StoreError, "has no column 'mood' here; columns: .*modality"),
        (("-e", "cmi-pref-musicality", "--metric", "lcc"), StoreError, r"\(preference\) has no metric 'lcc'"),
        (("-e", "cmi-pref-musicality", "--metric", "loud"), ConfigError, "metric: Input should be 'accuracy'"),
        (("-e", "cmi-pref-musicality", "--rule", "ties=often"), ConfigError, "rules.ties: Input should be 'wrong'"),
        (("-e", "cmi-pref-musicality", "--baseline", "who"), ConfigError, "--baseline: no model 'who'; models: half"),
        (("-e", "music-arena", "-mhalf={}"), InputError, "'half' has predictions of 'music-arena' from several"),
    ],
)
def test_what_makes_no_table_is_one_line(
    bench: Path, tmp_path: Path, options: tuple[str, ...], error: type[EarmarkError], says: str
) -> None:
    file = clip_scores(bench, tmp_path / "half.jsonl", lambda n: n % 8 < 4)
    command = ["eval", "tables", str(bench), "--layout", "cmi-rewardbench", "--store", str(tmp_path / "store")]
    command += ["--rule", "arena=sum", f"-mhalf={file}", *(one.format(file) for one in options)]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, error), done.output
    assert re.search(says, str(done.exception))
    assert "\n" not in str(done.exception)


@pytest.mark.slow
def test_20_models_by_40_groups_of_10_000_samples_take_a_minute_at_most(tmp_path: Path) -> None:
    source = np.random.default_rng(9)
    ratings = [{"sample_id": f"c{number}", "scale_min": 1.0, "scale_max": 5.0} for number in range(3000)]
    both = [source.choice(3000, 2, replace=False) for _ in range(10_000)]
    pairs = [
        {"pair_id": f"p{at:05}", "split": "test", "dataset": f"set {at % 39:02}", "category": "c", "mos_gap": 0.1}
        | {"chosen_id": f"c{a}", "rejected_id": f"c{b}", "gap_decile": 1}
        for at, (a, b) in enumerate(both)
    ]
    (tmp_path / "mos-preferences").mkdir()
    tables = {"ratings": ratings, "pairs": pairs}
    version = as_version(tmp_path / "mos-preferences" / "v1", find_corpus("mos-preferences"), tables, {})
    models = {}
    for number in range(20):
        choice = np.where(source.random(10_000) < 0.6 + number / 100, "chosen", "rejected")
        frame = pd.DataFrame({"id": [one["pair_id"] for one in pairs], "choice": choice})
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
        models[f"model {number}"] = [str(tmp_path / f"{number}.csv")]
    layout = choose_layout(None, "quality", ("dataset",), (), ())
    began = time.monotonic()
    facts, _ = make_table(measured(version, tmp_path), models, layout, TableOptions({"": "model 0"}), tmp_path / "out")
    assert time.monotonic() - began < 60
    assert [len(row["cells"]) for row in facts["rows"]] == [40] * 20
