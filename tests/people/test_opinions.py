"""A listening test from its pages to the board of the systems that were heard."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from scipy.stats import t
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.tasks.people.answers import _opinion, read_plan
from earmark.tasks.store.versions import Version
from tests.music_prompts.prompt_builds import build_prompts, config_of, made_tracks, write_tracks
from tests.people.returning import returned

SYSTEMS = ("ours", "theirs")
RATE = 16_000


def earmark(*words: object, code: int = 0) -> str:
    run = CliRunner().invoke(app, list(map(str, words)))
    assert run.exit_code == code, run.output
    return str(run.exception) if code else run.stdout


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of prompts, on which two systems were scored."""
    folder = tmp_path_factory.mktemp("heard")
    write_tracks(folder / "tracks.tsv", made_tracks(300))
    counts = {"strict_id": 8, "improvised_id": 4, "strict_ood": 4}
    built = build_prompts(config_of(folder, prompts=counts), folder / "store")
    for seed, system in enumerate(SYSTEMS):
        scored(built, folder / system, folder / "store", seed)
    return built


def scored(version: Version, folder: Path, store: Path, seed: int, *words: str) -> None:
    """Score a system named like its folder, whose clips are noise by a seed."""
    folder.mkdir(parents=True)
    for place, row in enumerate(prompts_of(version)):
        noise = np.random.default_rng((seed, place)).uniform(-0.1, 0.1, RATE // 2)
        soundfile.write(folder / f"{row['prompt_id']}.wav", noise, RATE)
    earmark("eval", "score", "music-prompts@v1", "-g", folder, "--store", store, *words)


def prompts_of(version: Version) -> list[dict[str, Any]]:
    return pq.read_table(version.files("prompts"), columns=["prompt_id", "text", "distribution"]).to_pylist()


def listening_test(version: Version, folder: Path, name: str, before: str = "") -> Path:
    """A study in which every system's clips are rated; `before` goes before the prompts' ids."""
    rows = prompts_of(version)
    asked = [f'{before}{row["prompt_id"]},"{row["text"]}",{row["distribution"]}' for row in rows]
    folder.mkdir()
    (folder / "prompts.csv").write_text("\n".join(["prompt_id,text,group", *asked]) + "\n")
    made = ["generation_id,prompt_id,model,audio"]
    for system in SYSTEMS:
        shutil.copytree(version.folder.parents[2] / system, folder / system)
        ids = [row["prompt_id"] for row in rows]
        made += [f"{system}-{one},{before}{one},{system},{system}/{one}.wav" for one in ids]
    (folder / "generations.csv").write_text("\n".join(made) + "\n")
    (folder / "study.toml").write_text(
        f'name = "{name}"\nkind = "ratings"\nprompts = "prompts.csv"\ngenerations = "generations.csv"\n'
        "annotators = 3\nquestionnaires = 2\neach = { ood = 1, id = 3 }\n"
        '[[questions]]\nname = "quality"\ntext = "How good?"\n[[questions]]\nname = "adherence"\ntext = "How near?"\n'
    )
    earmark("people", "study", "start", "--config", folder / "study.toml", "--out", folder / "study")
    return folder / "study"


def answers(study: Path) -> list[Path]:
    """Everyone's answers: `theirs` gets 5 and 1, `ours` a number by page."""
    plan, paths = read_plan(study), []
    for number, page in enumerate(plan.pages, 2):
        body = {}
        for trial in page.trials:
            ours = plan.generations[trial.clips["a"]].model == "ours"
            said = {"quality": str(number), "adherence": "3"} if ours else {"quality": "5", "adherence": "1"}
            body[trial.id] = {
                "response": {**said, "feedback": ""},
                "heard_s": {"a": 1.0},
                "seconds": 4.0,
                "at": "2026-03-01T10:00:00.000Z",
            }
        paths.append(study / f"{page.name}-answers.json")
        paths[-1].write_bytes(returned(plan, page, body))
    return paths


@pytest.mark.slow
def test_the_board_shows_what_people_said(version: Version, tmp_path: Path) -> None:
    store = version.folder.parents[1]
    study = listening_test(version, tmp_path / "phase", "phase-2")
    said = ["people", "study", "status", study, *answers(study), "--record", "music-prompts@v1", "--store", store]
    assert "kept beside music-prompts@v1" in earmark(*said)
    board = json.loads(earmark("eval", "rank", "music-prompts@v1", "all", "--store", store, "--json"))
    (test,) = board["listening"]
    found = {(row["system"], row["question"]): row for row in test["mos"]}
    assert {key: row["mos"] for key, row in found.items() if key != ("ours", "quality")} == {
        ("ours", "adherence"): 3.0, ("theirs", "quality"): 5.0, ("theirs", "adherence"): 1.0,
    }  # fmt: skip
    ours = found["ours", "quality"]
    assert (ours["ratings"], ours["annotators"], ours["mos"]) == (12, 3, 3.0)
    spread = t.interval(0.95, 2, loc=3.0, scale=statistics.stdev([2, 3, 4]) / 3**0.5)
    assert ours["half_width"] == pytest.approx(spread[1] - 3.0)
    page = (Path(board["folder"]) / "README.md").read_text("utf-8")
    table = page.partition("listening test phase-2, quality")[2]
    assert "| ours | 3.000 \\[0.516, 5.484\\] | 0.853 | 12 | 3 |" in table
    assert table.index("| theirs |") < table.index("| ours |"), "the best stands first"
    earmark(*said)  # again: the record is replaced
    again = json.loads(earmark("eval", "rank", "music-prompts@v1", "all", "--store", store, "--json"))
    assert again["listening"] == board["listening"]


@pytest.mark.slow
@pytest.mark.parametrize("strict", [0.0, 1.4])
def test_the_interval_is_of_the_mean_beside_it_also_with_pages_of_unequal_length(strict: float) -> None:
    """Long pages have more weight in the mean of ratings, and their annotators may be stricter: the half-width is what
    the mean varies by when the test is held again with other people."""
    source, held, people = np.random.default_rng(3), [], 24
    for _ in range(800):
        long = source.random(people) < (0.5 if strict else 0.25)
        means = source.normal(3.0 + strict * (0.5 - long), 0.6)
        rows = [
            {"annotator": who, "quality": int(said)}
            for who in range(people)
            for said in np.clip(np.rint(source.normal(means[who], 0.7, 20 if long[who] else 4)), 1, 5)
        ]
        held.append(_opinion(rows, "quality"))
    spread = np.std([one["mos"] for one in held])
    told = np.mean([one["half_width"] or 0.0 for one in held]) / t.ppf(0.975, people - 1)
    assert told / spread == pytest.approx(0.96, abs=0.06)


@pytest.mark.slow
def test_clips_that_people_did_not_hear_win_no_award(version: Version, tmp_path: Path) -> None:
    """`theirs` is scored with other clips after the test; a record of release 1.0.0 does not tell."""
    store, study = tmp_path / "store", listening_test(version, tmp_path / "won", "won")
    shutil.copytree(version.folder.parents[1], store)
    entered = ("--team", "t", "--track", "open")
    for seed, system in enumerate(SYSTEMS):
        scored(version, tmp_path / "first" / system, store, seed, *entered)
    earmark("people", "study", "status", study, *answers(study), "--record", "music-prompts@v1", "--store", store)
    rank = ["eval", "rank", "music-prompts@v1", "all", "--award", "open=1", "--store", store, "--json"]

    def awards() -> tuple[dict[str, str], str]:
        board = json.loads(earmark(*rank))
        (test,) = [one for one in board["listening"] if one["study"] == "won"]
        notes = (Path(board["folder"]) / "README.md").read_text("utf-8").splitlines()
        return test["awards"], "\n".join(line for line in notes if "listening test won:" in line)

    assert awards() == ({"theirs": "open 1st"}, "")
    scored(version, tmp_path / "second/theirs", store, 7, *entered)
    won, note = awards()
    assert won == {"ours": "open 1st"}
    assert "clips of theirs are not those that were scored: no award" in note
    (record,) = store.glob("evaluations/music-prompts/v1/study-won/mos.json")
    facts = json.loads(record.read_bytes())
    record.write_text(json.dumps({name: facts[name] for name in ("study", "manifest_sha256", "mos", "left_out")}))
    won, note = awards()
    assert won == {"theirs": "open 1st"}
    assert "recorded by release 1.0.0" in note


def test_another_study_of_a_name_does_not_replace_the_first(version: Version, tmp_path: Path) -> None:
    store, record = version.folder.parents[1], ("--record", "music-prompts@v1", "--store", version.folder.parents[1])
    first, second = (listening_test(version, tmp_path / name, "same") for name in ("one", "two"))
    files = answers(first)
    earmark("people", "study", "status", first, *files[:2], *record)
    (kept,) = store.glob("evaluations/music-prompts/v1/study-same/mos.json")
    before = kept.read_bytes()
    line = earmark("people", "study", "status", second, *answers(second), *record, code=1)
    assert "another study of the name 'same' is recorded; name yours in --config" in line
    assert kept.read_bytes() == before
    earmark("people", "study", "status", first, *files, *record)
    assert kept.read_bytes() != before, "more answers of the same study"
    shutil.rmtree(kept.parent)


def test_another_versions_study_is_refused(version: Version, tmp_path: Path) -> None:
    store = version.folder.parents[1]
    study = listening_test(version, tmp_path / "other", "other", before="strange-")
    said = ["people", "study", "status", study, *answers(study), "--record", "music-prompts@v1", "--store", store]
    line = earmark(*said, code=1)
    assert "prompt 'strange-" in line
    assert "is none of that version" in line
    assert not list(store.glob("evaluations/music-prompts/v1/study-other*"))


def test_a_record_needs_answers(version: Version, tmp_path: Path) -> None:
    study, store = listening_test(version, tmp_path / "early", "early"), version.folder.parents[1]
    none = ["people", "study", "status", study, "--record", "music-prompts@v1", "--store", store]
    assert "no answer counts yet" in earmark(*none, code=1)


def test_a_study_without_a_clip_to_play_is_one_line(version: Version, tmp_path: Path) -> None:
    listening_test(version, tmp_path / "mute", "mute")
    start = ["people", "study", "start", "--config", tmp_path / "mute/study.toml", "--out", tmp_path / "new"]
    line = "expected clips that can be played, found none: generations.csv, line 2"
    for path in (tmp_path / "mute").glob("*/*.wav"):
        soundfile.write(path, np.zeros(RATE), RATE)
    assert f"{line}: expected a peak above -60 dBFS, found a silent clip" in earmark(*start, code=1)
    for path in (tmp_path / "mute").glob("*/*.wav"):
        path.unlink()
    assert line in earmark(*start, code=1)
