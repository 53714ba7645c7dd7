"""Tables of comparisons, from file to votes by `earmark init human-preferences` alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.human_preferences.sources import read_source
from earmark.tasks.importers.votes import Vote

CHOICES = ["A", "B", "A", "tie", "A", "B"]
EXPECTED = Counter({"a": 3, "b": 2, "tie": 1})


def init(table: Path, out: Path, code: int = 0) -> str:
    run = CliRunner().invoke(app, ["init", "human-preferences", "--from", str(table), "--out", str(out)])
    assert run.exit_code == code, (run.output, run.exception)
    return str(run.exception) if code else run.stdout


def read(config: Path) -> list[Vote]:
    build = parse_config(HumanPreferences, read_toml(config), config)
    return [row for row in read_source(build, build.sources[0]) if isinstance(row, Vote)]


def rows(header: str, form: str, words: dict[str, str]) -> str:
    lines = [form.format(n=n, choice=words.get(word, word)) for n, word in enumerate(CHOICES)]
    return "\n".join([header, *lines]) + "\n"


SAME: dict[str, str] = {}
NUMBERS = {"A": "1", "B": "2"}
TABLES = {
    "votes": ("worker_id,audio_a,audio_b,winner", "w{n},x/{n}.wav,y/{n}.wav,{choice}", SAME),
    "numbers": ("rater,wav1,wav2,preference", "w{n},x/{n}.wav,y/{n}.wav,{choice}", NUMBERS),
    "sides": (
        "left_clip,right_clip,system_left,system_right,vote,who", "x{n}.wav,y{n}.wav,s,t,{choice},w",
        {"A": "left", "B": "right"},
    ),
    "own": ("worker_id,audio_a,audio_b,overall", "w{n},x/{n}.wav,y/{n}.wav,{choice}", SAME),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_comparisons_are_read_whatever_their_columns_are_called(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows(*TABLES[name]))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    votes = read(tmp_path / "my.toml")
    assert Counter(vote.overall for vote in votes) == EXPECTED
    assert votes[0].audio_a != votes[0].audio_b
    if name != "sides":
        assert len({vote.annotator for vote in votes}) == len(CHOICES)


@pytest.mark.parametrize("line", ["", "sep=;\n", '"sep=;"\r\n'])
def test_comparisons_of_a_spreadsheet_are_split_by_its_mark(line: str, tmp_path: Path) -> None:
    text = rows(*TABLES["votes"]).replace(",", ";")
    (tmp_path / "t.csv").write_text(line + text)
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert Counter(vote.overall for vote in read(tmp_path / "my.toml")) == EXPECTED


@pytest.mark.parametrize(
    ("name", "mark"), [("t.csv", "\t"), ("t.csv", "|"), ("t.tsv", ";"), ("t.tsv", ","), ("t.tsv", "|")]
)
def test_comparisons_are_split_by_their_headers_mark_whatever_the_files_ending(
    name: str, mark: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(rows(*TABLES["votes"]).replace(",", mark))
    init(tmp_path / name, tmp_path / "my.toml")
    assert Counter(vote.overall for vote in read(tmp_path / "my.toml")) == EXPECTED


def test_an_encoding_that_no_option_names_is_to_be_changed(tmp_path: Path) -> None:
    text = "audio_a,audio_b,winner,remark\nx.wav,y.wav,A,schön\nx.wav,z.wav,B,schön\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert "line 2: expected UTF-8" in said
    assert said.endswith("save the file as UTF-8")


def test_a_choice_may_be_the_clip_itself(tmp_path: Path) -> None:
    text = "sample_a,sample_b,better\nx.wav,y.wav,y.wav\nx.wav,y.wav,x.wav\n"
    (tmp_path / "t.csv").write_text(text)
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert [vote.overall for vote in read(tmp_path / "my.toml")] == ["b", "a"]


def test_ratings_from_minus_three_to_three_ask_for_their_sign(tmp_path: Path) -> None:
    scores = [-3, -1, 0, 2, 3, 1]
    (tmp_path / "t.csv").write_text(
        "ref_a,test_b,cmos,listener\n" + "".join(f"x.wav,y.wav,{s},l{n}\n" for n, s in enumerate(scores))
    )
    assert 'positive = "a" or "b"' in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    text = (tmp_path / "my.toml").read_text().replace("# positive = ", "positive = ")
    (tmp_path / "my.toml").write_text(text)
    votes = pd.DataFrame(read(tmp_path / "my.toml"))
    frame = pd.read_csv(tmp_path / "t.csv")
    assert (votes["overall"] == "b").sum() == (frame["cmos"] > 0).sum()
    assert votes["confidence_overall"].tolist()[:2] == [5, 1]


def test_names_of_our_own_stand_beside_others(tmp_path: Path) -> None:
    header = "audio_a,audio_b,overall,worker_id,system_a,system_b,prompt,date,score"
    (tmp_path / "t.csv").write_text(
        f"{header}\nx.wav,y.wav,b,w,ant,bee,A tune,2025-08-31,1\nx.wav,y.wav,a,v,ant,bee,,,2\n"
    )
    assert "not used: score\n" in init(tmp_path / "t.csv", tmp_path / "my.toml")
    one, other = read(tmp_path / "my.toml")
    assert (one.overall, one.annotator, one.model_a, one.model_b, one.text) == ("b", "w", "ant", "bee", "A tune")
    assert (other.overall, other.annotator, other.text, one.date) == ("a", "v", None, "2025-08-31")


def test_who_hears_the_reference_is_no_preference(tmp_path: Path) -> None:
    """webMUSHRA's write.php and PairedComparisonPage.js."""
    header = (
        "session_test_id,email,trial_id,choice_reference,choice_non_reference,choice_answer,choice_time,choice_comment"
    )
    rows = [f"t,,item,reference,C1,{word},4000," for word in ("correct", "incorrect", "undecided")]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]) + "\n")
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert "t.csv: expected a preference, found correct and incorrect in choice_answer" in said
    assert not (tmp_path / "my.toml").exists()


@pytest.mark.parametrize(
    ("column", "cells", "says"),
    [
        ("AssignmentStatus", "Approved Rejected", 'AssignmentStatus holds "Approved", "Rejected": write a table'),
        ("is_attention_check", "False True", "is_attention_check holds"),
        ("question", "better? fits?", "question holds"),
        ("swapped", "0 1", "swapped holds"),
        ("presented", "AB BA", "presented holds"),
        ("X", "x.wav y.wav", "X holds a third clip"),
        ("item", "p1 p2", ""),
        ("swapped", "0 0", ""),
    ],
)
def test_a_column_that_may_tell_what_a_choice_means_is_asked_about(
    column: str, cells: str, says: str, tmp_path: Path
) -> None:
    rows = [f"x.wav,y.wav,{choice},{cell}" for choice, cell in zip(("left", "right"), cells.split(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([f"audio_a,audio_b,choice,{column}", *rows]) + "\n")
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=bool(says))
    assert says in said


@pytest.mark.parametrize(
    ("header", "row", "says"),
    [
        ("audio_a audio_b winner", "x.wav y.wav A", "save the table with commas"),
        ("audio_a,audio_b,winner", "x.wav,y.wav,0", "winner holds 0 without a sign: write a, b or tie"),
        ("audio_a,audio_b,time", "x.wav,y.wav,3", "no column is called a choice"),
        ("audio_a,audio_b,winner,vote", "x.wav,y.wav,A,B", "2 columns may be the choice"),
        ("audio_a,audio_b,winner,worker,rater", "x.wav,y.wav,A,w,r", "several columns may name who chose"),
    ],
)
def test_what_is_not_sure_is_a_choice_for_a_person(header: str, row: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n{row}\n{row}\n")
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert (tmp_path / "my.toml").exists()


def test_the_type_of_a_prompt_is_no_question(tmp_path: Path) -> None:
    header = "worker_id,audio_a,audio_b,prompt_type,item,winner"
    text = rows(header, "w{n},x/{n}.wav,y/{n}.wav,type {n},{n},{choice}", SAME)
    (tmp_path / "t.csv").write_text(text)
    init(tmp_path / "t.csv", tmp_path / "my.toml")
