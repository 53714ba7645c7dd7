"""A whole challenge by ATTM's rules: systems of known order are scored, ranked and heard, all figures closed forms."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Examinee
from earmark.schemas.music_prompts import CORPUS
from earmark.schemas.study import AnnotatorPage, StudyPlan, Trial
from earmark.tasks.evaluation.leaderboard import awarded, opinion_tables
from earmark.tasks.evaluation.submission import ScoreOptions, score
from earmark.tasks.people.answers import read_plan
from earmark.tasks.store.versions import Store, Version
from tests.annotation.conftest import LocalServer
from tests.evaluation.test_score import RATE, SIGNS, keep_embeddings, prompts_of, token
from tests.music_prompts.prompt_builds import build_prompts, config_of, made_tracks, write_tracks
from tests.people.returning import returned
from tests.servers.faults import Faults

# ATTM, Table III: system, MOS and its deviation of all 35 listeners, of the 25 experts, and the award.
TABLE_III = """
e01 3.225 1.093 3.177 1.136 Efficiency 2nd
e05 2.969 1.194 2.929 1.230
e07 3.250 1.234 3.186 1.286 Efficiency 1st
e08 3.119 1.084 3.044 1.113 Efficiency 3rd
p00 2.006 1.031 2.044 1.089
p05 3.344 1.116 3.327 1.137 Performance 1st
MusicGen-small 3.538 1.009 3.425 0.998
"""


def test_table_iii_comes_out_as_printed() -> None:
    rows, ranks, printed = [], [], {}
    for line in TABLE_III.strip().splitlines():
        system, *figures, award = line.split(" ", 5) if line.count(" ") > 4 else [*line.split(), ""]
        mos, sd, expert, expert_sd = map(float, figures)
        all_, experts = (
            {"mos": value, "sd": spread, "half_width": None, "ratings": 5 * heard, "annotators": heard}
            for value, spread, heard in ((mos, sd, 35), (expert, expert_sd, 25))
        )
        rows.append({"system": system, "question": "overall", **all_, "experts": experts})
        track = {"e": "Efficiency", "p": "Performance"}.get(system[0])
        ranks.append({"system": system, "team": track and system[1:], "track": track})
        printed[system] = (*figures, award)
    awards = awarded(rows, ranks, {"Efficiency": 3, "Performance": 1})
    (table,) = opinion_tables(rows, "", awards)
    cells = {row[0].text: tuple(row[at].text for at in (1, 2, 5, 6, 9)) for row in table.drawn()}
    assert cells == printed
    assert [row[0].text for row in table.drawn()] == ["MusicGen-small", "p05", "e07", "e01", "e08", "e05", "p00"]
    with pytest.raises(InputError, match="--award open: no system entered this track; tracks: Efficiency, Performance"):
        awarded(rows, ranks, {"open": 1})


SYSTEMS = 14  # by how good they are: the topline, ten entries, the baseline, two entries that are worse
TOPLINE, BASELINE, SECOND = 0, 11, 4  # SECOND: of the team of system 1 in its track, so it has no rank
PERFORMANCE = (2, 6)
ID, OOD = 20, 5
FINALISTS = [1, 2, 3, 5, 6, 7]
# How experts rate a system's five clips: the first number, and one more for so many of the five. Others say one less.
TONE_BIN = 220  # 440 Hz in the spectrum of half a second
BEARS = {"genre": 0.263, "instrument": 0.51, "mood": 0.763}  # the share of noise from which a concept is not heard
HEARD = {0: (4, 3), 1: (4, 2), 2: (4, 1), 3: (4, 0), 5: (3, 4), 6: (3, 2), 7: (2, 1)}
EXPERTS, OTHERS = 25, 10
SIGNS_OF_EXPERTS = (("3.5", "no", "1"), ("0", "yes", "2"), ("2", "no", "4"))


def noise_share(system: int, place: int) -> float:
    return system / 30 + place / 50


def sound(system: int, place: int) -> npt.NDArray[np.float64]:
    """A tone in noise: worse systems have more noise, and so have later prompts."""
    share = noise_share(system, place)
    seconds = np.arange(RATE // 2) / RATE
    spectrum = np.fft.rfft(np.random.default_rng((system, place)).standard_normal(len(seconds)))
    spectrum[[0, TONE_BIN]] = 0
    noise = np.fft.irfft(spectrum, len(seconds))
    tone = math.sqrt(2) * np.sin(2 * np.pi * 440 * seconds)
    return 0.1 * (math.sqrt(1 - share) * tone + math.sqrt(share) * noise / noise.std())


def hear(body: dict[str, Any], content: str) -> dict[str, Any]:
    """Answer by the share of noise that the clip has: a genre bears least, a mood most."""
    parts = body["messages"][-1]["content"]
    (clip,) = [base64.b64decode(part["input_audio"]["data"]) for part in parts if part["type"] == "input_audio"]
    words = " ".join(part["text"] for part in parts if part["type"] == "text")
    samples = soundfile.read(io.BytesIO(clip))[0]
    power = np.abs(np.fft.rfft(samples)) ** 2
    share = 1 - power[TONE_BIN] / power[1:].sum()
    (kind,) = {kind for kind, sign in SIGNS.items() if sign in words}
    return token(0.9 if share < BEARS[kind] else 0.1)


def name_of(system: int) -> str:
    return {TOPLINE: "topline", BASELINE: "baseline"}.get(
        system, f"{'p' if system in PERFORMANCE else 'e'}{system:02d}"
    )


def run(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


def score_all(version: Version, store: Store, folder: Path) -> None:
    """Score each system: FAD is its embeddings' squared shift, the CLAP score falls by 0.03, and CCS as noise rises."""
    rows = [row for kind in ("id", "ood") for row in prompts_of(version) if row["distribution"] == kind]
    base = np.random.default_rng(1).standard_normal((ID + OOD, 4))
    paths = [folder / f"reference/{place}.wav" for place in range(ID)]
    (folder / "reference").mkdir()
    (folder / "clap").mkdir()
    (folder / "clap/config.json").write_text("{}")
    for place, path in enumerate(paths):
        soundfile.write(path, sound(SYSTEMS, place), RATE)
    keep_embeddings(store, folder / "clap", paths, base[:ID])
    with LocalServer(Faults()) as server:
        server.first_token = hear
        judge = Examinee(annotator="openai:judge", base_url=server.base_url, retry_base_s=0.01)
        for system in range(SYSTEMS):
            made = folder / name_of(system)
            made.mkdir()
            paths = [made / f"{row['prompt_id']}.wav" for row in rows]
            for place, path in enumerate(paths):
                soundfile.write(path, sound(system, place), RATE)
            shifted = base + 0.1 * (system + 1) * np.eye(4)[0]
            texts = [row["text"] for row in rows]
            keep_embeddings(store, folder / "clap", paths, shifted, texts, 0.5 - 0.03 * system)
            entered = system not in (TOPLINE, BASELINE)
            wish = ScoreOptions(
                made,
                team=f"team {1 if system == SECOND else system}" if entered else None,
                track=("performance" if system in PERFORMANCE else "efficiency") if entered else None,
                topline=system == TOPLINE,
                clap=str(folder / "clap"),
                reference=str(folder / "reference"),
            )
            score(version, CORPUS, store, judge, wish, None)


def assert_ranks(board: dict[str, Any]) -> None:
    figures = {row["system"]: row for row in board["groups"][0]["rows"]}
    for system in range(SYSTEMS):
        found = figures[name_of(system)]
        heard = sum(noise_share(system, place) < bears for place in range(ID) for bears in BEARS.values())
        assert found["ccs"]["value"] == pytest.approx(heard / (3 * ID)), system
        assert found["clap"]["value"] == pytest.approx(0.5 - 0.03 * system)
        assert found["fad"]["value"] == pytest.approx((0.1 * (system + 1)) ** 2, abs=1e-5)
    ranked = [system for system in range(SYSTEMS) if system not in (TOPLINE, SECOND)]
    rows = {one["system"]: one for one in board["ranking"]}
    for place, system in enumerate(ranked, 1):
        assert (rows[name_of(system)]["rank"], rows[name_of(system)]["points"]) == (place, 3 * (len(ranked) - place))
    assert {rows[name_of(system)]["rank"] for system in (TOPLINE, SECOND)} == {None}
    assert sorted(one["system"] for one in board["ranking"] if one["finalist"]) == sorted(map(name_of, FINALISTS))


def rating(plan: StudyPlan, page: AnnotatorPage, trial: Trial, *, expert: bool) -> int:
    """Rate a clip as the page's annotator does, by its place among the page's five clips of the system."""
    system = plan.generations[trial.clips["a"]].model
    least, more = HEARD[next(number for number in HEARD if name_of(number) == system)]
    own = [one.id for one in page.items if plan.generations[one.clips["a"]].model == system]
    return least + (own.index(trial.id) < more) - (not expert)


def answers(plan: StudyPlan, folder: Path) -> list[Path]:
    """The files of 25 experts, ten others, and one who gives every clip a 3."""
    paths = []
    for number, page in enumerate(plan.pages):
        expert, idle = number < EXPERTS, number == EXPERTS + OTHERS
        years, profession, appreciation = SIGNS_OF_EXPERTS[number % 3] if expert else ("3", "no", "3")
        said = {page.trials[0].id: {"years": years, "profession": profession, "appreciation": appreciation}}
        for trial in page.items:
            value = 3 if idle else rating(plan, page, trial, expert=expert)
            said[trial.id] = {question: str(value) for question in plan.questions}
        body = {
            key: {"response": response, "heard_s": {}, "seconds": 12.0, "at": "2026-05-01T10:00:00.000Z"}
            for key, response in said.items()
        }
        paths.append(folder / f"{page.name}.json")
        paths[-1].write_bytes(returned(plan, page, body))
    return paths


@pytest.mark.slow
def test_a_challenge_from_clips_to_awards(tmp_path: Path) -> None:
    write_tracks(tmp_path / "tracks.tsv", made_tracks(300))
    counts = {"strict_id": ID // 2, "improvised_id": ID // 2, "strict_ood": OOD}
    version = build_prompts(config_of(tmp_path, prompts=counts), tmp_path / "store")
    place = ["--store", tmp_path / "store"]
    score_all(version, Store(tmp_path / "store"), tmp_path)
    assert_ranks(json.loads(run("eval", "rank", "music-prompts@v1", "all", "--finalists", 6, "--json", *place)))
    wide = json.loads(run("eval", "rank", "music-prompts@v1", "all", "--finalists", 12, "--json", *place))
    assert sum(one["finalist"] for one in wide["ranking"]) == 9, "two entries do not beat the baseline, one is a second"

    study = tmp_path / "study"
    start = ["people", "study", "start", "--from-scores", "music-prompts@v1", "--finalists", 6]
    said = run(*start, "--system", "topline", "--annotators", EXPERTS + OTHERS + 1, "--out", study, *place)
    assert "36 pages" in said
    assert "35 trials each" in said
    plan = read_plan(study)
    rows = {row["prompt_id"]: row for row in prompts_of(version)}
    for page in plan.pages:
        heard = {trial.prompt_id for trial in page.items}
        kinds = [f"{rows[one]['distribution']} {rows[one]['style']}" for one in heard]
        assert sorted(kinds) == ["id improvised"] * 2 + ["id strict"] * 2 + ["ood strict"]
        assert {plan.generations[trial.clips["a"]].model for trial in page.items} == {name_of(one) for one in HEARD}
    assert len(plan.prompts) == 25

    files = answers(plan, tmp_path)
    shown = run("people", "study", "status", study, *files, "--record", "music-prompts@v1", *place)
    assert shown.count("no expert") == OTHERS + 1
    assert shown.count("fails") == 1
    awards = ["--award", "efficiency=3", "--award", "performance=1"]
    board = json.loads(run("eval", "rank", "music-prompts@v1", "all", *awards, "--json", *place))
    (test,) = board["listening"]
    assert test["left_out"] == ["p036"]
    assert test["awards"] == {"e01": "efficiency 1st", "e03": "efficiency 2nd", "e05": "efficiency 3rd",
                              "p02": "performance 1st"}  # fmt: skip
    for row in test["mos"]:
        least, more = HEARD[next(number for number in HEARD if name_of(number) == row["system"])]
        p, q, listeners = more / 5, OTHERS / (EXPERTS + OTHERS), EXPERTS + OTHERS
        assert (row["ratings"], row["annotators"]) == (5 * listeners, listeners)
        assert row["mos"] == pytest.approx(least + p - q)
        assert row["sd"] == pytest.approx(math.sqrt((p * (1 - p) + q * (1 - q)) * 5 * listeners / (5 * listeners - 1)))
        experts = row["experts"]
        assert (experts["ratings"], experts["annotators"]) == (5 * EXPERTS, EXPERTS)
        assert experts["mos"] == pytest.approx(least + p)
        assert experts["sd"] == pytest.approx(math.sqrt(p * (1 - p) * 5 * EXPERTS / (5 * EXPERTS - 1)))
        assert experts["half_width"] == pytest.approx(0, abs=1e-9), "all experts have one mean"
    page = (Path(board["folder"]) / "README.md").read_text("utf-8")
    assert "p036 fail the checks and are in no figure" in page
    assert {one["question"] for one in test["mos"]} == {"fidelity", "adherence", "musicality", "overall"}
