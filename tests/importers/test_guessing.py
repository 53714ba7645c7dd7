"""Tables as labs write them: what is guessed of them, and that the config which is written builds what they hold."""

from __future__ import annotations

import csv
import json
import random
import shlex
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import ConfigError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.importers.guessing import guess_table
from earmark.tasks.importers.lists import Rating, read_source
from tests.conftest import real_path

LISTS = {  # format, rows, of these rejects, and the mean of the others, counted with cut, sort and awk
    "bvcc/test_mos_list.txt": ("bvcc", 1066, 0, 2.93175),
    "bvcc/bvcc_test_mos_grouped.csv": ("table", 1066, 0, 2.93175),
    "tcd-voip/tcd-voip_answer.csv": ("table", 384, 0, 3.22038),
    "vmc23/track1_answer.txt": ("vmc23", 3675, 255, 3.15747),
    "vmc24-track3/track3_answer.csv": ("table", 280, 0, 3.43339),
    "vmc24-track3/track3_listener_wise_answer.csv": ("table", 1400, 0, 3.43857),
    "layouts/singmos_head.csv": ("table", 40, 0, 4.365),
}


def told(table: Path, out: Path, *more: str, code: int = 0) -> str:
    """Return what `earmark init` prints, with a preview of the build; or the reason for which it ends with 1."""
    words = ["init", "mos-preferences", "--from", str(table), "--out", str(out), *more]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == code, run.output
    return str(run.exception) if code else run.stdout


def init(table: Path, out: Path, code: int = 0, *, force: bool = False) -> str:
    """The same as JSON: it previews no build, which takes ten times as long as the guess."""
    return told(table, out, "--json", *(["--force"] if force else []), code=code)


def read(config: Path) -> list[Rating | Reject]:
    build = parse_config(MosPreferences, read_toml(config), config)
    return [row for row in read_source(build.sources[0], build.path) if isinstance(row, Rating | Reject)]


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
def test_real_lists_go_in_without_a_manual(name: str, tmp_path: Path) -> None:
    init(real_path(name if "layouts" in name else f"mos/{name}"), tmp_path / "my.toml")
    rows = read(tmp_path / "my.toml")
    layout, count, refused, mean = LISTS[name]
    assert read_toml(tmp_path / "my.toml")["sources"][0]["format"] == layout
    scores = [row.score for row in rows if isinstance(row, Rating)]
    assert (len(rows), len(rows) - len(scores)) == (count, refused)
    assert sum(scores) / len(scores) == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_told_whatever_their_order_delimiter_and_names(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    names = {
        "file": dice.choice(["wav", "File Name", "clip", "stimulus", "unheard of"]),
        "mos": dice.choice(["MOS", "score", "Mean-Rating", "ovr"]),
        "system": dice.choice(["system", "Model ID", "codec"]),
        "listener": dice.choice(["rater", "worker_id", "Listener"]),
    }
    order = dice.sample(list(names), len(names))
    mark, top = dice.choice(",;\t|"), dice.choice([5, 7, 10, 100])
    rows = [
        {"file": f"d/{n // 3}.wav", "mos": f"{dice.choice([1, top, dice.uniform(1, top)]):.3g}",
         "system": f"s{n % 4}", "listener": f"l{n % 3}"}
        for n in range(60)
    ]  # fmt: skip
    rows[0]["mos"] = str(top)
    path = tmp_path / ("t.tsv" if mark == "\t" else "t.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerow([names[what] for what in order])
        writer.writerows([row[what] for what in order] for row in rows)
    guess = guess_table(path)
    assert guess.columns == {what: names[what] for what in ("file", "mos", "system", "listener")}
    assert guess.scale == {5: (1, 5), 7: (1, 7), 10: (1, 10), 100: (0, 100)}[top] or top == 10
    assert (guess.delimiter, guess.usual) == (mark, mark in ",\t")
    init(path, tmp_path / "my.toml")
    found = read(tmp_path / "my.toml")
    assert [(row.score, row.system_id, row.listener_id) for row in found if isinstance(row, Rating)] == [
        (float(row["mos"]), row["system"], row["listener"]) for row in rows
    ]


def test_the_next_command_can_be_pasted_into_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_STORE", str(tmp_path / "store"))
    rows = [f"{n % 4}-{n // 4}.wav,{1 + (n % 4 + n // 4) % 5},s{n % 4},t{n // 4}" for n in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["wav,score,system,text", *rows]))
    said = told(tmp_path / "t.csv", tmp_path / "my study.toml").splitlines()[-1]
    command = shlex.split(said.partition("; next: ")[2])
    assert command[:3] == ["earmark", "build", "mos-preferences"]
    shown = CliRunner().invoke(app, command[1:])
    assert shown.exit_code == 0, shown.exception
    assert "would commit v1" in shown.stdout


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    rows = [{"audio_path": f"{n}.wav", "quality": 1 + n % 5, "voice": "v"} for n in range(20)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        assert guess_table(tmp_path / name).columns == {"file": "audio_path", "mos": "quality", "speaker": "voice"}


def test_a_list_without_a_header_and_ids_in_file_names(tmp_path: Path) -> None:
    lines = [f"sys{n % 3}-utt{n // 3}.wav;{1 + n % 5}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "odd.wav;3"]))
    said = told(tmp_path / "t.csv", tmp_path / "my.toml")
    assert "delimiter: semicolon; header: none" in said
    text = (tmp_path / "my.toml").read_text()
    assert "# file_name = '^(?P<system>[^-]+)-'" in text
    pattern = "file_name = '^(?P<system>sys\\d)-(?P<content>utt\\d+)'"
    (tmp_path / "my.toml").write_text(text.replace("# file_name = '^(?P<system>[^-]+)-'", pattern))
    rows = read(tmp_path / "my.toml")
    assert [(row.system_id, row.content_id) for row in rows if isinstance(row, Rating)] == [
        (f"sys{n % 3}", f"utt{n // 3}") for n in range(30)
    ]
    (odd,) = [row for row in rows if isinstance(row, Reject)]
    assert (odd.reason, odd.line) == ("bad_value", 31)


UNTOLD = [  # a table, and what is said of it; those that are tables get a config to be completed
    ("", "expected a table of two columns or more, found no delimiter", False),
    ("one\ntwo\nthree\n", "expected a table of two columns or more, found no delimiter", False),
    ("a,b\n", "expected two rows of cells or more", False),
    ("wav,score,score\na.wav,1,2\nb.wav,3,4\n", "line 1 names 'score' 2 times", False),
    *(
        (f"{title}\nwav,listener,score\na.wav,l1,3\nb.wav,l1,4\n", "delete what stands above the names of the", False)
        for title in ("MOS test 2024,,", ",,", "MOS test 2024,,\n,,", ",,MOS")
    ),
    *(  # a merged cell above the names, and names in two languages
        (f"{first}\n{second}\na.wav,l1,3\nb.wav,l1,4\n", f"holds names too ('{second.replace(',', ', ')}')", False)
        for first, second in (("Stimulus,,Rating", "file,listener,score"), ("wav,rater,mos", "Datei,Hörer,Bewertung"))
    ),
    ("a,b,c,d\n1,x\n2,y\n3,z\n", "line 1 has 4 cells, the rows below it 2", False),
    ("clip,rater,rating\na.wav;l1;4,5\nb.wav;l2;3,5\n", "line 1 is split by comma, the rows by semicolon", False),
    ("audio_a,audio_b,winner\nx/1.wav,y/1.wav,A\nx/2.wav,y/2.wav,B\n", "earmark init human-preferences", False),
    ("name,colour\na.wav,red\nb.wav,blue\n", "no column is called a rating", True),
    ("mos,votes\n1,2\n3,4\n5,6\n", "no column is called a clip", True),
    ("wav,count_of_things\na.wav,1000\nb.wav,2000\n", "no column is called a rating", True),
    ("wav,sample_rate,age\na.wav,16000,21\nb.wav,16000,30\n", "no column is called a rating", True),
    ("wav,score,quality\na.wav,1,2\nb.wav,2,1\n", "2 columns may be the rating (score, quality)", True),
    ("wav,mos,WorkerId,rater\na.wav,1,w,x\nb.wav,2,w,y\n", "several columns may name the listener", True),
    ("a.wav,3.5,7\nb.wav,2.5,8\nc.wav,1,9\n", "no column is called a rating", True),
    ("a.wav,21\nb.wav,34\nc.wav,28\n", "no column is called a rating", True),
    (
        "wav,who,question,score\na.wav,x,nat,1\na.wav,x,sim,2\nb.wav,x,nat,3\n",
        'holds several questions ("nat", "sim")',
        True,
    ),
    ("wav,rating\na.wav,yes\nb.wav,no\n", "rating is called a rating and holds no numbers (no, yes)", True),
    ("wav,score\nC:\\s\\a.wav,1\nC:\\s\\b.wav,2\n", "holds paths with", True),
]


@pytest.mark.parametrize(("text", "says", "is_written"), UNTOLD, ids=range(len(UNTOLD)))
def test_what_cannot_be_told_is_one_line(text: str, says: str, is_written: bool, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    line = init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert says in line
    assert "\n" not in line
    assert (tmp_path / "my.toml").exists() == is_written
    if is_written and "is called" in says:  # until a person completes it, it builds nothing
        with pytest.raises(ConfigError, match="missing key"):
            read(tmp_path / "my.toml")


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0"])
def test_a_workbook_is_to_be_saved_as_csv(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(start + bytes(100))
    assert "'CSV UTF-8'" in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    (tmp_path / "t.json").write_text('{"a.wav": 4, "b.wav": 3}')
    assert "JSON of another shape: save it as CSV" in init(tmp_path / "t.json", tmp_path / "my.toml", code=1)


def test_an_index_without_a_name_is_no_title(tmp_path: Path) -> None:
    rows = [f"s{n % 3},l{n % 2},{n % 5 + 1}" for n in range(30)]  # as pandas writes means by two keys
    (tmp_path / "t.csv").write_text("\n".join([",,mos", *rows]) + "\n")
    assert guess_table(tmp_path / "t.csv").columns == {"mos": "mos"}


def test_a_first_line_that_is_not_utf8_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("filename,ungleichmäßig,quality\na.wav,5,5\nb.wav,14,3\n".encode("latin-1"))
    assert "line 1: expected UTF-8" in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)


def test_cells_cannot_steer_the_config(tmp_path: Path) -> None:
    hostile = 'x"\\n[licences]\\n.wav'
    column = 'wav "v\n[[sources]]'
    rows = [{column: f"{n}{hostile}\n\x1b", "mos": 3, 'age"\n[x]': n} for n in range(4)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init(tmp_path / "t.jsonl", tmp_path / "my.toml", code=1)  # for its paths
    values = read_toml(tmp_path / "my.toml")
    assert values.keys() == {"corpus", "sources"}
    assert values["sources"][0]["columns"]["file"] == column


def test_an_existing_config_stays(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("wav,mos\na.wav,1\nb.wav,2\n")
    (tmp_path / "my.toml").write_text("mine")
    assert "exists already" in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert (tmp_path / "my.toml").read_text() == "mine"


def test_a_column_that_says_what_file_names_begin_with_is_the_system(tmp_path: Path) -> None:
    rows = [f"E{n % 3},p{n // 3},E{n % 3}-p{n // 3}.wav,{1 + n % 5}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["Made by,Line,Recording,MOS", *rows]) + "\n")
    guess = guess_table(tmp_path / "t.csv")
    assert guess.columns == {"file": "Recording", "mos": "MOS", "system": "Made by"}
    assert guess.file_name is None


@pytest.mark.parametrize(("folder", "root"), [("wavs", "wavs"), ("", None), (None, None)])
def test_clips_are_measured_where_they_are_found(folder: str | None, root: str | None, tmp_path: Path) -> None:
    rows = [f"E{n % 3}-p{n // 3},{1 + n % 5}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["Recording,MOS", *rows]) + "\n")
    (tmp_path / "another").mkdir()
    if folder is not None:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "E0-p0.wav").touch()
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    config = tomllib.loads((tmp_path / "my.toml").read_text())
    assert config.get("audio") == (None if folder is None else "index")
    assert config["sources"][0].get("audio_root") == root


@pytest.mark.slow
def test_clips_are_looked_for_from_the_config(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = [f"E{n % 3}-p{n // 3}.wav,{1 + n % 5}" for n in range(30)]
    (tmp_path / "data/t.csv").write_text("\n".join(["Recording,MOS", *rows]) + "\n")
    (tmp_path / "data/E0-p0.wav").touch()
    for folder, root in (("", "data"), ("data", None), ("configs", "../data")):
        (tmp_path / folder).mkdir(exist_ok=True)
        init(tmp_path / "data/t.csv", tmp_path / folder / "my.toml")
        assert read_toml(tmp_path / folder / "my.toml")["sources"][0].get("audio_root") == root


@pytest.mark.parametrize("name", ["utterance", "utterance_id", "utt", "text", "prompt"])
def test_names_of_contents_may_stand_above_clips(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "\n".join([f"{name},remark,mos", *(f"sys{n % 3}_utt{n // 3}.wav,good {n},{1 + n % 5}" for n in range(30))])
    )
    assert guess_table(tmp_path / "t.csv").columns == {"file": name, "mos": "mos"}


def test_a_text_that_some_rows_lack_names_no_content(tmp_path: Path) -> None:
    texts = ["", "a text"]
    (tmp_path / "t.csv").write_text(
        "\n".join(["wav,text,mos", *(f"{n}.wav,{texts[n % 2]},{n % 5 + 1}" for n in range(30))])
    )
    assert guess_table(tmp_path / "t.csv").unused == ("text",)
    init(tmp_path / "t.csv", tmp_path / "my.toml")
    assert len([row for row in read(tmp_path / "my.toml") if isinstance(row, Rating)]) == 30


@pytest.mark.parametrize(
    ("text", "says"), [("{}\n{}\n", "expected two rows of cells"), ("[1,\n2]\n", "t.jsonl, line 1: ")]
)
def test_json_lines_that_are_no_table_are_one_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(text)
    assert says in init(tmp_path / "t.jsonl", tmp_path / "my.toml", code=1)
