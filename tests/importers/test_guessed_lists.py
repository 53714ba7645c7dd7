"""Lists as labs have them, from file to ratings by `earmark init` alone; and no list makes it take another column."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.schemas.reasons import Reject
from earmark.schemas.toml import read_toml
from earmark.tasks.importers.guessing import guess_table
from earmark.tasks.importers.lists import Rating
from earmark.tasks.importers.sniffing import read_name, word_set
from tests.importers import layouts
from tests.importers.test_guessing import init, read, told

# Clips, raters and ratings, as every list below holds them.
RATED = [
    (f"s{s}/u{u}.wav", f"l{who}", 1 + (3 * s + 5 * u + who) % 5) for s in range(3) for u in range(4) for who in range(3)
]
MEANS = pd.DataFrame(RATED, columns=["file", "who", "score"]).groupby("file")["score"].mean().to_dict()


def lines(header: str, form: str, **more: Any) -> str:
    """A table: a row a rating."""
    rows = [
        form.format(clip=clip, who=who, score=score, n=n, system=clip[:2], utt=clip[3:5], age=20 + int(who[1]), **more)
        for n, (clip, who, score) in enumerate(RATED)
    ]
    return "\n".join([header, *rows]) + "\n"


MTURK = '"HITId","WorkerId","Input.url","Answer.played","Answer.quality","Approve","Reject"'
LIKED = "IDListener,ageListener,filename,orderPlayed,Rating_Likability"
PLAIN = lines("clip,rater,rating", "{clip},{who},{score}")
# the file, and what the config must take for the rating and for the listener
LISTS: dict[str, tuple[str, str, str | None]] = {
    "somos": (lines("systemId,utteranceId,choice,listenerId", "{system},{clip},{score},{who}"), "choice", "listenerId"),
    "ages": (lines(LIKED, "{who},{age},{clip},{n},{score}"), "Rating_Likability", "IDListener"),
    "mturk": (lines(MTURK, '"H{n}","{who}","{clip}","{n}","{score}"'), "Answer.quality", "WorkerId"),
    "trailing-comma": (lines("wav,listener,score", "{clip},{who},{score},"), "score", "listener"),
    "psychopy": (
        lines("stim,slider.response,slider.rt,participant,", "{clip},{score},{n}.5,{who},"),
        "slider.response",
        "participant",
    ),
    "pandas-index": (lines(",wav,rater,mos", "{n},{clip},{who},{score}"), "mos", "rater"),
    "semicolons": (lines("Datei;Hörer;Bewertung", "{clip};{who};{score}"), "Bewertung", "Hörer"),
    "decimal-commas": (lines("Datei;Hörer;MOS", "{clip};{who};{score},0"), "MOS", "Hörer"),
    "labels": (lines("wav,listener,rating", "{clip},{who},{score} - word"), "rating", "listener"),
    "chinese": (lines("音频文件,听众编号,自然度评分", "{clip},{who},{score}"), "自然度评分", "听众编号"),
    "unfilled": (PLAIN + "s0/u0.wav,l9,n/a\ns1/u0.wav,l9,\n", "rating", "rater"),
    "sentinels": (PLAIN + "s0/u0.wav,l9,99\ns1/u0.wav,l9,-1\n", "rating", "rater"),
    "zeros": (PLAIN + "s0/u0.wav,l9,0\n", "rating", "rater"),
    "reference": (lines("Ref;Deg;MOS", "{utt}_ref.wav;{clip};{score}"), "MOS", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_a_list_becomes_the_means_that_pandas_counts(name: str, tmp_path: Path) -> None:
    content, mos, listener = LISTS[name]
    (tmp_path / f"{name}.csv").write_text(content)
    init(tmp_path / f"{name}.csv", tmp_path / "my.toml")
    source = read_toml(tmp_path / "my.toml")["sources"][0]
    assert (source["columns"]["mos"], source["columns"].get("listener"), source["scale"]) == (mos, listener, [1, 5])
    rows = read(tmp_path / "my.toml")
    ratings = pd.DataFrame([row._asdict() for row in rows if isinstance(row, Rating)])
    assert ratings.groupby("file")["score"].mean().to_dict() == pytest.approx(MEANS)
    assert {row.reason for row in rows if isinstance(row, Reject)} <= {"not_a_rating"}


@pytest.mark.slow
def test_webmushra_names_its_clips_by_trial_and_stimulus(tmp_path: Path) -> None:
    header = "session_test_id,email,session_uuid,trial_id,rating_stimulus,rating_score,rating_time,rating_comment\n"
    content = lines(header, "t,{who}@x,{who},{utt},{system},{score}0,{n},")
    (tmp_path / "mushra.csv").write_text(content)
    init(tmp_path / "mushra.csv", tmp_path / "my.toml")
    rows = [row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]
    assert (rows[0].file, rows[0].system_id, rows[0].listener_id) == ("u0/s0.wav", "s0", "l0")
    means = pd.DataFrame(rows).groupby("file")["score"].mean()
    assert means.to_dict() == pytest.approx({f"{f[3:5]}/{f[:2]}.wav": 10 * mean for f, mean in MEANS.items()})
    assert read_toml(tmp_path / "my.toml")["sources"][0]["scale"] == [0, 100]


def test_nested_webmushra_names_its_clips_by_trial_and_stimulus(tmp_path: Path) -> None:
    def trial(name: str, *scores: int) -> dict[str, object]:
        said = [{"stimulus": f"C{n}", "score": score, "time": 1} for n, score in enumerate(scores)]
        return {"type": "mushra", "id": name, "responses": said}

    sessions = [{"testId": "t", "uuid": f"u{n}", "trials": [trial("i1", 80, 40), trial("i2", 20, 60)]} for n in (1, 2)]
    (tmp_path / "t.json").write_text(json.dumps(sessions))
    init(tmp_path / "t.json", tmp_path / "my.toml")
    means = {row.file: row.score for row in read(tmp_path / "my.toml")}
    assert means == {"i1/C0.wav": 80, "i1/C1.wav": 40, "i2/C0.wav": 20, "i2/C1.wav": 60}


@pytest.mark.slow
def test_columns_named_by_clips_hold_their_ratings(tmp_path: Path) -> None:
    frame = pd.DataFrame(RATED, columns=["file", "who", "score"])
    frame["file"] = frame["file"].str.replace("/", "_")
    wide = frame.pivot_table(index="who", columns="file", values="score")
    expected = {clip.replace("/", "_"): mean for clip, mean in MEANS.items()}
    for names in ("{}", "How natural is {}? [rating]"):
        wide.rename(columns=names.format).to_csv(tmp_path / "form.csv", index_label="Participant")
        init(tmp_path / "form.csv", tmp_path / "my.toml", force=True)
        rows = pd.DataFrame([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)])
        assert rows.groupby("file")["score"].mean().to_dict() == pytest.approx(expected)
        assert {*rows["listener_id"]} == {"l0", "l1", "l2"}


def test_p808_batches_name_a_clip_for_each_answer(tmp_path: Path) -> None:
    header = "HITId,WorkerId,Input.Q0,Input.Q1,Input.gold_clip,Answer.Q0,Answer.Q1,Answer.gold,Approve,Reject\n"
    (tmp_path / "batch.csv").write_text(header + "h,w1,a.wav,b.wav,g.wav,5,3,1\nh,w2,b.wav,c.wav,g.wav,4,1,1\n")
    init(tmp_path / "batch.csv", tmp_path / "my.toml")
    rows = pd.DataFrame([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)])
    assert rows.groupby("file")["score"].mean().to_dict() == {"a.wav": 5, "b.wav": 3.5, "c.wav": 1}


def test_qualtrics_descriptions_are_no_answers(tmp_path: Path) -> None:
    header = "StartDate,Finished,ResponseId,Q1,Q2,Q3\nStart,Finished,ID,How old are you?,a?,b?\n"
    imported = ",".join('"{""ImportId"":""x""}"' for _ in range(6)) + "\n"
    content = header + imported + "d,True,R1,31,4,2\nd,False,R2,30,1,1\nd,True,R3,22,5,3\n"
    (tmp_path / "q.csv").write_text(content)
    assert "of a wide table all that are" in init(tmp_path / "q.csv", tmp_path / "my.toml", code=1)
    text = (tmp_path / "my.toml").read_text()
    assert '# mos = ["Q1", "Q2", "Q3"]' in text  # a person leaves out the age
    text = text.replace('# mos = ["Q1", "Q2", "Q3"]', 'mos = ["Q2", "Q3"]').replace(
        '# file = "…"', 'file = "{column}.wav"'
    )
    (tmp_path / "my.toml").write_text(text)
    rows = read(tmp_path / "my.toml")
    assert [(r.file, r.score, r.listener_id) for r in rows if isinstance(r, Rating)] == [
        ("Q2.wav", 4, "R1"), ("Q3.wav", 2, "R1"), ("Q2.wav", 5, "R3"), ("Q3.wav", 3, "R3"),
    ]  # fmt: skip
    assert {row.reason for row in rows if isinstance(row, Reject)} == {"not_selected"}


def test_a_wide_table_builds_by_what_init_says(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(
        "utt,tacoA,natC\n" + "".join(f"u{n},{2 - n / 10:g},{5 - n / 10:g}\n" for n in range(9))
    )
    init(tmp_path / "wide.csv", tmp_path / "my.toml", code=1)
    text = (tmp_path / "my.toml").read_text()
    for line in ("unpivot = ", 'mos = ["', "scale = "):
        text = text.replace(f"# {line}", line)
    (tmp_path / "my.toml").write_text(text.replace('file = "utt"', 'file = "{column}/{utt}.wav"'))
    rows = [row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]
    assert [(row.file, row.system_id, row.score) for row in rows[:2]] == [
        ("tacoA/u0.wav", "tacoA", 2),
        ("natC/u0.wav", "natC", 5),
    ]


def test_aesthetics_have_four_axes_of_which_a_person_chooses(tmp_path: Path) -> None:
    axes = ("Production_Quality", "Production_Complexity", "Content_Enjoyment", "Content_Usefulness")
    rows = [{"data_path": f"{n}.wav", **{axis: [1 + n % 9, 2 + n % 9] for axis in axes}} for n in range(12)]
    (tmp_path / "aes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "4 columns may be the rating" in init(tmp_path / "aes.jsonl", tmp_path / "my.toml", code=1)
    text = (tmp_path / "my.toml").read_text().replace("# scale = [1, 5]", "scale = [1, 10]")
    (tmp_path / "my.toml").write_text(text.replace('# mos = "Content_Enjoyment"', 'mos = "Content_Enjoyment"'))
    got = pd.DataFrame([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)])
    assert got.groupby("file")["score"].mean().to_dict() == {f"{n}.wav": 1.5 + n % 9 for n in range(12)}


@pytest.mark.slow
def test_ranks_are_turned_and_tests_have_their_scales(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(lines("file,listener,rank", "{clip},{who},{score}"))
    assert "the lowest is the best" in told(tmp_path / "r.csv", tmp_path / "my.toml")
    got = pd.DataFrame([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)])
    assert got.groupby("file")["score"].mean().to_dict() == pytest.approx({f: 6 - mean for f, mean in MEANS.items()})
    many = "".join(
        f"{t}/{n}.wav,{score},{t}\n" for t, top in (("p", 5), ("q", 100)) for n, score in enumerate((1, 3, top))
    )
    (tmp_path / "m.csv").write_text("wav,score,test\n" + many)
    init(tmp_path / "m.csv", tmp_path / "m.toml")
    assert read_toml(tmp_path / "m.toml")["sources"][0]["scale"] == {"p": [1, 5], "q": [0, 100]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "list_", "write"),
    [
        ("bvcc", "main/DATA/sets/TRAINSET", lambda root: layouts.bvcc(root, ratings=True)),
        ("bvcc", "test_mos_list.txt", lambda root: layouts.bvcc(root, folder=".")),
        ("nisqa", "NISQA_Corpus/NISQA_corpus_file.csv", layouts.nisqa),
        ("nisqa", "NISQA_VAL_LIVE/NISQA_VAL_LIVE_file.csv", lambda root: layouts.nisqa(root, single=False)),
        ("singmos", "DATA/sets/train_mos_list.txt", layouts.singmos),
        ("singmos", "sets/val.txt", lambda root: layouts.singmos(root, "v1")),
        ("singmos", "info/score.json", lambda root: layouts.singmos(root, "json")),
        ("somos", "training_files/split1/clean/TRAINSET", layouts.somos),
        ("tmhint-qi", "raw_data.csv", layouts.tmhint_qi),
        ("vmc23", "track1_answer.txt", layouts.vmc23),
    ],
)
def test_a_list_of_a_published_folder_is_read_as_its_layout(
    layout: str, list_: str, write: Any, tmp_path: Path
) -> None:
    count = write(tmp_path / "corpus")
    found = next((tmp_path / "corpus").rglob(list_))
    init(found, tmp_path / "my.toml")
    source = read_toml(tmp_path / "my.toml")["sources"][0]
    assert source["format"] == layout
    assert len([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]) == count


@pytest.mark.slow
def test_a_split_fits_the_list(tmp_path: Path) -> None:
    for clips, split, shares in (
        (40, "by-content", None),
        (12, "by-content", {"train": 0.7, "test": 0.3}),
        (5, None, None),
    ):
        rows = [f"{n % clips}.wav,{1 + n % 5}" for n in range(2 * clips)]
        (tmp_path / "t.csv").write_text("\n".join(["wav,mos", *rows]))
        init(tmp_path / "t.csv", tmp_path / "my.toml", force=True)
        source = read_toml(tmp_path / "my.toml")["sources"][0]
        assert (source.get("split"), source.get("shares")) == (split, shares)
    (tmp_path / "t.csv").write_text("wav,mos,split\na.wav,1,dev\nb.wav,2,test\n")
    init(tmp_path / "t.csv", tmp_path / "my.toml", force=True)
    assert read_toml(tmp_path / "my.toml")["sources"][0]["columns"]["split"] == "split"


@pytest.mark.parametrize(
    "name", ["a" * 90, "My_Study_on_Naturalness_of_Synthetic_Voices_and_their_Likability_November_2024"]
)
def test_a_long_file_name_is_shortened(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.csv").write_text("wav,mos\na.wav,1\nb.wav,2\n")
    init(tmp_path / f"{name}.csv", tmp_path / "my.toml")
    assert len(read(tmp_path / "my.toml")) == 2


NONSENSE = st.text("abcdefghijklmnopqrstuvwxyzABC_ 0123456789.", min_size=1, max_size=12).filter(
    lambda name: not read_name(name).rates
)


@given(
    seed=st.integers(0, 10**6),
    names=st.lists(NONSENSE, min_size=7, max_size=7, unique_by=str.strip),
    keep=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_no_order_name_or_id_column_makes_it_take_another_rating(
    seed: int, names: list[str], keep: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Columns are shuffled, renamed to nonsense, and joined by ids, ages, counters and times."""
    dice = random.Random(seed)
    frame = pd.DataFrame(RATED, columns=["wav", "listener", "score"])
    extra = {
        "hit_id": [dice.randrange(10**6) for _ in RATED],
        "trial": range(len(RATED)),
        "age": frame["listener"].map(lambda who: 20 + int(who[1])),
        "reaction_time": [dice.uniform(0.5, 5) for _ in RATED],
        "session": frame["listener"].map(lambda who: 1 + int(who[1])),
        "timestamp": [1.7e9 + n for n in range(len(RATED))],
        "presentation_order": frame.groupby("listener").cumcount() + 1,
        "duration_s": [dice.uniform(1, 5) for _ in RATED],
        "birth_year": frame["listener"].map(lambda who: 1970 + int(who[1])),
        "is_headphones": [dice.randrange(2) for _ in RATED],
        "snr": [dice.choice([0, 5, 10, 20]) for _ in RATED],
        "num_plays": [dice.randint(1, 5) for _ in RATED],
        "predicted_mos": [dice.uniform(1, 5) for _ in RATED],
        "mos_ci95": [dice.uniform(0, 1) for _ in RATED],
        "score_scale": [5 for _ in RATED],
        "Alter": frame["listener"].map(lambda who: 20 + int(who[1])),
        "编号": range(len(RATED)),
        "Bewertungsnummer": range(len(RATED)),
    }
    for name, values in dice.sample([*extra.items()], 4):
        frame[name] = list(values)
    if dice.random() < 0.5:  # ids, counters and predictions under their own names; only the three columns are renamed
        named = [name for name in ("wav", "listener", "score") if name != "score" or not keep]
    else:
        named = [name for name in frame if name != "score" or not keep]
    renamed = dict(zip(named, names, strict=False))
    frame = frame.rename(columns=renamed)
    frame = frame[dice.sample([*frame.columns], len(frame.columns))]
    path = tmp_path_factory.mktemp("shuffled") / "t.csv"
    frame.to_csv(path, index=dice.random() < 0.5)
    guess = guess_table(path)
    assert guess.columns.get("mos") in (("score",) if keep else (None, renamed["score"]))
    assert bool(guess.doubts) >= ("mos" not in guess.columns)


LISTENERS = word_set(
    "luisteraar beoordelaar słuchacz oceniający id_słuchacza sluchacz 听者 评分者 被试 评分人ID 評価者 聴取者 Hörer "
    "Zuhörer Versuchsperson auditeur e\u0301valuateur numéro_auditeur sujet oyente evaluador ouvinte avaliador "
    "ID_do_ouvinte ascoltatore valutatore 평가자 청취자 피험자 слушатель оценщик номер_слушателя posluchač"
)


@pytest.mark.parametrize("name", sorted(LISTENERS))
def test_a_listener_is_told_in_any_language(name: str, tmp_path: Path) -> None:
    rows = "".join(f"c{n}.wav,{who},{1 + (n + who) % 5}\n" for n in range(12) for who in range(1, 4))
    (tmp_path / "t.csv").write_text(f"file,{name},score\n{rows}", "utf-8")
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert read_toml(tmp_path / "my.toml")["sources"][0]["columns"]["listener"] == name


@pytest.mark.parametrize("form", ["c{n}.wav: {score}", "c{n}.wav:{score}.5", "a b/c{n}.flac : {score},5"])
def test_clips_before_a_colon_and_their_ratings_are_a_table(form: str, tmp_path: Path) -> None:
    lines = [form.format(n=n, score=1 + n % 4) for n in range(24)]
    (tmp_path / "t.txt").write_text("\n".join([*lines, "nothing"]) + "\n")
    init(tmp_path / "t.txt", tmp_path / "my.toml")
    rows = read(tmp_path / "my.toml")
    got = {row.file: row.score for row in rows if isinstance(row, Rating)}
    clips = [line.partition(":")[0].strip() for line in lines]
    assert got == {clip: 1 + n % 4 + 0.5 * ("5" in form) for n, clip in enumerate(clips)}
    assert [row.line for row in rows if isinstance(row, Reject)] == [25]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_number_that_is_none_is_no_rating_like_an_empty_cell(ending: str, tmp_path: Path) -> None:
    rows = [
        {"file": clip, "who": who, "score": float("nan") if n % 3 == 0 else float(score)}
        for n, (clip, who, score) in enumerate(RATED)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")  # NaN, not null
    init(tmp_path / f"t.{ending}", tmp_path / "my.toml")
    read_rows = read(tmp_path / "my.toml")
    assert sum(isinstance(row, Rating) for row in read_rows) == 24
    assert [row.reason for row in read_rows if isinstance(row, Reject)] == ["not_a_rating"] * 12
