"""The best of N: picks that are nested, means in closed form and by pandas, and a study of the picks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError
from earmark.schemas.study import Study
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt, read_generations
from earmark.tasks.people.best_of_n import best_of_n
from earmark.tasks.people.choosing import TrialMaterial, chosen_pairs

Row = dict[str, Any]
PROMPTS, SIZES = 400, (1, 3, 10)


@pytest.fixture(scope="module")
def music(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten generations of a prompt, whose musicality is uniform and alignment equal to it; and one true recording."""
    folder, source = tmp_path_factory.mktemp("music"), np.random.default_rng(8)
    made = [
        {"generation_id": f"g{prompt}-{at}", "prompt_id": f"p{prompt}", "model": "mg", "audio": f"{prompt}/{at}.wav"}
        for prompt in range(PROMPTS)
        for at in range(10)
    ]
    true = [
        {"generation_id": f"t{at}", "prompt_id": f"p{at}", "model": "truth", "audio": f"t{at}.wav"}
        for at in range(PROMPTS)
    ]
    pd.DataFrame(made + true).to_csv(folder / "generations.csv", index=False)
    drawn = source.random(len(made))
    scores = pd.DataFrame(
        {"clip": [row["audio"] for row in made], "musicality": drawn, "alignment": drawn, "CE": -drawn}
    )
    beside = pd.DataFrame({"clip": [row["generation_id"] for row in true]}).assign(musicality=2, alignment=2, CE=0)
    pd.concat([scores, beside]).to_csv(folder / "rm.csv", index=False)
    return folder


def picked(music: Path, out: Path, *more: str) -> Row:
    """The facts of the command."""
    command = ["eval", "best-of", str(music / "generations.csv"), "--scores", str(music / "rm.csv"), "--out", str(out)]
    done = CliRunner().invoke(app, [*command, *more, "--json"], catch_exceptions=False)
    facts: Row = json.loads(done.stdout)
    return facts


def test_the_mean_of_the_best_of_n_is_n_of_n_plus_1(music: Path, tmp_path: Path) -> None:
    facts = picked(music, tmp_path / "out", "--picks", str(music / "picks.csv"))
    rows = {row["label"]: row["cells"] for row in facts["rows"]}
    assert [*rows] == ["mg N=1", "mg N=3", "mg N=10", "truth"]
    scores = pd.read_csv(music / "rm.csv", index_col="clip")["musicality"]
    picks = pd.read_csv(music / "picks.csv")
    assert picks["generation_id"].is_unique
    for size in SIZES:
        cell = rows[f"mg N={size}"]["musicality"]
        held = scores[picks[picks["model"] == f"mg N={size}"]["audio"]]
        assert cell["value"] == pytest.approx(held.mean())  # by pandas
        spread = (size / (size + 2) / PROMPTS) ** 0.5 / (
            size + 1
        )  # of the mean of the largest of so many, in closed form
        assert cell["value"] == pytest.approx(size / (size + 1), abs=4 * spread)
        assert cell["high"] - cell["low"] == pytest.approx(2 * 1.966 * spread, rel=0.2)
        assert rows[f"mg N={size}"]["CE"]["value"] == pytest.approx(-held.mean())
    by_size = [scores[picks[picks["model"] == f"mg N={size}"]["audio"]].to_numpy() for size in SIZES]
    test = stats.ttest_rel(by_size[1], by_size[0])
    assert rows["mg N=3"]["musicality"]["difference"]["p"] == pytest.approx(test.pvalue)
    assert rows["truth"]["musicality"]["value"] == 2
    assert "difference" not in rows["truth"]["musicality"]


def test_generations_without_a_score_are_said(music: Path, tmp_path: Path) -> None:
    scores = pd.read_csv(music / "rm.csv")
    scores.loc[[0, 3, 11], "musicality"] = scores.loc[[5], "CE"] = np.nan
    scores.to_csv(tmp_path / "rm.csv", index=False)
    found = best_of_n(music / "generations.csv", tmp_path / "rm.csv", (1, 3), ("musicality",), None, tmp_path / "out")
    assert found[0]["notes"] == [
        "musicality: 3 of 4,400 generations have no score and are in no mean of it; they are picked only where no "
        "other can be",
        "CE: 1 of 4,400 generations have no score and are in no mean of it",
    ]


def test_rows_of_scores_that_name_no_generation_are_said(music: Path, tmp_path: Path) -> None:
    scores = pd.read_csv(music / "rm.csv")
    strange = pd.DataFrame({"clip": ["wav/nobody.wav", "g9999-0"], "musicality": 0.5, "alignment": 0.5, "CE": 0.5})
    pd.concat([scores, strange]).to_csv(tmp_path / "rm.csv", index=False)
    facts, out = best_of_n(music / "generations.csv", tmp_path / "rm.csv", (1,), ("CE",), None, tmp_path / "out")
    assert facts["notes"] == ["passed over: 2 rows of rm.csv name no generation, first 'wav/nobody.wav'"]
    assert facts["notes"][0] in (out / "README.md").read_text("utf-8")


def test_picks_are_nested_and_the_lists_are_ranked(music: Path, tmp_path: Path) -> None:
    facts = picked(music, tmp_path / "out")
    scores = pd.read_csv(music / "rm.csv", index_col="clip")["musicality"]
    lists = [json.loads(line) for line in (tmp_path / "out/listwise.jsonl").read_text("utf-8").splitlines()]
    of_model = [row for row in lists if row["model"] == "mg"]
    assert len(of_model) == PROMPTS
    same = 0
    for row in of_model:
        assert row["scores"] == sorted(row["scores"], reverse=True)
        assert row["scores"] == pytest.approx(scores[row["audio"]].tolist())
        ranks = [row["generations"].index(row["picks"][str(size)]) for size in SIZES]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[-1] == 0
        same += ranks[1] == ranks[2]
    told = {tuple(one["n"]): one["same"] for one in facts["same_pick"]}
    assert told[3, 10] == same
    assert same / PROMPTS == pytest.approx(0.3, abs=0.07)  # the best of ten is among the first three
    page = (tmp_path / "out/README.md").read_text("utf-8")
    assert f"mg: N=3 and N=10 pick the same clip for {same} of 400 prompts" in page


def test_a_study_of_the_picks_pairs_no_clip_with_itself(music: Path, tmp_path: Path) -> None:
    picked(music, tmp_path / "out", "--picks", str(music / "picks.csv"))
    rows = read_generations(music / "picks.csv", "picks.csv")
    listed = {row.generation_id: row for row in rows if isinstance(row, ListedGeneration)}
    prompts = {one.prompt_id: MusicPrompt(one.prompt_id, "x", None, None, "p", 1) for one in listed.values()}
    study = Study(
        name="bon", prompts="p.csv", generations="picks.csv", annotators=60, pairs=120, per_pair=1, base=tmp_path
    )
    material = TrialMaterial(prompts, listed, {name: one.audio for name, one in listed.items()}, {}, (), ())
    pairs = chosen_pairs(study, material)
    kinds = [frozenset(listed[name].model for name in (one.a, one.b)) for one in pairs]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(kinds, 20)  # every two systems equally often
    assert len({*kinds}) == 6
    assert all(listed[one.a].audio != listed[one.b].audio for one in pairs)


@pytest.mark.parametrize(
    ("change", "by", "says"),
    [
        ({"musicality": "loud"}, "musicality", "expected a number as musicality, found 'loud'"),
        ({"clip": "0/1.wav"}, "musicality", "row 2: clip '0/1.wav' stands there twice, as generation 'g0-1'"),
        ({"clip": "g0-1"}, "musicality", "row 2: clip '0/1.wav' stands there twice, as generation 'g0-1'"),
        ({"clip": "nobody"}, "musicality", "1 of 4,400 generations are missing, the first is 'g0-0'"),
        ({}, "loudness", "has no column 'loudness'; columns: musicality, alignment, CE"),
    ],
)
def test_scores_that_do_not_fit_are_one_line(
    music: Path, tmp_path: Path, change: dict[str, str], by: str, says: str
) -> None:
    table = pd.read_csv(music / "rm.csv", dtype=str)
    for name, value in change.items():
        table.loc[0, name] = value
    table.to_csv(tmp_path / "rm.csv", index=False)
    with pytest.raises(InputError, match=says):
        best_of_n(music / "generations.csv", tmp_path / "rm.csv", SIZES, [by], None, tmp_path / "out")


def test_a_name_is_the_id_of_a_generation_before_the_audio_of_another(tmp_path: Path) -> None:
    """The scores of one are never those of the other, and ids may be numbers."""
    listed = [("1", "2"), ("2", "1"), ("3", "c.wav")]
    rows = [{"generation_id": one, "prompt_id": "p", "model": "mg", "audio": audio} for one, audio in listed]
    pd.DataFrame(rows).to_csv(tmp_path / "generations.csv", index=False)

    def ranked(scores: dict[str, float]) -> list[str]:
        lines = "".join(f'{{"clip": {name}, "m": {value}}}\n' for name, value in scores.items())
        (tmp_path / "rm.jsonl").write_text(lines, "utf-8")
        best_of_n(tmp_path / "generations.csv", tmp_path / "rm.jsonl", (1, 3), ["m"], None, tmp_path / "out")
        found: list[str] = json.loads((tmp_path / "out/listwise.jsonl").read_text("utf-8"))["generations"]
        return found

    assert ranked({"1": 9, "2": 5, "3": 7}) == ["1", "3", "2"]
    with pytest.raises(InputError, match="1 of 3 generations are missing, the first is '2'"):
        ranked({"1": 9, "3": 7})


def test_too_few_generations_and_picks_apart_from_the_clips_are_refused(music: Path, tmp_path: Path) -> None:
    for sizes, picks, says in (
        ((1, 11), None, "'mg' has 10 generations of prompt 'p0', fewer than N = 11"),
        (SIZES, tmp_path / "picks.csv", "expected a file in .*music"),
    ):
        with pytest.raises(InputError, match=says):
            best_of_n(music / "generations.csv", music / "rm.csv", sizes, ["musicality"], picks, tmp_path / "out")
