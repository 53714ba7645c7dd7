"""Tables as labs write them: what is guessed of them, and that the config which is written builds what they hold."""

from __future__ import annotations

import csv
import json
import random
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.config import parse_config, read_toml
from earmark.schemas.errors import InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.tasks.importers.guessing import guess_table
from earmark.tasks.importers.ratings import read_source
from earmark.tasks.importers.rows import Rating, Reject
from tests.conftest import real_path

LISTS = {  # clips, and the mean of their ratings, counted with cut, sort and awk
    "bvcc/test_mos_list.txt": (1066, 2.93175),
    "bvcc/bvcc_test_mos_grouped.csv": (1066, 2.93175),
    "tcd-voip/tcd-voip_answer.csv": (384, 3.22038),
    "vmc23/track1_answer.txt": (1460, 3.48449),
    "vmc23/track3_answer.txt": (2215, 3.11898),
    "vmc24-track3/track3_answer.csv": (280, 3.43339),
}


def init(table: Path, out: Path, code: int = 0) -> str:
    run = CliRunner().invoke(app, ["init", "mos-preferences", "--from", str(table), "--out", str(out)])
    assert run.exit_code == code, run.output
    return str(run.exception) if code else run.stdout


def read(config: Path) -> list[Rating | Reject]:
    build = parse_config(MosPreferences, read_toml(config), config)
    return [row for row in read_source(build.sources[0], build.path) if isinstance(row, Rating | Reject)]


@pytest.mark.parametrize("name", LISTS)
def test_real_lists_go_in_without_a_manual(name: str, tmp_path: Path) -> None:
    init(real_path(f"mos/{name}"), tmp_path / "my.toml")
    rows = read(tmp_path / "my.toml")
    clips, mean = LISTS[name]
    assert not [row for row in rows if isinstance(row, Reject)]
    assert len(rows) == clips
    assert sum(row.score for row in rows if isinstance(row, Rating)) / clips == pytest.approx(mean, abs=1e-5)


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


def test_json_lines_and_parquet(tmp_path: Path) -> None:
    rows = [{"audio_path": f"{n}.wav", "quality": 1 + n % 5, "voice": "v"} for n in range(20)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        assert guess_table(tmp_path / name).columns == {"file": "audio_path", "mos": "quality", "speaker": "voice"}


def test_a_list_without_a_header_and_ids_in_file_names(tmp_path: Path) -> None:
    lines = [f"sys{n % 3}-utt{n // 3}.wav;{1 + n % 5}" for n in range(30)]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "odd.wav;3"]))
    said = init(tmp_path / "t.csv", tmp_path / "my.toml")
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
    assert (odd.reason, odd.line) == ("bad_file_name", 31)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a table of two columns or more, found no delimiter"),
        ("one\ntwo\nthree\n", "expected a table of two columns or more, found no delimiter"),
        ("a,b\n", "expected two rows of cells or more"),
        ("name,colour\na.wav,red\nb.wav,blue\n", "no column seems to hold ratings"),
        ("mos,votes\n1,2\n3,4\n5,6\n", "no column seems to hold clips"),
        ("wav,count_of_things\na.wav,1000\nb.wav,2000\n", "no column seems to hold ratings"),
    ],
)
def test_what_cannot_be_told_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        guess_table(tmp_path / "t.csv")
    assert says in init(tmp_path / "t.csv", tmp_path / "my.toml", code=1)
    assert not (tmp_path / "my.toml").exists()


def test_cells_cannot_steer_the_config(tmp_path: Path) -> None:
    hostile = 'x"\\n[licences]\\n.wav'
    (tmp_path / "t.jsonl").write_text(
        "".join(json.dumps({f'wa"v\n[[sources]]{n and ""}': f"{n}{hostile}\n\x1b", "mos": 3}) + "\n" for n in range(4))
    )
    init(tmp_path / "t.jsonl", tmp_path / "my.toml")
    values = read_toml(tmp_path / "my.toml")
    assert values.keys() == {"corpus", "sources"}
    assert values["sources"][0]["columns"]["file"] == 'wa"v\n[[sources]]'


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
