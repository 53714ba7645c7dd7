"""Files of clips' scores: how clips are named, what is refused, templates, and how much such scores can reach."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError, EarmarkError, InputError, StoreError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation import reading, recording
from earmark.tasks.evaluation import samples as choosing
from earmark.tasks.evaluation.clip_scores import Reachable, reachable
from earmark.tasks.evaluation.kinds import CHOICE, Prediction
from earmark.tasks.evaluation.recording import baselines
from earmark.tasks.evaluation.results import count
from earmark.tasks.evaluation.samples import MeasurementOptions, SamplePart
from earmark.tasks.evaluation.scores import read_table
from earmark.tasks.pipeline.progress import shown
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.versions import Store, Version
from tests import builds
from tests.builds import rows_of
from tests.conftest import ROOT
from tests.evaluation.test_score_files import Row, metrics_of, rated_apart, rubric, write

EVERY = MeasurementOptions(part=SamplePart("all"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of pairs of rated clips, for tests that only read it."""
    return rated_apart(tmp_path_factory)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of rubrics, for tests that only read it."""
    return rubric(tmp_path_factory.mktemp("rubrics") / "store")


def store_of(version: Version) -> Store:
    """The store that holds a version."""
    return Store(version.folder.parents[1])


def feed(version: Version, path: Path, wish: MeasurementOptions = EVERY) -> dict[str, Any]:
    """The facts of the only evaluation that a file of clips' scores feeds."""
    store = store_of(version)
    ((facts, _),), _ = reading.read_clips(version, find_corpus(version.corpus), store, path, wish, path.parent / "out")
    return facts


def true_scores(version: Version, by: str) -> list[Row]:
    """Each clip's mean opinion score, under one of its names."""
    return [{"clip": row[by], "score": row["mos"]} for row in rows_of(version, "ratings")]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["sample_id", "clip_sha256", "file"])
def test_clips_are_named_in_three_ways(pairs: Version, tmp_path: Path, by: str) -> None:
    facts = feed(pairs, write(tmp_path / "clips.csv", true_scores(pairs, by)))
    assert metrics_of(facts)["accuracy"] == 1.0
    assert facts["reachable"] == {"accuracy": 1.0, "exact": True}
    assert facts["order"].startswith("chosen and rejected are")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [{"clip": "nobody.wav", "score": 1}], "row 1: unknown clip 'nobody.wav': expected sample_id"),
        (lambda rows: [*rows, rows[0]], "stands there twice, first in row 1"),
        (lambda rows: rows[1:], "clips of 'quality' are missing, the first is"),
        (lambda rows: [{**row, "score": "nan"} for row in rows], "row 1: expected a number as score, found 'nan'"),
        (lambda rows: [{**row, "score": "3,1"} for row in rows], "found '3,1'; write numbers with a point"),
        (lambda rows: [{**row, "score": "٣"} for row in rows], "row 1: expected a number as score, found '٣'"),
        (lambda rows: [{"clip": row["clip"]} for row in rows], "expected the columns clip and score"),
        (lambda rows: [{**row, "qualty": 1} for row in rows], "some of quality; found clip, score, qualty"),
    ],
)
def test_a_faulty_file_is_one_line(
    pairs: Version, tmp_path: Path, change: Callable[[list[Row]], list[Row]], message: str
) -> None:
    wanted = {row[name] for row in rows_of(pairs, "pairs") for name in ("chosen_id", "rejected_id")}
    rows = [row for row in true_scores(pairs, "sample_id") if row["clip"] in wanted]
    with pytest.raises(InputError, match=message) as error:
        feed(pairs, write(tmp_path / "clips.csv", change(rows)))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--both-orders", "--mode=single", "--draws=8", "--blind=audio", "--threshold=3"])
def test_options_of_questions_beside_scores_are_refused(pairs: Version, tmp_path: Path, option: str) -> None:
    """They would say nothing, and look as if they did."""
    path = write(tmp_path / "clips.csv", true_scores(pairs, "sample_id"))
    store = str(store_of(pairs).root)
    command = ["eval", "run", "mos-preferences", "-e", "quality", "--store", store, "--scores", str(path), option]
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_an_empty_cell_is_no_answer_and_wrong(pairs: Version, tmp_path: Path) -> None:
    rows = true_scores(pairs, "sample_id")
    rows[0]["score"] = ""
    facts = feed(pairs, write(tmp_path / "clips.csv", rows))
    without = sum(rows[0]["clip"] in (row["chosen_id"], row["rejected_id"]) for row in rows_of(pairs, "pairs"))
    assert facts["unanswered"] == ({"no_score": without} if without else {})
    assert metrics_of(facts)["accuracy"] == pytest.approx(1 - without / facts["samples"])


@pytest.mark.slow
def test_what_a_number_a_clip_cannot_say_is_refused(samples: Version, tmp_path: Path) -> None:
    path = write(tmp_path / "clips.csv", [{"clip": "x", "score": 1}])
    with pytest.raises(StoreError, match="asks for a yes or no about each item: one score a clip cannot express it"):
        feed(samples, path)


# -- rows of samples ----------------------------------------------------------------------------------------------


def read_samples(version: Version, path: Path, out: Path | None) -> tuple[dict[str, Any], Path]:
    """The facts and folder of `quality` by a file of scores a sample."""
    wish = MeasurementOptions("quality", part=SamplePart("all"))
    facts, folder = reading.read(version, find_corpus(version.corpus), store_of(version), path, wish, out)
    return dict(facts), folder


def of_pairs(version: Version, **values: Any) -> list[Row]:
    """The same cells for every pair."""
    return [{"id": row["pair_id"], **values} for row in rows_of(version, "pairs")]


def test_a_result_that_replaces_that_of_another_file_says_so(
    pairs: Version, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for model, choice in (("A", "chosen"), ("B", "rejected")):
        (tmp_path / model).mkdir()
        files.append(write(tmp_path / model / "twins.csv", of_pairs(pairs, choice=choice)))
    told = []
    with shown():
        for path in (files[0], files[0], files[1]):
            facts, folder = read_samples(pairs, path, None)
            told.append(f"{folder}: replaces the result of another file of this name" in capsys.readouterr().err)
    assert told == [False, False, True]
    assert metrics_of(facts)["accuracy"] == 0.0


def test_a_pair_with_one_empty_cell_has_no_answer(pairs: Version, tmp_path: Path) -> None:
    rows = of_pairs(pairs, score_chosen=2, score_rejected=1)
    rows[0]["score_chosen"] = rows[1]["score_rejected"] = ""
    facts, _ = read_samples(pairs, write(tmp_path / "s.csv", rows), tmp_path / "out")
    assert facts["unanswered"] == {"no_score": 2}
    assert metrics_of(facts)["accuracy"] == pytest.approx(1 - 2 / len(rows))


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (
            {"score_chosen": 2, "score_rejected": 1, "choice": "rejected"},
            "choice and also score_chosen, score_rejected",
        ),
        ({"score_chosen": 2, "score_rejected": 1, "score": -1}, "score_chosen, score_rejected and also score"),
        ({"choice": "rejected", "score": 1}, "choice and also score"),
    ],
)
def test_two_forms_of_answers_in_one_file_are_refused(pairs: Version, tmp_path: Path, cells: Row, found: str) -> None:
    path = write(tmp_path / "s.csv", of_pairs(pairs, **cells))
    with pytest.raises(InputError, match=f"expected one form of answers, .* found {found}: remove the columns of one"):
        read_samples(pairs, path, tmp_path / "out")


def test_the_empty_columns_of_another_form_say_nothing(pairs: Version, tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", of_pairs(pairs, choice="chosen", score=""))
    assert metrics_of(read_samples(pairs, path, tmp_path / "out")[0])["accuracy"] == 1.0


@pytest.mark.parametrize("cell", ["4_5", "1_000", "nan", "n/a", "inf", "true"])
def test_a_cell_that_is_no_plain_number_is_refused(pairs: Version, tmp_path: Path, cell: str) -> None:
    path = write(tmp_path / "s.csv", of_pairs(pairs, score=cell))
    with pytest.raises(InputError, match=f"expected a number as score, found '{cell}'; leave the cell empty for no"):
        read_samples(pairs, path, tmp_path / "out")


def test_a_truth_value_is_no_number(pairs: Version, tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    pq.write_table(pa.Table.from_pylist(of_pairs(pairs, score=True)), path)
    with pytest.raises(InputError, match="row 1: expected a number as score, found 'True'"):
        read_samples(pairs, path, tmp_path / "out")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
@pytest.mark.parametrize("name", ["ä.csv", "ä.jsonl"])
def test_a_file_in_another_encoding_is_named_as_such(tmp_path: Path, encoding: str, name: str) -> None:
    path = tmp_path / name
    text = "id,score\nä,1\n" if path.suffix == ".csv" else '{"id": "ä", "score": 1}\n'
    path.write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match="expected text in UTF-8, found another encoding"):
        read_table(path)


def test_an_evaluation_that_clips_feed_only_by_name_is_noted(pairs: Version, tmp_path: Path) -> None:
    path = write(tmp_path / "clips.csv", true_scores(pairs, "sample_id"))
    given = (pairs, find_corpus(pairs.corpus), store_of(pairs), path)
    tables, without = reading.read_clips(*given, EVERY, tmp_path / "out")
    assert [facts["evaluation"] for facts, _ in tables] == ["quality"]
    assert without == [f"{name}, which is measured only where it is named: -e {name}" for name in ("cycles", "mos")]
    named = MeasurementOptions("mos", part=SamplePart("all"))
    tables, without = reading.read_clips(*given, named, tmp_path / "mos")
    assert ([facts["evaluation"] for facts, _ in tables], without) == (["mos"], [])


@pytest.mark.slow
def test_a_version_without_triplets_is_said_to_have_none(tmp_path: Path) -> None:
    config = builds.read_config(ROOT / "data/demo/mos-preferences-audio.toml")
    few = config.model_copy(update={"triplets": config.triplets.model_copy(update={"count": 0})})
    version = builds.build_version(few, tmp_path / "store")
    path = write(tmp_path / "clips.csv", true_scores(version, "sample_id"))
    given = (version, find_corpus(version.corpus), store_of(version), path)
    none = "evaluation 'cycles' has no triplet in this version: nothing to measure"
    assert none in reading.read_clips(*given, EVERY, tmp_path / "out")[1]
    with pytest.raises(StoreError, match=none):
        reading.read_clips(*given, MeasurementOptions("cycles"), tmp_path / "cycles")


# -- templates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_a_template_of_clips_is_filled_and_read(pairs: Version, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"clips.{ending}"
    rows = reading.write_template(pairs, find_corpus(pairs.corpus), path, EVERY)
    with pytest.raises(EarmarkError, match="no sample has an answer; most for 'no_score'"):
        feed(pairs, path)
    if ending == "csv":
        with path.open() as file:
            held = list(csv.DictReader(file))
        mos = {row["sample_id"]: row["mos"] for row in rows_of(pairs, "ratings")}
        assert len(held) == rows
        full = write(tmp_path / "full.csv", [{**row, "score": mos[row["clip"]]} for row in held])
        assert metrics_of(feed(pairs, full)) == {
            "accuracy": 1.0, "accuracy_tie_half": 1.0,
        }  # fmt: skip
    with pytest.raises(InputError, match="the file exists"):
        reading.write_template(pairs, find_corpus(pairs.corpus), path, EVERY)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_template_of_rubrics_has_a_place_for_each_item(samples: Version, tmp_path: Path, ending: str) -> None:
    """Gold labels as items: a judge without a fault is right by the paper's rule, and by AUROC."""
    path, corpus, store = tmp_path / f"items.{ending}", find_corpus(samples.corpus), Store(samples.folder.parents[1])
    rows = reading.write_template(samples, corpus, path, EVERY)
    if ending == "csv":
        with path.open() as file:
            held = [{**row, "items": json.loads(row["items"])} for row in csv.DictReader(file)]
    elif ending == "jsonl":
        held = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        held = pq.read_table(path).to_pylist()
    labels: dict[str, list[tuple[int, bool]]] = {}
    for row in rows_of(samples, "labels"):
        labels.setdefault(f"{row['sample_id']}-{row['language']}", []).append((row["item"], row["answer"]))
    gold = {name: [float(answer) for _, answer in sorted(items)] for name, items in labels.items()}
    assert {row["id"]: len(row["items"]) for row in held} == {name: len(items) for name, items in gold.items()}
    assert len(held) == rows
    full = [{"id": row["id"], "items": json.dumps(gold[row["id"]])} for row in held]
    facts, _ = reading.read(samples, corpus, store, write(tmp_path / "full.csv", full), EVERY, tmp_path / "out")
    got = metrics_of(facts)
    assert (got["accuracy"], got["auroc"], got["eer"]) == (1.0, 1.0, 0.0)
    short = [{**row, "items": "[1]"} if len(gold[row["id"]]) > 1 else row for row in full]
    with pytest.raises(InputError, match=r"row \d+: expected \d+ items, found 1"):
        reading.read(samples, corpus, store, write(tmp_path / "short.csv", short), EVERY, tmp_path / "out")


def test_thresholds_are_named_or_tuned_where_nothing_is_measured(samples: Version, tmp_path: Path) -> None:
    corpus, store = find_corpus(samples.corpus), Store(samples.folder.parents[1])
    splits = {row["split"] for row in rows_of(samples, "samples")}
    follows = {row["sample_id"]: row["follows"] for row in rows_of(samples, "samples")}
    ids = sorted({(row["sample_id"], row["language"]) for row in rows_of(samples, "labels")})
    rows = [{"id": f"{name}-{language}", "score": 0.9 if follows[name] else 0.7} for name, language in ids]
    path = write(tmp_path / "scores.csv", rows)
    wish = MeasurementOptions(part=SamplePart("all"), threshold=0.8)
    facts, folder = reading.read(samples, corpus, store, path, wish, tmp_path / "out")
    got = metrics_of(facts)
    assert (got["accuracy"], got["accuracy_threshold"], got["auroc"]) == (0.5, 1.0, 1.0)
    assert "threshold of the score: 0.8, from --threshold" in (folder / "README.md").read_text()
    for split in ("test", "all", *splits):
        with pytest.raises(
            StoreError, match=f"--tune-on {split}: a threshold is chosen on a split that is not measured"
        ):
            reading.read(
                samples,
                corpus,
                store,
                path,
                MeasurementOptions(part=SamplePart("all"), tune_on=split),
                tmp_path / "out",
            )


def test_a_threshold_is_tuned_on_another_split(pairs: Version, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a query of the test's own: rated clips of one split tell from which score those of another are good."""
    ratings = sorted(rows_of(pairs, "ratings"), key=lambda row: row["sample_id"])
    for place, row in enumerate(ratings):
        row["split"] = ("validation", "test")[place % 2]
    first = "row_number() OVER (ORDER BY sample_id) % 2 = 1"
    split = f"CASE WHEN {first} THEN 'validation' ELSE 'test' END AS split"
    monkeypatch.setattr(
        choosing, "query", lambda name: f"SELECT sample_id AS id, {split}, mos > 3 AS target FROM ratings"
    )
    corpus = replace(find_corpus(pairs.corpus), evaluations=(Evaluation("good", "yes_no", "x", "Good?"),))
    rows = [{"id": row["sample_id"], "score": row["mos"] / 10} for row in ratings]
    path, store = write(tmp_path / "scores.csv", rows), Store(pairs.folder.parents[1])
    wish = MeasurementOptions(tune_on="validation")
    facts, _ = reading.read(pairs, corpus, store, path, wish, tmp_path / "out")
    held = [row["mos"] / 10 for row in ratings if row["split"] == "validation"]
    below, above = [one for one in held if one <= 0.3], [one for one in held if one > 0.3]
    assert facts["splits"] == ["test"]
    assert max(below) < facts["threshold"]["value"] <= min(above)
    assert facts["threshold"]["source"] == f"split validation, {len(below) + len(above):,} samples"
    monkeypatch.undo()
    wish = MeasurementOptions(part=SamplePart("all"), threshold=0.5)
    with pytest.raises(ConfigError, match="asks for no yes or no"):
        reading.read(pairs, find_corpus(pairs.corpus), store, path, wish, tmp_path / "out")


def test_the_command(pairs: Version, tmp_path: Path) -> None:
    words = ["eval", "run", pairs.corpus, "--store", str(pairs.folder.parents[1]), "--split", "all"]
    path = tmp_path / "clips.csv"
    assert "--scores" in CliRunner().invoke(app, ["eval", "template", *words[2:], "--out", str(path)]).output
    full = write(tmp_path / "full.csv", true_scores(pairs, "file"))
    done = CliRunner().invoke(app, [*words, "--scores", str(full)])
    assert done.exit_code == 0
    assert "highest accuracy that one score a clip can reach here: 1.000" in done.output
    (facts,) = json.loads(CliRunner().invoke(app, [*words, "--scores", str(full), "--json"]).stdout)
    assert metrics_of(facts)["accuracy"] == 1.0
    both = CliRunner().invoke(app, [*words, "-a", "builtin:music-clip-1", "--scores", str(full)])
    assert isinstance(both.exception, ConfigError)


# -- what can be reached, and what chance reaches -----------------------------------------------------------------

VOTES = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"), st.booleans()), max_size=12)


@given(VOTES)
@settings(max_examples=60)
def test_no_scores_reach_more_and_some_reach_it(votes: list[tuple[str, str, bool]]) -> None:
    """Held to all weak orders of five clips, one by one."""

    def met(scores: dict[str, int]) -> int:
        return sum(scores[a] == scores[b] if tie else scores[a] > scores[b] for a, b, tie in votes)

    most = max(met(dict(zip("abcde", levels, strict=True))) for levels in itertools.product(range(5), repeat=5))
    assert reachable(votes) == Reachable(most, True)


def test_a_cycle_costs_its_weakest_vote() -> None:
    cycle = [("a", "b", False)] * 5 + [("b", "c", False)] * 4 + [("c", "a", False)] * 2
    assert reachable(cycle) == Reachable(9, True)
    chain = [(str(place), str(place + 1), False) for place in range(3000)]
    assert reachable(chain) == Reachable(3000, True)


@pytest.mark.parametrize("kind", ["preference", "yes_no", "scalar", "choice"])
def test_a_coin_lies_in_its_interval_and_the_oracle_is_right(kind: Any) -> None:
    targets = {"preference": ["a", "b"], "yes_no": [True, False], "scalar": [1.5, 4.0, 3.0], "choice": list("ABCD")}[
        kind
    ]
    rows = [
        {"id": str(place), "target": targets[place % len(targets)], "options": 4, "swapped": place % 3 == 0}
        for place in range(1200)
    ]
    evaluation = Evaluation("e", kind, "x", "")
    controls, without = baselines(evaluation, rows, {})
    assert without == []
    found = {
        row["value"]: row["metrics"] for row in count(evaluation, rows, controls["oracle"], None, controls)["rows"]
    }
    chance = {"accuracy": 1 / len(targets), "auroc": 0.5, "eer": 0.5, "lcc": 0.0, "srcc": 0.0, "ktau": 0.0}
    for name, metric in found["coin"].items():
        if name in chance:
            assert metric["low"] <= chance[name] <= metric["high"], name
    for name, metric in found["oracle"].items():
        assert metric["value"] == pytest.approx(float(name not in ("eer", "mse")))
    if kind == "preference":
        assert found["always first"]["accuracy"]["value"] == pytest.approx(0.5, abs=0.01)
        assert found["majority"]["accuracy"]["value"] == 0.5


def test_the_commonest_answer_is_no_baseline_where_it_is_always_right() -> None:
    rows = [{"id": str(place), "target": "chosen", "swapped": place % 2 == 0} for place in range(10)]
    evaluation = Evaluation("e", "preference", "x", "", sides=("chosen", "rejected"))
    assert baselines(evaluation, rows, {})[0].keys() == {"oracle", "always first", "coin"}


def test_a_question_without_its_right_option_leaves(tmp_path: Path) -> None:
    rows = [{"id": str(number), "target": target} for number, target in enumerate("CBA", 1)]
    predictions = {row["id"]: Prediction(str(row["id"]), choice="B") for row in rows}
    recording.add_sizes(CHOICE, rows, {"1": 2, "2": 2, "3": 0}, predictions)
    facts = count(Evaluation("e", "choice", "x", ""), rows, predictions)
    assert facts["left_out"] == {"no_such_option": 2}
    assert metrics_of(facts)["accuracy"] == 1.0
