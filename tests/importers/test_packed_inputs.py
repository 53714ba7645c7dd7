"""Archives, and tables that hold the clips themselves: refused in a line that says how to unpack them."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError
from earmark.schemas.files import source_root
from earmark.schemas.reasons import Note, Reject
from earmark.schemas.toml import parse_config
from earmark.tasks.importers.lists import ListFile
from earmark.tasks.importers.table import read_table
from earmark.tasks.importers.tracks import read_track_table
from earmark.tasks.pipeline.inputs import inputs_of
from earmark.tasks.pipeline.registry import find_corpus
from tests.conftest import ROOT
from tests.importers.reading import read
from tests.importers.test_guessing import init as init_ratings
from tests.importers.test_guessing import told

WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(28)
SHOWN = "flows/topics/mos_preferences/lists.md"


def packed(path: Path) -> None:
    """Write an archive of a list and a clip, of the form that its name says."""
    files = {"ratings.csv": b"file,score\na.wav,3\n", "a.wav": WAV}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return
    mode: Any = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2"}.get(path.suffix, "w")
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            (entry := tarfile.TarInfo(name)).size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize("corpus", ["mos-preferences", "human-preferences", "captions", "instruction-rubrics"])
@pytest.mark.parametrize("name", ["a.tar", "a.zip", "a.tgz", "a.tar.gz", "a.tar.xz", "a.tar.bz2", "list.csv"])
def test_an_archive_is_to_be_unpacked(name: str, corpus: str, tmp_path: Path) -> None:
    packed(tmp_path / ("a.tar" if name == "list.csv" else name))
    if name == "list.csv":  # an archive by its content, whatever its name
        (tmp_path / "a.tar").rename(tmp_path / name)
    words = ["init", corpus, "--from", str(tmp_path / name), "--out", str(tmp_path / "my.toml")]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 1
    assert str(run.exception).startswith(
        f"{name}: expected a table, found an archive: unpack it first (tar -xf, unzip)"
    )
    assert not (tmp_path / "my.toml").exists()


@pytest.mark.parametrize("name", ["a.zip", "a.tar/clips"])
def test_clips_in_an_archive_are_refused_before_any_row(name: str, tmp_path: Path) -> None:
    for one in ("a.zip", "a.tar"):
        packed(tmp_path / one)
    (tmp_path / "r.csv").write_text("file,score\n" + "".join(f"c{n}.wav,{n % 5 + 1}\n" for n in range(9)))
    source = {"name": "x", "format": "table", "files": {"train": "r.csv"}, "scale": [1, 5], "audio_root": name}
    source["columns"] = {"file": "file", "mos": "score"}
    known = find_corpus("mos-preferences")
    config = parse_config(known.config, {"audio": "index", "sources": [source]}, tmp_path / "my.toml")
    with pytest.raises(InputError, match=r"found a file, a\.(zip|tar): unpack an archive first .* audio_root"):
        list(inputs_of(known, config))


def test_a_folder_that_is_not_there_yet_is_none_in_an_archive(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "missing", "missing/below"):
        assert source_root(tmp_path / name).folder == tmp_path / name


SOUNDS = {
    "struct": [{"bytes": WAV + bytes([n // 2]), "path": f"c{n // 2}.wav"} for n in range(24)],
    "nameless": [{"bytes": WAV + bytes([n // 2]), "path": None} for n in range(24)],
    "bytes": [WAV + bytes([n // 2]) for n in range(24)],
}


def sounding(path: Path, form: str, **more: list[Any]) -> Path:
    """Write a Parquet with the clips in it."""
    rows = {"score": [1 + n % 5 for n in range(24)], "listener": [f"l{n % 2}" for n in range(24)], **more}
    pq.write_table(pa.table({"audio": SOUNDS[form], **rows}), path)
    return path


@pytest.mark.parametrize("corpus", ["mos-preferences", "human-preferences", "captions", "pseudo-preferences"])
@pytest.mark.parametrize("form", SOUNDS)
def test_a_table_of_the_clips_themselves_is_to_be_written_to_files(form: str, corpus: str, tmp_path: Path) -> None:
    names = [f"c{n // 2}.wav" for n in range(24)]
    table = sounding(tmp_path / "t.parquet", form, name=names, track_id=[*map(str, range(24))])
    for name in names:  # files of these names may be others
        (tmp_path / name).write_bytes(WAV)
    run = CliRunner().invoke(app, ["init", corpus, "--from", str(table), "--out", str(tmp_path / "my.toml")])
    held = "audio" if form == "bytes" else "audio.bytes"
    assert f"t.parquet: expected a table that names audio files, found their bytes in {held}: " in str(run.exception)
    assert SHOWN in str(run.exception)


NESTED: dict[str, tuple[str, Any]] = {  # where the bytes are, and a clip's cell
    "list": ("audio", lambda clip: [clip["bytes"]] * 2),
    "list-of-structs": ("audio.bytes", lambda clip: [clip, clip]),
    "struct-in-struct": ("audio.sample.bytes", lambda clip: {"sample": clip, "text": "x"}),
    "list-in-struct": ("audio.clips.bytes", lambda clip: {"clips": [clip]}),
    "late": ("audio.bytes", lambda clip: clip if clip["path"] == "c11.wav" else None),
}


@pytest.mark.parametrize("form", NESTED)
def test_clips_deep_in_a_cell_or_far_down_are_found(form: str, tmp_path: Path) -> None:
    held, cell = NESTED[form]
    rows = {"score": [1 + n % 5 for n in range(24)], "file": [f"c{n // 2}.wav" for n in range(24)]}
    pq.write_table(pa.table({**rows, "audio": [cell(clip) for clip in SOUNDS["struct"]]}), tmp_path / "t.parquet")
    words = ["init", "mos-preferences", "--from", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "my.toml")]
    run = CliRunner().invoke(app, words)
    assert f"t.parquet: expected a table that names audio files, found their bytes in {held}: " in str(run.exception)


@pytest.mark.parametrize("column", ["text", "name"])
def test_bytes_that_are_no_sounds_are_cells(column: str, tmp_path: Path) -> None:
    names = [f"c{n // 2}.wav".encode() for n in range(24)]  # as older writers of Parquet store texts
    rows = {"score": [1 + n % 5 for n in range(24)], column: [f"{n}".encode() for n in range(24)], "file": names}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    told(tmp_path / "t.parquet", tmp_path / "my.toml", "--json")


def test_a_build_refuses_bytes_without_names_and_says_which_are_not_read(tmp_path: Path) -> None:
    def rows(form: str, column: str) -> list[Any]:
        sounding(tmp_path / "t.parquet", form)
        return list(read_table(ListFile(tmp_path / "t.parquet", "s/t.parquet", "", "parquet"), (column, "score")))

    with pytest.raises(InputError, match=rf"expected names in audio.path, found bytes alone in audio.bytes: .*{SHOWN}"):
        rows("nameless", "audio.path")
    (_, note), *read = rows("struct", "audio.path")
    assert isinstance(note, Note)
    assert note.text == "s/t.parquet: clips are the files that audio.path names; bytes in audio.bytes are not read"
    assert [(line, *cells) for line, cells in read] == [(n + 1, f"c{n // 2}.wav", 1 + n % 5) for n in range(24)]


def test_a_track_of_bytes_is_no_name(tmp_path: Path) -> None:
    sounding(tmp_path / "t.parquet", "struct", track_id=[*map(str, range(24))])
    rows = list(read_track_table(tmp_path / "t.parquet", "t.parquet"))
    details = {row.detail for row in rows if isinstance(row, Reject)}
    assert len(rows) == 24
    assert details == {
        f"expected a file, found its bytes: write them to files, as {SHOWN} shows, and name these in the table"
    }


def test_a_layout_of_its_own_reads_the_name_beside_the_bytes(tmp_path: Path) -> None:
    sounding(tmp_path / "t.parquet", "struct")
    rows = read_table(ListFile(tmp_path / "t.parquet", "t.parquet", "", "parquet"), ("score",), ("audio",))
    assert [cells[1]["path"] for _, cells in rows if isinstance(cells, tuple)] == [f"c{n // 2}.wav" for n in range(24)]


def test_a_published_layout_that_reads_names_beside_bytes_is_still_proposed(tmp_path: Path) -> None:
    rows = {name: [1.0 + n % 5 for n in range(24)] for name in ("overall quality", "textual alignment")}
    names = [f"audiomos2025-track1-S{n % 4:03}_P{n:03}.wav" for n in range(24)]
    (tmp_path / "data").mkdir()
    audio = [{"bytes": WAV, "path": name} for name in names]
    pq.write_table(pa.table({"audio": audio, **rows}), tmp_path / "data/train-00000-of-00001.parquet")
    table = tmp_path / "data/train-00000-of-00001.parquet"
    words = ["init", "human-preferences", "--from", str(table), "--out", str(tmp_path / "my.toml"), "--json"]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 0, run.exception
    assert 'format = "musiceval"' in (tmp_path / "my.toml").read_text()


def test_the_guides_lines_write_clips_to_files_that_a_build_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / SHOWN).read_text("utf-8"), re.DOTALL)
    assert len(code) == 1
    sounding(tmp_path / "hub.parquet", "nameless")
    monkeypatch.chdir(tmp_path)
    exec(code[0], {})
    init_ratings(tmp_path / "ratings.parquet", tmp_path / "my.toml")
    source = {"format": "table", "files": {"train": "ratings.parquet"}, "scale": [1, 5]}
    got = read(tmp_path, **source, columns={"file": "audio", "mos": "score", "listener": "listener"})
    contents = [(tmp_path / row.file).read_bytes() for row in got.ratings]
    assert contents == [cell["bytes"] for cell in SOUNDS["nameless"] if isinstance(cell, dict)]
