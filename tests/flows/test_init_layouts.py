"""`earmark init` for files as their owners publish them: the layout is told, and the config reads the file."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from earmark.flows.command import init_layouts
from earmark.flows.command.cli import app
from earmark.tasks.pipeline.registry import find_corpus
from tests.conftest import ROOT, real_path

DEMO = ROOT / "data/demo"
FILES = {  # the layout that the owner's file is in, and how many of its first 500 rows hold something (counted by hand)
    ("captions", "mtg-jamendo/autotagging.tsv"): ("mtg-jamendo", 500),
    ("human-preferences", "cmi-pref/test_500_votes_with_model_scores.jsonl"): ("cmi-pref", 500),
    ("instruction-rubrics", "layouts/audiocaps_val_head.csv"): ("audiocaps", 12),
    ("instruction-rubrics", "layouts/clotho_eval_head.csv"): ("clotho", 15),
    ("instruction-rubrics", "layouts/musiccaps_head.csv"): ("musiccaps", 3),
    ("instrumentals", "data/demo/tracks/tracks.tsv"): ("mtg-jamendo", 11),
    ("human-preferences", "data/demo/votes/music_arena/2025-05.jsonl"): ("music-arena", 30),
    ("human-preferences", "data/demo/votes/label_studio/export.json"): ("label-studio", 11),
    ("human-preferences", "data/demo/votes/pam/scores.csv"): ("pam", 24),
    ("instruction-rubrics", "data/demo/rubrics/sounds.csv"): ("table", 8),
    ("music-prompts", "mtg-jamendo/autotagging.tsv"): ("mtg-jamendo", 500),
    ("pseudo-preferences", "data/demo/music/generations.jsonl"): ("generations", 52),
    ("score-questions", "data/demo/forum/RS_2014.ndjson"): ("reddit", 32),
}


def init(corpus: str, file: Path, out: Path, *more: str, code: int = 0) -> str:
    """Run the command; what it prints, or its error."""
    run = CliRunner().invoke(app, ["init", corpus, "--from", str(file), "--out", str(out), *more])
    assert run.exit_code == code, run.output
    return str(run.exception) if code else run.stdout


@pytest.mark.parametrize(("corpus", "name"), FILES)
def test_the_layout_of_a_file_is_told(corpus: str, name: str, tmp_path: Path) -> None:
    file = ROOT / name if name.startswith("data/demo/") else real_path(name)
    facts = json.loads(init(corpus, file, tmp_path / "my.toml", "--json"))
    assert (facts["format"], facts["rows"]) == FILES[corpus, name]
    config = tomllib.loads((tmp_path / "my.toml").read_text())
    source = config["source"] if "source" in config else config.get("sources", [config])[0]
    assert source.get("format", facts["format"]) == facts["format"]
    if corpus == "instruction-rubrics":
        assert source["language"] == ("zh" if file.name == "sounds.csv" else "en")
        assert source["domain"] == ("sound" if facts["format"] in ("audiocaps", "clotho") else "music")


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("row", ['{{"audio_a": "{0}/a.wav", "audio_b": "b.wav", "text": "x", "alignment": "a"}}\n',
                                 "first_clip,second_clip,winner\n{0}/a.wav,{0}/b.wav,a\n"])  # fmt: skip
def test_clips_that_lie_beside_votes_are_measured(row: str, there: bool, tmp_path: Path) -> None:
    votes = tmp_path / ("votes.jsonl" if row.startswith("{") else "votes.csv")
    votes.write_text(row.format("clips"))
    if there:
        shutil.copytree(DEMO / "music/clips", tmp_path / "clips")
        (tmp_path / "clips/a.wav").write_bytes(b"RIFF")
    init("human-preferences", votes, tmp_path / "my.toml", "--json")
    assert tomllib.loads((tmp_path / "my.toml").read_text()).get("audio", "none") == ("index" if there else "none")


def test_a_text_before_a_clips_name_is_no_path(tmp_path: Path) -> None:
    """CMI-Pref's prompts may end in the name of a reference."""
    row = {
        "audio-path": "a.wav",
        "audio2": "b.wav",
        "prompt": "像，" * 200 + "ref.mp3",
        "preference-musicality": "model_a",
    }
    (tmp_path / "v.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    assert json.loads(init("human-preferences", tmp_path / "v.jsonl", tmp_path / "my.toml", "--json"))["rows"] == 1


@pytest.mark.slow
def test_the_config_that_is_written_plans_a_build(tmp_path: Path) -> None:
    shutil.copytree(DEMO / "rubrics/audio", tmp_path / "lists", dirs_exist_ok=True)
    shutil.copy(DEMO / "rubrics/music.csv", tmp_path / "lists/music.csv")
    output = init("instruction-rubrics", tmp_path / "lists/music.csv", tmp_path / "configs.toml")
    assert "rows: " in output
    words = ["build", "instruction-rubrics", "--config", str(tmp_path / "configs.toml"), "--dry-run", "--json"]
    run = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")])
    assert run.exit_code == 0, (run.output, run.exception)
    assert json.loads(run.stdout)["asks"]["stage"] == "verify"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "file", "beside"),
    [
        ("pseudo-preferences", "music/generations.jsonl", 'prompts = "lists/prompts.jsonl"'),
        ("score-questions", "forum/RS_2014.ndjson", 'comments = ["lists/RC_2014.ndjson"]'),
    ],
)
def test_a_second_file_is_found_beside(corpus: str, file: str, beside: str, tmp_path: Path) -> None:
    shutil.copytree(DEMO / file.split("/")[0], tmp_path / "lists")
    init(corpus, tmp_path / "lists" / Path(file).name, tmp_path / "my.toml")
    assert f"\n{beside}   # the file whose name is most alike, check it\n" in (tmp_path / "my.toml").read_text()
    words = ["build", corpus, "--config", str(tmp_path / "my.toml"), "--dry-run", "--json"]
    run = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")])
    assert run.exit_code == 0, (run.output, run.exception)
    assert json.loads(run.stdout)["would_commit"] == "v1"


@pytest.mark.parametrize(("forums", "most"), [(["piano", "guitar", "guitar"], ["guitar"]), ([None], [])])
def test_the_subreddit_is_that_of_most_first_rows(forums: list[str | None], most: list[str], tmp_path: Path) -> None:
    rows = [{"id": f"o{n}", "title": "Which chord?", "subreddit": forum} for n, forum in enumerate(forums)]
    (tmp_path / "RS.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "RC.ndjson").write_text('{"id": "c0", "body": "The tonic."}\n')
    init("score-questions", tmp_path / "RS.ndjson", tmp_path / "my.toml")
    assert tomllib.loads((tmp_path / "my.toml").read_text())["source"]["subreddits"] == most


def test_what_cannot_be_told_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = find_corpus("instrumentals")
    monkeypatch.setattr(
        init_layouts,
        "find_corpus",
        lambda name: replace(known, start=None) if name == known.name else find_corpus(name),
    )
    table = DEMO / "votes/table.csv"
    for corpus, file, message in (
        ("human-preferences", DEMO / "tracks/tracks.tsv", "tracks.tsv: expected rows in one of the layouts cmi-pref, "),
        ("music-prompts", table, "table.csv: expected rows in one of the layouts mtg-jamendo; none takes half of "),
        (
            "pseudo-preferences",
            table,
            f"no file of prompts in {table.parent}; expected one with 'prompt' in its name; --from names the "
            "generations (columns generation_id, prompt_id, model, audio), and table.csv has ",
        ),
        (
            "score-questions",
            table,
            f"no file of comments in {table.parent}; expected one that begins with RC or has 'comment' in its name; ",
        ),
        (
            "instrumentals",
            table,
            "init instrumentals: no layouts known for this corpus; its config: `earmark init instrumen",
        ),
        ("captions", DEMO, "expected a file, found a folder"),
        ("captions", tmp_path / "none.tsv", "expected a file, found none"),
    ):
        line = init(corpus, file, tmp_path / "my.toml", code=1)
        assert message in line
        assert "\n" not in line
        assert not (tmp_path / "my.toml").exists()
    assert "As votes: " in init("human-preferences", DEMO / "tracks/tracks.tsv", tmp_path / "my.toml", code=1)


def test_a_source_keeps_what_its_names_say_apart_from_the_config(tmp_path: Path) -> None:
    file = tmp_path / 'a" ]\nname = "x.tsv'
    file.write_bytes((DEMO / "tracks/tracks.tsv").read_bytes())
    init("captions", file, tmp_path / "my.toml")
    config = tomllib.loads((tmp_path / "my.toml").read_text())
    assert config["source"]["tracks"] == file.name


def test_an_encoding_is_refused_where_no_list_of_ratings_is_read(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("audio_a,audio_b,preference\na.wav,b.wav,a\n")
    said = init("human-preferences", tmp_path / "votes.csv", tmp_path / "my.toml", "--encoding", "latin-1", code=1)
    assert "--encoding: expected with mos-preferences alone" in said


def test_a_layout_in_another_encoding_is_named_with_its_line(tmp_path: Path) -> None:
    text = "audiocap_id,youtube_id,start_time,caption\n1,a,30,A café\n2,b,30,A café\n"
    (tmp_path / "val.csv").write_bytes(text.encode("latin-1"))
    said = init("instruction-rubrics", tmp_path / "val.csv", tmp_path / "my.toml", code=1)
    assert "As audiocaps: line 2: expected UTF-8, found byte 0xe9" in said


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_with_a_column_of_audio_is_not_taken_for_wavcaps(ending: str, tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "audio": f"a/{n}.wav", "caption": f"A bell {n}."} for n in range(9)]
    mark = "\t" if ending == "tsv" else ","
    plain = [mark.join(rows[0]), *(mark.join(row.values()) for row in rows)]
    lines = [json.dumps(row) for row in rows] if ending == "jsonl" else plain
    (tmp_path / f"t.{ending}").write_text("\n".join(lines) + "\n")
    said = init("instruction-rubrics", tmp_path / f"t.{ending}", tmp_path / "my.toml", code=1)
    assert "As table" in said
    assert "expected a column 'text', found none; its columns are 'id', 'audio', 'caption'" in said
    (tmp_path / f"t.{ending}").write_text("\n".join(lines).replace("caption", "text") + "\n")
    init("instruction-rubrics", tmp_path / f"t.{ending}", tmp_path / "my.toml")
    assert tomllib.loads((tmp_path / "my.toml").read_text())["sources"][0]["format"] == "table"


def test_wavcaps_is_told_by_its_json(tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "caption": f"A bell {n}.", "duration": 3.0} for n in range(9)]
    (tmp_path / "bbc.json").write_text(json.dumps({"num_captions_per_audio": 1, "data": rows}))
    init("instruction-rubrics", tmp_path / "bbc.json", tmp_path / "my.toml")
    assert tomllib.loads((tmp_path / "my.toml").read_text())["sources"][0]["format"] == "wavcaps"
