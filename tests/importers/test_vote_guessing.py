"""Tables of comparisons, from file to votes by `earmark init human-preferences` alone."""

from __future__ import annotations

import json
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


def told(table: Path, out: Path, *more: str, code: int = 0) -> str:
    """Return what `earmark init` prints, with a preview of the build; or the reason for which it ends with 1."""
    run = CliRunner().invoke(app, ["init", "human-preferences", "--from", str(table), "--out", str(out), *more])
    assert run.exit_code == code, (run.output, run.exception)
    return str(run.exception) if code else run.stdout


def init(table: Path, out: Path, code: int = 0) -> str:
    """The same as JSON: it previews no build, which takes ten times as long as the guess."""
    return told(table, out, "--json", code=code)


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
    assert "not used: score\n" in told(tmp_path / "t.csv", tmp_path / "my.toml")
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
        ("left_is", "A B", "left_is may tell which clip stood left"),
        ("shown_left", "audio_a audio_b", "shown_left may tell"),
        ("position_a", "right left", "position_a may tell"),
        ("left_file", "x.wav y.wav", "left_file may tell"),
        ("plays_left", "1 2", ""),
        ("left_is", "A A", ""),
        ("status", "approved rejected", 'status holds "approved", "rejected"'),
        ("phase", "main practice", "phase holds"),
        ("skipped", "0 1", "skipped holds"),
        ("is_spam", "no yes", "is_spam holds"),
        ("mirrored", "0 1", "mirrored holds"),
        ("sequence", "12 21", "sequence holds"),
        ("outlier", "0 1", "outlier holds"),
        ("worker", "test l1", ""),
        ("submitdate", "2024-05-01 ", "submitdate is blank in 1 of 2 rows"),
        ("consent", "no yes", "consent holds"),
        ("submission", "APPROVED TIMED-OUT", "submission holds"),
        ("part", "training test", ""),
        ("item", "p1 p2", ""),
        ("swapped", "0 0", ""),
    ],
)
def test_a_column_that_may_tell_what_a_choice_means_is_asked_about(
    column: str, cells: str, says: str, tmp_path: Path
) -> None:
    rows = [f"x.wav,y.wav,{choice},{cell}" for choice, cell in zip(("left", "right"), cells.split(" "), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([f"audio_a,audio_b,choice,{column}", *rows]) + "\n")
    said = init(tmp_path / "t.csv", tmp_path / "my.toml", code=bool(says))
    assert says in said


@pytest.mark.parametrize(
    ("header", "row", "says"),
    [
        ("audio_a audio_b winner", "x.wav y.wav A", "save the table with commas"),
        ("audio_a,audio_b,winner", "x.wav,y.wav,0", "winner holds 0 without a sign: write a, b or tie"),
        ("audio_a,audio_b,time", "x.wav,y.wav,3", "no column is called a choice"),
        (
            "audio_a,audio_b,vote",
            "x.wav,y.wav,about the same",
            "vote is called a choice, but holds 'about",
        ),
        ("audio_a,audio_b,winner,vote", "x.wav,y.wav,A,B", "2 columns may be the choice"),
        ("audio_a,audio_b,winner,worker,rater", "x.wav,y.wav,A,w,r", "several columns may name who chose"),
    ],
)
def test_what_is_not_sure_is_a_choice_for_a_person(header: str, row: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n{row}\n{row}\n")
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert (tmp_path / "my.toml").exists()


def test_who_tried_the_study_out_is_asked_about(tmp_path: Path) -> None:
    text = "".join(f"a{n}.wav,b{n}.wav,a,{who}\n" for n, who in enumerate(("l1", "l2", "l3", "test")))
    (tmp_path / "t.csv").write_text(f"audio_a,audio_b,winner,worker\n{text}")
    says = "worker holds 'test', as of a trial (1 of 4 rows): delete such rows"
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)


def test_the_type_of_a_prompt_is_no_question(tmp_path: Path) -> None:
    header = "worker_id,audio_a,audio_b,prompt_type,item,winner"
    text = rows(header, "w{n},x/{n}.wav,y/{n}.wav,type {n},{n},{choice}", SAME)
    (tmp_path / "t.csv").write_text(text)
    init(tmp_path / "t.csv", tmp_path / "my.toml")


INVERTED = (
    "not_preferred least_preferred less_preferred worst_choice loser_vote rejected_choice which_is_worse_answer "
    "non_preferred noisier_choice disliked_choice bad_choice"
)
OF_OTHERS = (
    "gpt_preference llm_answer ai_vote pred_winner predicted_preference model_choice judge_preference gold_choice "
    "expected_answer correct_answer previous_choice"
)


@pytest.mark.parametrize("column", [*INVERTED.split(), *OF_OTHERS.split()])
def test_a_worse_clip_or_the_answer_of_a_machine_is_no_choice_of_a_person(column: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(rows(f"audio_a,audio_b,{column}", "x/{n}.wav,y/{n}.wav,{choice}", SAME))
    assert "no column is called a choice" in init(table, tmp_path / "my.toml", code=1)
    table.write_text(rows(f"audio_a,audio_b,{column},preference", "x/{n}.wav,y/{n}.wav,tie,{choice}", SAME))
    init(table, tmp_path / "other.toml")
    assert Counter(vote.overall for vote in read(tmp_path / "other.toml")) == EXPECTED


@pytest.mark.parametrize("column", ["preferred_model", "winner_model", "Which do you prefer? Your choice"])
def test_names_near_those_of_machines_stay_choices(column: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows(f"audio_a,audio_b,{column}", "x/{n}.wav,y/{n}.wav,{choice}", SAME))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert Counter(vote.overall for vote in read(tmp_path / "my.toml")) == EXPECTED


@pytest.mark.parametrize(
    ("header", "dimensions"),
    [
        ("musicality,text_alignment", ("musicality", "alignment")),
        ("quality_preference,prompt_preference", ("musicality", "alignment")),
        ("overall,audio_quality", ("overall", "musicality")),
        ("preference,prompt_adherence", ("overall", "alignment")),
    ],
)
def test_every_dimension_of_a_vote_is_read(header: str, dimensions: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"audio_a,audio_b,{header}\nx.wav,y.wav,A,B\nx.wav,z.wav,B,tie\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    votes = read(tmp_path / "my.toml")
    assert [tuple(getattr(vote, one) for one in dimensions) for vote in votes] == [("a", "b"), ("b", "tie")]
    others = {"musicality", "alignment", "overall"} - {*dimensions}
    assert all(getattr(vote, one) is None for vote in votes for one in others)


def test_ratings_of_quality_beside_a_choice_are_no_choice(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner,quality\nx.wav,y.wav,A,1\nx.wav,z.wav,B,3\n")
    assert "not used: quality\n" in told(tmp_path / "t.csv", tmp_path / "my.toml")


@pytest.mark.parametrize("pair", ["score_a,score_b", "Rating 1,Rating 2", "left_rating,right_rating"])
def test_a_rating_of_each_clip_is_no_choice(pair: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"clip_a,clip_b,{pair}\nx.wav,y.wav,4,2\nz.wav,w.wav,3,1\nu.wav,v.wav,5,2\n")
    assert "no column is called a choice" in init(table, tmp_path / "my.toml", code=1)
    table.write_text(f"clip_a,clip_b,{pair},preference\nx.wav,y.wav,4,2,a\nz.wav,w.wav,3,1,b\n")
    init(table, tmp_path / "other.toml")
    assert [vote.overall for vote in read(tmp_path / "other.toml")] == ["a", "b"]


@pytest.mark.parametrize("header", ["winner,loser", "chosen,rejected"])
def test_a_chosen_clip_beside_the_other_is_a_vote_for_it(header: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"prompt,{header}\nA tune,x.wav,y.wav\nA song,z.wav,x.wav\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    votes = read(tmp_path / "my.toml")
    assert [(v.audio_a, v.audio_b, v.overall, v.text) for v in votes] == [
        ("x.wav", "y.wav", "a", "A tune"),
        ("z.wav", "x.wav", "a", "A song"),
    ]


def test_the_ids_of_questions_that_each_stand_once_are_no_questions(tmp_path: Path) -> None:
    header = "question_id,audio_a,audio_b,winner"
    (tmp_path / "t.csv").write_text(rows(header, "q{n},x/{n}.wav,y/{n}.wav,{choice}", SAME))
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("q5", "q4"))
    assert "question_id holds" in init(tmp_path / "t.csv", tmp_path / "other.toml", code=1)


def test_an_array_of_votes_is_read_by_its_names(tmp_path: Path) -> None:
    votes = [{"audio_a": f"x{n}.wav", "audio_b": f"y{n}.wav", "preference": word} for n, word in enumerate(CHOICES)]
    (tmp_path / "t.json").write_text(json.dumps(votes))
    init(tmp_path / "t.json", tmp_path / "my.toml")
    assert Counter(vote.overall for vote in read(tmp_path / "my.toml")) == EXPECTED


def test_a_document_of_a_tool_is_not_guessed_since_its_answers_may_be_withdrawn(tmp_path: Path) -> None:
    answer = {"status": "discarded", "values": {"preference": {"value": "A"}}}
    tasks = [{"fields": {"audio_a": f"x{n}.wav", "audio_b": f"y{n}.wav"}, "responses": [answer]} for n in range(4)]
    (tmp_path / "t.json").write_text(json.dumps(tasks))
    assert "expected rows in one of the layouts" in init(tmp_path / "t.json", tmp_path / "my.toml", code=1)


def test_rows_that_may_be_comments_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner\nx.wav,y.wav,A\n#x.wav,z.wav,B\n")
    assert "1 clips begin with #, such as #x.wav" in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner\n#1.wav,#2.wav,A\n#1.wav,#3.wav,B\n")
    init(tmp_path / "t.csv", tmp_path / "other.toml")


def test_votes_on_one_clip_in_two_spellings_are_no_comparison(tmp_path: Path) -> None:
    pairs = ["x.wav,./x.wav", "a//x.wav,a/x.wav", "\u200bx.wav,x.wav", "\u00e9.wav,e\u0301.wav", "./x.wav,y.wav"]
    (tmp_path / "t.csv").write_text("audio_a,audio_b,winner\n" + "".join(f"{pair},A\n" for pair in pairs), "utf-8")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert [(vote.audio_a, vote.audio_b) for vote in read(tmp_path / "my.toml")] == [("x.wav", "y.wav")]


@pytest.mark.parametrize("user", [{"user": "u{n}"}, {"by": {"voter": {"user_id": "u{n}"}}}], ids=["user", "deeper"])
def test_who_voted_may_stand_in_an_object_of_its_own(user: dict[str, object], tmp_path: Path) -> None:
    lines = [
        {"audio_a": f"x/{n}.wav", "audio_b": f"y/{n}.wav", "choice": word,
         "vote": json.loads(json.dumps(user).replace("{n}", str(n)))}
        for n, word in enumerate(CHOICES)
    ]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    init(tmp_path / "t.jsonl", tmp_path / "my.toml")
    assert [vote.annotator for vote in read(tmp_path / "my.toml")] == [f"u{n}" for n in range(len(CHOICES))]
