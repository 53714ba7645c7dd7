"""Audits: what is drawn, what a page shows under which letter, and the figures, counted again by hand."""

from __future__ import annotations

import csv
import html
import json
import math
import random
import re
import shutil
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import HubError
from earmark.schemas.score_questions import CORPUS
from earmark.schemas.study import AnnotatorPage, Audited, ScreenAnswer, StudyPlan, Trial
from earmark.tasks.people.answers import Returned, read_plan
from earmark.tasks.people.audit_results import summary, verdicts, write_record
from earmark.tasks.people.auditing import ASKED, AuditOptions, start_audit
from earmark.tasks.release.publishing import check_audited
from earmark.tasks.store.sql import query
from earmark.tasks.store.versions import Store
from tests.people.returning import returned
from tests.people.study_page import ROOT
from tests.score_questions.questions import build_questions, config_of, rows_of, thread

CORPORA = {
    "mos-preferences": ("quality", "dataset"),
    "pseudo-preferences": ("musicality", "modality"),
    "instruction-rubrics": ("alignment", "kind"),
    "score-questions": ("questions", "category"),
    "captions": ("caption", "pipeline"),
    "instrumentals": ("voice", "flags"),
    "music-prompts": ("prompt", "distribution"),
}


def plan_of(
    labels: dict[str, str],
    strata: dict[str, str],
    totals: dict[str, int],
    swapped: Collection[str] = (),
    pages: int = 3,
) -> StudyPlan:
    """Pages that each hold all rows; `swapped` rows show the second side first on the second page."""
    made = []
    for number in range(1, pages + 1):
        trials = []
        for row, label in labels.items():
            turned = row in swapped and number == 2
            shown = {"a": "b", "b": "a"}.get(label, label) if turned else label
            trials.append(
                Trial(id=f"{number}-{row}", kind="row", prompt_id=row, expected={"label": shown}, swapped=turned)
            )
        made.append(AnnotatorPage(name=f"p{number}", key="0" * 32, trials=tuple(trials)))
    audited = Audited(
        corpus="c", version="v1", manifest_sha256="0", evaluation="e", stratify="s", sides=("a", "b"),
        strata=strata, totals=totals,
    )  # fmt: skip
    return StudyPlan(
        study="c-v1-e", kind="audit", questions=("label",), choices=("a", "b", "tie", "unsure"), most_failed=1.0,
        prompts={}, generations={}, pages=tuple(made), audited=audited,
    )  # fmt: skip


def answered(page: str, answers: dict[str, str]) -> Returned:
    values = {
        trial: ScreenAnswer(response={"label": value}, heard_s={}, seconds=1.0, at="2026-03-01T10:00:00Z")
        for trial, value in answers.items()
    }
    return Returned(page, f"{page}.json", values)


def wilson(right: float, of: int) -> tuple[float, float]:
    """Wilson (1927), by its closed form."""
    z, p = 1.959963984540054, right / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


@pytest.mark.parametrize("stratum", ["x", "all"])  # a column may hold the word that stands for all strata
def test_verdicts_and_precision(stratum: str) -> None:
    labels = {"r1": "a", "r2": "a", "r3": "b", "r4": "b", "r5": "a"}
    strata = dict.fromkeys(labels, stratum)
    plan = plan_of(labels, strata, {f"a\t{stratum}": 300, f"b\t{stratum}": 100}, swapped={"r1"})
    found = verdicts(
        plan,
        [
            # r1: three say a; the second page shows b first, so that its reader writes b
            answered("p1", {"1-r1": "a", "1-r2": "b", "1-r3": "b", "1-r4": "a", "1-r5": "unsure"}),
            answered("p2", {"2-r1": "b", "2-r2": "b", "2-r3": "b", "2-r4": "b", "2-r5": "unsure"}),
            answered("p3", {"3-r1": "a", "3-r2": "a", "3-r3": "tie", "3-r4": "unsure"}),
        ],
    )
    assert {one.row: (one.verdict, one.instead) for one in found} == {
        "r1": ("confirmed", ""),
        "r2": ("refuted", "b"),
        "r3": ("confirmed", ""),
        "r4": ("disputed", ""),
        "r5": ("unsure", ""),
    }
    facts = summary(plan, found)
    cells = {cell["label"]: cell for cell in facts["cells"]}
    assert (cells["a"]["precision"], cells["b"]["precision"]) == (0.5, 0.5)
    assert (cells["a"]["low"], cells["a"]["high"]) == pytest.approx(wilson(1, 2))
    overall = facts["overall"]
    assert overall["precision"] == pytest.approx(0.75 * 0.5 + 0.25 * 0.5)
    low = wilson(1, 2)[0]
    assert overall["low"] == pytest.approx(0.5 - math.hypot(0.75 * (0.5 - low), 0.25 * (0.5 - low)))
    # one reviewer alone: r1 3 of 3, r2 1 of 3, r5 0 of 2 are a's; r3 2 of 3, r4 1 of 3 are b's
    by_stratum, whole = facts["alone"]
    assert by_stratum == {**whole, "stratum": stratum}
    assert whole["stratum"] == "all"
    assert whole["precision"] == pytest.approx(0.75 * (1 + 1 / 3 + 0) / 3 + 0.25 * (2 / 3 + 1 / 3) / 2)
    ends = [(4 / 9 - wilson(4 / 3, 3)[0], 0.75), (0.5 - wilson(1, 2)[0], 0.25)]
    assert whole["low"] == pytest.approx(whole["precision"] - math.hypot(*(weight * end for end, weight in ends)))


@pytest.mark.parametrize(
    ("given", "verdict", "instead"),
    [
        (("a", "a", "b", "tie"), "disputed", ""),
        (("a", "a", "unsure", "b"), "confirmed", ""),
        (("b", "b", "a", "tie", "unsure"), "disputed", ""),
        (("b", "b", "b", "tie", "a"), "refuted", "b"),
        (("a", "a", "a", "tie", "b", "b"), "disputed", ""),
    ],
)
def test_more_than_half_of_those_with_an_opinion_decide(given: tuple[str, ...], verdict: str, instead: str) -> None:
    """The label is a. Two of four are the largest group, and no majority."""
    plan = plan_of({"r": "a"}, {"r": "x"}, {"a\tx": 9}, pages=len(given))
    said = [answered(f"p{page}", {f"{page}-r": value}) for page, value in enumerate(given, 1)]
    (row,) = verdicts(plan, said)
    assert (row.verdict, row.instead) == (verdict, instead)


def test_without_strata_the_whole_is_said_once() -> None:
    plan = plan_of({"r1": "a"}, {"r1": "all"}, {"a\tall": 9})
    assert plan.audited is not None
    plan = plan.model_copy(update={"audited": plan.audited.model_copy(update={"stratify": ""})})
    (only,) = summary(plan, verdicts(plan, [answered("p1", {"1-r1": "a"})]))["alone"]
    assert (only["stratum"], only["precision"]) == ("all", 1.0)


def test_the_whole_weighs_cells_by_their_rows() -> None:
    """Ten of each label were drawn, but one label is nine tenths of the version."""
    labels = {f"{label}{number}": label for label in "ab" for number in range(10)}
    plan = plan_of(labels, dict.fromkeys(labels, "x"), {"a\tx": 900, "b\tx": 100})
    right = {f"1-{row}": label for row, label in labels.items()}
    right |= {f"1-b{number}": "a" for number in range(10)}
    facts = summary(plan, verdicts(plan, [answered("p1", right)]))
    assert facts["overall"]["precision"] == pytest.approx(0.9)


def test_kinds_that_nobody_audited_are_said() -> None:
    labels = {f"a{number}": "a" for number in range(10)}
    plan = plan_of(labels, dict.fromkeys(labels, "x"), {"a\tx": 60, "a\ty": 30, "b\tx": 10})
    facts = summary(plan, verdicts(plan, [answered("p1", {f"1-{row}": "a" for row in labels})]))
    assert facts["covered"] == pytest.approx(0.6)
    assert facts["overall"]["precision"] == 1.0


def test_an_audit_of_the_held_out_split_lets_no_version_out(tmp_path: Path) -> None:
    config = config_of(tmp_path, shares={"train": 0.5, "test": 0.5})
    version = build_questions(config, tmp_path / "store", [thread(number) for number in range(6)])
    store, truth = Store(tmp_path / "store"), rows_of(version, "questions")
    tested = sum(row["split"] == "test" for row in truth)
    assert 0 < tested < len(truth)
    for split, rows in ((None, tested), ("all", len(truth))):
        folder = tmp_path / str(split)
        plan = start_audit(version, CORPUS, store, AuditOptions(split=split, reviewers=1, pages=1), folder)
        (page,) = plan.pages
        found = verdicts(plan, [answered(page.name, {trial.id: trial.expected["label"] for trial in page.trials})])
        facts = summary(plan, found)
        assert (len(found), facts["overall"]["precision"]) == (rows, pytest.approx(1.0))
        assert facts["covered"] == pytest.approx(rows / len(truth))
        write_record(store.root / "audits" / version.corpus / version.name / str(split), facts, found, folder / ASKED)
        if split is None:
            covered = f"{math.floor(1000 * rows / len(truth)) / 10:g} %"
            with pytest.raises(HubError, match=rf"covers {covered} of the rows; .*`--split all`"):
                check_audited(store, version, 0.2)
    check_audited(store, version, 0.2)


def test_reviewers_who_find_the_better_clip_of_a_pair_agree() -> None:
    """Both are right about nine tenths of 300 pairs, all labelled alike; two who guess agree by chance alone."""
    labels = {f"pair-{number}": "a" for number in range(300)}
    plan = plan_of(labels, dict.fromkeys(labels, "x"), {"a\tx": 300})

    def agreed(share: float) -> float:
        source = random.Random(7)
        pages = [{f"{at}-{row}": "a" if source.random() < share else "b" for row in labels} for at in (1, 2)]
        alpha = summary(plan, verdicts(plan, [answered(f"p{at}", page) for at, page in enumerate(pages, 1)]))["alpha"]
        assert alpha is not None
        return alpha

    assert agreed(0.9) == pytest.approx(0.9**2 + 0.1**2 - 0.9 * 0.1 * 2, abs=0.1)  # where chance agrees on a half
    assert agreed(0.5) == pytest.approx(0, abs=0.15)


@pytest.mark.slow
def test_the_interval_covers() -> None:
    """Of 400 audits of a version whose labels are right in 80 of 100, about 95 % of intervals hold 0.8."""
    source = random.Random(5)
    labels = {f"r{number}": "a" for number in range(60)}
    plan = plan_of(labels, dict.fromkeys(labels, "x"), {"a\tx": 1000})
    inside = 0
    for _ in range(400):
        answers = {f"1-{row}": "a" if source.random() < 0.8 else "b" for row in labels}
        overall = summary(plan, verdicts(plan, [answered("p1", answers)]))["overall"]
        inside += overall["low"] <= 0.8 <= overall["high"]
    assert 0.92 <= inside / 400 <= 0.98


CHECKED = {
    "items": ("instruction-rubrics", "kind"),
    "critiques": ("mos-preferences", "dataset"),
    "comparisons": ("mos-preferences", "gap"),
}


@pytest.mark.slow
@pytest.mark.parametrize("evaluation", CHECKED)
def test_items_and_critiques_are_audited(evaluation: str, built_demo: Path, tmp_path: Path) -> None:
    """A page shows the right clip and text; contradicted rows, every third, are counted by label and stratum."""
    corpus, stratify = CHECKED[evaluation]
    run, folder = CliRunner(), tmp_path / "audit"
    store = tmp_path / "store"
    shutil.copytree(built_demo, store, symlinks=True)
    words = ["people", "audit", "sample", corpus, "--evaluation", evaluation, "--stratify", stratify, "--limit", "15"]
    drawn = run.invoke(app, [*words, "--split", "all", "--reviewers", "1", "--people", "1", "--store", str(store),
                             "--out", str(folder)])  # fmt: skip
    assert drawn.exit_code == 0, drawn.output + str(drawn.exception)
    plan = read_plan(folder)
    assert plan.audited is not None
    (page,) = plan.pages
    trials = {one["id"]: one["html"] for one in content_of(folder / "pages" / f"{page.name}.html")["trials"]}
    truth = TRUTH[evaluation](store)
    assert len(page.trials) == 15
    assert sum(plan.audited.totals.values()) == len(truth), "rows of the version"
    answers, counts = {}, Counter[tuple[str, str, str]]()
    for number, trial in enumerate(sorted(page.trials, key=lambda one: one.prompt_id)):
        label, clips, text = truth[trial.prompt_id]
        assert trial.expected == {"label": label}
        assert [found[:16] for found in clips] == re.findall(r'data-clip="([0-9a-f]+)"', trials[trial.id])
        assert text in html.unescape(trials[trial.id])
        assert re.findall(r'name="label" value="(\w+)"', trials[trial.id]) == ["yes", "no", "unsure"]
        wrong = number % 3 == 0
        answers[trial.id] = _answer(plan, trial, wrong=wrong)
        answers[trial.id]["response"]["feedback"] = "a hum,\nnot hiss" if wrong else ""
        counts[label, plan.audited.strata[trial.prompt_id], "refuted" if wrong else "confirmed"] += 1
    file = tmp_path / f"{page.name}.json"
    file.write_bytes(returned(plan, page, answers))
    read = run.invoke(app, ["people", "audit", "read", str(folder), str(file), "--store", str(store), "--json"])
    facts = json.loads(read.output)
    for cell in facts["cells"]:
        right, wrong_ = (counts[cell["label"], cell["stratum"], name] for name in ("confirmed", "refuted"))
        assert (cell["confirmed"], cell["refuted"]) == (right, wrong_)
        assert (cell["low"], cell["high"]) == pytest.approx(wilson(right, right + wrong_))
    assert sum(cell["confirmed"] + cell["refuted"] for cell in facts["cells"]) == 15
    with (Path(facts["record"]) / "rows.csv").open(newline="", encoding="utf-8") as written:
        rows = {row["row"]: row for row in csv.DictReader(written)}
    assert rows.keys() == plan.audited.strata.keys()
    for number, (row, line) in enumerate(sorted(rows.items())):
        label = truth[row][0]
        other = {"yes": "no", "no": "yes"}[label]
        expected = ("refuted", other, f"{page.name}: a hum, not hiss") if number % 3 == 0 else ("confirmed", "", "")
        assert (line["label"], (line["verdict"], line["instead"], line["why"])) == (label, expected)


def test_an_exam_is_drawn_in_proportion_to_its_strata() -> None:
    tiers = {"easy": 191, "medium": 573, "hard": 43}  # WildScore, Table 7
    rows = [(f"{tier}{at}", tier, "ABCD"[at % 4]) for tier, count in tiers.items() for at in range(count)]
    frame = pd.DataFrame(rows, columns=["id", "stratum", "target"])
    drawn = set[str]()
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA judged; CREATE TABLE judged.strata AS FROM frame")
        for seed in ("17", "18"):
            given = {"rows": 100, "seed": seed}
            exam = connection.execute(query("people/proportional_rows"), given).df()
            assert len(exam) == 100
            assert list(exam.columns) == list(frame.columns)
            counts = exam["stratum"].value_counts()
            assert all(abs(counts[tier] - 100 * count / 807) < 1 for tier, count in tiers.items())
            assert exam.groupby(["stratum", "target"]).size()["medium"].between(17, 18).all()
            drawn |= {*exam["id"]}
        everything = connection.execute(query("people/proportional_rows"), {"rows": 900, "seed": "17"}).df()
    assert len(everything) == 807
    assert len(drawn) > 150


Truth = dict[str, tuple[str, list[str], str]]


def _rows(store: Path, corpus: str, table: str) -> list[dict[str, Any]]:
    return duckdb.sql(f"FROM '{store}/{corpus}/v1/{table}/*.parquet'").to_arrow_table().to_pylist()


def _items(store: Path) -> Truth:
    """Label, clip and question of each labelled item, without the corpus's own query."""
    of = {
        (row["sample_id"], row["language"]): row["instruction_id"]
        for row in _rows(store, "instruction-rubrics", "samples")
    }
    questions = {
        (row["instruction_id"], row["item"], row["language"]): row["question"]
        for row in _rows(store, "instruction-rubrics", "items")
    }
    return {
        f"{row['sample_id']}-{row['item']}-{row['language']}": (
            "yes" if row["answer"] else "no",
            [row["clip_sha256"]],
            questions[of[row["sample_id"], row["language"]], row["item"], row["language"]],
        )
        for row in _rows(store, "instruction-rubrics", "labels")
    }


def _described(store: Path) -> Truth:
    return {
        row["sample_id"]: ("yes", [row["clip_sha256"]], f"Continuity: {row['continuity']}")
        for row in _rows(store, "mos-preferences", "critiques")
    }


def _compared(store: Path) -> Truth:
    """The first clip is A on every page: the critique speaks of clip 1."""
    return {
        row["pair_id"]: ("yes", [row["first_sha256"], row["second_sha256"]], row["rationale"])
        for row in _rows(store, "mos-preferences", "paired_critiques")
    }


TRUTH = {"items": _items, "critiques": _described, "comparisons": _compared}


def content_of(page: Path) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="study">(.*?)</script>', page.read_text(), re.DOTALL)
    assert text is not None
    found: dict[str, Any] = json.loads(text[1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_an_audit_of_the_demo(corpus: str, built_demo: Path, tmp_path: Path) -> None:
    evaluation, stratify = CORPORA[corpus]
    limit = 99 if corpus == "score-questions" else 24  # in proportion, few rows miss the rarest cells
    store, folder = tmp_path / "store", tmp_path / "audit"
    shutil.copytree(built_demo, store, symlinks=True)
    run = CliRunner()
    if corpus == "mos-preferences":  # the first version has lists alone, and nobody can hear them
        silent = run.invoke(
            app,
            [
                "people",
                "audit",
                "sample",
                corpus,
                "--evaluation",
                "quality",
                "--store",
                str(store),
                "--out",
                str(folder),
            ],
        )
        assert str(silent.exception).endswith('nothing to audit; build it again with audio = "index" in the config')
        build(run, corpus, store)
    words = ["people", "audit", "sample", corpus, "--evaluation", evaluation, "--stratify", stratify]
    drawn = run.invoke(
        app, [*words, "--limit", str(limit), "--split", "all", "--store", str(store), "--out", str(folder)]
    )
    assert drawn.exit_code == 0, drawn.output
    plan = read_plan(folder)
    assert plan.audited is not None
    asked = Counter(trial.prompt_id for page in plan.pages for trial in page.trials)
    assert asked == dict.fromkeys(plan.audited.strata, 2)
    assert len(plan.audited.strata) == min(limit, sum(plan.audited.totals.values()))
    for page in plan.pages:
        trials = {one["id"]: one["html"] for one in content_of(folder / "pages" / f"{page.name}.html")["trials"]}
        assert set(trials) == {trial.id for trial in page.trials}
        if corpus == "mos-preferences":
            _letters_are_true(page, trials, store)
            assert Counter(trial.expected["label"] for trial in page.trials) == {"a": 12, "b": 12}
    if corpus == "mos-preferences":
        letters = {(trial.prompt_id, trial.expected["label"]) for page in plan.pages for trial in page.trials}
        assert len(letters) == 48, "a row's better clip is A on one of its two pages"

    answers = []
    for page, wrong in zip(plan.pages, (False, True), strict=True):
        path = tmp_path / f"{page.name}.json"
        path.write_bytes(returned(plan, page, {trial.id: _answer(plan, trial, wrong=wrong) for trial in page.trials}))
        answers.append(str(path))
    read = ["people", "audit", "read", str(folder), "--store", str(store), "--json"]
    right = json.loads(run.invoke(app, [*read, answers[0]]).output)
    assert right["overall"]["precision"] == 1.0
    elsewhere = run.invoke(app, [*read[:-2], str(tmp_path / "other"), "--json", answers[0]])
    assert elsewhere.exit_code == 1
    assert f"other lacks the {plan.audited.corpus} {plan.audited.version} that the rows are from" in str(
        elsewhere.exception
    )
    assert not (tmp_path / "other" / "audits").exists(), "a record where no card looks for it"
    publish = ["publish", corpus, "--repo", "lab/x", "--dry-run", "--allow-builtin", "--store", str(store)]
    both = json.loads(run.invoke(app, [*read, *answers]).output)
    assert {cell["disputed"] for cell in both["cells"]} != {0}
    assert both["overall"]["precision"] == 0.0, "of two who contradict each other, none is believed"
    if corpus == "score-questions":
        exam = [f"{name}={both['record']}/answers-{page}.csv" for name, page in (("knows", "p001"), ("errs", "p002"))]
        words = ["eval", "tables", corpus, "-m", exam[0], "-m", exam[1], "-e", evaluation, "--by", stratify, "--json",
                 "--split", "all", "--rule", "unanswered=left-out", "--store", str(store)]  # fmt: skip
        table = json.loads(run.invoke(app, words).output)
        cells = {row["model"]: {cell["value"] for cell in row["cells"]} for row in table["rows"]}
        assert cells == {"knows": {1.0}, "errs": {0.0}}
    refused = run.invoke(app, [*publish, "--audited", "0.9"])
    assert refused.exit_code == 1
    assert f"the audit of {evaluation} says 0.000" in str(refused.exception) + refused.output


def build(run: CliRunner, corpus: str, store: Path) -> None:
    """A second version, with audio."""
    config = ROOT / "data/demo/mos-preferences-audio.toml"
    built = run.invoke(app, ["build", corpus, "--config", str(config), "--store", str(store)])
    assert built.exit_code == 0, built.output


def _letters_are_true(page: AnnotatorPage, trials: dict[str, str], store: Path) -> None:
    """The clip under the expected letter is the chosen one, as the version's own tables say."""
    folder = store / "mos-preferences/v2"
    rows = duckdb.sql(
        f"SELECT pair_id, chosen.clip_sha256, rejected.clip_sha256 FROM '{folder}/pairs/*.parquet' AS pairs "
        f"JOIN '{folder}/ratings/*.parquet' AS chosen ON chosen.sample_id = chosen_id "
        f"JOIN '{folder}/ratings/*.parquet' AS rejected ON rejected.sample_id = rejected_id"
    ).fetchall()
    clips = {pair: (chosen, rejected) for pair, chosen, rejected in rows}
    for trial in page.trials:
        players = re.findall(r'data-clip="([0-9a-f]+)" data-letter="([ab])"', trials[trial.id])
        shown = {letter: clip for clip, letter in players}
        chosen, rejected = clips[trial.prompt_id]
        expected = trial.expected["label"]
        assert shown[expected] == chosen[:16]
        assert shown[{"a": "b", "b": "a"}[expected]] == rejected[:16]
    assert {trial.expected["label"] for trial in page.trials} == {"a", "b"}, "the letter gives the label away"


def _answer(plan: StudyPlan, trial: Trial, *, wrong: bool) -> dict[str, Any]:
    label = trial.expected["label"]
    other = {"a": "b", "b": "a", "tie": "a", "yes": "no", "no": "yes"}.get(label, "A" if label != "A" else "B")
    return {
        "response": {"label": other if wrong else label, "feedback": ""},
        "heard_s": {},
        "seconds": 3.0,
        "at": "2026-03-01T10:00:00.000Z",
    }
