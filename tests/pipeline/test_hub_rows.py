"""A split on the Hub as rows: streamed by `datasets` from a server that speaks the Hub's protocol."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from earmark.schemas.errors import InputError
from earmark.schemas.places import place_of, rows_parts, url_fault, url_of
from earmark.tasks.pipeline.hub_rows import _embedded_file, _plain
from earmark.tasks.pipeline.mirror import bring_folder
from earmark.tasks.store.versions import open_store
from tests.builds import rows_of
from tests.flows.test_cli import environment
from tests.pipeline.test_hub_inputs import hub
from tests.pseudo_preferences.music import write_clip
from tests.servers.hub import READER, HubServer

__all__ = ["hub"]  # a fixture

REPO = "lab/study"
CONFIG = """corpus = "mos-preferences"
audio = "index"
[[sources]]
name = "lab"
format = "table"
root = "hf-rows://lab/study@main/rated"
files = { train = "train.jsonl" }
columns = { file = "audio", mos = "score", system = "system" }
"""


def clips(folder: Path, count: int) -> list[bytes]:
    for number in range(count):
        write_clip(folder / f"{number}.wav", number)
    return [(folder / f"{number}.wav").read_bytes() for number in range(count)]


def table(sounds: list[bytes | None], scores: list[float | None]) -> bytes:
    """A Parquet file with a column of audio as `datasets` writes it."""
    audio = [
        None if sound is None else {"bytes": sound, "path": f"/home/her/{at}.wav"} for at, sound in enumerate(sounds)
    ]
    columns = {
        "audio": pa.array(audio, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "score": pa.array(scores, pa.float64()),
        "system": pa.array([f"s{at % 2}" for at in range(len(sounds))]),
    }
    kinds = {"audio": {"_type": "Audio"}, "score": {"dtype": "float64", "_type": "Value"}}
    kinds["system"] = {"dtype": "string", "_type": "Value"}
    metadata = {"huggingface": json.dumps({"info": {"features": kinds}})}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


CARD = b"""---
configs:
- config_name: rated
  data_files:
  - split: train
    path: rated/train*.parquet
  - split: test
    path: rated/test.parquet
---
"""


JSON_CARD = CARD.split(b"  - split: test")[0].replace(b"train*.parquet", b"train.jsonl") + b"---\n"


def lines(*cells: str) -> bytes:
    """A split of JSON lines, whose cells of sound are texts."""
    return b"".join(json.dumps({"audio": cell, "score": 2.0, "system": "s"}).encode() + b"\n" for cell in cells)


def earmark(folder: Path, hub: HubServer, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a person with that Hub does."""
    home = {
        "EARMARK_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "hf"),
        "EARMARK_STORE": str(folder / "store"),
    }
    return subprocess.run(
        [sys.executable, "-m", "earmark", *words],
        env={**environment(folder / "store"), "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": READER, **home},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
    )


@pytest.mark.slow
def test_a_split_is_built_from_and_its_sounds_are_files_once(hub: HubServer, tmp_path: Path) -> None:
    one, two, three, four = clips(tmp_path, 4)
    parts = {
        "README.md": CARD,
        "rated/train-0.parquet": table([one, two, None], [1.5, 4.0, 2.0]),
        "rated/train-1.parquet": table([three, one], [3.0, 2.5]),
        "rated/test.parquet": table([four], [1.0]),
    }
    commit = hub.add_commit(REPO, dict(parts))
    (tmp_path / "build.toml").write_text(CONFIG)
    place = tmp_path / f"cache/inputs/hf-rows/{REPO}@main/rated"
    (place / "train").mkdir(parents=True)
    for part in (".train.jsonl.7-7.tmp", f"train/.{'0' * 64}.wav.7-7.tmp"):
        (place / part).write_text("of a build that was killed")
    build = ["build", "mos-preferences", "-c", str(tmp_path / "build.toml"), "--allow-rejects"]
    ended = earmark(tmp_path, hub, *build)
    assert ended.returncode == 0, ended.stderr
    version = open_store(str(tmp_path / "store")).find("mos-preferences")
    assert sorted((row["mos"], row["clip_sha256"]) for row in rows_of(version, "ratings")) == sorted(
        (score, hashlib.sha256(sound).hexdigest()) for score, sound in ((4.0, two), (3.0, three))
    )
    assert len(rows_of(version, "rejects")) == 3, "a row without sound, and both of a sound that two systems made"
    assert version.manifest.commits == {f"hf://datasets/{REPO}@main": commit}
    assert not list(place.rglob("*.tmp"))
    assert {path.name for path in (place / "train").iterdir()} == {
        f"{hashlib.sha256(sound).hexdigest()}.wav" for sound in (one, two, three)
    }
    assert not (place / "test").exists(), "only the split that is named"

    fetched = hub.asked["resolve"]
    assert "already up to date: v1" in earmark(tmp_path, hub, *build).stdout
    assert hub.asked["resolve"] == fetched, "the commit is the same: nothing is read again"
    next((place / "train").iterdir()).unlink()
    assert "already up to date: v1" in earmark(tmp_path, hub, *build).stdout, "a sound that was lost comes again"
    assert len([*(place / "train").iterdir()]) == 3
    hub.add_commit(REPO, {"rated/train-1.parquet": table([three, one], [5.0, 2.5])})
    assert earmark(tmp_path, hub, *build).returncode == 0
    newest = open_store(str(tmp_path / "store")).find("mos-preferences")
    assert newest.name == "v2"
    assert 5.0 in {row["mos"] for row in rows_of(newest, "ratings")}


@pytest.mark.slow
def test_only_the_config_says_what_is_streamed_and_from_where(hub: HubServer, tmp_path: Path) -> None:
    cells = ("audio/clip.wav", "clip.wav", "train/my clip.wav", "test.jsonl", f"test/{'0' * 64}.wav")
    here = {"README.md": JSON_CARD, "rated/train.jsonl": lines(*cells)}
    hub.add_commit(REPO, {**here, "rated/test.jsonl": lines("test.wav")})
    (tmp_path / REPO / "rated").mkdir(parents=True)
    for path in here:
        (tmp_path / REPO / path).write_bytes(here[path].replace(b"clip.wav", b"of-this-folder.wav"))
    (tmp_path / "build.toml").write_text(CONFIG)
    build = ("build", "mos-preferences", "-c", "build.toml", "--allow-rejects")
    ended = earmark(tmp_path, hub, *build, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    rejects = rows_of(open_store(str(tmp_path / "store")).find("mos-preferences"), "rejects")
    assert {row["reason"] for row in rejects} == {"file_missing"}
    assert len(rejects) == len(cells)
    place = tmp_path / f"cache/inputs/hf-rows/{REPO}@main/rated"
    assert [json.loads(line)["audio"] for line in (place / "train.jsonl").read_text().splitlines()] == [*cells]
    assert not (place / "test.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "files", "message"),
    [
        (JSON_CARD, {"study.py": b"print(1)"}, "Dataset scripts are no longer supported"),
        (JSON_CARD.replace(b".jsonl", b".tar"), {"rated/train.tar": b"broken" * 400}, "invalid header"),
        (JSON_CARD.replace(b".jsonl", b".jsonl.gz"), {"rated/train.jsonl.gz": b"\x1f\x8b\x08\x00broken"}, "file ended"),
    ],
)
def test_what_cannot_be_read_ends_in_one_line(
    card: bytes, files: dict[str, bytes], message: str, hub: HubServer, tmp_path: Path
) -> None:
    hub.add_commit(REPO, {"README.md": card, **files})
    (tmp_path / "build.toml").write_text(CONFIG)
    ended = earmark(tmp_path, hub, "build", "mos-preferences", "-c", str(tmp_path / "build.toml"))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert "/rated/train.jsonl: expected a configuration and split that can be read, found: " in line
    assert message in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("root", "split", "message"),
    [
        ("lab/study@main/rated", "audio", "no split 'audio' in configuration 'rated'; there are: train, test"),
        ("lab/study@main/other", "train", "no configuration 'other'; there are: rated"),
        ("lab/study@main", "train", "`root` ends with the configuration, often `default`"),
        ("lab/study@main/rated/train.jsonl", "train", "`files` names the split"),
        ("lab/none@main/rated", "train", "expected a data set and a revision that the token may read"),
        ("lab/study@v9/rated", "train", "expected a data set and a revision that the token may read"),
    ],
)
def test_what_is_not_there_ends_in_one_line(
    root: str, split: str, message: str, hub: HubServer, tmp_path: Path
) -> None:
    parts = dict.fromkeys(("rated/train-0.parquet", "rated/test.parquet"), table(clips(tmp_path, 1), [2.0]))
    hub.add_commit(REPO, {"README.md": CARD, **parts})
    config = CONFIG.replace("train.jsonl", f"{split}.jsonl").replace("lab/study@main/rated", root)
    (tmp_path / "build.toml").write_text(config)
    ended = earmark(tmp_path, hub, "build", "mos-preferences", "-c", str(tmp_path / "build.toml"))
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert message in line
    assert "Traceback" not in ended.stderr


@pytest.mark.models  # `datasets` lists a folder of audio with torchcodec alone
def test_a_folder_of_audio_is_a_split_too(hub: HubServer, tmp_path: Path) -> None:
    one, two = clips(tmp_path, 2)
    listed = b"file_name,score,system\na.wav,1.5,x\nb.wav,4.0,y\n"
    hub.add_commit(REPO, {"data/train/metadata.csv": listed, "data/train/a.wav": one, "data/train/b.wav": two})
    (tmp_path / "build.toml").write_text(CONFIG.replace("main/rated", "main/default"))
    ended = earmark(tmp_path, hub, "build", "mos-preferences", "-c", str(tmp_path / "build.toml"))
    assert ended.returncode == 0, ended.stderr
    rows = rows_of(open_store(str(tmp_path / "store")).find("mos-preferences"), "ratings")
    assert {row["clip_sha256"] for row in rows} == {hashlib.sha256(sound).hexdigest() for sound in (one, two)}


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "hf://datasets/lab/other@1/x",
        "hf://datasets/lab/study@2/x",
        "x.wav",
        None,
        "hf://datasets/lab/study@1/../../x",
        "file://secret.wav::hf://datasets/lab/study@1/x",
    ],
)
def test_a_row_cannot_have_a_file_read_that_is_not_its_own(path: str | None, tmp_path: Path) -> None:
    assert _embedded_file(None, path, tmp_path / "train", "datasets/lab/study@1/") is None
    assert not (tmp_path / "train").exists()


@pytest.mark.parametrize(
    ("cell", "plain"),
    [
        ({"bytes": 12, "path": "x.wav"}, {"bytes": 12, "path": "x.wav"}),
        ({"bytes": "text", "path": "x"}, {"bytes": "text", "path": "x"}),
        ({"bytes": b"RIFF", "path": 1}, {"bytes": None, "path": 1}),
        ([b"\x00", float("nan"), "text"], [None, None, "text"]),
    ],
)
def test_what_is_no_sound_is_told_as_json_can(cell: object, plain: object, tmp_path: Path) -> None:
    assert _plain(cell, tmp_path / "train", "datasets/lab/study@1/") == plain
    assert not (tmp_path / "train").exists()


def test_embedded_bytes_go_nowhere_else(tmp_path: Path) -> None:
    for path, ending in (
        ("../../x.sh", "sh"),
        ("a/../../b", "bin"),
        ("x.toolong", "bin"),
        ("x.W\u00c4V", "bin"),
        (None, "bin"),
    ):
        name = _embedded_file(b"bytes", path, tmp_path / "train", "datasets/lab/study@1/")
        assert name == f"train/{hashlib.sha256(b'bytes').hexdigest()}.{ending}"
    assert {path.parent for path in tmp_path.rglob("*.*")} == {tmp_path / "train"}
    assert (_embedded_file(b"fLaC...", "x.wav", tmp_path / "train", "o") or "").endswith(".flac")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("hf-rows://lab/study@v1/default/train.jsonl", ("lab/study", "v1", "default", "train")),
        ("hf-rows://lab/study/a.b-c/test.clean.jsonl", ("lab/study", "main", "a.b-c", "test.clean")),
        (f"hf-rows://lab/study@x/default/train/{'0' * 64}.wav", ("lab/study", "x", "default", "train")),
        ("hf-rows://lab/study@v1/default", None),
        ("hf-rows://lab/study@v1", None),
        ("hf-rows://lab/study@v1/default/train", None),
        ("hf-rows://lab/study@v1/default/train.jsonl/train.jsonl", None),
    ],
)
def test_a_url_of_rows(url: str, parts: tuple[str, ...] | None) -> None:
    assert rows_parts(url) == parts
    assert url_of(place_of(url)) == url
    assert url_fault(url) is None


@pytest.mark.parametrize(
    "url", ["hf-rows://lab", "hf-rows://../lab/x/train.jsonl", "hf-rows://lab/study/../train.jsonl", "hf-rows://lab/study//x",
            "hf-rows://u:pw@lab/study/x", "hf-rows://lab/study/x?token=pw"],
)  # fmt: skip
def test_what_is_no_url_of_rows(url: str) -> None:
    fault = url_fault(url)
    assert fault is not None
    assert fault.startswith("expected hf-rows://owner/name@revision/config/split.jsonl")
    assert "pw" not in fault


def test_rows_are_no_folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path))
    with pytest.raises(InputError, match='format = "table"'):
        bring_folder(place_of("hf-rows://lab/study/default"))
