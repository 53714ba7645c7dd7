"""What a dry run and a build say of bad inputs before anything starts, by the command itself; good ones pass."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from earmark.flows.command import cli, running
from earmark.schemas.errors import Faults
from earmark.schemas.mos_preferences import CORPUS
from earmark.tasks.importers.lines import first_rows
from earmark.tasks.importers.lists import read_source
from earmark.tasks.pipeline.preflight import ROWS, check
from earmark.tasks.pipeline.registry import corpora, find_corpus
from earmark.tasks.store.versions import open_store
from tests.builds import config_of
from tests.conftest import ROOT

COLUMNS = '{ file = "f", mos = "m" }'
WRITER = 'model = "builtin:music-caption-1"'
# Files beside the config by name.
FILES = {
    "good.csv": "f,m\na.wav,3\nb.wav,4\n",
    "empty.csv": "",
    "header.csv": "f,m\n",
    "absolute.csv": "f,m\n/lab/audio/a.wav,3\n/lab/audio/b.wav,4\n",
    "hundred.csv": "f,m\na.wav,81\nb.wav,40\n",
    "votes.csv": "audio_a,audio_b,overall\nx.wav,y.wav,a\n",
    "prompts.jsonl": '{"prompt_id": "p", "text": "a tune"}\n',
    "generations.jsonl": '{"generation_id": "g", "prompt_id": "p", "model": "m", "audio": "clips/none.wav"}\n',
    "tracks.csv": "track_id,audio\n1,tone.wav\n",
    "lost.csv": "track_id,audio\n1,nowhere.wav\n",
    "heads.csv": "track_id,audio\n",
    "jamendo.tsv": "TRACK_ID\tARTIST_ID\tALBUM_ID\tPATH\tDURATION\tTAGS\nt\ta\tb\t1/1.mp3\t3.0\tgenre---rock\n",
    "not.json": "{",
    "captions.txt": "x",
    "captions.csv": "id,audio,text\n",
    "RS.ndjson": '{"id": "a", "title": "A chord"}\n',
    "RC.ndjson": '{"id": "b", "body": "A fourth", "link_id": "t3_a"}\n',
    "none.ndjson": "",
    "broken.zst": "no zstd",
}


def mos(*sources: str, rest: str = "") -> str:
    """A config of tables: each `name = value` line of a source."""
    return rest + "".join(f'\n[[sources]]\nname = "s{n}"\n{text}\n' for n, text in enumerate(sources))


def table(file: str, more: str = "", columns: str = COLUMNS) -> str:
    return f'format = "table"\nfiles = {{ train = "{file}" }}\ncolumns = {columns}\n{more}'


CRITIC = '\n[critiques]\nmodel = "builtin:no-such"\n'
FORUM = '[source]\nsubmissions = ["{}"]\ncomments = ["{}"]\n'
EXAM = "".join(f'\n[{role}]\nmodel = "builtin:score-{role}-1"\n' for role in ("writer", "judge", "labeller"))
BAD: dict[str, tuple[str, str, list[str]]] = {
    "a wrong column": ("mos-preferences", mos(table("good.csv", columns='{ file = "f", mos = "mos" }')),
                       ["s0/good.csv: expected a column 'mos', found none"]),
    "an empty file": ("mos-preferences", mos(table("empty.csv")),
                      ["s0/empty.csv: expected a table, found an empty file"]),
    "a header only": ("mos-preferences", mos(table("header.csv")), ["s0/header.csv: expected rows, found none"]),
    "a wrong folder": ("mos-preferences", mos('format = "bvcc"\nroot = "nowhere"'),
                       ["s0: expected a folder at root = 'nowhere', found nothing there"]),
    "a wrong audio_root": ("mos-preferences", mos(table("absolute.csv", 'audio_root = "audio"')),
                           ["s0/absolute.csv: none of the first 2 rows can be used, 2 are 'path_outside_root'"]),
    "a forgotten scale": ("mos-preferences", mos(table("hundred.csv")),
                          ["'score_out_of_scale': s0/hundred.csv, line 2: expected a score from 1 to 5, found 81"]),
    "missing clips": ("mos-preferences", mos(table("good.csv", 'audio_root = "audio"'), rest='audio = "index"'),
                      ["s0/good.csv: none of the first 2 clips is there, such as "]),
    "an unknown critic": ("mos-preferences", mos(table("good.csv"), rest="") + CRITIC,
                          ["s0/good.csv: none of the first", "annotator 'builtin:no-such': no builtin function"]),
    "all of a config": ("mos-preferences", mos(table("empty.csv"), table("header.csv"), 'format = "nisqa"\nroot = "x"')
                        + CRITIC,
                        ["s0/empty.csv: ", "s1/header.csv: ", "s2: ", "builtin:no-such"]),
    "votes": ("human-preferences", mos('format = "votes"\nfiles = ["votes.csv", "good.csv", "none.csv", "folder"]',
                                       'format = "label-studio"\nfiles = ["not.json"]'),
              ["s0/good.csv: expected a column 'audio_a'", "/none.csv; sources[0].files[2] names it",
               "s0: expected .json files in folder", "s1/not.json: expected JSON"]),
    "swapped tables": ("pseudo-preferences", 'prompts = "generations.jsonl"\ngenerations = "prompts.jsonl"\n'
                       '[judge]\nmodel = "builtin:music-pair-9"',
                       ["generations.jsonl: expected a column 'text'",
                        "prompts.jsonl: expected a column 'generation_id'",
                        "did you mean 'music-pair-2'?"]),
    "clips beside no table": ("pseudo-preferences", 'prompts = "prompts.jsonl"\ngenerations = "generations.jsonl"\n'
                              'known_order = "not.json"\n[judge]\nmodel = "builtin:music-pair-2"',
                              ["generations.jsonl: none of the first 1 clips is there", "known_order: expected JSON"]),
    "captions": ("captions", f'instrumentals = "instrumentals@v9"\n[source]\nname = "t"\ntracks = "tracks.csv"\n'
                 f'tag_map = "not.json"\n[[pipelines]]\nname = "p"\n[pipelines.listen]\n{WRITER}\n',
                 ["no version of 'instrumentals'", "not.json: expected a JSON object"]),
    "another layout": ("captions", f'[source]\nname = "t"\ntracks = "tracks.csv"\n[[pipelines]]\nname = "p"\n'
                       f'[pipelines.listen]\n{WRITER}\n', ["tracks.csv: expected a column 'TRACK_ID'"]),
    "tracks": ("instrumentals", '[source]\nname = "t"\nformat = "table"\ntracks = "heads.csv"',
               ["t: expected rows, found none"]),
    "no separator": ("instrumentals", '[source]\nname = "t"\nformat = "table"\ntracks = "tracks.csv"\n[separator]\n'
                     'model = "m.ckpt"\nconfig = "m.yaml"', ["expected a checkpoint at "]),
    "lost tracks": ("instrumentals", '[source]\nname = "t"\nformat = "table"\ntracks = "lost.csv"',
                    ["t: none of the first 1 clips is there"]),
    "prompts": ("music-prompts", 'tracks = "jamendo.tsv"\nrecalls = "good.csv"\n[[captions]]\nname = "c"\nfile = '
                '"captions.txt"\n[synthesis]\nmodel = "m"\n[models.m]\n'
                'annotator = "openai:m"\napi_key_env = "NOT_BOUND"',
                ["captions.txt: expected captions in a file ending in .json or .tsv",
                 "good.csv: expected a column 'category'",
                 "NOT_BOUND"]),
    "a folder to be heard": ("music-prompts", 'tracks = "jamendo.tsv"\n[verification]\nmodel = "openai:m"\naudio = '
                             '"nowhere"\n[synthesis]\nmodel = "builtin:music-prompt-1"',
                             ["verification.audio: expected a folder, found none"]),
    "rubrics": ("instruction-rubrics", 'sources = [{ name = "a", subset = "s", domain = "music", captions = '
                '"captions.csv" }, { name = "b", subset = "s", domain = "music", captions = "gone.csv" }]\n'
                '[judge]\nmodel = "builtin:rubric-judge-1"\n[writer]\nmodel = "builtin:rubric-writer-1"',
                ["a/captions.csv: expected rows, found none",
                 "/gone.csv; sources[1].captions names it"]),
    "a dump the wrong way round": ("score-questions", FORUM.format("RC.ndjson", "RS.ndjson") + EXAM,
                                   ["RC.ndjson, line 1: expected submissions with 'title'",
                                    "RS.ndjson, line 1: expected comments with 'body'"]),
    "a dump without lines": ("score-questions", 'review = ["good.csv"]\nimages = "pictures"\n'
                             + FORUM.format("none.ndjson", "broken.zst") + EXAM,
                             ["none.ndjson: expected rows, found none", "broken.zst: cannot be read",
                              "images: expected a folder", "good.csv: expected the column 'question_id'"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad inputs, and a config for each entry of `BAD`."""
    place = tmp_path_factory.mktemp("inputs")
    for name, text in FILES.items():
        (place / name).write_text(text)
    for name, (_, text, _) in BAD.items():
        (place / f"{name}.toml").write_text(text)
    (place / "folder").mkdir()
    soundfile.write(place / "tone.wav", 0.5 * np.sin(np.arange(8_000) / 3), 8_000)
    return place


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The command's exit code, and what it says on standard error."""
    monkeypatch.setattr(sys, "argv", ["earmark", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert said.out == ""
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.err


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "build"])
def test_every_fault_is_named_at_once_before_anything_starts(
    bad: str,
    dry: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("a build with bad inputs was started")

    monkeypatch.setattr(running, "start_prefect", started)
    corpus, _, wanted = BAD[bad]
    options = ["--dry-run"] if dry else []
    code, said = run("build", corpus, "-c", folder / f"{bad}.toml", "--store", tmp_path / "store", *options,
                     monkeypatch=monkeypatch, capsys=capsys)  # fmt: skip
    lines = said.splitlines()
    assert code == 1
    assert all(line.startswith("error: ") for line in lines), said
    assert len(lines) == len(wanted), said
    assert all(any(part in line for line in lines) for part in wanted), said
    assert not list((tmp_path / "store").rglob("v1"))


@pytest.mark.parametrize("text", ["most_rejected = 1.0\n{}", "{}"], ids=["most_rejected", "--allow-rejects"])
def test_a_loss_that_is_allowed_is_no_fault(text: str, folder: Path, tmp_path: Path) -> None:
    """What cannot be read at all stays one."""
    lost = table("absolute.csv", 'audio_root = "audio"')
    (tmp_path / "c.toml").write_text(text.format(mos(lost)).replace("absolute.csv", f"{folder}/absolute.csv"))
    (tmp_path / "none.toml").write_text(text.format(mos(lost)).replace("absolute.csv", "gone.csv"))
    store, allow = open_store(str(tmp_path / "store")), text == "{}"
    told = running.forecast_build("mos-preferences", tmp_path / "c.toml", store, allow_rejects=allow)
    assert told["would_commit"] if allow else "'pairs' would be empty" in told["would_stop"]
    with pytest.raises(Faults, match="file not found"):
        running.forecast_build("mos-preferences", tmp_path / "none.toml", store, allow_rejects=allow)


def test_a_version_that_is_not_there_is_missed_in_the_store_itself(folder: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "the-store"))
    with pytest.raises(Faults, match=r"no version of 'instrumentals' in .*/the-store; corpora there: none"):
        running.forecast_build("captions", folder / "captions.toml", store)


def test_rows_that_the_method_leaves_out_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "track3_answer.txt").write_text("VoiceMOS2023Track3-TMHINT_b2_21_02,4.5\n")
    config = config_of(tmp_path, {"name": "s", "format": "vmc23", "root": "."})
    check(CORPUS, config, open_store(str(tmp_path / "store")))


@pytest.mark.parametrize("name", corpora())
def test_the_demo_passes(name: str, tmp_path: Path) -> None:
    corpus = find_corpus(name)
    config = running.read_config(corpus, ROOT / "data/demo" / f"{name}.toml")
    assert corpus.inputs, "a corpus of this house declares its inputs"
    check(corpus, config, open_store(str(tmp_path / "store")))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "csv.gz"])
def test_only_the_first_rows_of_each_file_are_read(ending: str, tmp_path: Path) -> None:
    rows = [{"f": f"{number}.wav", "m": 3} for number in range(ROWS * 3)]
    files: dict[str, Any] = {}
    for split in ("train", "test"):
        path = tmp_path / f"{split}.{ending}"
        files[split] = path.name
        if ending == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
            continue
        lines = [json.dumps(row) for row in rows] if ending == "jsonl" else ["f,m", *(f"{r['f']},3" for r in rows)]
        text = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    config = config_of(tmp_path, {"name": "s", "format": "table", "files": files, "columns": {"file": "f", "mos": "m"}})
    with first_rows(ROWS):
        seen = list(read_source(config.sources[0], config.path))
    assert {row.split for row in seen} == {"train", "test"}
    assert len(seen) <= 2 * ROWS
    assert len(list(read_source(config.sources[0], config.path))) == 6 * ROWS


def test_a_session_with_an_unknown_builtin_leaves_nothing_behind(tmp_path: Path) -> None:
    """The ledger was open when the name was looked up; its tasks were destroyed while they were pending."""
    program = (
        "from earmark.schemas.annotation import AnnotatorConfig\nfrom earmark.tasks.annotation.session import Session\n"
        "try:\n Session(AnnotatorConfig(annotator='builtin:none'), ledger='l.sqlite').__enter__()\n"
        "except Exception as error:\n print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "no builtin function 'none'" in ended.stdout
    assert ended.stderr == ""
