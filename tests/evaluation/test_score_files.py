"""Files of scores mean the clips as the published tables name them: the truth gives 1, its mirror 0."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.config import parse_config, read_toml
from schemas.errors import InputError
from schemas.evaluations import Examinee
from schemas.human_preferences import HumanPreferences
from tasks.build.registry import corpora, find_corpus
from tasks.evaluation import judging, statistics
from tasks.evaluation.judging import Wish
from tasks.evaluation.samples import Part
from tasks.store.versions import Store, Version
from tests import builds
from tests.annotation.conftest import LocalServer
from tests.builds import rows_of
from tests.conftest import ROOT, real_lists
from tests.human_preferences.votes import SALT, build_votes, config_of
from tests.instruction_rubrics import rubrics
from tests.pseudo_preferences import music
from tests.score_questions import questions
from tests.servers.faults import Faults
from tests.servers.openai_server import listening_answer

DEMO = ROOT / "data/demo"
REAL = "cmi-pref/test_500_votes_with_model_scores.jsonl"
Row = dict[str, Any]


def human(root: Path) -> Version:
    """Votes and ratings of every layout."""
    path = DEMO / "human-preferences.toml"
    return build_votes(parse_config(HumanPreferences, read_toml(path), path), root)


def pseudo(root: Path) -> Version:
    """Labels of a judge that listens."""
    music.make_pool(root / "pool", 6)
    with LocalServer(Faults()) as server:
        server.answer = listening_answer
        return music.build_judged(music.config_of(root / "pool", server.base_url), root)


def rubric(root: Path) -> Version:
    """Samples that follow their instruction, and samples that do not."""
    with LocalServer(Faults()) as server:
        server.answer = rubrics.rubric_answer
        source = rubrics.write_captions(root, "real", map(rubrics.caption, range(8)))
        config = rubrics.config_of(root, source, base_url=server.base_url, bench_share=0.0)
        return rubrics.build_rubrics(config, root)


def exam(root: Path) -> Version:
    """Multiple-choice questions."""
    root.mkdir()
    return questions.build_questions(questions.config_of(root), root, [questions.thread(number) for number in range(8)])


def rated(root: Path) -> Version:
    """Pairs of rated clips."""
    return builds.build_version(builds.read_config(DEMO / "mos-preferences-audio.toml"), root)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of pairs of rated clips, for tests that only read it."""
    return rated(tmp_path_factory.mktemp("pairs") / "store")


BUILDERS: dict[str, Callable[[Path], Version]] = {
    "mos-preferences": rated,
    "pseudo-preferences": pseudo,
    "human-preferences": human,
    "instruction-rubrics": rubric,
    "score-questions": exam,
}


def of_pair(sample: str, clips: tuple[str, str], better: str | None, names: tuple[str, str]) -> Row:
    """Scores of two clips: 2 for the better, 1 for the other, equal ones for a tie."""
    return {"id": sample, **{name: 1 + (clip == better) for name, clip in zip(names, clips, strict=True)}}


def truth(version: Version, evaluation: str) -> list[Row]:
    """What the published tables say, in the form of a file of scores, found with nothing of the evaluations' own."""
    table = {name: rows_of(version, name) for name in version.manifest.rows}
    match version.corpus:
        case "mos-preferences":
            sides = ("score_chosen", "score_rejected")
            couples = [(row["pair_id"], (row["chosen_id"], row["rejected_id"])) for row in table["pairs"]]
            mos = {row["sample_id"]: row["mos"] for row in table["ratings"]}
            return [of_pair(name, clips, max(clips, key=mos.__getitem__), sides) for name, clips in couples]
        case "pseudo-preferences":
            labels = [row for row in table["labels"] if row[evaluation] is not None]
            return [
                of_pair(
                    row["pair_id"],
                    (row["generation_a"], row["generation_b"]),
                    row.get(f"generation_{row[evaluation]}"),
                    ("score_a", "score_b"),
                )
                for row in labels
            ]
        case "human-preferences":
            task, _, dimension = evaluation.rpartition("-")
            if evaluation == "music-arena":
                task, dimension = evaluation, "overall"
            rows = [row for row in table["benchmark"] if (row["task"], row["dimension"]) == (task, dimension)]
            if rows[0]["preference"] is None:
                return [{"id": row["sample_id"], "score": row["score"]} for row in rows]
            return [
                of_pair(
                    row["sample_id"],
                    (row["clip_a"], row["clip_b"]),
                    row[f"clip_{row['preference']}"],
                    ("score_a", "score_b"),
                )
                for row in rows
            ]
        case "instruction-rubrics":
            languages = {(row["instruction_id"], row["language"]) for row in table["items"]}
            return [
                {"id": f"{row['sample_id']}-{language}", "score": float(row["follows"])}
                for row in table["samples"]
                for instruction, language in languages
                if (instruction, language) == (row["instruction_id"], row["language"])
            ]
        case _:
            return [{"id": row["question_id"], "choice": row["truth_letter"]} for row in table["questions"]]


def mirrored(row: Row, kind: str) -> Row:
    """The opposite: the other clip (one of the two for a tie), no for yes, the lowest rating for the highest."""
    match kind:
        case "choice":
            return {**row, "choice": "B" if row["choice"] == "A" else "A"}
        case "preference":
            first, second = (name for name in row if name.startswith("score_"))
            return {**row, first: row[second], second: row[first] if row[first] != row[second] else 0}
        case "yes_no":
            return {**row, "score": 1 - row["score"]}
    return {**row, "score": -row["score"]}


def measure(version: Version, rows: list[Row], wish: Wish, folder: Path) -> dict[str, Any]:
    """The facts of an evaluation by a file of these rows."""
    path = folder / "scores.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    store = Store(version.folder.parents[1])
    facts, _ = judging.read(version, find_corpus(version.corpus), store, path, wish, folder / "out")
    return facts


def test_every_corpus_with_evaluations_is_here() -> None:
    assert set(BUILDERS) == {name for name in corpora() if find_corpus(name).evaluations}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one == "human-preferences" else ()) for one in BUILDERS]
)
def test_the_truth_scores_1_and_its_mirror_0(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_SALT", SALT)
    monkeypatch.setattr(statistics, "DRAWS", 20)  # of the intervals, which are not looked at here
    version = BUILDERS[name](tmp_path / "store")
    for evaluation in find_corpus(name).evaluations:
        rows = truth(version, evaluation.name)
        wish = Wish(evaluation.name, part=Part("all"))
        metrics = measure(version, rows, wish, tmp_path)["rows"][0]["metrics"]
        for metric in metrics.values():
            assert metric["value"] == pytest.approx(1.0), (evaluation.name, metrics)
        metrics = measure(version, [mirrored(row, evaluation.kind) for row in rows], wish, tmp_path)["rows"][0][
            "metrics"
        ]
        for metric_name, metric in metrics.items():
            worst = 0.0 if metric_name == "accuracy" else -1.0
            assert metric["value"] == pytest.approx(worst), (evaluation.name, metrics)


def test_a_file_for_pairs_says_which_clip_it_means(pairs: Version, tmp_path: Path) -> None:
    version = pairs
    rows = [{"id": row["pair_id"], "score_a": 1, "score_b": 0} for row in rows_of(version, "pairs")]
    said = (
        "score_chosen and score_rejected.* chosen and rejected are chosen_id and rejected_id of the table pairs; found"
    )
    with pytest.raises(InputError, match=said):
        measure(version, rows, Wish(part=Part("all")), tmp_path)
    rows = [{"id": row["pair_id"], "choice": "chosen"} for row in rows_of(version, "pairs")]
    facts = measure(version, rows, Wish(part=Part("all")), tmp_path)
    assert facts["rows"][0]["metrics"]["accuracy"]["value"] == 1.0
    assert facts["order"] == "chosen and rejected are chosen_id and rejected_id of the table pairs"


def test_a_model_is_shown_either_clip_first_and_answers_are_turned_back(pairs: Version, tmp_path: Path) -> None:
    """The order in which a model hears two clips is drawn; what is counted of it is not."""
    version, store, first = pairs, Store(pairs.folder.parents[1]), []
    with LocalServer(Faults()) as server:
        for answer in ("A", "B"):
            server.answer = lambda body, content, answer=answer: json.dumps(answer)
            config = Examinee(annotator=f"openai:says-{answer}", base_url=server.base_url, retry_base_s=0.01)
            wish = Wish(part=Part("all"))
            facts, _ = judging.judge(version, find_corpus(version.corpus), store, config, wish, tmp_path / answer)
            first.append(facts["rows"][0]["metrics"]["accuracy"]["value"])
    assert first[0] + first[1] == pytest.approx(1.0)
    assert 0.25 < first[0] < 0.75  # 60 pairs: a judge that always says A gains nothing by the order


@pytest.mark.parametrize(
    ("dimension", "field", "strict", "half"),
    [
        ("musicality", "predicted_musicality", 0.780, 0.781),
        ("alignment", "predicted_text-music alignment", 0.738, 0.740),
    ],
)
def test_real_votes_and_a_published_models_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimension: str, field: str, strict: float, half: float
) -> None:
    """The test set of CMI-Pref and its authors' reward model; the right answers were counted by hand."""
    monkeypatch.setenv("EARMARK_SALT", SALT)
    path = real_lists() / REAL
    if not path.is_file():
        pytest.skip(f"no real votes at {path}; set EARMARK_REAL to a folder that holds them")
    source = {"name": "cmi", "format": "cmi-pref", "files": [str(path)], "split": "native"}
    version = build_votes(config_of(tmp_path, source), tmp_path / "store")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    votes = {row["comparison_id"]: lines[row["source_line"] - 1] for row in rows_of(version, "votes")}
    rows, ties = [], 0
    for row in rows_of(version, "benchmark"):
        if row["dimension"] != dimension:
            continue
        vote = votes[row["sample_id"].partition("-")[0]]
        score = {f"cmi/{vote['audio-path']}": vote[field], f"cmi/{vote['audio2']}": vote[f"{field}_b"]}
        rows.append({"id": row["sample_id"], "score_a": score[row["clip_a"]], "score_b": score[row["clip_b"]]})
        ties += rows[-1]["score_a"] == rows[-1]["score_b"]
    assert len(rows) == 500
    facts = measure(version, rows, Wish(f"cmi-pref-{dimension}"), tmp_path)
    accuracy = facts["rows"][0]["metrics"]["accuracy"]["value"]
    assert accuracy == strict
    assert accuracy + ties / 2 / 500 == pytest.approx(half, abs=5e-4)
    if dimension == "musicality":
        bands = {row["value"]: (row["samples"], row["metrics"]["accuracy"]["value"]) for row in facts["rows"]}
        assert bands["<3"] == (66, pytest.approx(0.667, abs=5e-4))
        assert bands["3"] == (128, pytest.approx(0.750, abs=5e-4))
        assert bands[">3"] == (306, pytest.approx(0.817, abs=5e-4))
