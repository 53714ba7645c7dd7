"""Rows that are no ratings, and columns with two readings: `earmark init` leaves them out or asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from earmark.schemas.reasons import Reject
from earmark.schemas.toml import read_toml
from earmark.tasks.importers.lists import Rating
from earmark.tasks.importers.sniffing import read_name
from tests.importers.test_doubtful_lists import CLIPS, SCORES, means, table
from tests.importers.test_guessing import init, read, told

LIST = table("file,listener,score", "{clip},{who},{score}")
EVEN = dict(zip(CLIPS[::2], SCORES[::2], strict=True))  # what the first listener said of each clip


def marked(name: str, kept: str, left_out: str) -> str:
    """A list whose second listener's rows do not count."""
    rows = [
        f"{clip},l{n % 2},{(kept, left_out)[n % 2]},{score}"
        for n, (clip, score) in enumerate(zip(CLIPS, SCORES, strict=True))
    ]
    return "\n".join([f"file,listener,{name},score", *rows]) + "\n"


ASKED = {
    **{
        f"{name}-{left_out}": (marked(name, kept, left_out), f'{name} marks rows ("{kept}" 12, "{left_out}" 12)')
        for name, kept, left_out in [
            ("status", "approved", "rejected"),
            ("submission_status", "APPROVED", "RETURNED"),
            ("phase", "main", "practice"),
            ("trialtype", "main", "practice"),
            ("Status", "IP Address", "Survey Preview"),
            ("outlier", "0", "1"),
            ("exclude", "no", "yes"),
            ("valid", "1", "0"),
            ("decision", "accept", "reject"),
            ("trial_type", "test", "catch"),
            ("round", "final", "pilot"),
            ("stage", "main", "warm-up"),
            ("skipped", "0", "1"),
            ("is_spam", "false", "true"),
            ("flagged", "", "x"),
            ("deleted_at", "", "2024-05-01"),
            ("include", "yes", "no"),
            ("passed", "True", "False"),
            ("qc", "ok", "bad"),
            ("isTest", "0", "1"),
            ("Status", "APPROVED", "TIMED-OUT"),
            ("Status", "APPROVED", "AWAITING REVIEW"),
            ("Status", "APPROVED", "Screened out"),
            ("consent", "Yes", "No"),
            ("consent_given", "1", "0"),
            ("Consent", "I agree", "I do not agree"),
        ]
    },
    **{
        f"splits-{'-'.join(words)}": (
            f"file,score,{name}\n" + "".join(f"c{n}.wav,{n % 5 + 1},{words[n % 3]}\n" for n in range(12)),
            f"{name} holds {', '.join(sorted(words))}: if these are the publisher's splits",
        )
        for name, words in {
            "split": ("train", "valid", "eval_seen"),
            "portion": ("train", "test_seen", "test_unseen"),
            "part": ("train-clean", "dev-clean", "test-clean"),
            "my_split": ("0", "1", "2"),
        }.items()
    },
    **{
        f"listener-{word}": (LIST + f"c0.wav,{word},5\n", f"listener holds rows that sum others up ('{word}')")
        for word in ("mean", "ALL", "Grand mean", "StdDev")
    },
    **{
        f"clip-{word}": (
            LIST + f"{word},l0,5\n",
            f"file holds rows that sum others up ('{word}')",
        )
        for word in (
            "StdDev",
            "c0.wav Average",
            "c0.wav Ergebnis",
            "Grand mean",
            "N=36",
            "Total c0.wav",
            "Gesamtergebnis",
        )
    },
    **{
        f"trial-{word}": (LIST + f"c0.wav,{word},5\n", f"listener holds '{word}', as of a trial (1 of 25 rows)")
        for word in ("test", "Test user", "admin", "test_1")
    },
    **{
        f"unfinished-{name}": (
            f"{name},How good? [a.wav],How good? [b.wav]\n2024-05-01 10:00:01,1,2\n2024-05-01 11:20:00,3,4\n,5,5\n",
            f"{name} is blank in 1 of 3 rows, of people who did not finish",
        )
        for name in ("submitdate", "submitted_at", "completedAt")
    },
    "wide": (
        "participant,Rate a.wav,Rate b.wav\np1,1,2\np2,3,4\nmean,2,3\n",
        "participant holds rows that sum others up ('mean')",
    ),
    "grid": (
        "Timestamp,How natural? [a.wav],How natural? [b.wav],How good? [a.wav],How good? [b.wav]\n"
        "x,1,2,3,4\ny,2,3,4,5\n",
        "2 columns rate one clip (How natural? [a.wav], How good? [a.wav])",
    ),
    "split-with-blanks": (
        "file,score,split\n" + "".join(f"c{n}.wav,{n % 5 + 1},{('train', 'test', '')[n % 3]}\n" for n in range(12)),
        "split holds the names of splits, and 4 blank cells",
    ),
    "split-or-turn": (marked("phase", "test", "training"), "phase holds the names of splits"),
    **{
        f"named-{name}": (LIST.replace("score", name, 1), f"{name}: is a low one good")
        for name in ("quality (1 best 5 worst)", "MOS (1=best)", "rating [5=very annoying]", "dissimilarity rating")
    },
    "zeros": (
        "file,score\n" + "".join(f"c{n}.wav,{(0, 1, 2, 3, 4, 5)[n % 6]}\n" for n in range(24)),
        "score holds 4 times 0, and nothing above 5: steps from 0 to 5, or 0 for no rating?",
    ),
    "votes": (
        "file,mos,votes\na.wav,4,10\nb.wav,2,\nc.wav,3,5\n",
        "votes may hold the votes, but 1 of 3 cells are blank",
    ),
    "listeners": (LIST + "c0.wav,,5\n", "listener may hold the listener, but 1 of 25 cells are blank"),
    "mean-of-systems": (
        "utt,sysA,sysB,sysC,mean\n"
        + "".join(
            f"u{n},{n % 5 + 1},{n % 3 + 1},{n % 4 + 1},{(n % 5 + n % 3 + n % 4 + 3) / 3:.2f}\n" for n in range(12)
        ),
        "mean is the mean of sysA, sysB, sysC",
    ),
    **{
        f"list-{word}": (f'file,scores\na.wav,"{cell}"\nb.wav,"{cell}"\n', f"holds 2 words beside numbers ({word})")
        for word, cell in (("nan", "[1, nan, 2]"), ("NA", "1;NA;2"))
    },
}


@pytest.mark.parametrize("name", ASKED)
def test_what_may_be_no_rating_is_asked(name: str, tmp_path: Path) -> None:
    content, says = ASKED[name]
    (tmp_path / "t.csv").write_text(content)
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("low_pass", "01"), ("bot", "ab"), ("passed_s", "345"), ("used_codec", ["mp3", "opus"]), ("complete", ["yes"])],
)
def test_a_column_of_something_else_is_not_asked_about(name: str, words: list[str], tmp_path: Path) -> None:
    rows = [f"c{n}.wav,{SCORES[n]},{words[n % len(words)]}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join([f"file,score,{name}", *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("name", ["MOS (1=bad, 5=excellent)", "quality 1 worst to 5 best", "rating [1-5]", "score"])
def test_a_rating_that_is_better_higher_is_not_asked_about(name: str, tmp_path: Path) -> None:
    rows = [f"c{n}.wav,{SCORES[n]}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join([f'file,"{name}"', *rows, "d.wav,0"]) + "\n")
    assert "no ratings: 0 (1)" in told(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("names", [("test", "demo-lab"), ("test1", "test2"), ("contest", "l0")])
def test_people_of_whom_most_are_called_like_a_trial_are_not_asked_about(
    names: tuple[str, str], tmp_path: Path
) -> None:
    rows = [f"{clip},{names[n % 2]},{SCORES[n]}" for n, clip in enumerate(CLIPS)]
    (tmp_path / "t.csv").write_text("\n".join(["file,listener,score", *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("row", ["All of me.wav,l0,3", "c0.wav,Max,3", "Grand piano.wav,l0,3", "c0.wav,Min,3"])
def test_songs_and_people_may_be_called_like_sums(row: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(LIST + row + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


def test_a_rating_beside_measures_that_it_is_no_mean_of_is_not_asked_about(tmp_path: Path) -> None:
    rows = [f"c{n}.wav,{SCORES[n]},{5 - n % 4},{1 + n % 3}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join(["file,mos,loudness,brightness", *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("name", ["subset", "set", "dataset_split", "split", "partition"])
@pytest.mark.parametrize(("first", "last"), [("train", "test"), ("training", "eval_v1")])
def test_a_column_of_split_names_is_the_publishers_split(name: str, first: str, last: str, tmp_path: Path) -> None:
    rows = [f"c{n}.wav,{n % 5 + 1},{(first, 'dev', last)[n % 3]}" for n in range(24)]
    (tmp_path / "t.csv").write_text("\n".join([f"file,score,{name}", *rows]) + "\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert read_toml(tmp_path / "my.toml")["sources"][0]["columns"]["split"] == name
    splits = {row.file: row.split for row in read(tmp_path / "my.toml") if isinstance(row, Rating)}
    assert splits == {f"c{n}.wav": ("train", "validation", "test")[n % 3] for n in range(24)}


def tasks(form: str) -> list[dict[str, Any]]:
    """Tasks with an answer that counts, EVEN's, and one that does not, of 5."""
    if form == "label-studio":
        answer = [{"type": "rating", "from_name": "rating", "value": {"rating": 0}}]
        return [
            {
                "data": {"audio": clip},
                "annotations": [
                    {"completed_by": n, "was_cancelled": bool(n), "result": [{**answer[0], "value": {"rating": said}}]}
                    for n, said in enumerate((score, 5))
                ],
            }
            for clip, score in EVEN.items()
        ]
    states = [{"status": "submitted"}, {"status": "discarded"}] if form == "argilla" else [{}]
    suggested = {"suggestions": {"quality": {"value": 5, "agent": "m"}}} if form == "suggested" else {}
    return [
        {
            "fields": {"audio": clip},
            **suggested,
            "responses": {
                "quality": [
                    {"value": said, "user_id": f"u{n}", **state}
                    for n, (said, state) in enumerate(zip((score, 5), states, strict=False))
                ]
            },
        }
        for clip, score in EVEN.items()
    ]


@pytest.mark.parametrize("form", ["label-studio", "argilla", "suggested"])
def test_only_what_people_said_and_let_stand_is_averaged(form: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(tasks(form)))
    init(tmp_path / "t.json", tmp_path / "my.toml")
    assert means(tmp_path / "my.toml") == EVEN


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_of_lists_of_answers_beside_their_states_those_submitted_are_averaged(kind: str, tmp_path: Path) -> None:
    """Write what Argilla's `to_datasets` gives: a question's answers, their states and people in three lists."""
    rows: list[dict[str, Any]] = [
        {
            "audio": clip,
            "quality.responses": [score, 5, 4],
            "quality.responses.status": ["submitted", "discarded", "draft"],
            "quality.responses.users": ["u0", "u1", "u2"],
        }
        for clip, score in EVEN.items()
    ]
    rows[-1] |= {"quality.responses": rows[-1]["quality.responses"][:1], "quality.responses.users": ["u0"]}
    path, frame = tmp_path / f"t.{kind}", pd.DataFrame(rows[:-1])
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:  # of the last row, three states for one answer
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    init(path, tmp_path / "my.toml")
    assert means(tmp_path / "my.toml") == dict(list(EVEN.items())[:-1])
    rejects = [row for row in read(tmp_path / "my.toml") if isinstance(row, Reject)]
    assert {row.reason for row in rejects} == {"not_selected"}
    assert len(rejects) == 2 * len(frame) + (kind == "jsonl")


@pytest.mark.parametrize("name", ["ccr", "dcr", "nmos", "BVMOS"])
def test_names_of_listening_tests_are_ratings(name: str) -> None:
    assert read_name(name).rates
