"""Tables of every kind become the ratings that pandas counts in the raw file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.toml import parse_config
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.table import READERS
from tests.importers.reading import Reading, read

WIDE = "utt,tacoA,fastB,natC\n" + "".join(f"u{n},{2 - n / 10:g},{3 - n / 10:g},{5 - n / 10:g}\n" for n in range(6))
LONG = "wav,question,who,answer\n" + "".join(
    f"{clip}.wav,{question},l{who},{1 + (7 * who + len(question) + ord(clip)) % 5}\n"
    for clip in "abc"
    for question in ("naturalness", "similarity")
    for who in range(3)
)


def table(folder: Path, content: str | bytes, name: str = "t.csv", **source: Any) -> Reading:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(folder, **{"format": "table", "name": "my", "files": {"train": name}, **source})


def means(got: Reading, *keys: str) -> dict[Any, float]:
    """The mean of the ratings by some of their fields."""
    frame = pd.DataFrame([rating._asdict() for rating in got.ratings])
    return dict(frame.groupby([*keys])["score"].mean())


def close(got: Mapping[Any, float], expected: Iterable[tuple[Any, float]]) -> None:
    assert got == pytest.approx(dict(expected))


def test_a_column_a_system_is_unpivoted(tmp_path: Path) -> None:
    columns = {"file": "{column}/{utt}.wav", "mos": ["tacoA", "fastB", "natC"], "content": "utt"}
    got = table(tmp_path, WIDE, columns=columns, unpivot="system")
    melted = pd.read_csv(tmp_path / "t.csv").melt("utt")
    assert [(row.line, row.content_id) for row in got.ratings[:4]] == [(2, "u0"), (2, "u0"), (2, "u0"), (3, "u1")]
    close(means(got, "system_id"), melted.groupby("variable")["value"].mean().items())
    expected = (melted["variable"] + "/" + melted["utt"] + ".wav").tolist()
    assert sorted(rating.file for rating in got.ratings) == sorted(expected)


def test_a_column_a_listener_is_unpivoted(tmp_path: Path) -> None:
    content = "clip,L1,L2,L3\n" + "".join(f"c{n}.wav,{1 + n % 5},{1 + n % 3},{1 + n % 4}\n" for n in range(20))
    got = table(tmp_path, content, columns={"file": "clip", "mos": ["L1", "L2", "L3"]}, unpivot="listener")
    frame = pd.read_csv(tmp_path / "t.csv").set_index("clip")
    close(means(got, "file"), frame.mean(axis=1).items())
    close(means(got, "listener_id"), frame.mean().items())


def test_a_row_names_a_clip_for_each_rating(tmp_path: Path) -> None:
    content = "WorkerId,Input.Q0,Input.Q1,Answer.Q0,Answer.Q1\nw1,a.wav,b.wav,5,3\nw2,b.wav,a.wav,2,4\n"
    columns = {"file": ["Input.Q0", "Input.Q1"], "mos": ["Answer.Q0", "Answer.Q1"], "listener": "WorkerId"}
    got = table(tmp_path, content, columns=columns)
    close(means(got, "file"), [("a.wav", 4.5), ("b.wav", 2.5)])


def test_where_chooses_rows_and_counts_the_others(tmp_path: Path) -> None:
    columns = {"file": "wav", "mos": "answer", "listener": "who"}
    got = table(tmp_path, LONG, columns=columns, where={"question": "naturalness"})
    frame = pd.read_csv(tmp_path / "t.csv")
    chosen = frame[frame["question"] == "naturalness"]
    close(means(got, "file"), chosen.groupby("wav")["answer"].mean().items())
    assert {reason for reason, _ in got.reasons} == {"not_selected"}
    assert got.rows == len(frame)
    both = table(tmp_path, LONG, columns=columns, where={"question": ["naturalness", "similarity"], "who": "l1"})
    assert len(both.ratings) == (frame["who"] == "l1").sum()


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (("20241103", "20241104", "20241103", "20241105"), 20241103),
        (("5e1234", "7e9999", "5e1234", "0e0"), "5e1234"),  # ids, of which two are beyond any float
        (("9007199254740993", "9007199254740992", "9007199254740993", ""), "9007199254740993"),
        (("1", "2", "1.0", "0"), 1),
        (("0.30000000000000004", "0.31", "0.300000012", ""), 0.3),  # of 64 bits, and of 32
        (("1699999999.5", "1700000000.5", "1699999999.5", ""), "1699999999.5"),
        (("True", "False", "true", ""), True),
    ],
)
def test_where_takes_equal_cells_alone(cells: tuple[str, ...], wanted: str | int, tmp_path: Path) -> None:
    content = "wav,session,mos\n" + "".join(f"{n}.wav,{cell},{n + 1}\n" for n, cell in enumerate(cells))
    got = table(tmp_path, content, columns={"file": "wav", "mos": "mos"}, where={"session": wanted})
    assert [rating.file for rating in got.ratings] == ["0.wav", "2.wav"]
    assert got.reasons == [("not_selected", 3), ("not_selected", 5)]


@pytest.mark.parametrize("written", ['"[5, 4, 3]"', "5;4;3", "5 | 4 | 3", '"(5 4 3)"'])
def test_a_cell_holds_several_ratings(written: str, tmp_path: Path) -> None:
    got = table(tmp_path, f"wav,score\na.wav,{written}\nb.wav,2\n", columns={"file": "wav", "mos": "score"})
    assert [(rating.file, rating.score) for rating in got.ratings] == [
        ("a.wav", 5), ("a.wav", 4), ("a.wav", 3), ("b.wav", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "json"])
def test_lists_of_ratings_and_their_listeners(ending: str, tmp_path: Path) -> None:
    rows = [{"data_path": f"{n}.wav", "Quality": [n, n + 1], "judges": ["x", "y"]} for n in range(1, 5)]
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    columns = {"file": "data_path", "mos": "Quality", "listener": "judges"}
    got = table(tmp_path, path.read_bytes(), path.name, columns=columns, scale=[1, 10])
    close(means(got, "file"), ((f"{n}.wav", n + 0.5) for n in range(1, 5)))
    close(means(got, "listener_id"), [("x", 2.5), ("y", 3.5)])


def test_nested_json_of_a_listening_test(tmp_path: Path) -> None:
    session = {
        "testId": "t1",
        "participant": {"name": ["email", "age"], "response": ["p1", 30]},
        "trials": [
            {"type": "mushra", "id": f"item{n}", "responses": [
                {"stimulus": stimulus, "score": 10 * n + len(stimulus), "comment": None, "time": 4}
                for stimulus in ("reference", "C1", "C2")
            ]}
            for n in range(3)
        ],
        "surveys": [],
    }  # fmt: skip
    columns = {
        "file": "{trials.id}/{trials.responses.stimulus}.wav",
        "mos": "trials.responses.score",
        "system": "trials.responses.stimulus",
        "listener": "participant.email",
    }
    got = table(tmp_path, json.dumps([session]), "t.json", columns=columns, scale=[0, 100])
    frame = pd.json_normalize(session["trials"], "responses", ["id"])
    assert [(rating.file, rating.score) for rating in got.ratings] == [
        (f"{row['id']}/{row['stimulus']}.wav", row["score"]) for _, row in frame.iterrows()
    ]
    assert {rating.listener_id for rating in got.ratings} == {"p1"}


def test_the_folder_of_a_clip_tells_its_system(tmp_path: Path) -> None:
    content = "wav,score\nnat/1.wav,5\nbad/1.wav,1\nodd.wav,3\n"
    got = table(tmp_path, content, columns={"file": "wav", "mos": "score"}, file_name="^(?P<system>[^/]+)/")
    assert [rating.system_id for rating in got.ratings] == ["nat", "bad"]
    assert got.reasons == [("bad_value", 4)]


def test_files_may_be_a_list_a_pattern_or_sources_of_one_name(tmp_path: Path) -> None:
    for part in "12":
        (tmp_path / f"part{part}.csv").write_text(f"wav,score\na{part}.wav,{part}\n")
    columns = {"file": "wav", "mos": "score"}
    one = {"name": "x", "format": "table", "columns": columns}
    parts = ["part1.csv", "part2.csv"]
    got = [read(tmp_path, **one, files={"train": files}) for files in (parts, "part*.csv", "part?.csv")]
    assert [(r.file, r.score, r.source_file) for r in got[0].ratings] == [
        ("a1.wav", 1.0, "x/part1.csv"), ("a2.wav", 2.0, "x/part2.csv"),
    ]  # fmt: skip
    assert got[0] == got[1] == got[2]
    twice = parse_config(MosPreferences, {"sources": [{**one, "files": {"train": part}} for part in parts]}, Path("m"))
    assert [source.files for source in twice.sources] == [{"train": tuple(parts)}]
    other = [{**one, "files": {"train": part}, "scale": [1, int(part[4]) + 4]} for part in parts]
    with pytest.raises(ConfigError, match="found 'x' twice"):
        parse_config(MosPreferences, {"sources": other}, Path("my.toml"))
    with pytest.raises(InputError, match="no file fits files = 'none"):
        read(tmp_path, **one, files={"train": "none*.csv"})


def test_each_test_has_its_scale(tmp_path: Path) -> None:
    content = "wav,score,test\na.wav,5,p\nb.wav,100,q\nc.wav,50,p\n"
    columns = {"file": "wav", "mos": "score", "subset": "test"}
    got = table(tmp_path, content, columns=columns, scale={"p": [1, 5], "q": [0, 100]})
    assert [rating.score for rating in got.ratings] == [5, 100]
    assert got.reasons == [("score_out_of_scale", 4)]
    with pytest.raises(InputError, match=r"line 3: expected scale to name the test 'q', found p$"):
        table(tmp_path, content, columns=columns, scale={"p": [1, 5]})


def test_the_lowest_may_be_the_best(tmp_path: Path) -> None:
    content = "file,rank\nnat.wav,1\ngood.wav,2\nbad.wav,3\nhalf.wav,1.3\nnone.wav,0\n"
    columns = {"file": "file", "mos": "rank"}
    got = table(tmp_path, content, columns=columns, scale=[1, 3], best="low", not_a_rating=[0])
    assert [rating.score for rating in got.ratings] == [3, 2, 1, 2.7]
    assert got.reasons == [("not_a_rating", 6)]
    assert any("best = low" in note for note in got.notes)


@pytest.mark.parametrize(
    ("cell", "named", "reason"),
    [
        ("99", [99], "not_a_rating"),
        ("99.0", [99], "not_a_rating"),
        ("-1", [99, -1], "not_a_rating"),
        ("n/a", ["N/A"], "not_a_rating"),
        ("", [""], "not_a_rating"),
        ("5", [5], "not_a_rating"),
        ("99", [], "score_out_of_scale"),
        ("", [99], "score_missing"),
    ],
)
def test_cells_that_are_no_rating_are_left_out_by_name(cell: str, named: Any, reason: str, tmp_path: Path) -> None:
    content = f"wav,score\na.wav,4\nb.wav,{cell}\n"
    got = table(tmp_path, content, columns={"file": "wav", "mos": "score"}, not_a_rating=named)
    assert ([rating.file for rating in got.ratings], got.reasons) == (["a.wav"], [(reason, 3)])


@pytest.mark.parametrize(
    ("scale", "cell", "lines"),
    [
        ([1, 4], "5", r"scale = \[1, 5\], or not_a_rating = \[5\]"),
        ([1, 4], "4.25", r"scale = \[1, 5\], or not_a_rating = \[4.25\]"),
        ([1, 5], "0", r"scale = \[0, 5\], or not_a_rating = \[0\]"),
        ([0, 100], "-1", r"scale = \[-1, 100\], or not_a_rating = \[-1\]"),
    ],
)
def test_the_next_step_of_a_scale_stops_the_build(scale: list[int], cell: str, lines: str, tmp_path: Path) -> None:
    content = "wav,score\n" + "".join(f"{n}.wav,{1 + n % 4}\n" for n in range(300)) + f"last.wav,{cell}\n"
    with pytest.raises(InputError, match=rf"^my/t.csv, line 302: .* write {lines}$"):
        table(tmp_path, content, columns={"file": "wav", "mos": "score"}, scale=scale)


def test_a_quote_between_tabs_swallows_no_row(tmp_path: Path) -> None:
    lines = [f"c{n:02}.wav\t{1 + n % 5}\tplain {n}" for n in range(40)]
    lines[4] = 'c04.wav\t5\t"Hello there'
    lines[8] = 'c08.wav\t4\the said so"'
    lines[9] = '"c09.wav"\t5\t"a ""quoted"" text"'
    content = "\n".join(["file\tscore\ttext", *lines])
    columns = {"file": "file", "mos": "score", "content": "text"}
    got = table(tmp_path, content, "t.tsv", columns=columns)
    assert [row.line for row in got.ratings] == list(range(2, content.count("\n") + 2))
    assert [got.ratings[n].content_id for n in (4, 8, 9)] == ['"Hello there', 'he said so"', 'a "quoted" text']
    assert got.ratings[9].file == "c09.wav"
    del columns["content"]
    tab = 'file\tscore\ttext\na.wav\t3\t"one\ttwo"\n'
    assert len(table(tmp_path, tab, "t.tsv", columns=columns).ratings) == 1
    assert table(tmp_path, tab, "t.tsv", columns=columns, quotes=False).reasons == [("bad_line", 2)]
    lines = 'file\tscore\ttext\na.wav\t3\t"one\ntwo"\nb.wav\t4\t"x\n'  # a field over lines, and an open quote
    assert [row.line for row in table(tmp_path, lines, "t.tsv", columns=columns).ratings] == [2, 4]
    columns["content"] = "text"
    raw = table(tmp_path, 'file,score,text\na.wav,3,"x"\n', columns=columns, quotes=False)
    assert [row.content_id for row in raw.ratings] == ['"x"']


def test_a_header_that_rows_need_not_fill(tmp_path: Path) -> None:
    header = '"HITId","WorkerId","Input.url","Answer.quality","Approve","Reject"\n'
    columns = {"file": "Input.url", "mos": "Answer.quality", "listener": "WorkerId"}
    rows = '"H1","W1","a.wav","5"\n"H1","W2","b.wav","3","x"\n"H1","W1","c.wav"\n'
    got = table(tmp_path, header + rows, columns=columns)
    assert [(row.file, row.score, row.listener_id) for row in got.ratings] == [("a.wav", 5, "W1"), ("b.wav", 3, "W2")]
    assert got.reasons == [("bad_line", 4)]
    got = table(tmp_path, ",wav,score,\n0,a.wav,5,\n1,b.wav,3\n", columns={"file": "wav", "mos": "score"})
    assert [row.file for row in got.ratings] == ["a.wav", "b.wav"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"columns": {"file": "f", "mos": ["a", "b"]}}, "columns.mos names several columns"),
        ({"columns": {"file": ["f", "g"], "mos": "a"}}, "expected as many columns as columns.mos has"),
        ({"columns": {"file": "f", "mos": "a"}, "unpivot": "system"}, "unpivot = 'system' needs a list of columns"),
        ({"columns": {"file": "f", "mos": ["a", "b"], "system": "s"}, "unpivot": "system"}, "no column of system"),
        ({"columns": {"file": "f", "mos": "a"}, "scale": {"p": [5, 1]}}, "expected scale = "),
        ({"format": "bvcc", "root": ".", "files": {}, "where": {"a": 1}}, "'where' belongs to format 'table' only"),
    ],
)
def test_options_that_do_not_fit_are_refused(source: dict[str, Any], says: str) -> None:
    one = {"name": "x", "format": "table", "files": {"train": "t.csv"}, **source}
    with pytest.raises(ConfigError, match=says):
        parse_config(MosPreferences, {"sources": [one]}, Path("my.toml"))


@pytest.mark.slow
@pytest.mark.parametrize("bomb", ["rows", "cell"])
def test_a_parquet_whose_few_bytes_claim_more_than_a_list_holds_is_refused(tmp_path: Path, bomb: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "bomb.parquet"
    schema = pa.schema([("wav", pa.string()), ("score", pa.float64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(20 if bomb == "rows" else 3):
            wav = pa.array(["a.wav"] * 60_000 if bomb == "rows" else ["a" * 400_000_000])
            writer.write_table(pa.table([wav, pa.array([3.0] * len(wav))], schema), row_group_size=60_000)
    assert path.stat().st_size < 200_000
    source = ListFile(path, path.name, "train", "parquet")
    with pytest.raises(InputError, match=r"expected a list of clips, found [0-9,]+ bytes that claim [0-9,]+ rows"):
        next(iter(READERS["parquet"](source, ("wav", "score"), ())))
